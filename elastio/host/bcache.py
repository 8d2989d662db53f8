"""The kernel as a `CacheHost`: the exact sequences that put a cache in front of a device and take it away again.

Each method verifies before it touches, may be repeated, and waits only for what the kernel does at once.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial

from elastio.core.model import CacheMode, CacheSetUuid, CacheState, HostView, Serial
from elastio.errors import DeviceBusyError, HostError, NotOursError
from elastio.host import (
    blockdev,
    cache_format,
    failed_cache,
    guard,
    kernel,
    nodelock,
    overflow,
    superblock,
    throttle,
    tuning,
)
from elastio.host.commands import Run, run
from elastio.host.sysfs import Sysfs, parse_size, wait_for
from elastio.host.view import SETS, Backing, Seen, find_backing, scan
from elastio.units import MB

_log = logging.getLogger(__name__)

REGISTER_S = 10.0
HELD_REGISTER_S = 3.0  # while writes wait; what takes longer is found registered at the next try
UNREGISTER_S = 20.0
# Of flushing at the backing volume's speed: what only the index calls dirty is flushed by the detach, in the moment in
# which requests are held back, or not before writes have bypassed it.
CLEAN_S = 2.0
SLOWEST_MB_S = 10.0


class BcacheHost:
    """`CacheHost` for the backing device with this UUID.

    `run` runs programs, `wait` waits for the kernel, `new_uuid` names new cache sets; the backing volume takes
    `backing_mb_s`.
    """

    def __init__(
        self,
        backing_uuid: str,
        sysfs: Sysfs | None = None,
        run: Run = run,
        wait: Callable[[Callable[[], bool], float], bool] = wait_for,
        new_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
        backing_mb_s: float = SLOWEST_MB_S,
    ) -> None:
        self.backing_uuid = backing_uuid
        self.sysfs = sysfs or Sysfs()
        self._run, self._wait, self._new_uuid = run, wait, new_uuid
        self._clean_bytes = CLEAN_S * backing_mb_s * MB
        self.boot_id = self.sysfs.read_or("proc/sys/kernel/random/boot_id", "unknown")
        self.lease = guard.Lease(partial(throttle.release, self.sysfs))
        self._has_warned = False
        self._seen, self._unfit = Seen(), kernel.why_unfit(self.sysfs)

    def scan(self, serials: tuple[Serial, ...]) -> HostView:
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        view = scan(self.sysfs, self.backing_uuid, serials, now=now, boot_id=self.boot_id, seen=self._seen)
        view = replace(view, unsupported=self._unfit)
        if view.backing is not None or view.duplicates:
            return view
        dropped = failed_cache.find_unregistered_backing(self.sysfs, self.backing_uuid)
        return replace(
            view,
            unregistered_backing=dropped,
            dead_bcache_device=failed_cache.find_dead_bcache_device(self.sysfs, self.backing_uuid),
        )

    # --- the backing device ------------------------------------------------------------------------------

    def _backing(self) -> Backing:
        backing = find_backing(self.sysfs, self.backing_uuid)
        if backing is None:
            raise HostError(f"backing device {self.backing_uuid} is not registered with bcache")
        return backing

    def _attached(self, backing: Backing) -> CacheSetUuid | None:
        name = self.sysfs.link(f"{backing.directory}/cache")
        return CacheSetUuid(name) if name else None

    def _require_attached(self) -> Backing:
        backing = self._backing()
        if self._attached(backing) is None:
            raise HostError(f"no cache set is attached to {backing.device}")
        return backing

    def tune_backing(self) -> None:
        backing = self._backing()
        overflow.start(self.sysfs)
        tuning.tune(self.sysfs, backing.directory, backing.disk, self._attached(backing))

    def enter_phase1(self, *, flush_mb_s: float | None) -> None:
        backing = self._require_attached()
        self._require_absorbing(backing)
        tuning.phase1(self.sysfs, backing.directory, flush_mb_s=flush_mb_s)

    def _require_absorbing(self, backing: Backing) -> None:
        """Never lead writes back into a cache that they bypassed: see `tuning.bypass`."""
        mode = self.sysfs.shown(f"{backing.directory}/cache_mode")
        if mode != CacheMode.WRITEBACK:
            raise DeviceBusyError(f"writes bypass the cache of {backing.device} (mode {mode}): it has to be detached")

    def enter_phase2(self) -> None:
        tuning.phase2(self.sysfs, self._require_attached().directory)

    def limit_writes(self, mb_s: float | None) -> None:
        """For guard.TERM_S at most, and while `lease.pulse` beats."""
        self.lease.end()
        throttle.release(self.sysfs)
        adaptive = self._backing().adaptive if mb_s is not None else None
        if mb_s is not None and adaptive is not None:
            self.lease.begin()
            throttle.limit_writes(self.sysfs, adaptive, mb_s)

    @contextmanager
    def _quiet(self, disk: str, limit: str, is_ready: Callable[[], bool] = lambda: True) -> Iterator[None]:
        """See `throttle.quiet`. Warns once where not all could be held back."""
        self.lease.end()
        with throttle.quiet(self.sysfs, disk, limit, self._wait, is_ready) as is_inhibited:
            if not is_inhibited and not self._has_warned:
                self._has_warned = True
                _log.warning("not all that use %s can be held back (see `elastio doctor`): a read may be stale", disk)
            yield

    def bypass_cache(self) -> None:
        """At a moment at which nothing is dirty or in flight, and never else: see `throttle`."""
        backing = self._require_attached()
        if self.sysfs.shown(f"{backing.directory}/cache_mode") == CacheMode.NONE:
            return
        self._require_flushed(backing)
        if backing.adaptive is None:
            raise DeviceBusyError(f"{backing.device} does not run: nothing bypasses its cache")
        with self._quiet(backing.adaptive, throttle.NOTHING, lambda: self._is_clean(backing)):
            # A write that bypasses takes the clean copy away: what was flushed must be safe from a power cut by then.
            blockdev.make_durable(backing.node)
            tuning.bypass(self.sysfs, backing.directory)

    def _is_clean(self, backing: Backing) -> bool:
        # Not `dirty_data`: after a power cut it may count what nobody flushes but a detach (see `events.is_drained`).
        return self.sysfs.read(f"{backing.directory}/state") == CacheState.CLEAN

    def _require_flushed(self, backing: Backing) -> None:
        """A superblock that a power cut left behind says clean over what the index knows to be dirty: nobody flushes it
        before a detach or `wake_writeback`.
        """
        dirty = parse_size(self.sysfs.read(f"{backing.directory}/dirty_data"))
        if self._is_clean(backing) and dirty > self._clean_bytes:
            raise DeviceBusyError(f"the index of the cache of {backing.device} has {dirty} dirty bytes: not bypassed")

    def wake_writeback(self) -> None:
        """See `ports.CacheHost`. A write that is absorbed makes the superblock dirty, whatever it writes."""
        backing = self._require_attached()
        self._require_absorbing(backing)
        if backing.adaptive is None or backing.adaptive_node is None:
            raise HostError(f"{backing.device} does not run")
        blockdev.rewrite_first_block(backing.adaptive_node)

    def set_flush(self, mb_s: float | None) -> None:
        tuning.set_flush(self.sysfs, self._require_attached().directory, mb_s)

    # --- a new cache -------------------------------------------------------------------------------------

    def format_cache(self, serial: Serial, size_bytes: int) -> CacheSetUuid:
        disk, backing = self._require_disk(serial), self._backing()
        self._require_not_the_last_cache(backing, disk)
        self._require_fit()
        registered = self.sysfs.link(f"sys/block/{disk.name}/bcache/set")
        if registered:
            return self._reuse_if_ours(disk, CacheSetUuid(registered), size_bytes)
        if blockdev.require_unused(self.sysfs, disk, size_bytes=size_bytes, run=self._run):
            blockdev.wipe(disk, self._run)
        return self._make_cache(disk, self._block_size(backing))

    def _require_disk(self, serial: Serial) -> blockdev.Disk:
        disk = blockdev.find(self.sysfs, serial)
        if disk is None:
            raise HostError(f"no disk shows the serial {serial}")
        return disk

    def _require_fit(self) -> None:
        if self._unfit:
            raise NotOursError(f"no cache is attached: {self._unfit}")

    def _reuse_if_ours(self, disk: blockdev.Disk, cache_set: CacheSetUuid, size_bytes: int) -> CacheSetUuid:
        """A repeated format: the set is registered and has served nobody."""
        if disk.size_bytes != size_bytes:
            raise NotOursError(f"disk {disk.name} has {disk.size_bytes} bytes, not {size_bytes}: it was not touched")
        if blockdev.holders(self.sysfs, disk.name):
            raise DeviceBusyError(f"disk {disk.name} serves as a cache already: it was not touched")
        return cache_set

    def _require_not_the_last_cache(self, backing: Backing, disk: blockdev.Disk) -> None:
        """Never write on what the backing device still waits for. One that runs and is clean has outlived its cache."""
        state = self.sysfs.read(f"{backing.directory}/state")
        runs = self.sysfs.read(f"{backing.directory}/running") == "1"
        waits = state == CacheState.DIRTY or (state == CacheState.CLEAN and not runs)
        if waits and self._attached(backing) is None:
            raise NotOursError(f"{backing.device} is {state} and disk {disk.name} may be its cache: not touched")

    def _block_size(self, backing: Backing) -> int:
        """The set's block size may not be larger than the backing device's, or the attach is refused."""
        found = superblock.read(backing.node)
        if found is None:
            raise HostError(f"{backing.node} shows no bcache superblock")
        return found.block_size_bytes

    def _make_cache(self, disk: blockdev.Disk, block_size: int) -> CacheSetUuid:
        cache_set, size = self._new_uuid(), disk.size_bytes
        verify, bucket = partial(blockdev.require_same, self.sysfs, disk), cache_format.bucket_bytes(size)
        cache_format.write(disk.node, cache_set, verify, size_bytes=size, block_bytes=block_size, bucket_bytes=bucket)
        return CacheSetUuid(str(cache_set))

    def register_cache(self, serial: Serial, cache_set: CacheSetUuid) -> None:
        """Directly: udev would do it too, up to 1.2 s later. The loser of that race is told EINVAL or EBUSY."""
        self._register(self._require_disk(serial), cache_set, REGISTER_S)

    def _register(self, disk: blockdev.Disk, cache_set: CacheSetUuid, seconds: float) -> None:
        refused, link = "", f"sys/block/{disk.name}/bcache/set"
        if self.sysfs.link(link) == cache_set:
            return
        try:
            self.sysfs.write("sys/fs/bcache/register_quiet", str(disk.node))
        except HostError as error:
            refused = str(error)
        if not self._wait(lambda: self.sysfs.link(link) == cache_set, seconds):
            raise HostError(f"{disk.name} did not become cache set {cache_set} within {seconds:g} s. {refused}")

    def attach_cache_set(self, cache_set: CacheSetUuid, serial: Serial, *, flush_mb_s: float | None) -> None:
        backing, disk = self._backing(), self._require_disk(serial)
        if self.sysfs.link(f"sys/block/{disk.name}/bcache/set") != cache_set:
            raise NotOursError(f"disk {disk.name} is not cache set {cache_set}")
        self._put_in_front(backing, disk, cache_set, flush_mb_s)

    def install_cache(self, serial: Serial, size_bytes: int, *, flush_mb_s: float | None) -> CacheSetUuid:
        """Format, register and attach in one visit. Repeating is safe: what is done already is left as it is."""
        backing, disk = self._backing(), self._require_disk(serial)
        cache_set = CacheSetUuid(self.sysfs.link(f"sys/block/{disk.name}/bcache/set") or "")
        if self._attached(backing) is None:
            cache_set = self.format_cache(serial, size_bytes)
        self._put_in_front(backing, disk, cache_set, flush_mb_s)
        return cache_set

    def _put_in_front(
        self, backing: Backing, disk: blockdev.Disk, cache_set: CacheSetUuid, flush_mb_s: float | None
    ) -> None:
        """Register, where that is still to be done, and attach."""
        attached = self._attached(backing)
        if attached not in (None, cache_set):
            raise NotOursError(f"cache set {attached} is attached to {backing.device} already")
        self._require_not_the_last_cache(backing, disk)
        tuning.tune(self.sysfs, backing.directory, backing.disk, attached)
        if attached is None:
            self._attach(backing, disk, cache_set)
        self._require_absorbing(backing)
        if self._attached(backing) != cache_set:
            raise HostError(f"cache set {cache_set} is not attached to {backing.device}")
        tuning.phase1(self.sysfs, backing.directory, flush_mb_s=flush_mb_s)

    def _attach(self, backing: Backing, disk: blockdev.Disk, cache_set: CacheSetUuid) -> None:
        """At a moment without a write in flight: see `throttle`. Registered while these come to their end."""

        def is_registered() -> bool:
            self._register(disk, cache_set, HELD_REGISTER_S)
            tuning.tune_set(self.sysfs, cache_set)
            return True

        self._require_fit()
        with ExitStack() as held:
            if backing.adaptive is None or backing.adaptive_node is None:
                is_registered()
            else:
                held.enter_context(nodelock.locked(backing.adaptive_node, self._wait))
                held.enter_context(self._quiet(backing.adaptive, throttle.NO_WRITES, is_registered))
            self.sysfs.write(f"{backing.directory}/attach", cache_set)

    # --- taking it away ------------------------------------------------------------------------------------

    def detach_cache_set(self, cache_set: CacheSetUuid) -> None:
        backing = self._backing()
        attached = self._attached(backing)
        if attached is None:
            return
        if attached != cache_set:
            raise NotOursError(f"cache set {attached} is attached, not {cache_set}: it was left alone")
        directory = backing.directory
        state = self.sysfs.read(f"{directory}/state")
        mode = self.sysfs.shown(f"{directory}/cache_mode")
        if state not in (CacheState.CLEAN, CacheState.NO_CACHE) or mode != CacheMode.NONE:
            raise DeviceBusyError(f"{backing.device} is {state} in mode {mode}: it must be drained before a detach")
        self._make_durable(backing)
        self._detach(backing)

    def _detach(self, backing: Backing) -> None:
        """At the instant without a request that it ends at, which may not come under load.

        The kernel flushes first what its index calls dirty, which may be something after a power cut: no write may
        bypass that, see `throttle`. Where there is nothing, what is in flight bypasses no more than clean data.
        """
        if backing.adaptive is None:
            self.sysfs.write(f"{backing.directory}/detach", 1)
            return
        self.lease.end()
        held: AbstractContextManager[object] = self._quiet(backing.adaptive, throttle.NOTHING)
        if parse_size(self.sysfs.read(f"{backing.directory}/dirty_data")) == 0:
            held = throttle.limited(self.sysfs, throttle.stacked(self.sysfs, backing.adaptive), throttle.NOTHING)
        with held:
            self.sysfs.write(f"{backing.directory}/detach", 1)
            self._wait(lambda: self._attached(backing) is None, throttle.MOST_S)

    def help_detach(self) -> None:
        backing = self._require_attached()
        self.lease.end()
        if backing.adaptive is None or self.sysfs.read(f"{backing.directory}/state") != CacheState.NO_CACHE:
            raise DeviceBusyError(f"no detach from {backing.device} is under way: applications were not held back")
        if not throttle.hold_back(self.sysfs, backing.adaptive, lambda: self._attached(backing) is None, self._wait):
            raise HostError(f"the detach did not end within the {throttle.MOST_S:g} s that applications were held back")

    # --- after a cache was lost ----------------------------------------------------------------------------

    def register_backing(self) -> None:
        failed_cache.register_backing(self.sysfs, self.backing_uuid, self._wait)

    def start_without_cache(self) -> None:
        failed_cache.start_without_cache(self.sysfs, self._backing(), self._wait)

    # --- durability ----------------------------------------------------------------------------------------

    def make_durable(self) -> None:
        self._make_durable(self._backing())

    def _make_durable(self, backing: Backing) -> None:
        if backing.adaptive_node is not None:
            blockdev.make_durable(backing.adaptive_node)
        blockdev.make_durable(backing.node)

    def release_cache_disk(self, serial: Serial, size_bytes: int, cache_set: CacheSetUuid | None) -> None:
        backing, disk = self._backing(), blockdev.find(self.sysfs, serial)
        if disk is None:
            self._make_durable(backing)  # all that is left to be done
            return
        if disk.size_bytes != size_bytes:
            raise NotOursError(f"disk {disk.name} has {disk.size_bytes} bytes, not {size_bytes}: it was not touched")
        registered = self.sysfs.link(f"sys/block/{disk.name}/bcache/set")
        if registered is not None:
            self._require_serves_nobody(registered)
        self._require_carries(disk, registered, cache_set)
        self._require_not_the_last_cache(backing, disk)
        self._make_durable(backing)  # "no cache" in the backing superblock, and all data, before the cache goes
        if registered is not None:
            self._unregister(disk, registered)
        self._wipe(disk)

    def _require_carries(self, disk: blockdev.Disk, registered: str | None, wanted: CacheSetUuid | None) -> None:
        """Either nothing, or the set that was decided about."""
        written = superblock.read(disk.node)
        carried = registered or (written.set_uuid if written else None)
        if carried is not None and wanted is not None and carried != wanted:
            raise NotOursError(f"disk {disk.name} carries cache set {carried}, not {wanted}: it was not touched")

    def _require_serves_nobody(self, cache_set: str) -> None:
        served = [n for n in self.sysfs.names(f"{SETS}/{cache_set}") if n.startswith("bdev")]
        if served:
            raise DeviceBusyError(f"cache set {cache_set} still serves {len(served)} backing device(s)")

    def _unregister(self, disk: blockdev.Disk, cache_set: str) -> None:
        self.sysfs.write(f"{SETS}/{cache_set}/unregister", 1)

        def gone() -> bool:
            set_there = self.sysfs.exists(f"{SETS}/{cache_set}")
            return not set_there and not self.sysfs.exists(f"sys/block/{disk.name}/bcache")

        if not self._wait(gone, UNREGISTER_S):
            raise HostError(f"cache set {cache_set} is still registered after {UNREGISTER_S:g} s")

    def _wipe(self, disk: blockdev.Disk) -> None:
        """Starts no program where the superblock shows what the disk is: the volume is paid until this is done."""
        written = superblock.read(disk.node)
        if written is None or written.role is not superblock.Role.CACHE:
            blockdev.require_unused(self.sysfs, disk, size_bytes=disk.size_bytes, run=self._run)
            return
        blockdev.require_free(self.sysfs, disk)
        superblock.erase(disk.node, partial(blockdev.require_same, self.sysfs, disk))
        if superblock.read(disk.node) is not None:
            raise HostError(f"the superblock on {disk.name} is still there after wiping it")
