"""The cost report: AGBs compared with figures computed by hand, days, gaps, open and rejected cycles."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, tzinfo
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastio.accounting.report import Report, build, coverage, day_start, local_day, split_days
from elastio.accounting.report_render import to_csv, to_dict, to_text
from elastio.accounting.rows import CycleRow, DeviceSpan

GB = 10**9
NOON = datetime(2026, 3, 10, 12, tzinfo=UTC).timestamp()
MIDNIGHT = NOON + 12 * 3600
BERLIN = ZoneInfo("Europe/Berlin")

# Zones whose clocks change at midnight, by half an hour, or that skipped a whole day.
ZONES: list[tzinfo] = [
    UTC,
    *(ZoneInfo(n) for n in ("Europe/Berlin", "America/St_Johns", "Asia/Beirut", "Australia/Lord_Howe", "Pacific/Apia")),
]


def span(first: float, last: float, uuid: str = "dev", size_bytes: int = 50 * GB) -> DeviceSpan:
    return DeviceSpan(uuid, size_bytes, 33.0, 128.0, first, last)


def cycle(begin: float, end: float | None, token: str = "t", size_bytes: int = 10 * GB) -> CycleRow:
    return CycleRow(
        token=token,
        device_uuid="dev",
        trigger="load",
        volume_id="vol-1",
        wanted_size_bytes=size_bytes,
        provisioned_size_bytes=size_bytes,
        bandwidth_mb_s=128.0,
        started_wall=begin,
        opened_wall=begin,
        closed_wall=end,
        currency="USD",
        price_per_hour=3.6,
        minimum_s=60.0,
    )


def refused(at: float) -> CycleRow:
    return replace(
        cycle(at, None),
        token="refused",
        volume_id=None,
        opened_wall=None,
        price_per_hour=None,
        failure="the quota of volume storage is reached",
    )


def report_of(cycles: Sequence[CycleRow], spans: Sequence[DeviceSpan], until: float, tz: tzinfo = UTC) -> Report:
    return build(cycles, spans, 0.0, until, tz)


# --- the published cost model ----------------------------------------------------------------------------


def test_agbs_follow_the_published_formula() -> None:
    # C(t) = Bb*N*t + Bc * sum(M*dx): 33*50*1000 + 128*(10*100 + 4*50) = 1,650,000 + 153,600.
    cycles = [cycle(NOON + 100, NOON + 200), cycle(NOON + 500, NOON + 550, "u", 4 * GB)]
    vm = report_of(cycles, [span(NOON, NOON + 1000)], NOON + 1000).vm
    assert vm.seconds == 1000
    assert vm.backing_agbs == pytest.approx(1_650_000)
    assert vm.cache_agbs == pytest.approx(153_600)
    assert vm.total_agbs == pytest.approx(1_803_600)
    assert vm.static_slow_agbs == pytest.approx(1_650_000)
    assert vm.static_fast_agbs == pytest.approx(128 * 50 * 1000)
    assert vm.of_static_slow_percent == pytest.approx(109.309, abs=1e-3)
    assert vm.of_static_fast_percent == pytest.approx(28.181, abs=1e-3)


def test_boost_is_compared_over_its_own_time() -> None:
    row = replace(cycle(NOON + 100, NOON + 200), opened_wall=NOON + 102)
    boost = report_of([row], [span(NOON, NOON + 1000)], NOON + 1000).boosts[0]
    assert boost.billed_s == 98
    assert boost.cost.seconds == 100  # from the decision on
    assert boost.cost.backing_agbs == pytest.approx(33 * 50 * 100)
    assert boost.cost.cache_agbs == pytest.approx(128 * 10 * 98)
    assert boost.cost.static_fast_agbs == pytest.approx(128 * 50 * 100)


def test_devices_of_one_vm_are_summed() -> None:
    spans = [span(NOON, NOON + 100), span(NOON, NOON + 100, "other")]
    vm = report_of([cycle(NOON, NOON + 10)], spans, NOON + 100).vm
    assert vm.backing_agbs == pytest.approx(2 * 33 * 50 * 100)
    boost = report_of([cycle(NOON, NOON + 10)], spans, NOON + 100).boosts[0]
    assert boost.cost.backing_agbs == pytest.approx(33 * 50 * 10)


# --- currency --------------------------------------------------------------------------------------------


def test_shortest_time_billed_falls_on_the_day_of_the_purchase() -> None:
    days = report_of([cycle(MIDNIGHT - 5, MIDNIGHT + 5)], [span(NOON, MIDNIGHT + 100)], MIDNIGHT + 100).days
    assert [d.cost.cost for d in days] == [pytest.approx(0.060), 0.0]


def test_volume_deleted_in_the_instant_of_its_purchase_is_still_owed() -> None:
    report = report_of([cycle(NOON, NOON)], [span(NOON - 10, NOON + 10)], NOON + 10)
    assert report.vm.cost == pytest.approx(0.060)
    assert report.boosts[0].cost.cost == pytest.approx(0.060)
    assert report.days[0].cost.cost == pytest.approx(0.060)


def test_amounts_of_two_currencies_are_never_added() -> None:
    euros = replace(cycle(NOON + 20, NOON + 30, "e"), currency="EUR")
    report = report_of([cycle(NOON, NOON + 10), euros], [span(NOON, NOON + 100)], NOON + 100)
    assert report.vm.cost is None
    assert report.vm.currency == "EUR and USD"
    assert [p.cost.cost for p in report.boosts] == [pytest.approx(0.060), pytest.approx(0.060)]


# --- days ------------------------------------------------------------------------------------------------


def test_cycle_that_crosses_midnight_is_split_between_the_days() -> None:
    report = report_of([cycle(MIDNIGHT - 100, MIDNIGHT + 300)], [span(NOON, MIDNIGHT + 3600)], MIDNIGHT + 3600)
    assert [d.day for d in report.days] == [date(2026, 3, 10), date(2026, 3, 11)]
    assert [d.cost.cache_agbs for d in report.days] == [pytest.approx(128_000), pytest.approx(384_000)]
    assert [d.cost.seconds for d in report.days] == [12 * 3600, 3600]
    assert [d.cost.cost for d in report.days] == [pytest.approx(0.100), pytest.approx(0.300)]
    assert [d.boosts for d in report.days] == [1, 0]


def test_days_are_local_and_may_have_23_hours() -> None:
    begin = datetime(2026, 3, 28, tzinfo=BERLIN).timestamp()
    end = datetime(2026, 3, 31, tzinfo=BERLIN).timestamp()
    days = report_of([], [span(begin, end)], end, BERLIN).days
    assert [d.day.day for d in days] == [28, 29, 30]
    assert [d.cost.seconds for d in days] == [24 * 3600, 23 * 3600, 24 * 3600]


def test_days_without_anything_are_not_listed() -> None:
    spans = [span(NOON, NOON + 60), span(NOON + 5 * 86400, NOON + 5 * 86400 + 60)]
    days = report_of([], spans, NOON + 9 * 86400).days
    assert [d.day.day for d in days] == [10, 15]


@settings(deadline=None)
@given(
    wall=st.floats(1.0e9, 1.9e9),
    seconds=st.floats(0, 5 * 86400),
    tz=st.sampled_from(ZONES),
)
def test_splitting_by_day_leaves_no_gap(wall: float, seconds: float, tz: tzinfo) -> None:
    pieces = list(split_days(wall, wall + seconds, tz).items())
    edges = [wall, *(end for _, (_, end) in pieces)]
    assert edges[:-1] == [begin for _, (begin, _) in pieces]
    assert edges[-1] == wall + seconds
    for day, (begin, end) in pieces:
        assert day_start(begin, tz) <= begin < end
        assert local_day(begin, tz) == day


@pytest.mark.parametrize("hour_offset", [-2, -1, -0.5, 0, 0.5, 1, 2])
def test_midnight_that_happens_twice_begins_one_day(hour_offset: float) -> None:
    # In St. John's clocks went back from 00:01 to 23:01 of the day before.
    zone = ZoneInfo("America/St_Johns")
    first = datetime(2010, 11, 7, tzinfo=zone).timestamp()
    expected = first if hour_offset >= 0 else first - 86400
    assert day_start(first + hour_offset * 3600, zone) == expected


times = st.floats(1.70e9, 1.7e9 + 20 * 86400)
lengths = st.floats(0, 3 * 86400)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[CycleRow], list[DeviceSpan], float]:
    spans = [
        span(first, first + draw(lengths), draw(st.sampled_from(["dev", "other"])))
        for first in draw(st.lists(times, min_size=1, max_size=6))
    ]
    begins = draw(st.lists(times, max_size=6))
    rows = [
        replace(
            cycle(begin, begin + length if draw(st.booleans()) else None, f"t{i}", draw(st.integers(GB, 99 * GB))),
            opened_wall=draw(st.sampled_from([begin, begin + 1, begin - 1])),
            device_uuid=draw(st.sampled_from(["dev", "other"])),
        )
        for i, (begin, length) in enumerate((b, draw(lengths)) for b in begins)
    ]
    return rows, spans, 1.7e9 + 30 * 86400


@settings(deadline=None)
@given(history=histories(), tz=st.sampled_from(ZONES))
def test_days_and_boosts_add_up_to_the_vm(history: tuple[list[CycleRow], list[DeviceSpan], float], tz: tzinfo) -> None:
    rows, spans, until = history
    report = report_of(rows, spans, until, tz)
    vm, days, boosts = report.vm, report.days, report.boosts
    assert sum(b.cost.cache_agbs for b in boosts) == pytest.approx(vm.cache_agbs)
    assert sum(b.cost.cost or 0 for b in boosts) == pytest.approx(vm.cost or 0)
    assert sum(d.cost.cache_agbs for d in days) == pytest.approx(vm.cache_agbs)
    assert sum(d.cost.backing_agbs for d in days) == pytest.approx(vm.backing_agbs)
    assert sum(d.cost.static_fast_agbs for d in days) == pytest.approx(vm.static_fast_agbs)
    assert sum(d.cost.cost or 0 for d in days) == pytest.approx(vm.cost or 0)
    assert sum(d.boosts for d in days) == len(rows)
    json.dumps(to_dict(report))


@settings(deadline=None)
@given(history=histories(), cut=times)
def test_adjoining_periods_add_up(history: tuple[list[CycleRow], list[DeviceSpan], float], cut: float) -> None:
    rows, spans, until = history
    whole = build(rows, spans, 0.0, until, UTC).vm
    parts = [build(rows, spans, 0.0, cut, UTC).vm, build(rows, spans, cut, until, UTC).vm]
    assert sum(p.cache_agbs for p in parts) == pytest.approx(whole.cache_agbs)
    assert sum(p.backing_agbs for p in parts) == pytest.approx(whole.backing_agbs)
    assert sum(p.cost or 0 for p in parts) == pytest.approx(whole.cost or 0)


@settings(deadline=None)
@given(history=histories())
def test_no_second_of_a_device_is_counted_twice(
    history: tuple[list[CycleRow], list[DeviceSpan], float],
) -> None:
    rows, spans, until = history
    for uuid in ("dev", "other"):
        own = [s for s in coverage(rows, spans, 0.0, until) if s.device_uuid == uuid]
        assert all(a.last_wall <= b.first_wall for a, b in pairwise(own))


# --- what was not seen -----------------------------------------------------------------------------------


def test_time_without_an_agent_is_left_out_of_both_sides() -> None:
    spans = [span(NOON, NOON + 100), span(NOON + 1100, NOON + 1200)]
    report = report_of([], spans, NOON + 1200)
    assert report.vm.seconds == 200
    assert report.vm.static_fast_agbs == pytest.approx(128 * 50 * 200)
    assert report.unobserved_s == 1000


def test_bill_that_ran_on_while_the_agent_was_down_brings_its_time_along() -> None:
    spans = [span(NOON, NOON + 100), span(NOON + 1100, NOON + 1200)]
    report = report_of([cycle(NOON + 50, NOON + 600)], spans, NOON + 1200)
    assert report.vm.cache_agbs == pytest.approx(128 * 10 * 550)
    assert report.vm.seconds == 200 + 500
    assert report.unobserved_s == 500


def test_bill_outside_every_span_is_compared_with_the_device_as_last_seen() -> None:
    spans = [span(NOON, NOON + 100), span(NOON + 100, NOON + 200, size_bytes=80 * GB)]
    boost = report_of([cycle(NOON + 150, None)], spans, NOON + 300).boosts[0]
    assert boost.cost.backing_agbs == pytest.approx(33 * 80 * 150)


def test_cloud_clock_ahead_of_or_behind_ours_loses_no_time() -> None:
    behind = replace(cycle(NOON + 100, NOON + 200), opened_wall=NOON + 98)
    report = report_of([behind], [span(NOON, NOON + 1000)], NOON + 1000)
    assert report.boosts[0].cost.seconds == 102
    deleted_before_opened = replace(behind, closed_wall=NOON + 97)
    assert report_of([deleted_before_opened], [], NOON + 1000).vm.cost == pytest.approx(0.060)


# --- open, refused, nothing ------------------------------------------------------------------------------


def test_open_cycle_is_billed_up_to_now_and_marked_open() -> None:
    report = report_of([cycle(NOON, None)], [span(NOON, NOON + 120)], NOON + 200)
    assert report.boosts[0].billed_s == 200
    assert report.vm.cost == pytest.approx(0.200)
    assert to_dict(report)["phases"][0]["open"] is True
    assert to_dict(report)["phases"][0]["closed"] is None


def test_refused_cycle_is_listed_with_its_failure_and_no_cost() -> None:
    report = report_of([refused(NOON)], [span(NOON, NOON + 100)], NOON + 100)
    boost = to_dict(report)["phases"][0]
    assert boost["failure"] == refused(NOON).failure
    assert (boost["cache_agbs"], boost["backing_agbs"], boost["cost"], boost["billed_s"]) == (0, 0, None, 0)
    assert report.days[0].boosts == 0


def test_no_data_is_one_line_and_an_empty_document() -> None:
    report = report_of([], [], NOON)
    assert len(to_text(report).splitlines()) == 1
    assert to_dict(report)["phases"] == to_dict(report)["days"] == []
    assert to_dict(report)["vm"]["of_static_slow_percent"] is None
    assert len(to_csv(report).splitlines()) == 2


def test_cycle_before_any_span_of_a_device_is_reported_without_comparison() -> None:
    report = report_of([cycle(NOON, NOON + 100)], [], NOON + 100)
    assert report.vm.cache_agbs == pytest.approx(128_000)
    assert report.vm.of_static_fast_percent is None
    assert report.days[0].cost.cache_agbs == pytest.approx(128_000)
