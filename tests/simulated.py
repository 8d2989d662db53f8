"""One small simulated machine for all tests under the real agent: 20 MB/s backing volume, 80 MB/s cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from elastio.core.cycle import FailureKind
from elastio.core.policy import Ahead, Model, Policy
from elastio.core.shares import LatencyTarget
from elastio.core.state import Phase
from elastio.ports import Adviser, Forecaster, Reporter
from elastio.strategy.hindsight import PastLoad, Pause, plans, slow_cost
from elastio.strategy.speed import in_ratio
from elastio.strategy.tariff import Tariff
from elastio.strategy.worth import UNBOUNDED, Bounds, Market, Offer, Plan, Terms
from elastio.units import GIB, MIB
from elastio_sim.faults import FaultPlan
from elastio_sim.kernel import KernelSettings
from elastio_sim.prices import TARIFF
from elastio_sim.provider import SimProvider
from elastio_sim.run import SAMPLE_S, KeptRecorder, Point, Simulation, ignore
from elastio_sim.workload import Segment, Trace
from elastio_sim.world import SimWorld, WorldSettings

KERNEL = KernelSettings(backing_mb_s=20, block_bytes=4 * MIB)
POLICY = Policy(
    backing_bandwidth_mb_s=20,
    cache_bandwidth_mb_s=80,
    inactivity_delay_s=4,
    initial_size_bytes=2 * GIB,
    backing_uuid=KERNEL.backing_uuid,
)
# At the simulator's prices. An hour of waiting is cheap enough that a cache is held for a minute or two, not for hours.
MARKET = Market(TARIFF, 1e-5, Offer(in_ratio(25, 80), least_bytes=GIB, most_bytes=8 * GIB))
# Waiting is cheaper than room: a full cache is given up under its load.
DEAR_ROOM = replace(MARKET, tariff=Tariff("USD", per_gib_hour=0.1), waiting_per_s=1e-6)
# A read that waits for half a second of writes has waited too long.
PROMPT_READERS = (LatencyTarget("reader.service", 250.0),)
QUIET = Segment(1e9, 0)
BURST = (Segment(2, 0), Segment(12, 60), QUIET)
# Above the threshold, and with instants without a request in flight: a detach needs one.
STEADY = (Segment(2, 0), Segment(1e9, 15))


def by_money(policy: Policy, market: Market = MARKET) -> Policy:
    """The policy that decides by this market."""
    return replace(policy, model=Model.MONEY, market=market)


def edited(policy: Policy) -> Policy:
    """What an operator may make of it while the agent runs: what a boost was decided by holds no more."""
    return replace(
        policy,
        utilization_threshold=0.8,
        release_threshold=0.05,
        inactivity_delay_s=policy.inactivity_delay_s + 4,
        initial_size_bytes=policy.initial_size_bytes * 2,
        attach_timeout_s=20.0,
        ahead=Ahead.OFF,
        model=Model.AGBS,
        market=None,
    )


def machine(
    load: tuple[Segment, ...] = BURST,
    faults: str = "nothing",
    *,
    point: Point = ignore,
    recorder: KeptRecorder | None = None,
    forecaster: Forecaster | None = None,
    adviser: Adviser | None = None,
    reporter: Reporter | None = None,
    tariff: Tariff = TARIFF,
    sample_interval_s: float = SAMPLE_S,
    **policy: Any,
) -> Simulation:
    """The agent on this load and story; `policy` overrides POLICY."""
    settings = WorldSettings(kernel=KERNEL, seed=5, tariff=tariff)
    world = SimWorld(settings, Trace(load, block_bytes=4 * MIB), FaultPlan.parse(faults))
    return Simulation(
        world,
        replace(POLICY, **policy),
        sample_interval_s=sample_interval_s,
        point=point,
        recorder=recorder,
        forecaster=forecaster,
        adviser=adviser,
        reporter=reporter,
    )


def failures(sim: Simulation) -> set[FailureKind]:
    """Why boosts failed, as the journal has it."""
    decided = (r["cycle"] for r in sim.journal.records() if r["kind"] == "decision" and r["cycle"])
    return {FailureKind(cycle["failure"]["kind"]) for cycle in decided if cycle["failure"]}


def intents(sim: Simulation, action: str) -> int:
    """How often an action was started."""
    return sum(1 for r in sim.journal.records() if r["kind"] == "intent" and r["action"] == action)


def path(sim: Simulation) -> list[str]:
    """The phases in their order."""
    phases = ["idle"]
    for record in sim.journal.records():
        if record["kind"] == "decision" and record["to"] != phases[-1]:
            phases.append(record["to"])
    return phases


def assert_at_rest(sim: Simulation, limit_s: float = 900.0) -> None:
    """Run on until nothing is left to do; nothing may be lost or left then."""
    sim.run_until_settled(limit_s)
    assert sim.world.volumes_left() == 0
    assert not sim.world.lost(power_cut=True)


def in_phase(sim: Simulation, phase: Phase, limit_s: float = 300.0) -> None:
    sim.run_until(lambda: sim.phase is phase, limit_s)


def bought(sim: Simulation) -> list[int]:
    return [v.size_bytes for v in sim.world.provider.volumes.values() if v.owner]


class _OnlyThePort:
    """A provider without anything beside the eight methods of the port."""

    def __init__(self, provider: SimProvider) -> None:
        self._provider = provider

    def __getattr__(self, name: str) -> Any:
        if name in ("notice", "tag"):
            raise AttributeError(name)
        return getattr(self._provider, name)


def only_the_port(provider: SimProvider) -> Any:
    return _OnlyThePort(provider)


def best_plan(
    terms: Terms, offer: Offer, past: Sequence[PastLoad], bounds: Bounds = UNBOUNDED, pauses: Sequence[Pause] = ()
) -> Plan | None:
    """The cheapest plan for these bursts; None if none would have been cheaper than to buy nothing.

    `pauses`: all that are known, for `hold.holding_s`.
    """
    if not past:
        return None
    nothing = slow_cost(terms, past)
    best = min(plans(terms, offer, past, bounds, pauses), key=lambda p: p.cost, default=None)
    return best if best is not None and best.cost < nothing else None
