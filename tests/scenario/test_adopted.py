"""Snapshots and accepted losses of an adopted volume, on the simulated machine."""

from __future__ import annotations

import json

from elastio.agent.status_builder import is_safe_to_copy
from elastio.core.model import CacheState, RequestKind, VolumeState
from elastio.core.state import Phase
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment
from tests.simulated import STEADY, in_phase, machine
from tests.values import present


def adopted(load: tuple[Segment, ...] = STEADY, faults: str = "nothing") -> Simulation:
    sim = machine(load, faults)
    sim.world.kernel.has_tombstone = False
    return sim


def is_safe(sim: Simulation) -> bool:
    return is_safe_to_copy(sim.state.cycle, sim.agent.view if sim.agent else None)


def test_a_snapshot_of_a_boosting_one_has_the_tombstone_and_a_quiesced_one_is_a_plain_filesystem() -> None:
    sim = adopted()
    in_phase(sim, Phase.BOOSTING)
    sim.run_for(5)
    kernel = sim.world.kernel
    assert (kernel.has_tombstone, is_safe(sim)) == (True, False)
    assert sim.ask(RequestKind.QUIESCE, seconds=600.0).accepted
    while not is_safe(sim):
        assert sim.world.clock.elapsed() < 300
        sim.run_for(0.5)
    assert (kernel.has_tombstone, kernel.bcache.sb_set) == (False, None)
    assert not sim.world.lost(power_cut=True)
    sim.run_for(60)
    assert (kernel.has_tombstone, sim.phase) == (False, Phase.IDLE)


def test_no_write_passes_between_the_tombstone_and_the_attach() -> None:
    """All that the tombstone held back would be in flight then."""
    sim = adopted()
    in_phase(sim, Phase.ATTACHING)
    in_phase(sim, Phase.BOOSTING)
    times = present(sim.state.cycle).times
    assert present(times.boosted) - present(times.appeared) < 2.0
    intents = [record["action"] for record in map(json.loads, sim.lines) if record["kind"] == "intent"]
    assert [intents.count(each) for each in ("WriteTombstone", "InstallCache")] == [1, 1]
    assert sim.world.kernel.bcache.write_limit_mb_s is None


def test_after_an_accepted_loss_the_tombstone_stays_until_the_next_boost_has_ended() -> None:
    sim = adopted(faults="@dirty=vanish")
    sim.run_until(lambda: bool(sim.world.happened), 60)
    for bought in sim.world.provider.existing():
        bought.state, bought.deleted_at = VolumeState.GONE, sim.world.clock.elapsed()
        sim.world.kernel.destroy(bought.serial)
    in_phase(sim, Phase.FAULTED)
    sim.run_for(120)
    kernel = sim.world.kernel
    assert (kernel.bcache.running, kernel.has_tombstone) == (False, True)
    assert sim.ask(RequestKind.PAUSE).accepted
    assert sim.ask(RequestKind.RECOVER, accepts_loss=True).accepted
    in_phase(sim, Phase.IDLE)
    sim.run_for(60)
    assert kernel.bcache.running
    assert (kernel.bcache.state, kernel.has_tombstone) == (CacheState.INCONSISTENT, True)
    assert not is_safe(sim)
    assert sim.ask(RequestKind.RESUME).accepted
    in_phase(sim, Phase.BOOSTING)
    assert sim.ask(RequestKind.FLUSH).accepted
    sim.run_until(lambda: kernel.has_tombstone is False, 300)
    assert kernel.bcache.sb_set is None
