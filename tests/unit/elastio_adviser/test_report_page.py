"""The report as a page: whole, escaped, bounded, and as the text says it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC
from html.parser import HTMLParser
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastio.accounting.history import SampleRun
from elastio.accounting.report import Report
from elastio.accounting.report_render import to_dict
from elastio.accounting.rows import CycleRow, DevicePrices, DeviceSpan
from elastio.units import GIB, MB
from elastio_adviser.page.boost_picture import MOST_BINS, Course, bins, phases, picture, window
from elastio_adviser.page.cost_picture import bars
from elastio_adviser.page.markup import plain, tag, written
from elastio_adviser.page.page_style import STYLE
from elastio_adviser.page.plot import nice
from elastio_adviser.page.report_page import MOST_PICTURES, MOST_ROWS, pictured, to_html
from tests.unit.elastio.test_report import MIDNIGHT, NOON, cycle, refused, report_of, span
from tests.unit.elastio.test_report_render import STEPS

Golden = Callable[[str, str], None]
VOID = {"meta", "br", "hr", "img", "link", "input"}
HOSTILE = "</td><script>alert('1')</script>\x1b[2J & \"quoted\" <b>"
DAY = 86400.0


class Outline(HTMLParser):
    """The page as a browser takes it apart: every element is closed in its order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def priced(first: float, last: float) -> DeviceSpan:
    return replace(span(first, last), prices=DevicePrices("USD", 0.01, 0.04))


def samples(row: CycleRow, dirty: bool = True) -> tuple[SampleRun, ...]:
    """Some load, and a flush: one sample each second."""
    begin = row.started_wall
    return tuple(
        SampleRun(
            begin + second, 1.0, 0, (90 if 20 <= second < 60 else 1) * MB, False,
            max(0, min(second - 20, 80 - second)) * GIB // 20 if dirty else None,
        )
        for second in range(-10, 100)
    )  # fmt: skip


def course(row: CycleRow, until: float, dirty: bool = True) -> Course:
    begin = row.started_wall
    times = {"decided": begin, "boosted": begin + 5, "quiet": begin + 60, "clean": begin + 80, "deleted": begin + 100}
    return Course(row, times, samples(row, dirty), 33.0, until)


def courses(report: Report) -> dict[str, Course]:
    return {b.row.token: course(b.row, report.until) for b in pictured(report)}


def small() -> Report:
    rows = [
        replace(cycle(NOON + n * 4000, NOON + n * 4000 + 100, f"t{n}"), steps=STEPS, peak_dirty_bytes=2 * GIB)
        for n in range(2)
    ]
    failed = replace(rows[1], failure="the disk did not appear")
    return report_of([rows[0], failed, refused(NOON + 9000)], [priced(NOON, MIDNIGHT + 9000)], MIDNIGHT + 9000)


def month(boosts: int) -> Report:
    """A month with that many boosts."""
    every = 30 * DAY / boosts
    rows = [replace(cycle(NOON + n * every, NOON + n * every + 100, f"t{n:05d}"), steps=STEPS) for n in range(boosts)]
    return report_of(rows, [priced(NOON, NOON + 30 * DAY)], NOON + 30 * DAY)


def test_the_page(golden: Golden) -> None:
    report = small()
    page = to_html(report, courses(report), "db-1", "Credits of the backing volume now: 12%.")
    golden("report.html", page.replace(STYLE, "STYLE").replace("><", ">\n<"))


def test_the_page_names_the_time_zone_of_its_times_and_both_where_it_changed() -> None:
    rows = [cycle(NOON + n * 100 * DAY, NOON + n * 100 * DAY + 100, f"t{n}") for n in range(3)]
    report = report_of(rows, [priced(NOON, NOON + 200 * DAY)], NOON + 201 * DAY, ZoneInfo("Europe/Berlin"))
    page = to_html(report, {}, "db-1")
    assert all(name in page for name in ("CET (UTC+0100)", "CEST (UTC+0200)"))


def test_the_page_is_well_formed_and_asks_no_network_and_no_script() -> None:
    report = small()
    page = to_html(report, courses(report), "db-1")
    outline = Outline(page)
    assert page.startswith("<!doctype html>")
    assert outline.tags.count("svg") >= 3
    assert not {"script", "link", "img", "iframe", "object", "use", "image"} & set(outline.tags)
    assert not [name for name, _ in outline.attributes if name.startswith("on") or name in {"src", "href", "style"}]
    assert not re.search(r"https?:|url\(|@import", page)


def test_what_others_wrote_is_shown_and_not_run() -> None:
    rows = [
        replace(
            cycle(NOON, NOON + 100),
            failure=HOSTILE,
            volume_id=HOSTILE,
            trigger=HOSTILE,
            token=HOSTILE,
            currency=HOSTILE,
        )
    ]
    report = report_of(rows, [priced(NOON, NOON + 200)], NOON + 200)
    page = to_html(report, {HOSTILE: course(rows[0], NOON + 200)}, HOSTILE, HOSTILE)
    outline = Outline(page)
    assert not {"script", "b"} & set(outline.tags)
    assert "\x1b" not in page
    assert "alert('1')" in "".join(outline.text)


@given(st.text(), st.text())
def test_any_text_is_the_same_after_a_browser_has_read_it(text: str, value: str) -> None:
    outline = Outline(written(tag("p", text, title=value)))
    assert outline.tags == ["p"]
    assert "".join(outline.text) == f"\n{plain(text)}\n"
    assert dict(outline.attributes) == {"title": plain(value)}


def test_the_figures_are_those_of_the_report() -> None:
    report = small()
    text = " ".join(Outline(to_html(report, courses(report), "db-1")).text)
    for day in to_dict(report)["days"]:
        assert day["day"] in text
        assert f"{day['total_agbs']:,.0f}" in text
    saved = report.vm.saved
    assert saved is not None
    assert f"{saved:.2f} USD" in text
    assert "the disk did not appear" in text
    assert "the quota of volume storage is reached" in text


def test_a_month_with_a_thousand_boosts_is_a_page_of_less_than_a_megabyte() -> None:
    report = month(1000)
    page = to_html(report, courses(report), "db-1")
    outline = Outline(page)
    assert len(page.encode()) < 1_000_000
    assert len([v for k, v in outline.attributes if (k, v) == ("class", "boost")]) == MOST_PICTURES


def test_what_is_too_much_for_the_page_is_counted() -> None:
    report = month(MOST_ROWS + 7)
    page = to_html(report, {}, "db-1")
    assert ">7 earlier ones are left out" in page
    assert 'class="boost"' not in page


def test_without_costs_it_says_so() -> None:
    assert "No costs yet" in to_html(report_of([], [], NOON), {}, "")


def test_dark_colours_hold_on_screens_only() -> None:
    assert "@media screen and (prefers-color-scheme: dark)" in STYLE
    light, dark = (set(re.findall(r"(--\w+):", part)) for part in re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL))
    assert light == dark
    assert set(re.findall(r"var\((--\w+)\)", STYLE)) <= light


# --- pictures ----------------------------------------------------------------------------------------------------


def test_phases_follow_each_other_until_the_end_of_the_bill() -> None:
    row = cycle(NOON, NOON + 100)
    found = [(begin - NOON, end - NOON, name) for begin, end, name in phases(course(row, NOON + 500))]
    assert found == [(0, 5, "attaching"), (5, 60, "boosting"), (60, 80, "flushing"), (80, 100, "detaching")]


@pytest.mark.parametrize(
    ("times", "names"),
    [
        ({}, ["attaching"]),
        ({"boosted": 5.0}, ["attaching", "boosting"]),
        ({"boosted": 5.0, "quiet": 60.0}, ["attaching", "boosting", "flushing"]),
        ({"boosted": 5.0, "detached": 70.0}, ["attaching", "boosting", "detaching"]),
    ],
)
def test_a_phase_that_was_not_reached_is_not_drawn(times: Mapping[str, float], names: list[str]) -> None:
    made = Course(cycle(NOON, NOON + 100), {k: NOON + v for k, v in times.items()}, (), None, NOON + 500)
    assert [name for _, _, name in phases(made)] == names


def test_bins_keep_every_byte_of_their_window() -> None:
    runs = samples(cycle(NOON, NOON + 100))
    found = bins(runs, NOON - 20, NOON + 180)
    step = 200 / len(found)
    assert len(found) <= MOST_BINS
    assert sum((b.total_mb_s or 0.0) * step for b in found) == pytest.approx(sum(r.written_bytes for r in runs) / MB)
    assert found[0].total_mb_s is None
    assert max(b.dirty_gib or 0.0 for b in found) == pytest.approx(1.5)


@given(st.floats(1, 1e6), st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0.1, 4000)), max_size=20))
def test_a_picture_is_bounded_whatever_was_sampled(length_s: float, spans: list[tuple[float, float]]) -> None:
    row = cycle(NOON, NOON + length_s)
    runs = tuple(SampleRun(NOON + begin, seconds, 10, 10, dirty_bytes=1) for begin, seconds in spans)
    drawn = written(picture(Course(row, {}, runs, None, NOON + 2e6), UTC))
    assert len(bins(runs, *window(row, NOON + 2e6))) <= MOST_BINS
    assert "nan" not in drawn
    assert len(drawn) < 40_000


def test_without_a_record_of_dirty_data_its_largest_amount_is_drawn() -> None:
    row = replace(cycle(NOON, NOON + 100), peak_dirty_bytes=2 * GIB)
    assert "not recorded" in written(picture(course(row, NOON + 500, dirty=False), UTC))
    assert "not recorded" not in written(picture(course(row, NOON + 500), UTC))


def test_an_open_boost_is_drawn_until_now() -> None:
    begin, end = window(cycle(NOON, None), NOON + 50)
    assert (begin, end) == (NOON - 10, NOON + 50)


def test_days_are_in_money_where_prices_are_known_else_in_agbs() -> None:
    known = small()
    shown, unit = bars(known.days)
    assert unit == "USD"
    assert sum((b.backing or 0) + (b.caches or 0) for b in shown) == pytest.approx(known.vm.paid)
    shown, unit = bars(report_of([cycle(NOON, NOON + 100)], [span(NOON, NOON + 200)], NOON + 200).days)
    assert (unit, shown[0].backing) == ("AGBs", 33.0 * 50 * 200)


@given(st.floats(1e-9, 1e15))
def test_an_axis_has_at_most_five_steps_and_holds_the_largest_value(most: float) -> None:
    end, step = nice(most)
    assert end >= most * (1 - 1e-6)
    assert round(end / step) <= 5
    assert end < 5 * most


def test_a_command_in_a_sentence_is_shown_as_one() -> None:
    made = report_of([cycle(NOON, NOON + 100)], [span(NOON, NOON + 200)], NOON + 200)
    assert "<code>elastio prices</code>" in to_html(made, {}, "vm")
