"""A quota that leaves no room for the size that was learned."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.core.actions import CreateVolume, Outcome, OutcomeKind
from elastio.core.boosting import cycle_view
from elastio.core.machine import decide
from elastio.core.model import Request, RequestKind, VolumeSpec
from elastio.core.phase import Phase
from elastio.core.policy import Policy
from elastio.core.state import AgentState
from elastio.strategy import learning, review
from elastio.strategy.learning import REFUSED_S
from elastio.strategy.memory import BurstLesson, LearnedBandwidth, Memory, QuotaReached
from elastio.units import GIB
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment, Trace
from elastio_sim.world import SimWorld
from tests.unit.elastio.strategy.test_filling import DEAR_WAITING, DIRTY_S, filling_load, shown
from tests.values import HIGH, POLICY, UNBOUGHT, WALL, ask, backing, changed, cycle, host, present, seen, state

HALF = QuotaReached(5 * GIB, WALL - 60)


def refused(before: AgentState, *, is_quota: bool, policy: Policy = POLICY) -> AgentState:
    """After the cloud's refusal of what this boost wanted to buy."""
    cycle = present(before.cycle)
    buys = CreateVolume(cycle.token, cycle.spec, policy.caps.max_size_bytes)
    outcome = Outcome(buys, OutcomeKind.REFUSED, error="no", is_quota=is_quota)
    return decide(before, seen(host(backing()), outcomes=(outcome,)), policy).state


def buying(gib: float) -> AgentState:
    spec = replace(UNBOUGHT.spec, size_bytes=int(gib * GIB))
    return state(Phase.ATTACHING, replace(UNBOUGHT, spec=spec), load=HIGH)


def next_bytes(before: AgentState, wall: float = WALL, *requests: Request) -> int:
    """The size of the boost that begins now, of 10 GiB without a quota."""
    after = decide(before, seen(host(backing()), wall=wall, requests=requests), POLICY).state
    return present(after.cycle).spec.size_bytes


@pytest.mark.parametrize(("asked", "most"), [(10, 5), (5, 2), (3, 1), (1, 1)])
def test_after_a_refusal_half_is_asked_for_in_whole_steps_and_never_less_than_the_least(asked: int, most: int) -> None:
    after = refused(buying(asked), is_quota=True)
    assert (after.phase, after.memory.quota) == (Phase.IDLE, QuotaReached(most * GIB, WALL))


def sold(gib: int, memory: Memory) -> Memory:
    return learning.with_sale(memory, cycle_view(cycle(spec=VolumeSpec(gib * GIB, 80), volume=None)))


def test_what_was_sold_is_doubled_until_that_is_refused() -> None:
    """The quota may be one of the number of volumes, which has room again: then the size is soon as learned."""
    first = refused(buying(4), is_quota=True).memory
    twice = sold(2, first)
    again = refused(replace(buying(4), memory=twice), is_quota=True).memory
    found = [learning.most_bytes(memory, WALL, POLICY) / GIB for memory in (first, twice, again, sold(2, again))]
    assert found == [2, 4, 2, 2]
    assert learning.most_bytes(sold(8, sold(4, twice)), WALL, POLICY) == 16 * GIB
    less = refused(replace(buying(2), memory=again), is_quota=True).memory
    assert learning.most_bytes(less, WALL, POLICY) == GIB, "what was sold is refused, too"
    assert learning.most_bytes(sold(1, less), WALL, POLICY) == 2 * GIB
    between = refused(replace(buying(3), memory=twice), is_quota=True).memory
    assert learning.most_bytes(between, WALL, POLICY) == 2 * GIB, "that was sold"


def test_another_refusal_says_nothing_of_the_size() -> None:
    assert refused(buying(10), is_quota=False).memory.quota is None


def test_the_bandwidth_may_be_what_was_refused() -> None:
    known = LearnedBandwidth(200.0, (BurstLesson(0.0, 100.0, 10.0, 5.0, 500.0, 800.0),))
    after = refused(changed(buying(10), bandwidth=known), is_quota=True)
    assert present(after.memory.bandwidth).refused_mb_s == 100.0


def test_what_a_quota_has_refused_is_not_asked_for_again_for_an_hour() -> None:
    idle = state(Phase.IDLE, load=HIGH, quota=HALF)
    assert next_bytes(idle) == 5 * GIB
    assert next_bytes(idle, HALF.at_wall + REFUSED_S) == POLICY.initial_size_bytes
    assert next_bytes(idle, HALF.at_wall - 1) == POLICY.initial_size_bytes  # the clock was set back
    assert next_bytes(changed(idle, learned_size_bytes=3 * GIB)) == 3 * GIB


def test_an_operator_decides_otherwise() -> None:
    idle, boost = state(Phase.IDLE, quota=HALF), Request(RequestKind.BOOST)
    assert next_bytes(idle, WALL, boost) == 5 * GIB
    assert next_bytes(idle, WALL, replace(boost, size_bytes=9 * GIB)) == 9 * GIB
    for said in (Request(RequestKind.RESUME), Request(RequestKind.LEARN, 10 * GIB)):
        assert next_bytes(idle, WALL, said, boost) == 10 * GIB


def test_a_full_cache_is_not_given_up_for_one_that_was_refused() -> None:
    full = filling_load(2 * DIRTY_S)
    larger = learning.most_bytes(full.memory, WALL, DEAR_WAITING)
    assert ask(review.outgrown, changed(full, quota=QuotaReached(larger, WALL)), shown(), DEAR_WAITING) is not None
    assert ask(review.outgrown, changed(full, quota=QuotaReached(GIB, WALL)), shown(), DEAR_WAITING) is None


def test_a_burst_gets_the_cache_that_there_is_room_for() -> None:
    """3 GiB are left of the quota: of 10, 5 and 2 GiB the third is sold."""
    world = SimWorld(workload=Trace((Segment(5, 0), Segment(400, 60))))
    world.provider.account = replace(world.provider.account, quota_bytes=3 * GIB)
    sim = Simulation(world, replace(POLICY, backing_uuid=world.settings.kernel.backing_uuid))
    sim.run_until(lambda: sim.phase is Phase.BOOSTING, 300)
    assert [volume.size_bytes for volume in world.provider.volumes.values()] == [2 * GIB]
    asked = [r for r in sim.journal.records() if r["kind"] == "outcome" and r["action"] == "CreateVolume"]
    assert [r["verdict"] for r in asked] == ["refused", "refused", "done"]
    assert present(sim.state.memory.quota).sold_bytes == 2 * GIB
