"""Cgroups share the device from the slow volume through the boost and back, and never while requests are held back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.agent.request_handler import RequestHandler
from elastio.core.model import RequestKind, Sample
from elastio.core.policy import Policy
from elastio.core.shares import BoostRights, LatencyTarget, Reserved
from elastio.core.state import AgentState, Phase
from elastio.units import MB
from elastio_sim.faults import FaultMode, ScheduledFault
from elastio_sim.records import IN_MEMORY, MemoryRecorder
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment, Trace
from elastio_sim.world import SimWorld, WorldSettings
from tests.simulated import KERNEL, POLICY, PROMPT_READERS, bought

SHARED = replace(POLICY, share_reserve=())


def simulated(policy: Policy = SHARED, *load: Segment) -> Simulation:
    trace = Trace(load or (Segment(20, 80.0, 20.0), Segment(1e9, 0)), 4000 * KERNEL.block_bytes, KERNEL.block_bytes)
    return Simulation(SimWorld(WorldSettings(kernel=KERNEL), trace), policy)


def capacity(sim: Simulation) -> float | None:
    plan = sim.world.kernel.shares.plan
    return None if plan is None else plan.capacity_mb_s


def intents(sim: Simulation) -> int:
    return sum(1 for r in sim.journal.records() if r.get("action") == "SetShares" and r["kind"] == "intent")


def test_what_is_shared_follows_the_capacity() -> None:
    sim = simulated()
    seen: dict[Phase, set[float | None]] = {}
    sim.on_step = lambda: seen.setdefault(sim.phase, set()).add(capacity(sim))
    sim.run_for(30.0)
    sim.run_until_settled()
    sim.run_for(15.0)
    idle, boosting = capacity(sim), max(mb_s or 0.0 for mb_s in seen[Phase.BOOSTING])
    assert idle == pytest.approx(0.97 * KERNEL.backing_mb_s)
    assert boosting > 2 * (idle or 0.0)
    assert sim.world.kernel.shares.stayed == 0
    assert intents(sim) < 30


def test_nothing_is_shared_unless_that_is_switched_on() -> None:
    sim = simulated(POLICY)
    sim.run_for(30.0)
    sim.run_until_settled()
    assert intents(sim) == 0


def test_what_is_shared_is_taken_back_when_that_is_switched_off() -> None:
    sim = simulated(SHARED, Segment(1e9, 0))
    sim.run_for(15.0)
    assert capacity(sim)
    agent = sim.agent
    assert agent is not None
    agent.policy = POLICY
    sim.run_for(15.0)
    assert capacity(sim) is None


def test_other_reservations_are_put_in_force() -> None:
    sim = simulated(SHARED, Segment(1e9, 0))
    sim.run_for(15.0)
    agent = sim.agent
    assert agent is not None
    agent.policy = replace(POLICY, share_reserve=(Reserved("a.service", 4.0),))
    sim.run_for(15.0)
    plan = sim.world.kernel.shares.plan
    assert plan is not None
    assert plan.reserve == agent.policy.share_reserve


def test_a_target_that_is_new_is_put_in_force() -> None:
    sim = simulated(SHARED, Segment(1e9, 0))
    sim.run_for(15.0)
    agent = sim.agent
    assert agent is not None
    agent.policy = replace(SHARED, share_latency=PROMPT_READERS)
    sim.run_for(15.0)
    plan = sim.world.kernel.shares.plan
    assert plan is not None
    assert plan.latency == PROMPT_READERS
    shown = RequestHandler(agent, IN_MEMORY, 0.0).status().capacity
    assert shown is not None
    assert shown.latency == PROMPT_READERS


def used_beside(ms: float | None, *load: Segment) -> tuple[Simulation, float, float]:
    """MB/s of the writer and the reader once limits have settled, without a boost. `ms`: the target of the reader."""
    latency = () if ms is None else (LatencyTarget("reader.service", ms),)
    sim = simulated(replace(SHARED, trigger_delay_s=3600.0, share_latency=latency), *load)
    sim.run_for(60.0)
    moved = sim.world.kernel.traffic.adaptive
    written, read = moved.written, moved.read
    sim.run_for(60.0)
    return sim, (moved.written - written) / MB / 60, (moved.read - read) / MB / 60


def test_a_writer_lends_what_a_reader_with_a_latency_target_leaves_only_while_the_reader_need_not_wait() -> None:
    half = capacity(simulated_for(15.0)) or 0.0
    half /= 2
    for ms, least, most in ((None, 1.4, 2.0), (1000.0, 1.4, 2.0), (100.0, 0.95, 1.05)):
        _, written, read = used_beside(ms, Segment(1e9, 60.0, 3.0))
        assert least * half < written < most * half, ms
        assert read == pytest.approx(3.0, rel=0.05), ms


def simulated_for(seconds: float) -> Simulation:
    sim = simulated(SHARED, Segment(1e9, 0))
    sim.run_for(seconds)
    return sim


def test_a_reader_that_wants_more_than_its_share_has_no_claim_to_a_latency() -> None:
    sim, written, read = used_beside(100.0, Segment(1e9, 60.0, 60.0))
    assert sim.world.kernel.shares.level == 1.0
    assert written == pytest.approx(read, rel=0.1)


def test_a_writer_has_all_again_once_the_reader_is_gone() -> None:
    sim, written, read = used_beside(100.0, Segment(20, 60.0, 3.0), Segment(1e9, 60.0))
    assert sim.world.kernel.shares.level == 1.0
    assert written > 0.95 * (capacity(sim) or 0.0)
    assert read == 0.0


def test_a_faulted_agent_limits_nobody() -> None:
    sim = simulated()
    sim.run_until(lambda: sim.phase is Phase.BOOSTING and bool(capacity(sim)), 200.0)
    sim.world.vanish()
    sim.run_until(lambda: sim.phase is Phase.FAULTED, 200.0)
    sim.run_until(lambda: capacity(sim) is None, 5.0)
    assert sim.phase is Phase.FAULTED


@pytest.mark.parametrize("kind", [FaultMode.KILL, FaultMode.STOP])
def test_limits_go_within_ten_seconds_of_the_agent(kind: FaultMode) -> None:
    sim = simulated()
    sim.run_until(lambda: sim.phase is Phase.BOOSTING and bool(capacity(sim)), 200.0)
    sim.happen(ScheduledFault("0", kind, 60.0))
    sim.run_for(12.0)
    assert capacity(sim) is None
    sim.run_for(60.0)
    assert capacity(sim), "the next agent, or the same one, shares again"


def test_an_order_to_flush_under_load_ends_the_sharing_while_writes_are_limited() -> None:
    sim = simulated(SHARED, Segment(1e9, 80.0))
    sim.run_until(lambda: sim.phase is Phase.BOOSTING and bool(capacity(sim)), 200.0)
    sim.request(RequestKind.FLUSH)
    sim.run_until(lambda: sim.world.kernel.bcache.write_limit_mb_s is not None, 200.0)
    assert capacity(sim) is None
    sim.run_until(lambda: sim.phase is Phase.DETACHING, 500.0)
    assert sim.world.kernel.shares.stayed == 0


# --- who may cause a boost -------------------------------------------------------------------------------

NO_READERS = replace(POLICY, boost_rights=BoostRights(no=("reader.service",)))
READING = Segment(30, 0.0, 18.0)


class KeptSamples(MemoryRecorder):
    """The samples that are given to the history."""

    def __init__(self) -> None:
        super().__init__()
        self.samples: list[Sample] = []

    def sampled(self, sample: Sample, state: AgentState, *, now: float, wall: float) -> None:
        self.samples.append(sample)


def test_a_backup_without_the_right_causes_no_boost() -> None:
    sim = simulated(NO_READERS, READING, Segment(1e9, 0))
    sim.run_for(60.0)
    assert bought(sim) == []
    with_right = simulated(POLICY, READING, Segment(1e9, 0))
    with_right.run_for(60.0)
    assert len(bought(with_right)) == 1


def test_a_database_gets_its_boost_beside_a_backup_and_keeps_it_no_longer_than_it_writes() -> None:
    sim = simulated(NO_READERS, READING, Segment(12, 40.0, 18.0), Segment(1e9, 0.0, 18.0))
    sim.run_until(lambda: sim.phase is Phase.BOOSTING, 90.0)
    begun = sim.world.clock.elapsed()
    assert begun > READING.seconds
    sim.run_until(lambda: sim.phase is Phase.IDLE, 200.0)
    sim.run_for(60.0)
    assert len(bought(sim)) == 1
    assert sim.world.volumes_left() == 0


def test_the_history_has_what_counts_and_all_that_came_with_it() -> None:
    kept = KeptSamples()
    load = Trace((Segment(20, 0.0, 18.0), Segment(10, 12.0, 4.0)), 4000 * KERNEL.block_bytes, KERNEL.block_bytes)
    Simulation(SimWorld(WorldSettings(kernel=KERNEL), load), NO_READERS, recorder=kept).run_for(28.0)
    read_mb_s = [sample.adaptive.read_mb_s for sample in kept.samples]
    assert max(read_mb_s[:18]) == 0
    assert max(read_mb_s[18:]) > 2


def test_rights_that_are_given_while_the_agent_runs_hold_at_once() -> None:
    sim = simulated(NO_READERS, Segment(1e9, 0.0, 18.0))
    sim.run_for(20.0)
    assert sim.phase is Phase.IDLE
    agent = sim.agent
    assert agent is not None
    agent.policy = POLICY
    sim.run_until(lambda: sim.phase is Phase.BOOSTING, 60.0)
    assert len(bought(sim)) == 1
