"""An application learned from one benchmark run."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastio.history_store import HistoryLimits, HistoryWriter
from elastio.ledger import Ledger
from elastio.model import Quote, Rates, Sample, VolumeSpec
from elastio.sim.experiment import Experiment, adaptive_run
from elastio.sim.records import MemoryBooks
from elastio.sim.workload import Profile
from elastio.state import AgentState
from elastio.units import GB, GIB
from elastio_calibration.application import ApplicationError, describe
from elastio_calibration.learn import from_ledger, from_trace

HEAD = "seconds,read_mb_s,write_mb_s\n"


def trace(*stretches: tuple[int, float]) -> str:
    lines, at = [HEAD], 0
    for seconds, rate in stretches:
        for _ in range(seconds):
            lines.append(f"{at},0,{rate}\n")
            at += 1
    return "".join(lines)


def test_learns_dumps_and_computing_from_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(trace((5, 0), (50, 100), (300, 0.5), (38, 100), (4, 0), (2, 100), (300, 0.5), (40, 100), (60, 0)))
    found = describe(from_trace(path))
    assert found.initial_gb == pytest.approx(5.0)
    assert found.checkpoint_gb == pytest.approx(4.0)  # a pause of 4 s does not end a dump
    assert found.checkpoints == 2
    assert found.compute_s == pytest.approx(600)


@pytest.mark.parametrize(("stretches", "seen"), [(((20, 50.0), (20, 0.0)), 1), (((5, 0.0), (5, 0.0)), 0)])
def test_a_trace_without_checkpoints_is_refused(
    stretches: tuple[tuple[int, float], ...], seen: int, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(trace(*stretches))
    with pytest.raises(ApplicationError, match=f"shows {seen} burst"):
        from_trace(path)


def test_learns_from_the_ledger_of_a_run_within_a_tenth(tmp_path: Path) -> None:
    books = MemoryBooks()
    experiment = Experiment(Profile(150, GB, 2, 1_500_000_000), 20.0, 80.0, 10 * GB, 4 * GIB, 4.0)
    adaptive_run(experiment, books)
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger:
        for cycle in books.rows.values():
            quote = Quote(VolumeSpec(cycle.sold.size_bytes, 80.0), "USD", 0.1, 60.0, "x")
            ledger.record(cycle, quote, cycle.started_wall - cycle.started_at)
        ledger.touch_device("u", 10 * GB, 20.0, 80.0, next(iter(books.rows.values())).started_wall)
    found = describe(from_ledger(path))
    assert found.checkpoints == 2
    assert found.initial_gb == pytest.approx(1.5, rel=0.1)
    assert found.checkpoint_gb == pytest.approx(1.0, rel=0.1)
    assert found.iteration_s == pytest.approx(150, rel=0.1)


def test_a_ledger_that_knows_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ApplicationError, match="there is no ledger"):
        from_ledger(tmp_path / "ledger.sqlite")
    Ledger(tmp_path / "ledger.sqlite").close()
    with pytest.raises(ApplicationError, match="has never seen a device"):
        from_ledger(tmp_path / "ledger.sqlite")


def test_learns_from_the_samples_of_a_ledger_where_it_kept_them(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger:
        writer = HistoryWriter(ledger.file, "u", HistoryLimits())
        at = 1000.0
        for seconds, rate in ((5, 0.0), (50, 100.0), (300, 0.2), (40, 100.0), (60, 0.0)):
            for _ in range(seconds):
                at += 1
                writer.sampled(Sample(at, 1.0, Rates(0.0, rate)), AgentState(), now=at, wall=1e9 + at)
        writer.flush(now=at)
    found = describe(from_ledger(path))
    assert found.initial_gb == pytest.approx(5.0, rel=0.01)
    assert found.checkpoint_gb == pytest.approx(4.0, rel=0.01)
    assert found.compute_s == pytest.approx(300, abs=2)
