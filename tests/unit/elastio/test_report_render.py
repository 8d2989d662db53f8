"""The report as text, JSON and CSV: what fits one screen, and stable names."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

from elastio.accounting.report_render import to_csv, to_dict, to_text
from elastio.accounting.rows import StepDurations

from .test_report import MIDNIGHT, NOON, cycle, refused, report_of, span

GOLDEN = Path(__file__).parents[2] / "golden"
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
    assert len(lines) <= 36
    assert max(len(line) for line in lines) <= 115
    boosts = lines[2 : lines.index("", 2)]
    right = boosts[0].index("cache AGBs") + len("cache AGBs")
    assert boosts[1] == "(1988 earlier)"
    assert all(line[:right].endswith("128,000") for line in boosts[2:])


def test_text_of_boosts_of_every_kind() -> None:
    """Open, rejected and without a price; with all steps, some, or those that an older ledger knew; and a gap."""
    slow = replace(STEPS, decide_s=None, create_s=20.0, boost_s=23.4, own_s=0.4)
    older = StepDurations(create_s=1.0, format_s=0.25, boost_s=3.0)
    steps = (*(STEPS,) * 10, slow, older, StepDurations())
    cycles = [replace(cycle(NOON + i * 60, NOON + i * 60 + 30, f"t{i:02d}"), steps=s) for i, s in enumerate(steps)]
    cycles += [
        replace(cycle(NOON + 900, NOON + 930, "free"), price_per_hour=None, currency=""),
        refused(NOON + 950),
        cycle(MIDNIGHT + 100, None, "open"),
    ]
    spans = [span(NOON, NOON + 1000), span(MIDNIGHT, MIDNIGHT + 200)]
    assert to_text(report_of(cycles, spans, MIDNIGHT + 200)) == (GOLDEN / "report.txt").read_text()


def test_boosts_that_never_began_have_no_breakdown() -> None:
    text = to_text(report_of([refused(NOON)], [span(NOON, NOON + 100)], NOON + 100))
    assert len(text.split("\n\n")) == 3


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
    assert rows[1]["failure"] == refused(NOON).failure
