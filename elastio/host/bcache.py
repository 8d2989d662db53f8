"""`ports.CacheHost` on the real kernel: the sequences that attach a cache to a backing device and detach it again.

Theory of operation. bcache is driven through files in /sys. A write to one is acknowledged before its effect is
complete, and may be lost in a race with udev or with another process. So every method

- reads the current state first, and refuses what is not provably safe (`NotOursError`, `DeviceBusyError`);
- writes as little as possible: what is in force already is not written again, so that a method may be repeated after a
  crash or a lost answer;
- waits only for what the kernel does at once, and reads the result back. `scan` shows what takes longer.

Four things could lose data or return stale data, and each is prevented in one place:

- a read fills the cache while an older write to the same block is still in flight to the backing device. A cache is
  attached, and bypassed, only while no such write is in flight: `_attach`, `bypass_cache`, see `throttle`;
- a write bypasses a block that is dirty in the cache: `bypass_cache` refuses until nothing is dirty;
- the cache is detached or erased before the backing device has the data on stable storage: `_make_durable` comes first;
- a disk is formatted that is not ours, or that holds dirty data of this device: `_require_not_the_last_cache`, and
  `blockdev`, which finds disks by serial and checks them again through the open descriptor.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial

from elastio.core.actions import HELD_MB_S, Effect
from elastio.core.model import CacheMode, CacheSetUuid, CacheState, Depth, HostView, Serial
from elastio.core.shares import SharePlan
from elastio.errors import DeviceBusyError, HostError, NotOursError
from elastio.host import (
    blockdev,
    cache_disk,
    failed_cache,
    kernel,
    locks,
    recompose,
    superblock,
    throttle,
    tuning,
    usage,
)
from elastio.host.commands import Run, run
from elastio.host.depth import SLOWEST_MB_S, Depths, initial
from elastio.host.guard import Guard
from elastio.host.sharer import Sharer
from elastio.host.sysfs import Sysfs, Wait, parse_size, wait_for
from elastio.host.view import Backing, Seen, find_backing, scan
from elastio.units import MB

_log = logging.getLogger(__name__)

HELD_REGISTER_S = 3.0  # while writes are held back; what takes longer is found registered at the next try
# How long a detach may flush, while requests are held back, what only the index knows to be dirty.
CLEAN_S = 2.0


class BcacheHost:
    """`CacheHost` for the backing device with this UUID.

    `run` runs programs, `wait` waits for the kernel, `new_uuid` returns the UUID of a new cache set, `backing_mb_s` is
    the bandwidth of the backing volume.
    """

    def __init__(
        self,
        backing_uuid: str,
        sysfs: Sysfs | None = None,
        run: Run = run,
        wait: Wait = wait_for,
        new_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
        backing_mb_s: float = SLOWEST_MB_S,
    ) -> None:
        self.backing_uuid = backing_uuid
        self.sysfs = sysfs or Sysfs()
        self._run, self._wait, self._new_uuid = run, wait, new_uuid
        self._clean_bytes = CLEAN_S * backing_mb_s * MB
        self.boot_id = self.sysfs.read_or("proc/sys/kernel/random/boot_id", "unknown")
        self.guard = Guard(partial(throttle.release, self.sysfs))
        self.sharer = Sharer(self.sysfs, self.guard)
        self._has_warned, self._number = False, 0  # the second: of the tombstone for the next cache
        self._seen, self._unsupported = Seen(depths=Depths(backing_mb_s)), kernel.why_unsupported(self.sysfs)

    def scan(self, serials: tuple[Serial, ...]) -> HostView:
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        view = scan(self.sysfs, self.backing_uuid, serials, now=now, boot_id=self.boot_id, seen=self._seen)
        view = replace(view, unsupported=self._unsupported or view.unsupported or cache_disk.why_no_memory(self.sysfs))
        if view.backing is not None or view.duplicates:
            return view
        return replace(
            view,
            unregistered_backing=failed_cache.find_unregistered_backing(self.sysfs, self.backing_uuid),
            dead_bcache_device=failed_cache.find_dead_bcache_device(self.sysfs, self.backing_uuid),
        )

    # --- the backing device ------------------------------------------------------------------------------

    def _backing(self) -> Backing:
        backing = find_backing(self.sysfs, self.backing_uuid)
        if backing is None:
            text = f"backing device {self.backing_uuid} is not registered with bcache"
            raise HostError(text, code="backing.unregistered")
        return backing

    def _attached(self, backing: Backing) -> CacheSetUuid | None:
        name = self.sysfs.link(f"{backing.directory}/cache")
        return CacheSetUuid(name) if name else None

    def _require_attached(self) -> Backing:
        backing = self._backing()
        if self._attached(backing) is None:
            raise HostError(f"no cache set is attached to {backing.device}", code="set.none")
        return backing

    def tune_backing(self, depth: Depth | None = None) -> None:
        backing = self._backing()
        tuning.count_written_through(self.sysfs)
        tuning.tune(self.sysfs, backing.directory, backing.disk, self._attached(backing), depth)

    def write_tombstone(self) -> None:
        """Without a write in flight: to suspend a device takes as long as those. They stay held back for the attach."""
        backing = self._backing()
        if backing.adaptive is not None:
            throttle.settle(self.guard, self.sysfs, backing.adaptive, self.sharer.leave, self._wait)
        self._number = recompose.write_tombstone(self.sysfs, backing.device, self._wait)

    def remove_tombstone(self) -> None:
        """As `write_tombstone`, but nothing follows."""
        backing = self._backing()
        with self._drained(backing.adaptive, throttle.NO_WRITES) if backing.adaptive else nullcontext():
            recompose.remove_tombstone(self.sysfs, backing.device, self._wait)

    def enter_phase1(self, *, flush_mb_s: float | None) -> None:
        backing = self._require_attached()
        self._require_absorbing(backing)
        tuning.phase1(self.sysfs, backing.directory, flush_mb_s=flush_mb_s)

    def _require_absorbing(self, backing: Backing) -> None:
        """Once writes have bypassed a cache, none may go into it again: see `tuning.bypass`."""
        mode = self.sysfs.shown(f"{backing.directory}/cache_mode")
        if mode != CacheMode.WRITEBACK:
            text = f"writes bypass the cache of {backing.device} (mode {mode}): it must be detached"
            raise DeviceBusyError(text, code="cache.bypassed")

    def enter_phase2(self) -> None:
        tuning.phase2(self.sysfs, self._require_attached().directory)

    def limit_writes(self, mb_s: float | None) -> None:
        """The limit ends after guard.TERM_S at the latest, and when `guard.pulse` stops.

        One that is in force is replaced: were it lifted first, everything that it holds back would pass at once.
        """
        adaptive = self._backing().adaptive if mb_s is not None else None
        if mb_s is None or adaptive is None:
            self.sharer.end()
            self.guard.end_lease()
        else:
            self.guard.begin_lease()
            throttle.limit_writes(self.sysfs, adaptive, mb_s)
            self.sharer.leave()
        self.sysfs.expect_apart(is_expected=adaptive is not None and mb_s == HELD_MB_S)  # the attach registers a disk

    def set_shares(self, plan: SharePlan | None) -> None:
        """See `sharer`. The limits end when they are not renewed, and when `guard.pulse` stops."""
        adaptive = self._backing().adaptive if plan is not None else None
        self.sharer.begin(plan, adaptive) if plan is not None and adaptive is not None else self.sharer.stop()

    @contextmanager
    def _drained(
        self,
        disk: str,
        limit: str,
        is_ready: Callable[[], bool] = lambda: True,
        prepare: Callable[[], object] = lambda: None,
    ) -> Iterator[None]:
        """See `throttle.drained`. Warns once where not all requests could be held back."""

        def is_left() -> bool:
            self.sharer.leave()
            return is_ready()

        with throttle.drained(self.guard, self.sysfs, disk, limit, self._wait, is_left, prepare) as is_inhibited:
            if not is_inhibited and not self._has_warned:
                self._has_warned = True
                text = "not all requests to %s can be held back (see `elastio doctor`): a read may be stale"
                _log.warning(text, disk)
            yield

    def bypass_cache(self) -> Effect:
        """Only while nothing is dirty or in flight: see `throttle`."""
        backing = self._require_attached()
        if self.sysfs.shown(f"{backing.directory}/cache_mode") == CacheMode.NONE:
            return Effect.ALREADY
        self._require_flushed(backing)
        if backing.adaptive is None:
            raise DeviceBusyError(f"{backing.device} is not running: its cache cannot be bypassed")

        def prepare() -> None:
            """A bypassed write invalidates the clean copy: what was flushed must survive a power cut before."""
            blockdev.make_durable(backing.node)

        with self._drained(backing.adaptive, throttle.STOP, lambda: self._is_clean(backing), prepare):
            tuning.bypass(self.sysfs, backing.directory)
        return Effect.CHANGED

    def _is_clean(self, backing: Backing) -> bool:
        # Not `dirty_data`: after a power cut it may include what only a detach flushes.
        return self.sysfs.read(f"{backing.directory}/state") == CacheState.CLEAN

    def _require_flushed(self, backing: Backing) -> None:
        """After a power cut the superblock may say clean while the index knows of dirty data. Nothing flushes that
        before a detach or `wake_writeback`, which is of no use if somebody has let writes bypass the cache already.
        """
        if self.sysfs.shown(f"{backing.directory}/cache_mode") == CacheMode.WRITEAROUND:
            return
        dirty = parse_size(self.sysfs.read(f"{backing.directory}/dirty_data"))
        if self._is_clean(backing) and dirty > self._clean_bytes:
            raise DeviceBusyError(f"the index of the cache of {backing.device} has {dirty} dirty bytes: not bypassed")

    def wake_writeback(self) -> None:
        """See `ports.CacheHost`. Every write that is absorbed makes the superblock dirty."""
        backing = self._require_attached()
        if self.sysfs.shown(f"{backing.directory}/cache_mode") == CacheMode.WRITETHROUGH:  # both have every write
            self.sysfs.write(f"{backing.directory}/cache_mode", CacheMode.WRITEBACK)
        self._require_absorbing(backing)
        if backing.adaptive is None or backing.adaptive_node is None:
            raise HostError(f"{backing.device} is not running")
        blockdev.rewrite_first_block(backing.adaptive_node)

    def set_flush(self, mb_s: float | None) -> None:
        tuning.set_flush(self.sysfs, self._require_attached().directory, mb_s)

    # --- a new cache -------------------------------------------------------------------------------------

    def _format_cache(self, disk: blockdev.Disk, backing: Backing, size_bytes: int) -> CacheSetUuid:
        self._require_not_the_last_cache(backing, disk)
        if why := self._unsupported or self._seen.why_released(self.sysfs, backing.disk):
            raise NotOursError(f"no cache is attached: {why}", code="cache.unsupported")
        recompose.require_tombstone(self.sysfs, backing.device, self._wait, self._number)
        self._number = 0
        registered = cache_disk.registered_set(self.sysfs, disk)
        if registered is not None:  # a repeated format
            blockdev.require_size(disk, size_bytes)
            if usage.is_held(self.sysfs, disk.name):
                text = f"disk {disk.name} serves as a cache already: it was not touched"
                raise DeviceBusyError(text, code="disk.serves")
            return registered
        if blockdev.require_unused(self.sysfs, disk, size_bytes=size_bytes, run=self._run):
            blockdev.wipe(disk, self._run)
        cache_set = CacheSetUuid(str(self._new_uuid()))
        cache_disk.make(self.sysfs, disk, uuid.UUID(cache_set), superblock.block_size(backing.node))
        return cache_set

    def _require_disk(self, serial: Serial) -> blockdev.Disk:
        disk = blockdev.find(self.sysfs, serial)
        if disk is None:
            raise HostError(f"no disk shows the serial {serial}", code="disk.missing")
        return disk

    def _require_not_the_last_cache(self, backing: Backing, disk: blockdev.Disk) -> None:
        """Never write to a disk that may hold data the backing device waits for. A device that runs and is clean has
        lost its cache without losing data.
        """
        state = self.sysfs.read(f"{backing.directory}/state")
        runs = self.sysfs.read(f"{backing.directory}/running") == "1"
        waits = state == CacheState.DIRTY or (state == CacheState.CLEAN and not runs)
        if waits and self._attached(backing) is None:
            text = f"{backing.device} is {state} and disk {disk.name} may be its cache: it was not touched"
            raise NotOursError(text, code="backing.waits")

    def register_cache(self, serial: Serial, cache_set: CacheSetUuid) -> Effect:
        disk = self._require_disk(serial)
        cache_disk.require_registrable(self.sysfs, disk, cache_set)
        return cache_disk.register(self.sysfs, disk, cache_set, self._wait, blockdev.REGISTER_S)

    def install_cache(self, serial: Serial, size_bytes: int, *, flush_mb_s: float | None) -> CacheSetUuid:
        """See `ports.CacheHost`."""
        backing, disk = self._backing(), self._require_disk(serial)
        attached = self._attached(backing)
        if attached is not None and cache_disk.registered_set(self.sysfs, disk) != attached:
            raise NotOursError(f"cache set {attached} is attached to {backing.device} already", code="set.other")
        cache_set = attached or self._format_cache(disk, backing, size_bytes)
        # Of what is in flight the attach waits for all.
        least = Depth(initial(self.sysfs, backing.disk), initial(self.sysfs, disk.name))
        tuning.tune(self.sysfs, backing.directory, backing.disk, attached, least)
        if attached is None:
            self._attach(backing, disk, cache_set)
        self._require_absorbing(backing)
        if self._attached(backing) != cache_set:
            raise HostError(f"cache set {cache_set} is not attached to {backing.device}", code="attach.ignored")
        tuning.phase1(self.sysfs, backing.directory, flush_mb_s=flush_mb_s)
        return cache_set

    def _attach(self, backing: Backing, disk: blockdev.Disk, cache_set: CacheSetUuid) -> None:
        """While no write is in flight: see `throttle`. Without that, writes stay held back for the next try."""

        def register() -> None:
            self.sharer.leave()
            cache_disk.register(self.sysfs, disk, cache_set, self._wait, HELD_REGISTER_S)
            tuning.tune_set(self.sysfs, cache_set)

        with ExitStack() as held:
            if backing.adaptive is None or backing.adaptive_node is None:
                register()
            else:
                held.enter_context(locks.locked(backing.adaptive_node, self._wait))
                throttle.settle(self.guard, self.sysfs, backing.adaptive, register, self._wait)
                held.enter_context(self._drained(backing.adaptive, throttle.NO_WRITES))
            self.sysfs.write(f"{backing.directory}/attach", cache_set)

    # --- detach ---------------------------------------------------------------------------------------------

    def detach_cache_set(self, cache_set: CacheSetUuid) -> Effect:
        backing = self._backing()
        attached = self._attached(backing)
        if attached is None:
            return Effect.ALREADY
        if attached != cache_set:
            text = f"cache set {attached} is attached, not {cache_set}: it was left alone"
            raise NotOursError(text, code="set.other")
        directory = backing.directory
        state = self.sysfs.read(f"{directory}/state")
        mode = self.sysfs.shown(f"{directory}/cache_mode")
        if state not in (CacheState.CLEAN, CacheState.NO_CACHE) or mode != CacheMode.NONE:
            text = f"{backing.device} is {state} in mode {mode}: it must be drained before a detach"
            raise DeviceBusyError(text, code="cache.not_drained")
        self.make_durable(backing)
        self._detach(backing)
        return Effect.CHANGED

    def _detach(self, backing: Backing) -> None:
        """bcache ends a detach at an instant without any request, which may not come under load: hold requests back.

        The kernel first flushes what its index knows to be dirty, which may be something after a power cut, and no
        write may bypass that: see `throttle`. With nothing dirty, requests in flight bypass only clean data.
        """
        if backing.adaptive is None:
            self.sysfs.write(f"{backing.directory}/detach", 1)
            return
        held: AbstractContextManager[object] = self._drained(backing.adaptive, throttle.STOP)
        if parse_size(self.sysfs.read(f"{backing.directory}/dirty_data")) == 0:
            devices = throttle.stacked(self.sysfs, backing.adaptive)
            held = throttle.limited(self.guard, self.sysfs, devices, throttle.STOP)
        with held:
            self.sharer.leave()
            self.sysfs.write(f"{backing.directory}/detach", 1)
            self._wait(lambda: self._attached(backing) is None, throttle.MOST_S)

    def help_detach(self) -> None:
        backing = self._require_attached()
        if backing.adaptive is None or self.sysfs.read(f"{backing.directory}/state") != CacheState.NO_CACHE:
            text = f"no detach from {backing.device} is under way: requests were not held back"
            raise DeviceBusyError(text, code="detach.none")

        def is_detached() -> bool:
            self.sharer.leave()
            return self._attached(backing) is None

        if not throttle.hold_back(self.guard, self.sysfs, backing.adaptive, is_detached, self._wait):
            text = f"the detach did not end within the {throttle.MOST_S:g} s in which requests were held back"
            raise HostError(text, code="detach.timeout")

    # --- after a cache was lost ----------------------------------------------------------------------------

    def register_backing(self) -> Effect:
        return failed_cache.register_backing(self.sysfs, self.backing_uuid, self._wait)

    def start_without_cache(self) -> Effect:
        return failed_cache.start_without_cache(self.sysfs, self._backing(), self._wait)

    # --- durability ----------------------------------------------------------------------------------------

    def make_durable(self, backing: Backing | None = None) -> None:
        backing = backing or self._backing()
        if backing.adaptive_node is not None:
            blockdev.make_durable(backing.adaptive_node)
        blockdev.make_durable(backing.node)

    def release_cache_disk(self, serial: Serial, size_bytes: int, cache_set: CacheSetUuid | None) -> Effect:
        backing, disk = self._backing(), blockdev.find(self.sysfs, serial)
        if disk is None:
            self.make_durable(backing)
            return Effect.ALREADY
        blockdev.require_size(disk, size_bytes)
        registered = cache_disk.registered_set(self.sysfs, disk)
        if registered is not None:
            cache_disk.require_detached(self.sysfs, registered)
        cache_disk.require_carries(self.sysfs, disk, cache_set)
        self._require_not_the_last_cache(backing, disk)
        self.make_durable(backing)  # the backing superblock ("no cache") and all data, before the cache is erased
        if registered is not None:
            cache_disk.unregister(self.sysfs, disk, registered, self._wait)
        was_erased = cache_disk.erase(self.sysfs, disk, self._run)
        if not self.sharer.is_sharing:
            self.guard.dismiss()  # until the next boost
        return Effect.CHANGED if was_erased or registered is not None else Effect.ALREADY
