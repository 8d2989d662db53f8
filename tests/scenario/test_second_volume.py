"""A volume beside that of the cycle, which comes or stays while a boost goes on: it is seen, billed and released."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from elastio.core.cycle import Cycle
from elastio.core.model import RequestKind, Volume, VolumeSpec, VolumeState
from elastio.core.state import FaultKind, Phase
from elastio.errors import AuthError
from elastio_sim.cloud import CloudVolume
from elastio_sim.records import MemoryRecorder
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment
from tests.simulated import QUIET, assert_at_rest, in_phase, machine
from tests.values import present

EVERY_S = 60.0
LONG = (Segment(2, 0), Segment(12, 60), Segment(900, 15), QUIET)


def bill(sim: Simulation, name: str) -> Cycle:
    assert isinstance(sim.recorder, MemoryRecorder)
    return sim.recorder.rows[name]


def with_twin() -> tuple[Simulation, CloudVolume]:
    """A purchase whose answer was lost was carried out once more, long after the cache is there."""
    sim = machine(LONG, reconcile_interval_s=EVERY_S)
    in_phase(sim, Phase.BOOSTING)
    cloud, cycle = sim.world.provider, present(sim.state.cycle)
    twin = cloud.volumes[cloud.add_foreign_volume(token=cycle.token)]
    twin.owner, twin.backing_uuid = cloud.account.instance_id, sim.policy.backing_uuid
    return sim, twin


def test_the_second_volume_of_a_purchase_is_seen_in_the_boost_and_released_after_it() -> None:
    sim, twin = with_twin()
    used = present(present(sim.state.cycle).volume_id)
    sim.run_for(2 * EVERY_S)
    assert (sim.phase, present(sim.state.cycle).volume_id) == (Phase.BOOSTING, used)
    assert present(present(sim.state.cycle).volume).id == used
    assert {v.id for v in sim.state.owned or ()} == {used, twin.id}
    assert bill(sim, twin.id).closed_wall is None
    assert_at_rest(sim, 2400)
    for name, volume in ((twin.id, twin), (twin.token, sim.world.provider.volumes[used])):
        row = bill(sim, name)
        billed_s = present(row.closed_wall) - present(row.opened_wall)
        assert billed_s == pytest.approx(present(volume.deleted_at) - volume.created_at, abs=5)


def test_a_restart_in_the_boost_lists_the_volumes_again() -> None:
    sim, twin = with_twin()
    sim.start_agent()
    sim.run_for(20)
    assert sim.phase is Phase.BOOSTING
    assert twin.id in {v.id for v in present(sim.state.owned)}
    assert_at_rest(sim, 2400)


def test_a_cache_that_holds_data_does_not_make_the_lists_frequent() -> None:
    sim = machine(LONG, reconcile_interval_s=3600.0)
    in_phase(sim, Phase.BOOSTING)
    sim.start_agent()
    sim.run_for(30)
    listed = present(sim.state.listed)
    assert listed.again_at - listed.at > 0.7 * 3600


def test_a_purchase_that_was_carried_out_and_refused_leaves_no_volume() -> None:
    """As where a repeat of it, which the agent did not see, was refused."""
    sim = machine((Segment(2, 0), Segment(8, 60), QUIET))
    cloud = sim.world.provider
    create, calls = cloud.create, []

    def refused(token: str, spec: VolumeSpec, tags: Mapping[str, str]) -> Volume:
        calls.append(create(token, spec, tags))
        if len(calls) == 1:
            raise AuthError("the request has expired", code="RequestExpired")
        return calls[-1]

    cloud.create = refused  # type: ignore[method-assign]
    sim.run_for(120)
    assert sim.phase is Phase.IDLE
    assert sim.world.volumes_left() == 0


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_volume_that_lost_its_label_stays_billed_until_an_operator_has_dealt_with_it(is_deleted: bool) -> None:
    sim = machine()
    in_phase(sim, Phase.BOOSTING)
    (lost,) = sim.world.provider.volumes.values()
    owner, lost.owner = lost.owner, ""
    sim.run_for(150)
    assert present(sim.state.fault).kind is FaultKind.UNLABELED
    assert sim.ask(RequestKind.RESUME).accepted
    in_phase(sim, Phase.FAULTED)
    assert (lost.deleted_at, bill(sim, lost.token).closed_wall) == (None, None)
    if is_deleted:
        sim.world.provider.vanish(lost.id)
        lost.state, lost.deleted_at = VolumeState.GONE, sim.world.clock.elapsed()
    else:
        lost.owner = owner
    assert sim.ask(RequestKind.RESUME).accepted
    assert_at_rest(sim)
    assert bill(sim, lost.token).closed_wall is not None


def test_a_deletion_that_fails_later_is_seen_in_the_next_boost_and_billed_on() -> None:
    sim = machine((Segment(2, 0), Segment(12, 60), Segment(40, 0), Segment(1e9, 15)))
    in_phase(sim, Phase.BOOSTING)
    (first,) = sim.world.provider.volumes.values()

    def keep_deleting() -> None:
        if first.state is VolumeState.DELETING:
            first.changes += 1  # what would end it does not come

    sim.on_step = keep_deleting
    sim.run_until(lambda: sim.phase is Phase.BOOSTING and present(sim.state.cycle).token != first.token, 400)
    assert bill(sim, first.token).closed_wall is not None
    first.state, first.deleted_at = VolumeState.ERROR, None
    sim.run_for(120)
    assert sim.phase is Phase.BOOSTING
    assert {v.state for v in present(sim.state.owned) if v.id == first.id} == {VolumeState.ERROR}
    assert bill(sim, first.token).closed_wall is None
