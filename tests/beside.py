"""The agent of another adaptive device of the same machine, in the same cloud, and perhaps under the same caps."""

from __future__ import annotations

from dataclasses import replace

from elastio.core.policy import Policy
from elastio.core.state import Phase
from elastio_sim.run import SAMPLE_S, Simulation
from elastio_sim.workload import Workload
from elastio_sim.world import SimWorld

# A time of day that differs by less is rounded.
JUMP_S = 1e-3
OTHER_UUID, OTHER_SERIAL = "bbbbbbbb-0000-0000-0000-000000000000", "vol0backing0000002"


def join(first: Simulation, second: Simulation, slots: int = 2) -> None:
    """Both buy in one cloud, as one machine that so many cache volumes can be attached to."""
    one, other = first.world.provider, second.world.provider
    one.account = replace(one.account, slots=slots)
    other.account = replace(one.account, backing_uuid=other.account.backing_uuid)
    one.beside, other.beside = (other,), (one,)


def touched(sim: Simulation, lines: list[bytes], ids: set[str]) -> str:
    """What an agent was about to do, by these lines of its journal, to one of these volumes; empty: nothing."""
    for line in lines:
        if b'"kind":"intent"' in line and any(volume_id.encode() in line for volume_id in ids):
            return line.decode()
    return ""


class Neighbour:
    """It lives through the same seconds, power cuts and jumps of the clock as the first, and fails at nothing."""

    def __init__(self, first: Simulation, policy: Policy, load: Workload, seed: int, slots: int = 2) -> None:
        self._first = first
        kernel = replace(first.world.settings.kernel, backing_uuid=OTHER_UUID, backing_serial=OTHER_SERIAL)
        world = SimWorld(replace(first.world.settings, kernel=kernel, seed=seed), load)
        self.sim = Simulation(world, replace(policy, backing_uuid=OTHER_UUID), seed=seed)
        join(first, self.sim, slots)
        self.sim.on_step = self._check
        self._boots = first.world.kernel.boots
        self._read = 0

    def keep_up(self) -> None:
        """Called after every step of the first; a second behind at most."""
        first, own = self._first.world, self.sim.world
        if first.kernel.boots != self._boots:
            self._boots, self._read = first.kernel.boots, 0  # what was not durable is not there any more
            self.sim.power_cut()
        if (gap := first.clock.elapsed() - own.clock.elapsed()) < SAMPLE_S:
            return
        jumped = first.clock.wall() - own.clock.wall() - gap
        own.clock.jump_wall(jumped if abs(jumped) > JUMP_S else 0.0)
        self.sim.run_for(gap)
        new, self._read = self._first.lines[self._read :], len(self._first.lines)
        told = touched(self._first, new, set(own.provider.volumes))
        assert not told, f"another device's volume is touched: {told}"

    def _check(self) -> None:
        world, standing = self.sim.world, self.sim.standing()
        assert not world.lost(), f"the other device has lost {len(world.lost())} blocks: {standing}"
        assert not world.kernel.bcache.harm(), f"{world.kernel.bcache.harm()} on the other device: {standing}"
        assert self.sim.phase is not Phase.FAULTED, f"the other device is faulted: {standing}"
        assert world.volumes_left() <= 1, f"two volumes of the other device: {standing}"
        if not world.volumes_left():
            assert not world.lost(power_cut=True), f"the other device's cache was not durable: {standing}"
