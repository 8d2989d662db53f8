"""The history: which samples are merged, boosts with their gaps, runs in their order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastio.accounting.history import (
    QUIET_UTILIZATION,
    SEAM_S,
    CycleLoad,
    SampleRun,
    joined,
    past_boosts,
    run_of,
    samples,
)
from elastio.accounting.rows import CycleRow
from elastio.core.model import Rates, Sample

from .test_report import cycle as billed

GB = 10**9
MB = 10**6
WALL = 1_770_000_000.0


def run(begun: float, seconds: float = 1.0, written_mb: float = 0.0, read_mb: float = 0.0) -> SampleRun:
    """A run that begins `begun` seconds after WALL; quiet where it moves nothing to speak of."""
    quiet = (written_mb + read_mb) / seconds < 1
    return SampleRun(WALL + begun, seconds, round(read_mb * MB), round(written_mb * MB), quiet)


def merged(runs: list[SampleRun]) -> list[SampleRun]:
    out: list[SampleRun] = []
    for each in runs:
        one = joined(out[-1], each) if out else None
        out[-1:] = [one] if one else [*out[-1:], each]
    return out


# --- runs ------------------------------------------------------------------------------------------------------


def test_a_sample_is_a_run_of_its_bytes() -> None:
    sample = Sample(5.0, 2.0, Rates(read_mb_s=1.5, write_mb_s=30.0), Rates(write_mb_s=99.0))
    made = run_of(sample, WALL, 0.5)
    assert made == SampleRun(WALL - 2, 2.0, 3 * MB, 60 * MB, quiet=False)
    assert (made.read_mb_s, made.write_mb_s, made.ended_wall) == (1.5, 30.0, WALL)
    assert run_of(sample, WALL, QUIET_UTILIZATION / 2).quiet


def test_quiet_neighbours_are_one_and_a_load_keeps_every_sample() -> None:
    runs = [run(0), run(1, written_mb=0.5), run(2, written_mb=60), run(3, written_mb=60), run(4), run(5)]
    assert [(r.begun_wall - WALL, r.seconds, r.written_bytes) for r in merged(runs)] == [
        (0, 2, MB // 2),
        (2, 1, 60 * MB),
        (3, 1, 60 * MB),
        (4, 2, 0),
    ]


@pytest.mark.parametrize(("shift_s", "rows"), [(0.0, 1), (SEAM_S, 1), (SEAM_S + 0.1, 2), (-SEAM_S - 0.1, 2), (60, 2)])
def test_time_that_nobody_saw_is_not_part_of_a_run(shift_s: float, rows: int) -> None:
    assert len(merged([run(0, 10), run(10 + shift_s, 10)])) == rows


@given(st.lists(st.tuples(st.floats(0.2, 90), st.sampled_from([0.0, 0.1, 0.4, 20.0, 60.0])), min_size=1, max_size=60))
def test_merging_loses_no_byte_and_no_second(pieces: list[tuple[float, float]]) -> None:
    runs, at = [], 0.0
    for seconds, mb_s in pieces:
        runs.append(run(at, seconds, written_mb=mb_s * seconds, read_mb=mb_s))
        at += seconds
    made = merged(runs)
    assert sum(r.seconds for r in made) == pytest.approx(at)
    assert sum(r.written_bytes for r in made) == sum(r.written_bytes for r in runs)
    assert sum(r.read_bytes for r in made) == sum(r.read_bytes for r in runs)
    assert [r for r in made if not r.quiet] == [r for r in runs if not r.quiet]


# --- the series of samples -------------------------------------------------------------------------------------


def test_samples_come_in_their_order() -> None:
    assert samples([run(5), run(0), run(3)]) == (run(0), run(3), run(5))


def test_no_second_counts_twice_after_the_clock_was_set_back() -> None:
    cut, later = samples([run(0, 100, written_mb=50), run(75, 10, written_mb=600)])
    assert (cut.seconds, cut.written_bytes) == (75, round(37.5 * MB))
    assert later == run(75, 10, written_mb=600)
    assert samples([run(0, 10), replace(run(0, 5), written_bytes=7)])[-1].written_bytes == 7
    assert len(samples([run(0, 10), run(0, 5)])) == 1


# --- boosts ----------------------------------------------------------------------------------------------------


def cycle(token: str, started: float, device: str = "dev", **changes: object) -> CycleRow:
    row = billed(WALL + started + 1, WALL + started + 100, token)
    plain = replace(row, device_uuid=device, started_wall=WALL + started, wanted_size_bytes=9 * GB)
    return replace(plain, **changes)  # type: ignore[arg-type]


def load(begun: float | None, ended: float | None, written: int = 4 * GB) -> CycleLoad:
    return CycleLoad(GB, written, *(None if t is None else WALL + t for t in (begun, ended)))


def test_boosts_have_their_begin_their_gap_and_their_bytes() -> None:
    cycles = [cycle("b", 1001), cycle("a", 1)]
    first, second = past_boosts(cycles, {"a": load(0, 40), "b": load(1000, 1030, 3 * GB)})
    assert (first.token, first.begun_wall, first.load_s) == ("a", WALL, 40)
    assert (first.period_s, first.gap_s) == (None, None)
    assert (second.token, second.period_s, second.gap_s, second.load_s) == ("b", 1000, 960, 30)
    assert (second.bought_bytes, second.bandwidth_mb_s) == (10 * GB, 128.0)
    assert (second.read_bytes, second.written_bytes) == (GB, 3 * GB)


def test_boosts_of_an_older_ledger_have_a_period_and_no_bytes() -> None:
    first, second = past_boosts([cycle("a", 0), cycle("b", 500)], {})
    assert (first.begun_wall, first.written_bytes, first.load_s) == (WALL, None, None)
    assert (second.period_s, second.gap_s) == (500, None)


def test_a_boost_that_met_no_load_does_not_count_as_a_burst() -> None:
    cycles = [cycle("a", 0), cycle("wrong", 300, trigger="forecast"), cycle("b", 1000)]
    found = past_boosts(cycles, {"a": load(0, 40), "wrong": load(None, None, 0), "b": load(1000, 1040)})
    assert [p.period_s for p in found] == [None, 300, 1000]
    assert found[2].gap_s == 960
    assert found[1].load_s is None


def test_volumes_that_nobody_remembered_are_no_boosts() -> None:
    assert past_boosts([cycle("a", 0, trigger="orphan")], {}) == ()


def test_a_burst_that_was_refused_a_volume_is_a_boost_without_one() -> None:
    (only,) = past_boosts([cycle("a", 0, opened_wall=None, closed_wall=None, failure="quota")], {"a": load(0, 20)})
    assert (only.bought_bytes, only.failure, only.load_s) == (0, "quota", 20)


def test_a_refused_burst_counts_for_the_only_device() -> None:
    refused = cycle("b", 300, "", opened_wall=None, closed_wall=None, failure="quota")
    found = past_boosts([cycle("a", 0), refused, cycle("c", 1000)], {})
    assert [(p.device_uuid, p.period_s) for p in found] == [("dev", None), ("dev", 300), ("dev", 700)]


def test_devices_have_boosts_of_their_own() -> None:
    found = past_boosts([cycle("a", 0), cycle("x", 100, "other"), cycle("b", 500)], {})
    assert [(p.device_uuid, p.period_s) for p in found] == [("dev", None), ("other", None), ("dev", 500)]


def test_a_load_may_begin_before_its_cycle_and_come_back_within_it() -> None:
    seen = CycleLoad()
    for at, begun in ((0, -3.0), (1, -3.0), (2, None), (3, 2.5), (4, None)):
        seen = seen.plus(run(at, written_mb=10, read_mb=1), None if begun is None else WALL + begun)
    assert seen == CycleLoad(5 * MB, 50 * MB, WALL - 3, WALL + 4)
    assert seen.seconds == 7
