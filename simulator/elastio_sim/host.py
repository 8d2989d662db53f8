"""`ports.CacheHost` on the simulated kernel, with the same refusals as the real ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from elastio.core.actions import Effect
from elastio.core.model import BackingView, CacheMode, CacheSetUuid, CacheState, Depth, DiskView, HostView, Serial
from elastio.core.shares import SharePlan
from elastio.errors import DeviceBusyError, ElastioError, HostError, NotOursError
from elastio.units import MB
from elastio_sim.bcache import Bcache, WritebackMode
from elastio_sim.disk import SimDisk
from elastio_sim.faults import Fault, FaultInjector, FaultMode, FaultPlan, Meter, T
from elastio_sim.kernel import SimKernel

# A bypass holds requests back for this long, so that the last dirty data can be flushed.
HOLD_S = 2.0
HOST_ERRORS: dict[FaultMode, tuple[type[ElastioError], str]] = {
    FaultMode.REFUSE: (HostError, "the kernel refused a write to sysfs"),
    FaultMode.BUSY: (DeviceBusyError, "device or resource busy"),
    FaultMode.HANG: (HostError, "no answer from the kernel"),
    FaultMode.LATE_SUCCESS: (HostError, "no answer from the kernel"),
    FaultMode.LOSE_REPLY: (HostError, "the answer was lost"),
    FaultMode.HALF: (HostError, "interrupted halfway"),
}


@dataclass(frozen=True, slots=True)
class HostTimes:
    """Seconds that operations take, measured in a guest. The kernel model decides how long an attach takes."""

    scan: float = 0.02
    tune: float = 0.05
    format: float = 0.3
    register: float = 0.2
    phase: float = 0.02
    detach: float = 0.1
    release: float = 0.4
    help: float = 2.0


class SimHost:
    """`ports.CacheHost` of one adaptive device. `calls.seconds` is the duration of the last operation."""

    def __init__(
        self,
        kernel: SimKernel,
        faults: FaultPlan | None = None,
        times: HostTimes | None = None,
        meter: Meter | None = None,
    ) -> None:
        self._kernel = kernel
        self._times = times or HostTimes()
        self.calls = FaultInjector(faults or FaultPlan(), kernel.timers.later, HOST_ERRORS, meter)

    def scan(self, serials: tuple[Serial, ...]) -> HostView:
        return self.calls.run("scan", self._times.scan, lambda _: self._scan(serials))

    def tune_backing(self, depth: Depth | None = None) -> None:
        """Bounded queue, mq-deadline, and mode writeback, so that an attach writes only one superblock."""
        self._do("tune_backing", self._times.tune, lambda _: self._tune())

    def install_cache(self, serial: Serial, size_bytes: int, *, flush_mb_s: float | None) -> CacheSetUuid:
        """Each of its steps can fail and leaves what was done before it."""
        linked = self._kernel.bcache.cache_set
        cache_set = self._kernel.disk(serial).superblock
        if linked is None or linked != cache_set:
            cache_set = self.format_cache(serial, size_bytes)
            self.register_cache(serial, cache_set)
        self.attach_cache_set(cache_set, serial, flush_mb_s=flush_mb_s)
        return cache_set

    def format_cache(self, serial: Serial, size_bytes: int) -> CacheSetUuid:
        """Raises NotOursError, DeviceBusyError, or HostError if there is no such disk."""
        return self._do("format_cache", self._times.format, lambda _: self._format(serial, size_bytes))

    def register_cache(self, serial: Serial, cache_set: CacheSetUuid) -> Effect:
        """Raises HostError if the disk does not hold that cache set."""
        return self._do("register_cache", self._times.register, lambda _: self._register(serial, cache_set))

    def attach_cache_set(self, cache_set: CacheSetUuid, serial: Serial, *, flush_mb_s: float | None) -> None:
        """Start an attach. The link exists after `calls.seconds`; `scan` shows it."""
        self._do("attach_cache_set", 0.0, lambda _: self._attach(cache_set, serial, flush_mb_s=flush_mb_s))

    def enter_phase1(self, *, flush_mb_s: float | None) -> None:
        self._do("enter_phase1", self._times.phase, lambda _: self._phase1(flush_mb_s=flush_mb_s))

    def enter_phase2(self) -> None:
        self._do("enter_phase2", self._times.phase, lambda _: self._phase2())

    def limit_writes(self, mb_s: float | None) -> None:
        self._do("limit_writes", self._times.phase, lambda _: self._limit_writes(mb_s))

    def set_shares(self, plan: SharePlan | None) -> None:
        self._do("set_shares", self._times.phase, lambda _: self._set_shares(plan))

    def bypass_cache(self) -> Effect:
        """If the device is dirty or has requests in flight, it holds requests back for HOLD_S and raises."""
        return self._do("bypass_cache", self._times.phase, lambda _: self._bypass())

    def wake_writeback(self) -> None:
        self._do("wake_writeback", self._times.phase, lambda _: self._wake_writeback())

    def set_flush(self, mb_s: float | None) -> None:
        self._do("set_flush", self._times.phase, lambda _: self._set_flush(mb_s))

    def detach_cache_set(self, cache_set: CacheSetUuid) -> Effect:
        """Raises DeviceBusyError unless the device is drained and in mode `none`."""
        return self._do("detach_cache_set", self._times.detach, lambda _: self._detach(cache_set))

    def release_cache_disk(self, serial: Serial, size_bytes: int, cache_set: CacheSetUuid | None) -> Effect:
        """Raises DeviceBusyError while attached, NotOursError while the backing device waits for it."""
        return self._do(
            "release_cache_disk",
            self._times.release,
            lambda fault: self._release(serial, size_bytes, cache_set, fault),
        )

    def make_durable(self) -> None:
        self._do("make_durable", self._times.phase, lambda _: self._make_durable())

    def help_detach(self) -> None:
        """Raises DeviceBusyError unless a detach waits for an instant without I/O."""
        self._do("help_detach", self._times.help, lambda _: self._help_detach())

    def write_tombstone(self) -> None:
        self._do("write_tombstone", self._times.phase, lambda _: self._move_first_block(to_head=True))

    def remove_tombstone(self) -> None:
        """Raises DeviceBusyError while a cache is attached, or the superblock names one."""
        self._do("remove_tombstone", self._times.phase, lambda _: self._move_first_block(to_head=False))

    def register_backing(self) -> Effect:
        return self._do("register_backing", self._times.register, lambda _: self._register_backing())

    def start_without_cache(self) -> Effect:
        """Raises DeviceBusyError while a cache is attached."""
        return self._do("start_without_cache", self._times.phase, lambda _: self._start_without_cache())

    # --- inside ----------------------------------------------------------------------------------------------

    def _do(self, op: str, seconds: float, call: Callable[[Fault | None], T]) -> T:
        return self.calls.run(op, seconds, call)

    def _scan(self, serials: tuple[Serial, ...]) -> HostView:
        kernel = self._kernel
        kernel.settle()
        linked = kernel.bcache.cache_set
        shown = (
            d for d in kernel.disks.values() if d.serial in serials or (linked is not None and d.superblock == linked)
        )
        return HostView(
            at=kernel.clock.now(),
            boot_id=kernel.boot_id,
            backing=self._backing() if kernel.registered else None,
            disks=tuple(self._disk(d) for d in shown),
            unregistered_backing="" if kernel.registered else "vdb",
        )

    def _backing(self) -> BackingView:
        bcache = self._kernel.bcache
        cache = bcache.cache
        return BackingView(
            running=bcache.running,
            state=bcache.state,
            cache_mode=bcache.mode,
            cache_set=bcache.cache_set,
            dirty_bytes=bcache.dirty_bytes,
            writeback_running=bcache.writeback_running,
            tuned=bcache.tuned and (cache is not None or bcache.mode is CacheMode.WRITEBACK),
            size_bytes=self._kernel.settings.backing_bytes,
            flush_full_speed=bcache.writeback_mode is WritebackMode.FULL,
            flush_limit_mb_s=bcache.flush_limit_mb_s,
            write_limit_mb_s=bcache.write_limit_mb_s,
            adaptive_name="bcache0" if bcache.running else "",
            disk_name="vdb",
            disk_serial=self._kernel.backing_serial,
            available_percent=round((1 - cache.in_use) * 100) if cache else None,
            cutoff_percent=round(bcache.cutoff * 100) if cache else None,
            overflow_bytes=bcache.overflow_bytes,
            shared_mb_s=self._kernel.shares.shown_mb_s,
            has_tombstone=self._kernel.has_tombstone,
            superblock_set=None if bcache.cache_set or bcache.state is CacheState.NO_CACHE else bcache.sb_set,
        )

    def _disk(self, disk: SimDisk) -> DiskView:
        registered = disk.superblock if disk.registered else None
        return DiskView(
            name=disk.name,
            serial=disk.serial,
            size_bytes=disk.size_bytes,
            cache_set=registered,
            superblock=disk.superblock,
            held=disk.holder is not None or (registered is not None and registered == self._kernel.bcache.cache_set),
        )

    def _tune(self) -> None:
        bcache = self._backing_device()
        bcache.tuned = True
        if bcache.cache is None:
            bcache.writeback_mode = WritebackMode.IDLE
            self._kernel.set_mode(CacheMode.WRITEBACK)

    def _format(self, serial: Serial, size_bytes: int) -> CacheSetUuid:
        disk = self._kernel.disk(serial)
        disk.check_free(size_bytes)
        backing = self._backing_device()
        if disk.registered and disk.superblock == backing.cache_set:
            raise DeviceBusyError(f"disk {disk.name} serves as a cache already", code="disk.serves")
        self._require_not_the_last_cache(disk)
        if self._kernel.has_tombstone is False:
            raise DeviceBusyError("the volume could be mounted without its cache", code="tombstone.missing")
        if disk.registered and disk.superblock is not None:
            return disk.superblock
        return self._kernel.format(serial)

    def _register(self, serial: Serial, cache_set: CacheSetUuid) -> Effect:
        disk = self._kernel.disk(serial)
        if disk.superblock != cache_set:
            raise HostError(f"disk {disk.name} does not carry cache set {cache_set}", code="disk.other_set")
        if disk.registered:
            return Effect.ALREADY
        self._kernel.register(serial)
        return Effect.CHANGED

    def _move_first_block(self, *, to_head: bool) -> None:
        kernel, bcache = self._kernel, self._backing_device()
        if kernel.has_tombstone is None:
            raise NotOursError("the backing device is no adopted volume", code="tombstone.none")
        if not to_head and (bcache.state is not CacheState.NO_CACHE or bcache.cache_set or bcache.sb_set):
            raise DeviceBusyError("the device has a cache: its tombstone stays", code="tombstone.cache")
        self.calls.seconds = max(self.calls.seconds, kernel.wait_for_writes(for_attach=to_head))
        if kernel.in_flight[0] and (kernel.is_flooded or not kernel.settings.holds_back):
            raise DeviceBusyError("the device had writes in flight", code="device.not_drained")
        kernel.move_first_block(to_head=to_head)

    def _register_backing(self) -> Effect:
        if self._kernel.registered:
            return Effect.ALREADY
        self._kernel.register_backing()
        return Effect.CHANGED

    def _attach(self, cache_set: CacheSetUuid, serial: Serial, *, flush_mb_s: float | None) -> None:
        disk = self._kernel.disk(serial)
        bcache = self._backing_device()
        if not disk.registered or disk.superblock != cache_set:
            raise NotOursError(f"disk {disk.name} is not cache set {cache_set}")
        if bcache.cache_set not in (None, cache_set):
            raise NotOursError(f"cache set {bcache.cache_set} is attached already", code="set.other")
        self._require_not_the_last_cache(disk)
        if bcache.cache is None:
            bcache.writeback_mode = WritebackMode.IDLE
            self._kernel.set_mode(CacheMode.WRITEBACK)
        self._require_absorbing(bcache)
        self.calls.seconds = max(self.calls.seconds, self._kernel.wait_for_writes())
        if self._kernel.is_flooded:
            raise DeviceBusyError("the device had writes in flight", code="device.not_drained")
        self._lift_limits()
        self.calls.seconds = max(self.calls.seconds, self._kernel.attach(cache_set, flush_mb_s=flush_mb_s))
        bcache.tuned = True  # the attach still waits for what is queued already

    def _phase1(self, *, flush_mb_s: float | None) -> None:
        bcache = self._attached_device()
        self._require_absorbing(bcache)
        bcache.set_background(flush_mb_s)

    def _require_absorbing(self, bcache: Bcache) -> None:
        if bcache.mode is not CacheMode.WRITEBACK:
            raise DeviceBusyError(f"writes bypass the cache (mode {bcache.mode})", code="cache.bypassed")

    def _phase2(self) -> None:
        bcache = self._attached_device()
        bcache.writeback_mode, bcache.writeback_running = WritebackMode.FULL, True

    def _lift_limits(self) -> None:
        """Shares end once requests are held back, and that ends with removing every limit."""
        self._kernel.shares.end()
        self._kernel.bcache.write_limit_mb_s = None

    def _bypass(self) -> Effect:
        """The real one checks `state`, and accepts a little dirty data that only the index knows of."""
        kernel, bcache = self._kernel, self._attached_device()
        if bcache.mode is CacheMode.NONE:
            return Effect.ALREADY
        little = HOLD_S * kernel.settings.backing_mb_s * MB
        little = little if bcache.mode is not CacheMode.WRITEAROUND else math.inf  # set by hand: it is bypassed already
        if bcache.state is CacheState.CLEAN and bcache.dirty_bytes > little:
            raise DeviceBusyError("the index has dirty data that is not flushed: not bypassed")
        self._lift_limits()
        kernel.hold(HOLD_S, reads=True)
        if bcache.state is not CacheState.CLEAN or (kernel.holds_writes and not kernel.is_quiet):
            text = "the device is still dirty, or in use: writes do not bypass its cache yet"
            raise DeviceBusyError(text, code="device.not_drained")
        kernel.fsync()
        kernel.set_mode(CacheMode.NONE)
        kernel.resume_requests()
        return Effect.CHANGED

    def _wake_writeback(self) -> None:
        bcache = self._attached_device()
        if bcache.mode is CacheMode.WRITETHROUGH:
            self._kernel.set_mode(CacheMode.WRITEBACK)
        self._require_absorbing(bcache)
        if not bcache.running:
            raise HostError("the device does not run")
        if self._kernel.settings.in_use:
            raise DeviceBusyError("the device is in use: its first block was not rewritten")
        bcache.sb_dirty = True

    def _limit_writes(self, mb_s: float | None) -> None:
        self._kernel.limit_writes(mb_s if self._backing_device().running else None)
        self._kernel.shares.end()

    def _set_shares(self, plan: SharePlan | None) -> None:
        shares = self._kernel.shares
        if plan is None or not self._backing_device().running:
            shares.end()
        else:
            shares.begin(plan)

    def _set_flush(self, mb_s: float | None) -> None:
        self._attached_device().set_background(mb_s)

    def _detach(self, cache_set: CacheSetUuid) -> Effect:
        bcache = self._backing_device()
        if bcache.cache_set is None:
            return Effect.ALREADY
        if bcache.cache_set != cache_set:
            raise NotOursError(f"cache set {bcache.cache_set} is attached: left alone", code="set.other")
        if bcache.state is CacheState.DIRTY or bcache.mode is not CacheMode.NONE:
            text = f"the device is {bcache.state} in mode {bcache.mode}: drain it before a detach"
            raise DeviceBusyError(text, code="cache.not_drained")
        self._kernel.fsync()
        self._lift_limits()
        self._kernel.hold(HOLD_S, reads=True)  # dirty data of the index is flushed before a write can bypass it
        self._kernel.detach()
        return Effect.CHANGED

    def _make_durable(self) -> None:
        self._backing_device()
        self._kernel.fsync()

    def _help_detach(self) -> None:
        if not self._attached_device().detach_written:
            raise DeviceBusyError("no detach is under way: applications were not held back", code="detach.none")
        self._lift_limits()
        self._kernel.hold_back(self._times.help)

    def _start_without_cache(self) -> Effect:
        bcache = self._backing_device()
        if bcache.cache_set is not None:
            raise DeviceBusyError("a cache set is attached: not started by force", code="set.attached")
        if not bcache.running and bcache.state not in (CacheState.CLEAN, CacheState.DIRTY):
            raise HostError(f"the backing device is {bcache.state} and waits for no cache", code="backing.state")
        if bcache.running:
            return Effect.ALREADY
        self._kernel.force_run()
        return Effect.CHANGED

    def _release(self, serial: Serial, size_bytes: int, cache_set: CacheSetUuid | None, fault: Fault | None) -> Effect:
        disk, backing = self._kernel.disks.get(serial), self._backing_device()
        if disk is None:
            self._kernel.fsync()
            return Effect.ALREADY
        disk.check_free(size_bytes)
        if disk.registered and disk.superblock == backing.cache_set:
            raise DeviceBusyError(f"cache set {disk.superblock} serves the backing device", code="set.attached")
        if None not in (cache_set, disk.superblock) and disk.superblock != cache_set:
            raise NotOursError(f"disk {disk.name} carries cache set {disk.superblock}", code="disk.other_set")
        self._require_not_the_last_cache(disk)
        if disk.superblock is None:
            self._kernel.fsync()
            return Effect.ALREADY
        self._kernel.fsync()
        self._kernel.unregister(serial)
        if fault is None or fault.kind is not FaultMode.HALF:
            disk.wipe()
        return Effect.CHANGED

    def _require_not_the_last_cache(self, disk: SimDisk) -> None:
        """Never write to a disk that the backing device may still wait for."""
        bcache = self._backing_device()
        waits = bcache.state is CacheState.DIRTY or (bcache.state is CacheState.CLEAN and not bcache.running)
        if bcache.cache_set is None and waits:
            text = f"the device is {bcache.state} and disk {disk.name} may be its cache"
            raise NotOursError(text, code="backing.waits")

    def _attached_device(self) -> Bcache:
        bcache = self._backing_device()
        if bcache.cache_set is None:
            raise HostError("no cache set is attached to the backing device", code="set.none")
        return bcache

    def _backing_device(self) -> Bcache:
        if not self._kernel.registered:
            raise HostError("the backing device is not registered with bcache", code="backing.unregistered")
        return self._kernel.bcache
