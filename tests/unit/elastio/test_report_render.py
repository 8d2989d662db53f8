"""The report as text, JSON and CSV: what fits one screen, and names that stay."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

from elastio.accounting.report_render import to_csv, to_dict, to_text
from elastio.accounting.rows import StepDurations

from .test_report import NOON, cycle, refused, report_of, span

STEPS = StepDurations(
    decide_s=0.01,
    create_s=1.0,
    attach_volume_s=0.5,
    appear_s=1.5,
    format_s=0.05,
    register_s=0.1,
    attach_set_s=0.2,
    boost_s=3.36,
    own_s=0.36,
)


def test_text_columns_line_up_and_fit_one_screen() -> None:
    cycles = [cycle(NOON + i * 1000, NOON + i * 1000 + 100, f"t{i:03d}") for i in range(2000)]
    cycles = [replace(c, steps=STEPS) for c in cycles]
    text = to_text(report_of(cycles, [span(NOON, NOON + 2_000_000)], NOON + 2_000_000))
    lines = text.splitlines()
    assert len(lines) <= 34
    assert max(len(line) for line in lines) <= 115
    boosts = lines[: lines.index("")]
    right = boosts[0].index("cache AGBs") + len("cache AGBs")
    assert boosts[1] == "(1988 earlier)"
    assert all(line[:right].endswith("128,000") for line in boosts[2:])


def test_breakdown_shows_the_last_boosts_and_the_median_of_all() -> None:
    slow = replace(STEPS, decide_s=None, create_s=20.0, boost_s=23.4, own_s=0.4)
    kinds = [STEPS, STEPS, STEPS, STEPS, STEPS, slow, slow, StepDurations()]
    cycles = [replace(cycle(NOON + i * 60, NOON + i * 60 + 30, f"t{i}"), steps=s) for i, s in enumerate(kinds)]
    text = to_text(report_of(cycles, [span(NOON, NOON + 1000)], NOON + 1000))
    head, earlier, *rows, median = text.split("\n\n")[1].splitlines()
    assert head.split() == [
        *("boost", "begun", "(s)", "decide", "create", "attach", "volume", "appear"),
        *("format", "register", "attach", "set", "total", "local"),
    ]
    assert earlier == "(2 earlier)"
    assert [row.split()[:2] for row in rows] == [["03-10", f"12:0{minute}:00"] for minute in range(2, 7)]
    assert rows[0].split()[2:] == ["0.01", "1.00", "0.50", "1.50", "0.05", "0.10", "0.20", "3.36", "0.36"]
    assert rows[-1].split()[2:] == ["-", "20.00", "0.50", "1.50", "0.05", "0.10", "0.20", "23.40", "0.40"]
    assert median.startswith("median of 7 ")
    assert median.split()[3:] == ["0.01", "1.00", "0.50", "1.50", "0.05", "0.10", "0.20", "3.36", "0.36"]


def test_steps_that_an_older_ledger_lacks_are_dashes() -> None:
    old = replace(cycle(NOON, NOON + 30), steps=StepDurations(create_s=1.0, format_s=0.25, boost_s=3.0))
    text = to_text(report_of([old], [span(NOON, NOON + 100)], NOON + 100))
    (row,) = text.split("\n\n")[1].splitlines()[1:]
    assert row.split()[2:] == ["-", "1.00", "-", "-", "0.25", "-", "-", "3.00", "-"]


def test_boosts_that_never_began_have_no_breakdown() -> None:
    text = to_text(report_of([refused(NOON)], [span(NOON, NOON + 100)], NOON + 100))
    assert "local" not in text


def test_json_and_csv_have_every_step() -> None:
    report = report_of([replace(cycle(NOON, NOON + 30), steps=STEPS)], [span(NOON, NOON + 100)], NOON + 100)
    steps = to_dict(report)["phases"][0]["steps"]
    row = next(csv.DictReader(io.StringIO(to_csv(report))))
    assert (steps["decide_s"], steps["attach_set_s"], steps["own_s"]) == (0.01, 0.2, 0.36)
    assert {name: float(row[name]) for name in steps if steps[name] is not None} == {
        name: value for name, value in steps.items() if value is not None
    }


def test_agbs_have_the_stable_names() -> None:
    data = to_dict(report_of([cycle(NOON, NOON + 10)], [span(NOON, NOON + 100)], NOON + 100))
    names = {"backing_agbs", "cache_agbs", "total_agbs", "static_slow_agbs", "static_fast_agbs"}
    for part in (data["phases"][0], data["days"][0], data["vm"]):
        assert {key for key in part if key.endswith("_agbs")} == names
    assert data["phases"][0]["currency"] == "USD"


def test_csv_is_one_table_with_boosts_days_and_the_vm() -> None:
    report = report_of([cycle(NOON, NOON + 10), refused(NOON + 50)], [span(NOON, NOON + 100)], NOON + 100)
    rows = list(csv.DictReader(io.StringIO(to_csv(report))))
    assert [(r["kind"], r["name"]) for r in rows] == [
        ("phase", "t"),
        ("phase", "refused"),
        ("day", "2026-03-10"),
        ("vm", "total"),
    ]
    assert [float(r["cache_agbs"]) for r in rows] == [12800.0, 0.0, 12800.0, 12800.0]
    assert [r["own_s"] for r in rows] == ["", "", "", ""]
    assert rows[1]["failure"] == "the quota of volume storage is reached"
