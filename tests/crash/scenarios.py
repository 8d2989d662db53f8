"""What crash cases play: a load, what an operator does along the way, and the settings of the agent."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from elastio.core.model import RequestKind
from elastio.core.policy import Ahead, Policy
from elastio.core.state import Phase
from elastio.strategy.memory import SpeedBounds
from elastio.strategy.spending import Caps
from elastio.strategy.tariff import Tariff
from elastio.units import GIB, MB
from elastio_sim.prices import TARIFF
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment
from tests import simulated
from tests.moved import FIRST_LOAD
from tests.simulated import DEAR_ROOM, PROMPT_READERS, QUIET, by_money
from tests.spending import Cap

POLICY = replace(simulated.POLICY, inactivity_delay_s=3, initial_size_bytes=GIB)
# Below the threshold, so that the cache is flushed and leaves under it.
MURMUR = Segment(25, 3)
MANY_BLOCKS, FEW_BLOCKS = 12_000, 24
LIMIT_S, DOWN_S, OVER_S = 900.0, 20.0, 40.0
# The cap is reached some seconds after the attachment.
CAP_AGBS = 8000.0
# Two boosts fit into it, and the second ends before its load. Each second is billed, and no minute at the least.
SHARED_CAP, SECONDLY = Cap("max_cost_per_month", 126.0), Tariff("USD", per_gib_hour=0.1)


@dataclass(frozen=True)
class Scenario:
    """A load, and what an operator does along the way: `(condition, act)` pairs in their order.

    A scenario that comes later (a resize, a stripe) is one more entry of SCENARIOS; `volumes` is how many may be there
    at once, `policy` what it is run with. `blocks`: the load cycles over this many.
    `learned_s`: earlier bursts are in the ledger, from which one is expected at this second of the run.
    `moved`: another machine has died dirty, and the cache is taken over. `beside`: the load of another device of the
    machine, whose agent has the same settings and is never disturbed. `adopted`: the volume had its filesystem before.
    """

    load: tuple[Segment, ...]
    acts: tuple[tuple[Callable[[Simulation], bool], Callable[[Simulation], None]], ...] = ()
    orphan: bool = False
    moved: bool = False
    adopted: bool = False
    volumes: int = 1
    policy: Policy = POLICY
    blocks: int = MANY_BLOCKS
    learned_s: float | None = None
    beside: tuple[Segment, ...] = ()
    tariff: Tariff = TARIFF


def ask(kind: RequestKind) -> Callable[[Simulation], None]:
    """An operator whose agent dies while it is asked does not ask again; one whose agent is stopped waits."""

    def act(sim: Simulation) -> None:
        sim.ask(kind, limit_s=LIMIT_S)

    return act


def _ask_to_end(sim: Simulation) -> None:
    """An agent that is stopped does not answer, and systemd kills it like any other."""
    with suppress(TimeoutError):
        sim.ask(RequestKind.SHUTDOWN)


def stop_service(sim: Simulation) -> None:
    """`systemctl stop`, and a start some time later: what is under way goes on without the agent."""
    _ask_to_end(sim)
    sim.kill_agent()
    sim.run_for(DOWN_S)
    sim.start_agent()


def shut_down(sim: Simulation) -> None:
    """The service is stopped with its machine, which boots again: no worse than a power cut."""
    _ask_to_end(sim)
    sim.kill_agent()
    sim.power_cut()


def is_over(sim: Simulation) -> bool:
    """Nothing came of the boost, or it went by unseen: what failed may have left no time for it."""
    return sim.is_settled() and sim.world.clock.elapsed() > OVER_S


def has_boosted(sim: Simulation) -> bool:
    return sim.phase is Phase.BOOSTING or is_over(sim)


def is_flushing(sim: Simulation) -> bool:
    return sim.phase in (Phase.FLUSHING, Phase.DETACHING) or is_over(sim)


def can_boost(sim: Simulation) -> bool:
    return sim.phase is Phase.IDLE and sim.state.owned is not None


def announce(sim: Simulation) -> None:
    """An application says when its burst begins; one whose agent dies meanwhile says it no more."""
    sim.ask(RequestKind.EXPECT, limit_s=LIMIT_S, seconds=15.0, size_bytes=300 * MB)


BURST = (Segment(2, 0), Segment(9, 60), QUIET)
SCENARIOS = {
    "boost": Scenario(BURST),
    "boost again": Scenario((Segment(2, 0), Segment(9, 60), Segment(6, 0), Segment(4, 30), QUIET)),
    "second burst": Scenario((*BURST[:2], Segment(25, 0), Segment(9, 60), QUIET), blocks=FEW_BLOCKS),
    "written again": Scenario((Segment(2, 0), Segment(9, 60), MURMUR, QUIET), blocks=FEW_BLOCKS),
    "operator": Scenario(
        (Segment(20, 2), QUIET),
        ((can_boost, ask(RequestKind.BOOST)), (has_boosted, ask(RequestKind.FLUSH))),
        blocks=FEW_BLOCKS,
    ),
    "pause": Scenario(BURST, ((has_boosted, ask(RequestKind.PAUSE)), (can_boost, ask(RequestKind.RESUME)))),
    "stop while boosting": Scenario(BURST, ((has_boosted, stop_service),), blocks=FEW_BLOCKS),
    "stop while flushing": Scenario((*BURST[:2], MURMUR, QUIET), ((is_flushing, stop_service),), blocks=FEW_BLOCKS),
    "shutdown": Scenario((*BURST[:2], MURMUR, QUIET), ((has_boosted, shut_down),), blocks=FEW_BLOCKS),
    "expected": Scenario((Segment(20, 0), Segment(9, 60), QUIET), ((can_boost, announce),), blocks=FEW_BLOCKS),
    "capped": Scenario(
        (Segment(2, 0), Segment(120, 60), QUIET), policy=replace(POLICY, caps=Caps(max_agbs_per_day=CAP_AGBS))
    ),
    "shared": Scenario(
        (Segment(78, 0), Segment(75, 10), QUIET),
        policy=replace(POLICY, caps=SHARED_CAP.caps(POLICY.bought_bandwidth_mb_s, SECONDLY, is_shared=True)),
        blocks=FEW_BLOCKS,
        beside=(Segment(1, 0), Segment(60, 8), QUIET),
        tariff=SECONDLY,
    ),
    "beside": Scenario(BURST, beside=(Segment(4, 0), Segment(20, 60), QUIET), blocks=FEW_BLOCKS),
    "held": Scenario(
        (Segment(2, 0), Segment(9, 60), Segment(60, 0), Segment(4, 60), QUIET),
        policy=by_money(POLICY),
        blocks=FEW_BLOCKS,
    ),
    "filled": Scenario((Segment(2, 0), Segment(150, 60), QUIET), policy=by_money(POLICY, DEAR_ROOM)),
    "learned": Scenario(
        (Segment(25, 0), Segment(9, 60), QUIET),
        policy=replace(POLICY, ahead=Ahead.LEARNED),
        blocks=FEW_BLOCKS,
        learned_s=25.0,
    ),
    "slower": Scenario(
        (Segment(2, 0), Segment(12, 12), Segment(25, 0), Segment(9, 12), QUIET),
        policy=replace(POLICY, bandwidth=SpeedBounds(40.0, 20.0, 80.0, 0.2)),
        blocks=FEW_BLOCKS,
    ),
    "shares": Scenario(
        (Segment(2, 0), Segment(9, 60, 8), QUIET),
        policy=replace(POLICY, share_reserve=(), share_latency=PROMPT_READERS),
        blocks=FEW_BLOCKS,
    ),
    "orphan": Scenario((QUIET,), orphan=True),
    "taken over": Scenario((*FIRST_LOAD, Segment(6, 60), QUIET), moved=True),
    "adopted": Scenario(BURST, adopted=True, blocks=FEW_BLOCKS),
}
