"""An application learned from one benchmark run."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastio.accounting.history_store import HistoryLimits, HistoryWriter
from elastio.accounting.ledger import Ledger
from elastio.core.model import Rates, Sample
from elastio.core.state import AgentState
from elastio.strategy.memory import LoadWatch, Memory
from elastio_calibration.application import ApplicationError, from_values
from elastio_calibration.learn import from_ledger, from_trace
from tests.fixtures.errors import refused

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
    found = from_values(from_trace(path))
    assert found.initial_gb == pytest.approx(5.0)
    assert found.checkpoint_gb == pytest.approx(4.0)  # a pause of 4 s does not end a dump
    assert found.checkpoints == 2
    assert found.compute_s == pytest.approx(600)


@pytest.mark.parametrize("stretches", [((20, 50.0), (20, 0.0)), ((5, 0.0), (5, 0.0))])
def test_a_trace_without_checkpoints_is_refused(stretches: tuple[tuple[int, float], ...], tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(trace(*stretches))
    with refused(ApplicationError, "bursts"):
        from_trace(path)


def test_refuses_a_ledger_without_samples(tmp_path: Path) -> None:
    Ledger(tmp_path / "new").close()
    (tmp_path / "empty").touch()
    for name in ("missing", "new", "empty"):
        with pytest.raises(ApplicationError):
            from_ledger(tmp_path / name)


def written(path: Path, device: str, rate_mb_s: float) -> None:
    """Dumps of 50 and 40 s."""
    with Ledger(path) as ledger:
        writer = HistoryWriter(ledger.file, device, HistoryLimits())
        at = 1000.0
        for seconds, rate in ((5, 0.0), (50, rate_mb_s), (300, 0.2), (40, rate_mb_s), (60, 0.0)):
            for _ in range(seconds):
                at += 1
                state = AgentState(memory=Memory(load=LoadWatch(utilization=rate / 33)))
                writer.sampled(Sample(at, 1.0, Rates(0.0, rate)), state, now=at, wall=1e9 + at)
        writer.flush(1e9 + at)


def test_one_of_several_devices_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    written(path, "a", 100.0)
    written(path, "b", 50.0)
    for device in ("", "c"):
        with refused(ApplicationError, "device"):
            from_ledger(path, device)
    found = from_values(from_ledger(path, "b"))
    assert found.initial_gb == pytest.approx(2.5, rel=0.01)
    assert found.checkpoint_gb == pytest.approx(2.0, rel=0.01)
    assert found.compute_s == pytest.approx(300, abs=2)
