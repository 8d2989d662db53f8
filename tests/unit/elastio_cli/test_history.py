"""`elastio history` on a ledger file: its output, and an export that can be replayed."""

from __future__ import annotations

import csv
import io
import json
import time
from pathlib import Path

import pytest

from elastio.accounting.history_store import HistoryLimits, HistoryWriter
from elastio.accounting.ledger import Ledger
from elastio.control.exit_codes import Exit
from elastio.core.model import Rates, Sample
from elastio.core.state import AgentState, Phase
from elastio.strategy.memory import LoadWatch, Memory
from elastio.units import MIB
from elastio_sim.workload import Segment, Trace
from elastio_sim.world import SimWorld

from .conftest import Shell
from .machine import UUID
from .test_report import CONFIG, CYCLE_CLOSED

WALL = 1_790_000_000.0
MB = 10**6


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A minute of quiet, half a minute at 20 MB/s of writes and 5 of reads, a minute of quiet; one cycle."""
    (tmp_path / "elastio.toml").write_text(CONFIG.replace("{state}", str(tmp_path)))
    path = tmp_path / "ledger.sqlite"
    idle = AgentState(memory=Memory(load=LoadWatch(below_since=0.0)))
    busy = AgentState(Phase.BOOSTING, CYCLE_CLOSED, Memory(load=LoadWatch(above_since=60.0, utilization=0.5)))
    with Ledger(path) as opened:
        opened.record(CYCLE_CLOSED, 1_789_992_000.0)
        writer = HistoryWriter(opened.file, UUID, HistoryLimits())
        for now in range(1, 151):
            loaded = 60 < now <= 90
            rates = Rates(read_mb_s=5.0, write_mb_s=20.0) if loaded else Rates()
            writer.sampled(Sample(float(now), 1.0, rates), busy if loaded else idle, now=now, wall=WALL + now)
        writer.flush(WALL + 150)
    return path


def test_shows_loads_and_what_was_sampled(ledger: Path, elastio: Shell) -> None:
    result = elastio("history")
    assert result.exit_code == 0, result.output
    head, row, blank, summary = result.stdout.splitlines()
    assert head.split("  ")[0] == "load begun"
    assert "load  30.0 s" in row
    assert (row.split()[-2:], blank) == (["0.15", "0.60"], "")
    assert summary.startswith(f"{UUID}: 32 rows from 2026-09-21 ")
    assert summary.endswith(", 2 min 30 s observed, 0.15 GB read, 0.60 GB written")


def test_json_has_phases_and_samples(ledger: Path, elastio: Shell) -> None:
    document = json.loads(elastio("history", "--json").stdout)
    (phase,) = document["phases"]
    assert (phase["token"], phase["load_s"], phase["written_bytes"]) == ("tok", 30.0, 600 * MB)
    assert (phase["begun_wall"], phase["period_s"]) == (WALL + 60, None)
    assert [s["seconds"] for s in document["samples"]] == [60.0, *[1.0] * 30, 60.0]
    assert {s["device_uuid"] for s in document["samples"]} == {UUID}


def test_the_export_is_exact_and_can_be_replayed(ledger: Path, elastio: Shell) -> None:
    """Every row of the table is a segment of a simulated application."""
    rows = list(csv.DictReader(io.StringIO(elastio("history", "--csv").stdout)))
    assert list(rows[1]) == ["device_uuid", "begun", "begun_wall", "seconds", "read_mb_s", "write_mb_s"]
    assert (float(rows[1]["begun_wall"]), float(rows[1]["write_mb_s"])) == (WALL + 60, 20.0)
    segments = [Segment(float(r["seconds"]), float(r["write_mb_s"]), float(r["read_mb_s"])) for r in rows]
    world = SimWorld(workload=Trace(segments, block_bytes=MIB))
    world.run_until_done()
    stats = world.workload.stats
    assert stats.finished_s == pytest.approx(150, abs=1)
    assert stats.written_bytes == pytest.approx(600 * MB, rel=0.01)
    assert stats.read_bytes == pytest.approx(150 * MB, rel=0.01)


@pytest.mark.parametrize(
    ("command", "listed"), [("history", {"phases": [], "samples": []}), ("report", {"phases": [], "days": []})]
)
def test_since_leaves_out_what_was_before(
    command: str, listed: dict[str, list[object]], ledger: Path, elastio: Shell
) -> None:
    tomorrow = time.strftime("%Y-%m-%d", time.gmtime(WALL + 2 * 86400))
    found = json.loads(elastio(command, "--json", "--since", tomorrow).stdout)
    assert {key: found[key] for key in listed} == listed
    for wrong in (("--since", "yesterday"), ("--json", "--csv")):
        assert elastio(command, *wrong).exit_code == Exit.USAGE
