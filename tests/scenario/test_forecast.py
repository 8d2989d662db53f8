"""A boost ahead of a burst that somebody expects, with forecasters written by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from elastio.accounting.history import past_boosts, samples
from elastio.accounting.history_store import read_loads, read_samples
from elastio.accounting.ledger import Ledger
from elastio.accounting.recorder import CostRecorder
from elastio.agent.loop import FORECAST_EVERY_S
from elastio.core.cycle import FailureKind, Trigger
from elastio.core.model import Forecast
from elastio.core.state import Phase
from elastio.errors import LedgerError
from elastio.units import GB, MB
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment
from tests.simulated import KERNEL, POLICY, QUIET, assert_at_rest, bought, failures, in_phase, machine, path
from tests.values import present

BURST_AT_S = 60.0
BURST = (Segment(BURST_AT_S, 0), Segment(12, 60), QUIET)
AHEAD: dict[str, Any] = {"lead_s": 30.0, "least_confidence": 0.8}


@dataclass
class Foretold:
    """Says the same at every time: a burst `at_s` after it was first asked."""

    at_s: float = BURST_AT_S
    written_bytes: int = 720 * MB
    confidence: float = 0.9
    asked_at: list[float] = field(default_factory=list)

    def forecast(self, now: float, wall: float) -> Forecast | None:
        self.asked_at.append(now)
        return Forecast(self.asked_at[0] + self.at_s, self.written_bytes, self.confidence)


def foretold(load: tuple[Segment, ...] = BURST, by: Foretold | None = None, **changes: object) -> Simulation:
    return machine(load, forecaster=by or Foretold(), **{**AHEAD, **changes})


def test_a_burst_is_met_with_the_cache_already_attached() -> None:
    sim = foretold()
    sim.run_for(BURST_AT_S - 5)
    assert sim.phase is Phase.BOOSTING
    assert present(sim.state.cycle).trigger is Trigger.FORECAST
    sim.run_for(5 + 12 + 1)
    at_speed = [m.adaptive_mb_s for m in sim.timeline if BURST_AT_S + 1 < m.at_s < BURST_AT_S + 12]
    assert min(at_speed) > 55, "from its first second on the burst has the cache's bandwidth"
    assert_at_rest(sim)
    assert path(sim) == ["idle", "attaching", "boosting", "flushing", "detaching", "idle"]
    assert len(bought(sim)) == 1


def test_a_burst_that_is_late_still_finds_its_cache() -> None:
    # 4 GB at 80 MB/s: expected from 60 to 110 s, kept until 114; the inactivity delay alone would end at about 45.
    sim = foretold((Segment(100, 0), Segment(12, 60), QUIET), Foretold(written_bytes=4 * GB))
    sim.run_for(99)
    assert sim.phase is Phase.BOOSTING
    sim.run_for(13)
    assert_at_rest(sim)
    assert len(bought(sim)) == 1
    assert path(sim).count("boosting") == 1


def test_a_burst_that_never_comes_is_paid_for_until_its_chance_is_over() -> None:
    sim = foretold((QUIET,), Foretold(written_bytes=1600 * MB))
    sim.run_for(BURST_AT_S + 20 + POLICY.inactivity_delay_s - 1)
    assert sim.phase is Phase.BOOSTING
    sim.run_for(5)
    assert sim.phase in (Phase.FLUSHING, Phase.DETACHING, Phase.IDLE)
    assert_at_rest(sim)
    sim.run_for(200)
    assert len(bought(sim)) == 1, "a forecast whose time has passed asks for nothing"


def test_a_cache_that_is_not_there_when_the_chance_is_over_is_given_up() -> None:
    sim = machine((QUIET,), "attach#1=stuck:500", forecaster=Foretold(written_bytes=80 * MB), **AHEAD)
    in_phase(sim, Phase.ATTACHING)
    sim.run_for(30)
    assert sim.phase is Phase.ATTACHING, "no lack of load ends it before the burst could come"
    in_phase(sim, Phase.DETACHING)
    assert failures(sim) == {FailureKind.WITHDRAWN}
    assert sim.world.clock.elapsed() == pytest.approx(BURST_AT_S + 1 + POLICY.inactivity_delay_s, abs=3)
    assert_at_rest(sim)


def test_a_restart_keeps_the_chance_and_a_reboot_ends_it() -> None:
    sim = foretold((QUIET,), Foretold(written_bytes=4 * GB))
    in_phase(sim, Phase.BOOSTING)
    sim.start_agent()
    sim.run_for(BURST_AT_S)
    assert sim.phase is Phase.BOOSTING


def test_the_forecaster_is_asked_only_now_and_then() -> None:
    by = Foretold(at_s=1e6)
    sim = foretold((QUIET,), by)
    sim.run_for(100)
    gaps = [b - a for a, b in zip(by.asked_at, by.asked_at[1:], strict=False)]
    assert min(gaps) >= FORECAST_EVERY_S
    assert 15 <= len(by.asked_at) <= 21


class Broken:
    def forecast(self, now: float, wall: float) -> Forecast | None:
        raise LedgerError("the history cannot be read")


def test_a_forecaster_that_fails_leaves_the_threshold_in_charge() -> None:
    sim = machine((Segment(10, 0), Segment(12, 60), QUIET), forecaster=Broken())
    sim.run_for(5)
    assert present(sim.agent).last_error == "the history cannot be read"
    in_phase(sim, Phase.BOOSTING)
    assert_at_rest(sim)


class FromHistory:
    """The simplest forecaster that learns: the next burst begins one period after the last one."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def forecast(self, now: float, wall: float) -> Forecast | None:
        past = past_boosts(self._ledger.cycles(0.0, wall), read_loads(self._ledger.file))
        last = past[-1] if past else None
        if last is None or last.period_s is None or last.written_bytes is None:
            return None
        return Forecast(now + last.begun_wall + last.period_s - wall, last.written_bytes, 1.0)


def test_a_forecaster_needs_nothing_but_the_ledger(tmp_path: Path) -> None:
    """Three bursts 200 s apart: the third one is met, from what the ledger kept of the first two."""
    load = (Segment(20, 0), *(s for _ in range(3) for s in (Segment(12, 60), Segment(188, 0))))
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        recorder = CostRecorder(ledger, KERNEL.backing_uuid)
        sim = machine((*load, QUIET), recorder=recorder, forecaster=FromHistory(ledger), **AHEAD)
        sim.run_for(20 + 400 - 1)
        assert sim.phase is Phase.BOOSTING
        sim.run_for(300)
        assert_at_rest(sim)
        past = past_boosts(ledger.cycles(0.0, sim.world.clock.wall()), read_loads(ledger.file))
        # The fourth burst, that never came, was bought for as well: that is what a wrong forecast costs.
        assert [p.trigger for p in past] == ["load", "load", "forecast", "forecast"]
        assert [p.period_s for p in past[1:3]] == [pytest.approx(200, abs=2)] * 2
        assert [p.gap_s for p in past[1:3]] == [pytest.approx(188, abs=6)] * 2
        assert [p.load_s is None for p in past] == [False, False, False, True]
        (runs,) = read_samples(ledger.file, 0.0, 4e9).values()
    written = sum(r.written_bytes for r in samples(runs))
    assert written == pytest.approx(sim.world.workload.stats.written_bytes, rel=0.02)
    assert past[2].written_bytes == pytest.approx(720 * MB, rel=0.1)
