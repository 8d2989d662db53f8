"""A machine dies while its cache is dirty; its backing volume is moved to another one, which takes the cache over."""

from __future__ import annotations

from elastio.core.model import RequestKind, VolumeId, VolumeState
from elastio.core.policy import Policy
from elastio.core.state import Phase
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment
from elastio_sim.world import SimWorld
from tests.crash.way import WayWatch

SECOND = "i-0000000000000002"
# What the first machine's application does until then.
FIRST_LOAD = (Segment(2, 0), Segment(8, 60))
DIRTY_BLOCKS = 4
# An operator who sees that the agent waits gives the order again after so long.
AGAIN_S = 5.0


def die_dirty(world: SimWorld, policy: Policy) -> VolumeId:
    """The first machine buys this volume, and is gone for good once its kernel, too, knows that the cache is dirty."""
    first = Simulation(world, policy)
    kernel = world.kernel

    def is_dirty() -> bool:
        disk = kernel.cache_disk()
        return disk is not None and kernel.bcache.sb_dirty and len(world.lost(without=disk.serial)) > DIRTY_BLOCKS

    first.run_until(is_dirty, 60.0)
    world.kernel.fsync()  # an application syncs: the superblock on the disk says dirty, too
    (volume,) = world.provider.existing()
    first.kill_agent()
    world.move(SECOND)
    return volume.id


class Operator:
    """Gives the second machine's agent the same order again, after each start and each refusal.

    What it takes over is flushed and released, whatever the load.
    """

    def __init__(self, sim: Simulation, volume_id: VolumeId, way: WayWatch) -> None:
        self._sim, self._volume_id, self._asked_at = sim, volume_id, 0.0
        way.ends(sim.world.provider.volumes[volume_id].token, "a take-over")

    def ask(self) -> None:
        """Called after every step."""
        sim, now = self._sim, self._sim.world.clock.elapsed()
        volume = sim.world.provider.volumes[self._volume_id]
        is_needed = sim.phase is Phase.FAULTED and volume.state is not VolumeState.GONE
        if sim.agent is not None and is_needed and now - self._asked_at >= AGAIN_S:
            self._asked_at = now
            sim.request(RequestKind.RECOVER, volume_id=self._volume_id, is_foreign=True)
