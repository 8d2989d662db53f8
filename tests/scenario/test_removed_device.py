"""The backing device is gone, and nobody knows whether it comes back: an operator can end its cycle."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.agent.journal import Owner
from elastio.agent.memory import recall
from elastio.core.machine import decide
from elastio.core.model import HostView, Request, RequestKind
from elastio.core.state import Observation, Phase
from elastio.errors import ConfigError
from elastio_sim.records import MemoryRecorder
from elastio_sim.run import Simulation
from tests.scenario.test_missing_cache import dirty_and_quiet
from tests.simulated import in_phase
from tests.values import present


def removed(*, is_restarted: bool) -> Simulation:
    """The device was removed in a boost, with dirty data on its cache."""
    sim = dirty_and_quiet()
    sim.world.kernel.remove_backing()
    if is_restarted:
        sim.start_agent()
        sim.run_for(60)
        assert not sim.state.recovered
    else:
        in_phase(sim, Phase.FAULTED)
    return sim


def volume(sim: Simulation) -> str:
    return str(present(present(sim.state.cycle).volume_id))


def is_paid(sim: Simulation) -> bool:
    """Whether the bill of the only volume goes on."""
    recorder = sim.recorder
    assert isinstance(recorder, MemoryRecorder)
    return [row.closed_wall for row in recorder.rows.values()] == [None]


def with_another_device(sim: Simulation) -> None:
    """What a start with another `device.backing_uuid` reads. Raises ConfigError while there is an open cycle."""
    journal = sim.journal
    other = Owner("another-uuid", journal.owner.machine)
    recall(journal.records(), journal.path, now=0.0, wall=0.0, boot_id="boot", owner=other)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_its_cycle_is_ended_by_an_operator_who_names_the_volume_which_stays(is_restarted: bool) -> None:
    sim = removed(is_restarted=is_restarted)
    name = volume(sim)
    with pytest.raises(ConfigError):
        with_another_device(sim)
    for named in (None, "vol-other"):
        answer = sim.ask(RequestKind.RECOVER, accepts_loss=True, volume_id=named)
        assert (answer.accepted, answer.code) == (False, "recover.volume_id")
    assert sim.ask(RequestKind.RECOVER, accepts_loss=True, volume_id=name, asked_by=0).accepted
    assert is_paid(sim)
    (order,) = [o for r in sim.journal.records() for o in r.get("course", {}).get("orders", ())]
    assert (order["kind"], order["asked_by"]) == (RequestKind.RECOVER, 0)
    sim.run_for(3600)
    assert (sim.state.cycle, sim.state.given_up, sim.world.volumes_left()) == (None, (name,), 1)
    with_another_device(sim)
    sim.start_agent()
    sim.run_for(60)
    assert (sim.state.cycle, sim.state.given_up, sim.world.volumes_left()) == (None, (name,), 1)
    assert is_paid(sim)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_while_its_disk_is_there_it_is_waited_for(is_restarted: bool) -> None:
    """Dropped by the kernel, or not registered yet at a boot: it is registered again."""
    sim = removed(is_restarted=is_restarted)
    before = replace(sim.state, recovered=not is_restarted)
    there = HostView(sim.world.clock.now(), sim.world.kernel.boot_id, None, unregistered_backing="vdb")
    order = Request(RequestKind.RECOVER, volume_id=volume(sim), accepts_loss=True)
    obs = Observation(now=sim.world.clock.now(), wall=sim.world.clock.wall(), host=there, requests=(order,))
    after = decide(before, obs, sim.policy)
    assert [answer.accepted for answer in after.answers] == [False]
    assert after.state.cycle is not None


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_device_that_comes_back_after_all_has_its_cache_and_loses_nothing(is_restarted: bool) -> None:
    sim = removed(is_restarted=is_restarted)
    name = volume(sim)
    assert sim.ask(RequestKind.RECOVER, accepts_loss=True, volume_id=name).accepted
    sim.world.kernel.is_removed = False
    sim.power_cut()
    sim.world.kernel.register_backing()
    sim.run_for(60)
    assert (sim.phase, volume(sim)) == (Phase.BOOSTING, name)
    assert sim.ask(RequestKind.FLUSH).accepted
    in_phase(sim, Phase.IDLE, 1200)
    assert (list(sim.world.lost()), sim.world.volumes_left(), sim.state.given_up) == ([], 0, ())
