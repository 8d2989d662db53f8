"""What two applications got of a device, and which bars that meets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from elastio_testbed.bars import Bar, missed
from elastio_testbed.bars_report import to_text
from elastio_testbed.cli import main
from elastio_testbed.files import json_text
from elastio_testbed.sharing import two_to_one
from elastio_testbed.sharing.applications import UNWEIGHED, WEIGHED, Service, Work
from elastio_testbed.sharing.controls import NONE, SHARES, STRICT
from elastio_testbed.sharing.patterns import FIGURE_4, IN_A_ROW, PATTERNS, PUBLISHED
from elastio_testbed.sharing.turns import (
    Turn,
    mean_mb_s,
    ratio,
    settled,
    share_right,
    total_over,
    turn_of_json,
    windows,
)
from elastio_testbed.sharing.two_to_one import BOOSTED, FLUSHING, SLOW, STATES, bars

C = 16.0
WANTS = (0.2 * C, 0.65 * C)


def turn(pattern: str, mb_s: tuple[float, float], *, control: str = SHARES, state: str = SLOW, count: int = 3) -> Turn:
    wants = WANTS if PATTERNS[pattern].wants else None
    return Turn(state, control, pattern, (mb_s,) * count, wants)


def fair(control: str) -> tuple[float, float]:
    """What both get of an overloaded device."""
    return (C / 2, C / 2) if control == NONE else (C * 2 / 3, C / 3)


def all_turns() -> list[Turn]:
    """As everything is to be."""
    less = {STRICT: (WANTS[0], C / 3)}
    return [
        turn(p.name, less.get(control, WANTS) if p.wants else fair(control), control=control, state=state)
        for state, patterns in STATES.items()
        for control in (NONE, STRICT, SHARES)
        for p in patterns
    ]


def names_missed(turns: list[Turn]) -> list[str]:
    return [bar.name for bar in missed(bars(turns))]


# --- windows -------------------------------------------------------------------------------------------------


def test_windows_begin_when_limits_have_settled_and_a_cut_one_is_left_out() -> None:
    first = {n: 500_000 * (n >= 52) for n in range(100)}  # nothing until 3 s after the begin of the turn at 10 s
    second = dict.fromkeys(range(100), 250_000)
    found = windows([first, second], 10.0, 18.0, 0.25, 2.0)
    assert found == ((2.0, 1.0), (2.0, 1.0))


def test_an_interval_without_requests_counts_as_nothing() -> None:
    assert windows([{12: 2_000_000}, {}], 0.0, 5.0, 0.25, 2.0) == ((1.0, 0.0),)


def test_what_is_flushed_counts_from_when_limits_have_settled() -> None:
    written = {n: 500_000 if 52 <= n < 72 else 9_000_000 for n in range(100)}
    assert mean_mb_s(written, 10.0, 18.0, 0.25) == 2.0


@pytest.mark.parametrize(
    ("window", "is_right"), [((19.0, 10.0), True), ((21.0, 10.0), True), ((18.9, 10.0), False), ((21.1, 10.0), False)]
)
def test_the_band_is_from_1_90_to_2_10(window: tuple[float, float], is_right: bool) -> None:
    assert turn("O-SW", window).is_right(window) is is_right


def test_a_window_in_which_the_second_moved_nothing_is_wrong() -> None:
    idle = turn("O-SW", (10.0, 0.0))
    assert (idle.right, ratio([idle])) == (0, None)


@pytest.mark.parametrize(("second", "is_right"), [(0.98, True), (0.96, False)])
def test_where_the_sum_fits_both_have_to_get_what_they_want_whatever_the_ratio(second: float, is_right: bool) -> None:
    window = (WANTS[0], second * WANTS[1])
    assert turn("U-SW", window).is_right(window) is is_right


def test_figures_over_several_turns() -> None:
    good, bad = turn("O-SW", (20.0, 10.0)), turn("O-SW", (15.0, 15.0), count=1)
    assert share_right([good, bad]) == 0.75
    assert ratio([good, bad]) == 2.0
    assert total_over([good], [turn("O-SW", (12.0, 12.0))]) == 1.25
    assert total_over([replace(good, flushed_mb_s=6.0)], [good]) == pytest.approx(1.2)
    assert total_over([], [good]) is share_right([]) is ratio([]) is None


def test_a_change_is_followed_if_the_first_window_after_it_is_right() -> None:
    late = replace(turn("O-SR", (20.0, 10.0)), windows=((10.0, 10.0), (20.0, 10.0)))
    assert settled([turn("O-SW", (1.0, 1.0)), late, turn("O-SW", (20.0, 10.0))]) == 0.5


# --- bars ----------------------------------------------------------------------------------------------------


def test_all_bars_are_met_where_everything_is_as_it_has_to_be() -> None:
    found = bars(all_turns())
    assert missed(found) == ()
    assert {bar.name.partition(",")[0] for bar in found if ", " in bar.name} == {SLOW, BOOSTED, FLUSHING}
    assert len({bar.name for bar in found}) == len(found)


@pytest.mark.parametrize(
    ("state", "control", "pattern", "mb_s", "name"),
    [
        (SLOW, SHARES, "O-SW", (8.0, 8.0), "slow volume, O-SW: ratio"),
        (BOOSTED, SHARES, "O-RW", (8.0, 8.0), "boosted, O-RW: ratio"),
        (SLOW, SHARES, "O-SR", (9.6, 4.8), "slow volume, O-SR: total over no control"),
        (SLOW, NONE, "O-SRW", (10.6, 5.3), "slow volume, O-SRW: windows within it, no control"),
        (SLOW, SHARES, "U-SW", (3.2, 9.0), "slow volume, U-SW: total over no control"),
        (SLOW, SHARES, "U-SR", (3.0, 10.4), "slow volume, U-SR: what the worse-off application gets of its wish"),
        (SLOW, STRICT, "U-SRW", (3.2, 7.0), "slow volume, U-SRW: total over the strict partition"),
    ],
)
def test_a_bar_is_missed(state: str, control: str, pattern: str, mb_s: tuple[float, float], name: str) -> None:
    turns = [
        replace(t, windows=(mb_s,) * 3) if (t.state, t.control, t.pattern) == (state, control, pattern) else t
        for t in all_turns()
    ]
    assert name in names_missed(turns)


def test_a_bar_for_which_nothing_was_measured_is_missed() -> None:
    turns = [t for t in all_turns() if t.control != NONE]
    assert "slow volume, O-SW: total over no control" in names_missed(turns)


@pytest.mark.parametrize(("measured", "is_met"), [(0.9, True), (0.89, False), (1.1, True), (1.11, False)])
def test_the_ends_of_a_bar_belong_to_it(measured: float, is_met: bool) -> None:
    assert Bar("a", measured, 0.9, 1.1).is_met is is_met


def test_published_figures_are_those_of_the_tables() -> None:
    strict = {name: sum(p.shares) / sum(p.strict) - 1 for name, p in PUBLISHED.items()}
    assert strict == pytest.approx(
        {
            "O-SW": -0.0273,
            "O-SR": 0.0103,
            "O-RW": -0.0056,
            "O-SRW": -0.0044,  # printed as -0.04 %, which its own totals are not
            "U-SW": 0.5839,
            "U-SR": 0.0559,
            "U-SRW": 0.4329,
            "U-RRW": 0.1917,
        },
        abs=3e-4,
    )
    none = {name: sum(p.shares) / sum(p.none) - 1 for name, p in PUBLISHED.items()}
    assert none["U-SW"] == pytest.approx(-0.0929, abs=2e-4)
    assert none["O-SW"] == pytest.approx(0.0626, abs=2e-4)


def test_the_row_begins_with_the_published_one_and_has_every_pattern() -> None:
    assert IN_A_ROW[: len(FIGURE_4)] == FIGURE_4
    assert set(IN_A_ROW) == set(PATTERNS.values())


def test_a_small_scale_keeps_turns_with_more_than_one_window() -> None:
    for scale in (0.01, 0.1, 0.22, 0.23, 1.0):
        assert two_to_one.turn_s(scale) >= 3 + 2 * two_to_one.window_s(scale)
    assert [two_to_one.window_s(scale) for scale in (0.22, 0.23, 1.0)] == [2.0, 10.0, 10.0]


# --- services ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("services", [WEIGHED, UNWEIGHED])
def test_parts_of_an_application_are_the_whole(services: tuple[Service, ...]) -> None:
    work = Work(10.0, (4096,), is_random=True, reads=0.5, rate_mb_s=6.0, limits_mb_s=(8.0, 8.0))
    parts = [work.part(service, services, "253:0") for service in services if service.application == 0]
    assert sum(part["jobs"] for part in parts) == 32
    assert sum(part["rate_bytes_s"] for part in parts) == 6_000_000
    limits = [int(part["limits"].split("rbps=")[1].split()[0]) for part in parts]
    assert sum(limits) == pytest.approx(8_000_000 * 2 / 3, abs=2)
    assert sum(service.share for service in services) == pytest.approx(1.0)


def test_an_application_that_wants_nothing_has_no_thread() -> None:
    assert [
        Work(1.0, (4096,), False, 0.0, jobs=jobs).part(UNWEIGHED[0], UNWEIGHED, "253:0")["jobs"] for jobs in (0, 8)
    ] == [0, 4]


def test_a_kind_that_a_pattern_does_not_have_is_not_limited_to_nothing() -> None:
    work = Work(10.0, (4096,), is_random=False, reads=0.0, limits_mb_s=(0.0, 9.0))
    assert work.part(WEIGHED[0], WEIGHED, "253:0")["limits"] == "253:0 rbps=max wbps=6000000 riops=max wiops=max"


# --- results -------------------------------------------------------------------------------------------------


def document() -> dict[str, object]:
    turns = all_turns()
    return {
        "experiment": "two-to-one",
        "machine": "A processor",
        "hypervisor": "uml",
        "accelerator": "none",
        "kernel": "6.1.0",
        "date": "2026-01-01T00:00:00+00:00",
        "code": "0.1.0",
        "scale": 0.1,
        "bandwidth": 0.5,
        "absent": [{"control": "weights alone", "reason": "the kernel has none"}],
        "bars": [bar.to_json() for bar in bars(turns)],
        "turns": [turn.to_json() for turn in turns],
    }


def test_a_stored_turn_is_the_turn() -> None:
    for each in all_turns():
        stored = json.loads(json.dumps(each.to_json()))
        assert turn_of_json(stored).to_json() == stored
        assert turn_of_json(stored).wants_mb_s == each.wants_mb_s


def test_the_text_has_every_bar_and_every_control_that_is_absent() -> None:
    text = to_text(document())
    assert text.count("met ") == len(bars(all_turns()))
    assert "weights alone: the kernel has none" in text


def test_tables_go_between_the_placeholders_of_their_experiment(tmp_path: Path) -> None:
    result, page = tmp_path / "result.json", tmp_path / "page.md"
    result.write_text(json_text(document()))
    page.write_text("<!-- results: two-to-one -->\nold\n<!-- end: two-to-one -->\n")
    done = CliRunner().invoke(main, ["tables", str(result), "--into", str(page)])
    assert done.exit_code == 0, done.output
    assert (
        "| U-SW | 3.2 + 10.4 (0.31) | 3.2 + 5.3 (0.60) | 3.2 + 10.4 (0.31) | 73.3 + 73.4 (1.00) |" in page.read_text()
    )
    assert "old" not in page.read_text()


def test_options_that_the_experiment_does_not_take_are_refused_before_anything_runs() -> None:
    done = CliRunner().invoke(main, ["run", "two-to-one", "--setup", "adaptive", "--vms", "2"])
    assert done.exit_code == 2
    assert "--setup, --vms" in done.output
