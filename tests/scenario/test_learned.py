"""A boost ahead of a burst that the agent expects from its own past: what is met, and what is not bought."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastio.accounting.history import is_wrong
from elastio.accounting.history_store import read_loads
from elastio.accounting.ledger import Ledger
from elastio.accounting.recorder import CostRecorder
from elastio.core.cycle import Trigger
from elastio.core.policy import Ahead
from elastio.core.state import Phase
from elastio.strategy.learned import WASTED_SHARE
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment
from tests.forecasting import forecasting
from tests.simulated import KERNEL, QUIET, assert_at_rest
from tests.values import present

BURST_S, MB_S, FIRST_S = 12, 60, 20


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.sqlite") as opened:
        yield opened


def load_of(gaps_s: list[float], mb_s: float) -> tuple[Segment, ...]:
    """A burst at FIRST_S, one after each gap, and then nothing more."""
    burst = Segment(BURST_S, mb_s)
    return (Segment(FIRST_S, 0), burst, *(s for gap in gaps_s for s in (Segment(gap, 0), burst)), QUIET)


def learning(ledger: Ledger, gaps_s: list[float], ahead: Ahead = Ahead.LEARNED, mb_s: float = MB_S) -> Simulation:
    return forecasting(ledger, load_of(gaps_s, mb_s), ahead=ahead)


def begins(gaps_s: list[float]) -> list[float]:
    """When each burst begins, in seconds of the run."""
    found = [float(FIRST_S)]
    for gap in gaps_s:
        found.append(found[-1] + BURST_S + gap)
    return found


def triggers(ledger: Ledger) -> list[str]:
    return [c.trigger for c in ledger.cycles(0.0, 4e9)]


def phase_at(sim: Simulation, at_s: float) -> Phase:
    sim.run_for(at_s - sim.world.clock.elapsed())
    return sim.phase


def test_a_periodic_load_finds_its_cache_from_the_third_burst_on(ledger: Ledger) -> None:
    gaps = [180.0] * 7
    sim = learning(ledger, gaps)
    standing = [phase_at(sim, at_s) for at_s in begins(gaps)]
    assert standing[:2] == [Phase.IDLE] * 2
    # The cloud's times are random: a cache may come some milliseconds after the longest that was measured before.
    assert standing[2:].count(Phase.BOOSTING) >= 5
    speeds = [m.adaptive_mb_s for m in sim.timeline if 1 < m.at_s - begins(gaps)[2] < BURST_S]
    assert min(speeds) > MB_S - 5
    assert_at_rest(sim)
    assert triggers(ledger)[:8] == [Trigger.LOAD] * 2 + [Trigger.FORECAST] * 6
    assert sim.state.memory.missed_forecasts == 0


@pytest.mark.parametrize("ahead", [Ahead.OFF, Ahead.EXPECT])
def test_without_being_asked_to_learn_it_waits_for_the_load(ahead: Ahead, ledger: Ledger) -> None:
    sim = learning(ledger, [180.0] * 3, ahead)
    sim.run_for(begins([180.0] * 3)[-1] + BURST_S)
    assert_at_rest(sim)
    assert triggers(ledger) == [Trigger.LOAD] * 4


def test_the_cache_is_bought_no_earlier_than_it_takes_to_attach(ledger: Ledger) -> None:
    gaps = [180.0] * 4
    sim = learning(ledger, gaps)
    sim.run_for(begins(gaps)[-1] - 20)
    loads = read_loads(ledger.file)
    ahead = [c for c in ledger.cycles(0.0, 4e9) if c.trigger == Trigger.FORECAST]
    assert len(ahead) == 2
    for row in ahead:
        assert present(loads[row.token].begun_wall) - row.started_wall <= max(sim.state.memory.attach_s) + 3


def test_the_burst_that_never_comes_is_paid_for_once(ledger: Ledger) -> None:
    gaps = [180.0] * 2
    sim = learning(ledger, gaps)
    sim.run_for(begins(gaps)[-1] + 2000)
    assert_at_rest(sim)
    assert triggers(ledger) == [Trigger.LOAD] * 2 + [Trigger.FORECAST] * 2


@pytest.mark.parametrize("seed", range(4))
def test_a_load_with_random_gaps_buys_nothing_ahead_after_three_misses_and_wastes_little(
    seed: int, ledger: Ledger
) -> None:
    draw = random.Random(seed)
    gaps = [40 + draw.expovariate(1 / 150) for _ in range(24)]
    sim = learning(ledger, gaps)
    sim.run_for(begins(gaps)[-1] + BURST_S)
    assert_at_rest(sim)
    rows, loads = ledger.cycles(0.0, 4e9), read_loads(ledger.file)
    wrong = [c for c in rows if is_wrong(c, loads)]
    assert len(wrong) <= 3
    bill = sum(c.agbs(0.0, 4e9) for c in rows)
    assert sum(c.agbs(0.0, 4e9) for c in wrong) <= WASTED_SHARE * bill
    after = [c.trigger for c in rows if wrong and c.started_wall > wrong[-1].started_wall]
    assert after.count(Trigger.FORECAST) <= len(after) / 4


def test_a_load_that_changed_its_rhythm_is_bought_ahead_of_in_vain_once(ledger: Ledger) -> None:
    gaps = [90.0] * 4 + [130.0] * 10
    sim = learning(ledger, gaps)
    sim.run_for(begins(gaps)[-1] + BURST_S)
    assert_at_rest(sim)
    rows, loads = ledger.cycles(0.0, 4e9), read_loads(ledger.file)
    wrong = [is_wrong(c, loads) for c in rows]
    assert wrong.index(True) == 5, "before the first burst of the new rhythm"
    assert wrong.count(True) == 1, "another one would not fit into the bill"
    met = [c.trigger for c, is_not_met in zip(rows, wrong, strict=True) if not is_not_met]
    assert met[2:5] == [Trigger.FORECAST] * 3
    assert met[5:8] == [Trigger.LOAD] * 3
    bill = sum(c.agbs(0.0, 4e9) for c in rows)
    assert sum(c.agbs(0.0, 4e9) for c in rows if is_wrong(c, loads)) <= WASTED_SHARE * bill


def test_an_agent_that_was_killed_expects_the_same(ledger: Ledger) -> None:
    gaps = [180.0] * 2
    sim = learning(ledger, gaps)
    sim.run_for(begins(gaps)[2] - 40)
    before = present(sim.agent).snapshot().forecast
    sim.start_agent()
    sim.run_for(10)
    after = present(sim.agent).snapshot().forecast
    assert (present(before).begins_at, present(before).lead_s) == pytest.approx(
        (present(after).begins_at, present(after).lead_s)
    )
    assert phase_at(sim, begins(gaps)[2]) is Phase.BOOSTING


def test_a_kill_in_the_middle_of_a_burst_loses_no_begin(ledger: Ledger) -> None:
    gaps = [180.0] * 2
    sim = learning(ledger, gaps)
    sim.run_for(begins(gaps)[1] + BURST_S - 2)
    recorder = CostRecorder(ledger, KERNEL.backing_uuid)
    sim.recorder = recorder  # what the old one had not written is lost
    sim.start_agent()
    sim.run_for(120)
    known = recorder.past(sim.world.clock.wall()).bursts
    offset = sim.world.clock.wall() - sim.world.clock.elapsed()
    assert [b.begun_at - offset for b in known] == pytest.approx(begins(gaps)[:2], abs=1.5)


def test_misses_are_remembered_across_a_restart(ledger: Ledger) -> None:
    gaps = [180.0]
    sim = learning(ledger, gaps)
    sim.run_until(lambda: sim.state.memory.missed_forecasts == 1, 800)
    assert_at_rest(sim)
    sim.start_agent()
    assert sim.state.memory.missed_forecasts == 1


def test_a_ledger_that_fails_leaves_the_load_in_charge(ledger: Ledger) -> None:
    sim = learning(ledger, [180.0] * 3)
    sim.run_for(begins([180.0] * 3)[1] + 5)
    ledger.close()  # before the second burst is in it
    assert phase_at(sim, begins([180.0] * 3)[2]) is Phase.IDLE
    sim.run_for(BURST_S - 1)
    assert sim.phase is Phase.BOOSTING


def test_bursts_that_the_backing_volume_can_serve_are_not_bought_for_again_and_again(ledger: Ledger) -> None:
    gaps = [90.0] * 11
    sim = learning(ledger, gaps, mb_s=15)
    sim.run_for(begins(gaps)[-1] + BURST_S)
    assert_at_rest(sim)
    assert len(sim.state.memory.waste.useless) >= 3
    assert triggers(ledger).count(Trigger.FORECAST) <= 3
    assert len(triggers(ledger)) <= 6
