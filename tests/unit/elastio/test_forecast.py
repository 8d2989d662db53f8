"""A boost ahead of a burst that somebody expects: on the simulated machine, with forecasters written by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from elastio.accounting.history import past_boosts, samples
from elastio.accounting.history_store import read_loads, read_samples
from elastio.accounting.ledger import Ledger
from elastio.accounting.recorder import CostRecorder
from elastio.agent.loop import FORECAST_EVERY_S
from elastio.agent.memory import shift
from elastio.core.cycle import FailureKind, Trigger
from elastio.core.machine import decide
from elastio.core.model import Forecast, RequestKind
from elastio.core.observation import Decision
from elastio.core.policy import Caps, Policy, boost_trigger, chance_until, forecast_size
from elastio.core.state import LoadWatch, Phase
from elastio.errors import LedgerError
from elastio.sim.run import Simulation
from elastio.sim.workload import Segment
from elastio.units import GB, GIB, MB

from . import values
from .simulated import KERNEL, POLICY, QUIET, assert_at_rest, bought, decisions, in_phase, machine, path

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


def told(sim: Simulation) -> str:
    return " | ".join(decisions(sim))


# --- ahead of a burst ------------------------------------------------------------------------------------------


def test_a_burst_is_met_with_the_cache_already_attached() -> None:
    sim = foretold()
    sim.run_for(BURST_AT_S - 5)
    assert sim.phase is Phase.BOOSTING
    assert sim.state.cycle is not None
    assert sim.state.cycle.trigger is Trigger.FORECAST
    sim.run_for(5 + 12 + 1)
    at_speed = [m.adaptive_mb_s for m in sim.timeline if BURST_AT_S + 1 < m.at_s < BURST_AT_S + 12]
    assert min(at_speed) > 55, "from its first second on the burst has the cache's bandwidth"
    assert_at_rest(sim)
    assert path(sim) == ["idle", "attaching", "boosting", "flushing", "detaching", "idle"]
    assert len(bought(sim)) == 1
    assert "a burst of 686.6 MiB is expected in 30.0 s (90% sure): buying a cache of 2.0 GiB" in told(sim)


def test_without_a_forecaster_the_same_burst_waits_for_the_threshold() -> None:
    sim = machine(BURST, **AHEAD)
    sim.run_for(BURST_AT_S)
    assert bought(sim) == []
    sim.run_for(4)
    slow = [m.adaptive_mb_s for m in sim.timeline if BURST_AT_S + 1 < m.at_s < BURST_AT_S + 4]
    assert max(slow) < 25
    assert sim.state.cycle is not None
    assert sim.state.cycle.trigger is Trigger.LOAD


def test_nothing_is_bought_before_the_lead_time() -> None:
    sim = foretold()
    sim.run_for(BURST_AT_S - 32)
    assert bought(sim) == []


def test_an_unsure_forecast_buys_nothing() -> None:
    sim = foretold((QUIET,), Foretold(confidence=0.79))
    sim.run_for(100)
    assert bought(sim) == []


def test_a_paused_agent_heeds_no_forecast() -> None:
    sim = foretold()
    sim.run_for(5)
    assert sim.ask(RequestKind.PAUSE).accepted
    sim.run_for(100)
    assert bought(sim) == []


def test_the_caps_hold_for_a_forecast_too() -> None:
    sim = foretold(caps=Caps(max_boosts_per_day=0))
    sim.run_for(BURST_AT_S - 1)
    assert bought(sim) == []
    assert "no boost: the cap of 0 boosts a day is reached" in told(sim)


# --- a burst gets its chance -----------------------------------------------------------------------------------


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
    assert sim.state.cycle is not None
    assert sim.state.cycle.failure is not None
    assert sim.state.cycle.failure.kind is FailureKind.WITHDRAWN
    assert sim.world.clock.elapsed() == pytest.approx(BURST_AT_S + 1 + POLICY.inactivity_delay_s, abs=3)
    assert_at_rest(sim)


def test_an_operator_may_end_it_before() -> None:
    sim = foretold()
    in_phase(sim, Phase.BOOSTING)
    assert sim.ask(RequestKind.PAUSE).accepted
    assert_at_rest(sim)
    assert len(bought(sim)) == 1
    assert sim.world.clock.elapsed() < BURST_AT_S


@pytest.mark.parametrize("happening", ["kill", "power cut"])
def test_a_restart_does_not_lose_the_boost_or_a_block(happening: str) -> None:
    sim = foretold()
    in_phase(sim, Phase.BOOSTING)
    sim.start_agent() if happening == "kill" else sim.power_cut()
    sim.run_for(80)
    assert_at_rest(sim)
    assert sim.starts == 2


def test_a_restart_keeps_the_chance_and_a_reboot_ends_it() -> None:
    ahead = values.cycle(trigger=Trigger.FORECAST, chance_until=values.NOW + 500)
    assert shift(ahead, -900.0, now=50.0).chance_until == 50.0
    sim = foretold((QUIET,), Foretold(written_bytes=4 * GB))
    in_phase(sim, Phase.BOOSTING)
    sim.start_agent()
    sim.run_for(BURST_AT_S)
    assert sim.phase is Phase.BOOSTING


def test_a_second_burst_soon_after_is_met_by_the_threshold() -> None:
    """A forecast that knows only the first burst does no harm to the second."""
    sim = foretold((*BURST[:2], Segment(120, 0), Segment(12, 60), QUIET))
    sim.run_for(BURST_AT_S + 12 + 120 + 13)
    assert_at_rest(sim)
    assert [c.trigger for c in sim.recorder.rows.values()] == [Trigger.FORECAST, Trigger.LOAD]  # type: ignore[attr-defined]


# --- the loop's side -------------------------------------------------------------------------------------------


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
    assert sim.agent is not None
    assert sim.agent.last_error == "the history cannot be read"
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


# --- the policy's side -----------------------------------------------------------------------------------------

SURE = Forecast(begins_at=values.NOW + 20, written_bytes=4 * GB, confidence=0.9)
AT_REST = LoadWatch(below_since=0.0)
Change = Callable[[Forecast], Forecast]


def policy(**changes: object) -> Policy:
    return replace(values.POLICY, lead_s=30.0, least_confidence=0.8, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("load", "forecast", "wanted"),
    [
        (AT_REST, None, None),
        (AT_REST, SURE, Trigger.FORECAST),
        (values.HIGH, SURE, Trigger.LOAD),
        (values.HIGH, None, Trigger.LOAD),
        (AT_REST, replace(SURE, confidence=0.8), Trigger.FORECAST),
        (AT_REST, replace(SURE, confidence=0.79), None),
        (AT_REST, replace(SURE, confidence=float("nan")), None),
        (AT_REST, replace(SURE, begins_at=values.NOW + 30), Trigger.FORECAST),
        (AT_REST, replace(SURE, begins_at=values.NOW + 30.1), None),
        (AT_REST, replace(SURE, begins_at=values.NOW), Trigger.FORECAST),
        (AT_REST, replace(SURE, begins_at=values.NOW - 0.1), None),
        (AT_REST, replace(SURE, begins_at=float("nan")), None),
    ],
)
def test_a_boost_is_wanted_by_the_load_or_by_a_sure_forecast_within_the_lead_time(
    load: LoadWatch, forecast: Forecast | None, wanted: Trigger | None
) -> None:
    assert boost_trigger(load, forecast, values.NOW, policy()) is wanted


def test_the_chance_ends_an_inactivity_delay_after_the_burst() -> None:
    # 4000 MB at 80 MB/s.
    assert chance_until(SURE, policy(inactivity_delay_s=7.0)) == values.NOW + 20 + 50 + 7


@pytest.mark.parametrize(
    ("written_bytes", "learned_bytes", "size_bytes"),
    [
        (4 * GIB, 2 * GIB, 11 * GIB),  # 4 / 0.4 x 1.05
        (4 * GIB, 20 * GIB, 20 * GIB),
        (4 * GIB, None, 11 * GIB),
        (1 * GIB, None, 10 * GIB),
        (900 * GIB, 2 * GIB, 100 * GIB),
        (0, 2 * GIB, 2 * GIB),
    ],
)
def test_the_size_is_the_larger_of_what_was_learned_and_what_is_expected_within_the_caps(
    written_bytes: int, learned_bytes: int | None, size_bytes: int
) -> None:
    assert forecast_size(replace(SURE, written_bytes=written_bytes), learned_bytes, policy()) == size_bytes


def decided(forecast: Forecast | None, load: LoadWatch = AT_REST) -> Decision:
    seen = values.seen(values.host(values.backing()), forecast=forecast)
    return decide(values.state(Phase.IDLE, load=load, learned_size_bytes=2 * GIB), seen, policy())


def test_the_cycle_knows_what_asked_for_it() -> None:
    ahead, on_load = decided(SURE).state.cycle, decided(SURE, values.HIGH).state.cycle
    assert ahead is not None
    assert on_load is not None
    assert (ahead.trigger, ahead.chance_until, ahead.spec.size_bytes) == (
        Trigger.FORECAST,
        chance_until(SURE, policy()),
        10 * GIB,
    )
    assert (on_load.trigger, on_load.chance_until, on_load.spec.size_bytes) == (Trigger.LOAD, None, 2 * GIB)
    assert decided(None).state.cycle is None
