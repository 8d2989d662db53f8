"""One machine, its cloud, its application and its faults, on one clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from elastio.core.model import CacheMode, HostView, Serial, VolumeId
from elastio.core.shares import ALL_MAY, BoostRights
from elastio.strategy.tariff import Tariff
from elastio.units import GIB, agbs
from elastio_sim.clock import Job, Result, SimClock, SimWorker
from elastio_sim.cloud import CallTiming, CloudTimes, KernelSlots, SimAccount
from elastio_sim.faults import MODES, FaultMode, FaultPlan, Meter, ScheduledFault
from elastio_sim.host import HostTimes, SimHost
from elastio_sim.kernel import COPY_SERIAL, KernelSettings, SimKernel
from elastio_sim.prices import TARIFF
from elastio_sim.provider import SimProvider
from elastio_sim.settings import parse_settings
from elastio_sim.shares import counted
from elastio_sim.workload import Workload

# Bytes move on this grid, whatever the step of `advance`, so that results do not depend on the caller.
GRID_HZ = 20
# A wrong disk replaces the backing disk for at most this long.
SWAPPED_MOST_S = 120.0
UNCACHED: frozenset[str] = frozenset()
STATES_OF = {
    (is_dirty, is_limited): frozenset({"dirty" if is_dirty else "clean", *(["limited"] if is_limited else [])})
    for is_dirty in (True, False)
    for is_limited in (True, False)
}


@dataclass(frozen=True, slots=True)
class WorldSettings:
    """`seed` decides every delay that is drawn. Volumes are sold in steps of `size_step_bytes`, at `tariff`.

    `statements`: where the agents of the machine state what they have spent; None: they share no caps.
    """

    kernel: KernelSettings = field(default_factory=KernelSettings)
    cloud: CloudTimes = field(default_factory=CloudTimes)
    host: HostTimes = field(default_factory=HostTimes)
    seed: int = 0
    size_step_bytes: int = GIB
    tariff: Tariff = TARIFF
    statements: Path | None = None


class SimCounters:
    """`ports.Counters` of the simulated disks. `rights`: which of the two cgroups may cause a boost."""

    def __init__(self, kernel: SimKernel) -> None:
        self._kernel = kernel
        self.rights: Callable[[], BoostRights] = lambda: ALL_MAY

    def follow(self, view: HostView) -> None:
        """Device names do not matter here."""

    def read(self) -> Mapping[str, tuple[int, int]]:
        """Cumulative (read, written) bytes since boot; those of the cache since its attach."""
        traffic = self._kernel.traffic
        devices = {"adaptive": traffic.adaptive, "backing": traffic.backing, "cache": self._kernel.cache_traffic()}
        read = {name: (t.read, t.written) for name, t in devices.items()}
        rights = self.rights()
        return read if rights.is_everybody else {**read, "counted": counted(rights, traffic.adaptive)}


class SimWorld:
    """One simulated virtual machine. `clock`, `host`, `counters` and `provider` are the ports of the agent."""

    def __init__(
        self,
        settings: WorldSettings | None = None,
        workload: Workload | None = None,
        faults: FaultPlan | None = None,
    ) -> None:
        self.settings = settings or WorldSettings()
        self.faults = faults or FaultPlan()
        self.clock = SimClock()
        self.kernel = SimKernel(self.clock, self.settings.kernel, self.settings.seed)
        self.meter = Meter()
        self.host = SimHost(self.kernel, self.faults, self.settings.host, self.meter)
        self.counters = SimCounters(self.kernel)
        self.provider = SimProvider(
            self.clock,
            SimAccount(
                self.settings.kernel.backing_uuid,
                size_step_bytes=self.settings.size_step_bytes,
                tariff=self.settings.tariff,
            ),
            KernelSlots(self.kernel),
            self.faults,
            self.settings.cloud,
            CallTiming(self.settings.seed + 1, self.meter),
        )
        self.workload = workload or Workload()
        self.on_agent: Callable[[ScheduledFault], None] = lambda fault: None  # faults of the agent alone
        self.on_tick: Callable[[], None] = lambda: None
        self.happened: list[tuple[float, ScheduledFault]] = []
        self._ticks = 0

    # --- time ------------------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass: bytes move, volumes change their states, scheduled faults happen."""
        until = self.clock.elapsed() + seconds
        while (self._ticks + 1) / GRID_HZ <= until:
            if self._skip(until):
                continue
            self._ticks += 1
            self.clock.advance_to(max(self.clock.elapsed(), self._ticks / GRID_HZ))
            self._tick()
        self.clock.advance_to(until)
        self.provider.tick()
        self.kernel.settle()

    def run_until_done(self, limit_s: float = 100_000.0) -> None:
        """Advance until the application has ended. Raises TimeoutError after `limit_s`."""
        until = self.clock.elapsed() + limit_s
        while not self.workload.done:
            if self.clock.elapsed() >= until:
                raise TimeoutError(f"the application did not end within {limit_s:g} s")
            self.advance(1.0)

    def _skip(self, until: float) -> bool:
        """Skip the ticks, at most to `until`, in which nothing would happen; False if there are none."""
        now = self.clock.elapsed()
        quiet = self.kernel.quiet_until(self.workload)
        if quiet > now:
            quiet = min(quiet, self.provider.quiet_until(), self.faults.next_at(self._states()))
        if quiet <= now:
            return False
        # The last tick before an event is executed, so that rounding cannot skip it.
        last = int(min(until, quiet - 1 / GRID_HZ) * GRID_HZ)
        ticks = (last if last / GRID_HZ <= until else last - 1) - self._ticks
        if ticks <= 0:
            return False
        self._ticks += ticks
        self.clock.advance_to(max(self.clock.elapsed(), self._ticks / GRID_HZ))
        self.kernel.rest(ticks, 1 / GRID_HZ, self.workload)
        self.on_tick()
        return True

    def _tick(self) -> None:
        self.provider.tick()
        self.kernel.step(1 / GRID_HZ, self.workload)
        self.on_tick()
        for fault in self.faults.due(self.clock.elapsed(), self._states()):
            self.happen(fault)

    def _states(self) -> frozenset[str]:
        bcache = self.kernel.bcache
        if bcache.cache is None:
            return UNCACHED
        return STATES_OF[bcache.sb_dirty, bcache.write_limit_mb_s is not None]

    def happen(self, fault: ScheduledFault) -> None:
        """Let the fault happen now, whatever its `when`."""
        self.happened.append((self.clock.elapsed(), fault))
        if fault.kind is FaultMode.POWER_CUT:
            self.power_cut()
        elif fault.kind is FaultMode.WALL_JUMP:
            self.clock.jump_wall(fault.seconds)
        elif fault.kind is FaultMode.VANISH:
            self.vanish()
        elif fault.kind is FaultMode.SWAP:
            self.swap_backing(fault.seconds)
        elif fault.kind is FaultMode.SWAP_BACK:
            self.kernel.swap_back()
            self.power_cut()
        elif fault.kind is FaultMode.DETACH_BY_HAND:
            self.kernel.detach(by_hand=True)
        elif fault.kind in MODES:
            self.kernel.set_mode_by_hand(CacheMode(fault.kind))
        else:
            self.on_agent(fault)

    # --- scheduled faults ------------------------------------------------------------------------------------

    def power_cut(self) -> None:
        """The machine loses power and boots. An agent that ran on it must be started again."""
        self.kernel.power_cut()
        self.clock.reboot()

    def vanish(self) -> None:
        """The cache disk disappears; the volume stays available in the cloud. Does nothing without a cache."""
        disk = self.kernel.cache_disk()
        if disk is not None:
            self.provider.vanish(VolumeId(disk.serial.replace("vol", "vol-", 1)))

    def swap_backing(self, seconds: float, kind: FaultMode = FaultMode.SWAP) -> None:
        """Replace the backing disk by an older copy, until a reboot brings it back. Does nothing without a cache."""
        bcache = self.kernel.bcache
        if bcache.cache is not None and not bcache.detaching and self.kernel.original is None:
            shown = {FaultMode.SWAP_ALIKE: self.kernel.backing_serial, FaultMode.SWAP_NAMELESS: None}
            self.kernel.swap_backing(shown.get(kind, COPY_SERIAL))
            back_at = self.clock.elapsed() + min(seconds, SWAPPED_MOST_S)
            self.faults.add(ScheduledFault(f"{back_at:.3f}", FaultMode.SWAP_BACK))

    def move(self, instance_id: str, *, is_gone: bool = True) -> None:
        """The machine dies, and its backing volume is attached to another one, which boots; no cache volume is.

        What the first machine had in flight is lost as in a power cut.
        """
        self.kernel.power_cut()
        for serial in tuple(self.kernel.disks):
            self.kernel.pull(serial)
        self.provider.move(instance_id, is_gone=is_gone)
        self.power_cut()

    # --- questions -------------------------------------------------------------------------------------------

    def worker(
        self, execute: Callable[[Job], Result], lost: Callable[[Job, float], Result] | None = None
    ) -> SimWorker[Job, Result]:
        """A worker whose jobs take as long as their calls to the host and to the cloud."""

        def measured(job: Job) -> Result:
            self.meter.seconds = 0.0
            return execute(job)

        return SimWorker(measured, self.clock, lambda _: self.meter.seconds, lost=lost)

    def lost(self, *, without: Serial | None = None, power_cut: bool = False) -> frozenset[int]:
        """See `SimKernel.lost`."""
        return self.kernel.lost(without=without, power_cut=power_cut)

    def is_only_copy_unplugged(self) -> bool:
        """True if the cache that the replaced backing disk needs was unplugged, and no fault did it."""
        original = self.kernel.original
        if original is None or not original.lost(None) or any(a.kind is FaultMode.VANISH for _, a in self.happened):
            return False
        return not any(d.superblock == original.superblock.needed_set for d in self.kernel.disks.values())

    def volumes_left(self) -> int:
        """Volumes of the agent that are still paid for."""
        return sum(1 for v in self.provider.existing() if v.owner)

    def agbs(self) -> float:
        """The true cost so far: of the backing volume all the time, of cache volumes while they existed."""
        kernel = self.settings.kernel
        backing = agbs(kernel.backing_mb_s, kernel.backing_bytes, self.clock.elapsed())
        return backing + self.provider.bill_agbs()


def open_world(settings: Mapping[str, object], backing_uuid: str) -> SimWorld:
    """The world of `elastiod --sim`. Raises ConfigError as `parse_settings` does."""
    parsed = parse_settings(settings)
    kernel = replace(KernelSettings(), backing_mb_s=parsed.backing_mb_s, backing_uuid=backing_uuid)
    return SimWorld(WorldSettings(kernel=kernel, seed=parsed.seed), faults=FaultPlan.parse(parsed.faults))
