"""The coverage of campaigns: a step counts once, and a missed one does not count."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from elastio_testbed.cli import main
from elastio_testbed.faults.coverage import campaigns, steps, steps_met
from elastio_testbed.faults.kinds import ACTIONS
from elastio_testbed.faults.plan import plan
from elastio_testbed.faults.run_result import RunResult, summary
from elastio_testbed.markdown import fault_section

REPOSITORY = Path(__file__).resolve().parents[3]
KEPT = sorted((REPOSITORY / "docs/results/faults").glob("*.json"))


def document(*kinds: str, missed: bool = False, **changes: Any) -> dict[str, Any]:
    """As read from a file."""
    results = [RunResult(run, 40, missed=missed) for run in plan(len(kinds), 5, kinds[:1])]
    found = summary(5, [dataclasses.replace(result, **changes) for result in results])
    loaded: dict[str, Any] = json.loads(json.dumps(found))
    return loaded


def planned(kind: str, what: str) -> dict[str, Any]:
    return {"kind": "power-cut", "cloud": [], "moment": {"kind": kind, "what": what}}


def row(documents: list[dict[str, Any]], kind: str) -> tuple[str, ...]:
    return next(row for row in steps(documents).rows if row[0] == kind)


def test_a_step_that_is_covered_twice_counts_once() -> None:
    twice = [document("daemon-kill", "daemon-kill"), document("daemon-kill", "daemon-kill")]
    assert row(twice, "daemon-kill") == ("daemon-kill", "4", "2", str(2 * len(ACTIONS)), "0")


def test_a_step_counts_once_under_its_old_and_its_new_name() -> None:
    results = [{"missed": False, "planned": planned("intent", what)} for what in ("MarkVolume", "TagVolume")]
    assert steps_met(results) == {"power-cut": {"intent TagVolume"}}


def test_a_missed_step_is_not_covered() -> None:
    assert row([document("daemon-kill", missed=True)], "daemon-kill")[1:3] == ("1", "0")


def test_the_steps_of_a_fault_of_the_cloud_are_its_calls() -> None:
    found = document("api-lost-answer", "api-lost-answer", "api-lost-answer")
    assert len(steps_met(found["stories"])["api-lost-answer"]) == 3
    assert found["steps_met"] == {"api-lost-answer": 3}


def test_lost_records_are_shown_with_the_kind_and_with_the_campaign() -> None:
    found = document("power-cut", lost_records=2)
    assert row([found], "power-cut")[-1] == "2"
    table = campaigns([found])
    assert dict(zip(table.heads, table.rows[-1], strict=True))["lost"] == "2"


def test_a_campaign_on_an_adopted_volume_says_so() -> None:
    found = document("power-cut")
    names = [campaigns([found | {"adopted": adopted}]).rows[0][0] for adopted in (None, "disk/btrfs")]
    assert names == ["seed 5, format 3", "seed 5, format 3, adopted disk/btrfs"]


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_files_of_every_format_can_be_read(path: Path) -> None:
    found = json.loads(path.read_text())
    assert sum(int(row[1]) for row in steps([found]).rows) == found["runs"]
    assert len(campaigns([found]).rows) == 2


def test_the_page_of_the_campaigns_is_up_to_date(tmp_path: Path) -> None:
    page = KEPT[0].with_name("README.md")
    copy = tmp_path / "page.md"
    copy.write_text(page.read_text())
    done = CliRunner().invoke(main, ["tables", *map(str, KEPT), "--into", str(copy)])
    assert done.exit_code == 0, done.output
    assert copy.read_text() == page.read_text()


def test_campaigns_on_two_hypervisors_are_in_tables_of_their_own() -> None:
    old, new = document("daemon-kill"), {**document("daemon-kill", "daemon-kill"), "hypervisor": "uml"}
    text = fault_section([old, new])
    titles = [line for line in text.splitlines() if line.startswith("#### Stored campaigns")]
    assert titles == ["#### Stored campaigns, guests on qemu", "#### Stored campaigns, guests on uml"]
    assert text.count("| all |") == 2
