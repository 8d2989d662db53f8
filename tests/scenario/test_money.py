"""A cache that is bought, held and released by its price, at the tariff of the simulator."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elastio.accounting.ledger import Ledger
from elastio.accounting.recorder import CostRecorder
from elastio.agent.adviser import HindsightAdviser
from elastio.agent.daemon import adviser_of
from elastio.agent.status_builder import RuntimeInfo, status_of
from elastio.billing import RELEASE_S
from elastio.core.cycle import Trigger
from elastio.core.model import RequestKind, VolumeSpec
from elastio.core.policy import Ahead, Model
from elastio.core.state import Phase
from elastio.strategy.bursts import LoadRun
from elastio.strategy.spending import Caps
from elastio.strategy.worth import Market
from elastio_cli.status import rows
from elastio_sim.prices import TARIFF
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment
from tests.simulated import DEAR_ROOM, KERNEL, MARKET, POLICY, QUIET, assert_at_rest, bought, in_phase, machine, path
from tests.unit.elastio.agent.test_market import config
from tests.values import cycle, present, volume

PAUSE_S = 60.0
BURST = Segment(12, 60)
TWO = (Segment(2, 0), BURST, Segment(PAUSE_S, 0), BURST, QUIET)
# Waiting is worth nothing: what is held is only what is paid for.
WORTHLESS = replace(MARKET, waiting_per_s=0.0)
DEARLY_AWAITED = replace(MARKET, waiting_per_s=1e-4)


def priced(load: tuple[Segment, ...] = TWO, market: Market = MARKET, **more: Any) -> Simulation:
    return machine(load, model=Model.MONEY, market=market, **more)


def awaited(
    load: tuple[Segment, ...] = (Segment(2, 0), BURST, QUIET), every_s: float = 90.0, **more: Any
) -> Simulation:
    """By money, with five bursts known that came so often: it is worth holding a cache for another."""
    runs = (
        LoadRun(every_s * number + at_s, seconds, mb_s * seconds, mb_s * seconds)
        for number in range(5)
        for at_s, seconds, mb_s in ((0.0, 12.0, 60.0), (12.0, every_s - 12.0, 0.0))
    )
    return priced(load, DEARLY_AWAITED, adviser=HindsightAdviser(runs), **more)


def bills_s(sim: Simulation) -> list[float]:
    """How long each volume existed."""
    return [
        present(v.deleted_at) - v.created_at for v in sim.world.provider.volumes.values() if v.deleted_at is not None
    ]


def reasons(sim: Simulation) -> list[str]:
    return [r["reason"] for r in sim.journal.records() if r["kind"] == "decision"]


def test_a_held_cache_takes_the_next_burst_at_full_speed() -> None:
    sim = awaited(TWO)
    sim.run_for(2 + 12 + PAUSE_S + 12 + 1)
    again = 2 + 12 + PAUSE_S
    at_speed = [m.adaptive_mb_s for m in sim.timeline if again + 1 < m.at_s < again + 12]
    assert min(at_speed) > 50, "from its first second on"
    assert_at_rest(sim, 1800)
    assert len(bought(sim)) == 1
    assert path(sim) == ["idle", "attaching", "boosting", "flushing", "detaching", "idle"]


def test_by_agbs_the_same_load_buys_two_caches() -> None:
    sim = machine(TWO)
    sim.run_for(2 + 12 + PAUSE_S + 12 + 1)
    assert_at_rest(sim)
    assert len(bought(sim)) == 2


def test_what_is_not_worth_holding_stays_for_its_paid_minute_and_no_longer() -> None:
    short = (Segment(2, 0), BURST, QUIET)
    sim = priced(short, WORTHLESS)
    in_phase(sim, Phase.BOOSTING)
    assert_at_rest(sim)
    (billed,) = bills_s(sim)
    (holding_s,) = {r["cycle"]["choice"]["holding_s"] for r in sim.journal.records() if r.get("cycle")}
    assert TARIFF.minimum_s - RELEASE_S <= billed <= TARIFF.minimum_s + RELEASE_S + holding_s


def test_a_begun_hour_is_held_to_its_end() -> None:
    by_hour = replace(WORTHLESS, tariff=replace(TARIFF, minimum_s=3600.0, step_s=3600.0))
    sim = priced((Segment(2, 0), BURST, QUIET), by_hour)
    sim.run_for(3300)
    assert sim.phase is Phase.BOOSTING
    assert_at_rest(sim)
    (billed,) = bills_s(sim)
    assert 3500 < billed <= 3600


@pytest.mark.parametrize("kind", [RequestKind.FLUSH, RequestKind.PAUSE, RequestKind.QUIESCE])
def test_a_hold_ends_at_once_when_an_operator_says_so(kind: RequestKind) -> None:
    sim = awaited()
    sim.run_for(60)
    assert sim.phase is Phase.BOOSTING
    sim.ask(kind, seconds=300.0)
    sim.run_for(2)
    assert sim.phase in (Phase.FLUSHING, Phase.DETACHING)
    assert_at_rest(sim)


def test_a_hold_ends_with_the_cap_of_the_day() -> None:
    free_s, spec = 60.0, VolumeSpec(POLICY.initial_size_bytes, POLICY.bought_bandwidth_mb_s)
    cap = TARIFF.per_hour(spec) * (free_s + 60) / 3600
    sim, uncapped = awaited(every_s=240.0, caps=Caps(max_cost_per_day=cap)), awaited(every_s=240.0)
    for of in (sim, uncapped):
        in_phase(of, Phase.BOOSTING)
        assert_at_rest(of)
    (billed,), (held,) = bills_s(sim), bills_s(uncapped)
    assert billed < free_s + 60 + RELEASE_S < held


def test_a_restart_in_a_hold_decides_the_same() -> None:
    whole, broken = awaited(), awaited()
    for sim in (whole, broken):
        in_phase(sim, Phase.BOOSTING)
        sim.run_for(60)
        assert sim.phase is Phase.BOOSTING
    before = broken.state
    broken.start_agent()
    broken.run_for(1)
    assert present(broken.state.cycle).choice == present(before.cycle).choice
    assert broken.state.memory.boost.clean_since == before.memory.boost.clean_since
    for sim in (whole, broken):
        assert_at_rest(sim, 1800)
    (first,), (second,) = bills_s(whole), bills_s(broken)
    assert math.isclose(first, second, abs_tol=3.0)


def test_the_reasons_are_in_the_journal_and_in_the_status() -> None:
    sim = awaited()
    in_phase(sim, Phase.BOOSTING)
    made = present(present(sim.state.cycle).choice)
    assert any(made.reason in reason for reason in reasons(sim))
    sim.run_for(60)
    assert any("held for" in reason for reason in reasons(sim))
    shown = dict(rows(status_of(sim.state, present(sim.agent).snapshot(), sim.policy, RuntimeInfo("1.0", 0.0))))
    assert shown["chosen"] == made.reason
    assert "unused" in shown


def test_prices_that_are_not_known_are_a_restraint_that_the_status_shows() -> None:
    sim = machine((Segment(2, 0), BURST, QUIET), model=Model.MONEY)
    sim.run_for(20)
    assert bought(sim) == []
    assert status_of(sim.state, present(sim.agent).snapshot(), sim.policy, RuntimeInfo("1.0", 0.0)).restraint


def test_bursts_that_were_not_worth_a_cache_are_not_boosted_again() -> None:
    rhythm = (Segment(2, 0), *(BURST, Segment(120, 0)) * 6, QUIET)
    cheap = replace(MARKET, waiting_per_s=1e-9)
    sim = priced(rhythm, cheap, adviser=HindsightAdviser())
    sim.run_for(2 + 6 * 132)
    assert_at_rest(sim)
    assert bought(sim) == [], "not even the first one: whatever it may write, waiting is cheaper"
    assert sum(reason.startswith("no boost") for reason in reasons(sim)) == 6


def test_the_plan_follows_the_past_bursts() -> None:
    rhythm = (Segment(2, 0), *(BURST, Segment(400, 0)) * 5, QUIET)
    sim = priced(rhythm, replace(MARKET, waiting_per_s=1e-4), adviser=HindsightAdviser())
    sim.run_for(2 + 5 * 412)
    assert_at_rest(sim, 3600)
    made = [r["cycle"]["choice"]["reason"] for r in sim.journal.records() if r.get("cycle")]
    assert "no burst is known yet" in made[0]
    assert len(bought(sim)) > 1
    assert "no burst is known yet" not in made[-1]


def test_a_full_cache_is_given_up_under_a_load_that_does_not_end() -> None:
    """Room is dear and waiting cheap: what a full cache costs in a minute is more than the flush of its data."""
    sim = priced((Segment(2, 0), Segment(1200, 60), QUIET), DEAR_ROOM)
    in_phase(sim, Phase.BOOSTING)
    in_phase(sim, Phase.IDLE, 900.0)
    assert sim.world.clock.elapsed() < 900, "under the load"
    assert any("full for" in reason for reason in reasons(sim))
    assert_at_rest(sim, 1800)
    assert len(bought(sim)) == 1, "none is bought for the same load again"


def test_a_load_that_has_filled_a_cache_gets_no_other_one_after_a_restart() -> None:
    sim = priced((Segment(2, 0), Segment(2400, 60), QUIET), DEAR_ROOM)
    in_phase(sim, Phase.BOOSTING)
    in_phase(sim, Phase.IDLE, 900.0)
    sim.start_agent()
    sim.run_for(600)
    assert sim.world.clock.elapsed() < 2000, "under the load"
    assert len(bought(sim)) == 1


@pytest.mark.parametrize("restarts", [False, True])
def test_a_load_that_never_waits_pays_for_one_trial_and_gets_another_cache_when_it_waits(*, restarts: bool) -> None:
    """It need not end. Nothing was dirty, and nothing was gained."""
    below, above = 0.5 * POLICY.backing_bandwidth_mb_s, 3 * POLICY.backing_bandwidth_mb_s
    sim = priced((Segment(2, 0), Segment(4000, below), Segment(60, above), QUIET), adviser=HindsightAdviser())
    in_phase(sim, Phase.BOOSTING, 3000.0)
    bought_at = sim.world.clock.elapsed()
    in_phase(sim, Phase.IDLE)
    assert sim.world.clock.elapsed() < bought_at + 180
    if restarts:
        sim.start_agent()
    sim.run_until(lambda: sim.world.clock.elapsed() > 4000, 4000.0)
    assert len(bought(sim)) == 1
    in_phase(sim, Phase.BOOSTING, 60.0)
    assert_at_rest(sim)


@pytest.mark.parametrize("ends", [Simulation.start_agent, Simulation.power_cut])
def test_a_full_cache_that_is_given_up_loses_nothing_when_the_agent_ends(ends: Callable[[Simulation], None]) -> None:
    sim = priced((Segment(2, 0), Segment(1200, 60), QUIET), DEAR_ROOM)
    in_phase(sim, Phase.FLUSHING, 900.0)
    sim.run_for(1)
    ends(sim)
    assert_at_rest(sim, 3600)


def test_a_start_learns_the_bursts_from_the_ledger(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        recorder = CostRecorder(ledger, KERNEL.backing_uuid)
        sim = machine((Segment(2, 0), *(BURST, Segment(100, 0)) * 4, QUIET), recorder=recorder)
        sim.run_for(2 + 4 * 112 + 60)
        recorder.flush(wall=sim.world.clock.wall())
        of = config("sim", device={"bandwidth_mb_s": 20}, cache={"bandwidth_mb_s": 80})
        adviser = present(adviser_of(recorder, of))
        policy = replace(POLICY, model=Model.MONEY, market=MARKET)
        found = None
        for _ in range(500):
            found = adviser.advise(None, sim.state, policy, offset_s=0.0)
    assert present(found).bursts == 4
    assert 12 * KERNEL.backing_mb_s < present(found).largest_mb < 12 * 60


def test_no_cache_is_let_go_for_one_ahead_that_the_bill_forbids(tmp_path: Path) -> None:
    """Four equal bursts, as the ledger knows them; then it has another cache, which nothing came for."""
    by_forecast = replace(POLICY, model=Model.MONEY, market=DEARLY_AWAITED, ahead=Ahead.LEARNED)
    of = config("sim", device={"bandwidth_mb_s": 20}, cache={"bandwidth_mb_s": 80})
    with Ledger(tmp_path / "ledger") as ledger:
        recorder = CostRecorder(ledger, KERNEL.backing_uuid)
        sim = machine((Segment(2, 0), *(BURST, Segment(300, 0)) * 4, QUIET), recorder=recorder)
        sim.run_for(2 + 4 * 312 + 60)
        recorder.flush(wall=sim.world.clock.wall())

        def cost() -> float:
            adviser, found = present(adviser_of(CostRecorder(ledger, KERNEL.backing_uuid), of)), None
            for _ in range(500):
                found = adviser.advise(None, sim.state, by_forecast, offset_s=0.0)
            return present(present(found).plan).cost

        ahead, wall = cost(), sim.world.clock.wall()
        bill = {"opened_wall": wall - 900, "closed_wall": wall - 100, "started_wall": wall - 901}
        bought_for = volume(backing_uuid=KERNEL.backing_uuid)
        ledger.record(cycle(token="in-vain", volume=bought_for, trigger=Trigger.FORECAST, **bill), 0.0)
        assert cost() > ahead


@pytest.mark.parametrize("ends", [None, Simulation.start_agent, Simulation.power_cut])
def test_a_load_that_fills_a_small_cache_gets_a_larger_one(ends: Callable[[Simulation], None] | None) -> None:
    """Three short bursts teach a small cache. The fourth goes on and on, and waiting is dear."""
    dear = replace(MARKET, tariff=replace(TARIFF, per_gib_hour=0.01), waiting_per_s=1e-4)
    load = (Segment(2, 0), *(BURST, Segment(900, 0)) * 3, Segment(300, 60), QUIET)
    sim = priced(load, dear, adviser=HindsightAdviser())
    sim.run_for(2 + 3 * 912)
    in_phase(sim, Phase.BOOSTING)
    in_phase(sim, Phase.FLUSHING)
    if ends is not None:
        sim.run_for(1)
        ends(sim)
    in_phase(sim, Phase.IDLE)
    in_phase(sim, Phase.BOOSTING)
    *_, small, large = bought(sim)
    assert large > small
    assert "goes on" in [r["cycle"]["choice"]["reason"] for r in sim.journal.records() if r.get("cycle")][-1]
    assert_at_rest(sim, 1800)
    assert len(bought(sim)) == 5, "for one load no more than it pays for"
