"""A model of one adaptive device: two disks with bandwidth caps, bcache between them, power, and hot plug.

Theory of operation. Time comes from a `SimClock`; the kernel never advances it. `step` moves the bytes of the interval
that just ended, in this order: effects that are due, the flows (`flows`), the bookkeeping of the writeback thread,
the superblock on its way to the disk, and the end of a detach. An interval should not be longer than 0.05 s.

What takes time is a timer (`timers`): a superblock write, udev registering a disk, the end of an attach. As with the
real kernel, a call may return before its effect is there. The caller has to look at the attributes again.

Superblock writes queue up behind each other and behind the load. On a saturated backing disk an attach takes 12 s if
the queue is the default one, and 0.4 s if it was bounded (`tune_backing`). A detach ends at an instant without a
request in flight; a busy device can delay that without limit, which is why the agent holds requests back.

Disks are plugged, unplugged and pulled by serial. A disk that was pulled keeps its content (`away`) until its volume is
deleted. A cache set with a superblock is registered when its disk appears, and attached if the backing device names
it. If a cache disk is pulled while the superblock says dirty, the adaptive device stops; if it says clean, the device
goes on without a cache.

A power cut loses requests in flight, blocks that the backing disk has not flushed, superblock versions that were still
under way (`superblock`), and every setting in sysfs except `cache_mode`. `lost` compares what was acknowledged with
what can still be read: it is the question that every test asks.

Quiet time is skipped. `quiet_until` returns the time before which a step would change nothing; `rest` then does the
arithmetic of many steps at once, and leaves exactly the same floating-point values. A test compares both ways.
"""

from __future__ import annotations

import itertools
import string
import sys

from elastio.core.model import CacheSetUuid, Serial
from elastio.errors import DeviceBusyError, HostError
from elastio.units import MB
from elastio_sim.bcache import WritebackMode
from elastio_sim.disk import CacheContent, SimDisk, Traffic
from elastio_sim.flows import Budget, Load
from elastio_sim.link import SMOOTHING_S, BackingDisk, KernelSettings, Link, content_of

COPY_SERIAL = Serial("vol0backingcopy0001")
UDEV_S = 1.2  # after a superblock was written

__all__ = ["KernelSettings", "SimKernel"]


class SimKernel(Link):
    """The machine. A call takes effect at once or, as with the real kernel, some time later."""

    # --- time ------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Apply the effects that are due."""
        self.timers.settle()

    def step(self, seconds: float, load: Load) -> None:
        """Move the bytes of the `seconds` that end now; at most 0.05 s."""
        self.settle()
        backing = self._bytes(0, self._bucket.available_mb_s(self.credits_bytes), seconds)
        budget = Budget(backing, self._bytes(1, self._cache_mb_s(), seconds))
        had = budget.backing
        if self.bcache.running and self.registered:
            load.begin(seconds)
            self._write.begin(seconds, held=self.holds_writes)
            self._read.begin(seconds, held=self._holds_reads)
            self._flush.begin(seconds)
            bypassed = self.bcache.bypassed_bytes
            self._share(load, budget)
            self.shares.step(self.clock.elapsed(), self.traffic.adaptive)
            self.bcache.settle()
            superblock = self.bcache.superblock
            self._superblock.note(self.clock.elapsed(), superblock)
            if superblock.needed_set is None and self.bcache.bypassed_bytes != bypassed:
                self.fsync()  # applications sync what they write there, and with it all earlier writes
            self._finish_detach()
        self._spend((had - budget.backing) / MB / seconds, seconds)
        use = 1 - budget.backing / had if had else 0.0
        weight = min(1.0, seconds / SMOOTHING_S)
        self._backing_use += (use - self._backing_use) * weight

    def quiet_until(self, load: Load) -> float:
        """`elapsed` before which a step does nothing but what `rest` does; a time in the past: there is work to do.

        Every other call of the kernel makes the answer invalid.
        """
        bcache, now = self.bcache, self.clock.elapsed()
        if bcache.detaching or not (self._write.is_idle and self._read.block is None and self._flush.is_idle):
            return now
        if bcache.sb_dirty and bcache.cache is not None and not bcache.cache.dirty:
            return now  # the writeback thread has not yet marked it clean
        if self.shares.is_busy:
            return now
        if bcache.superblock != self._superblock.newest:
            return now  # it is not yet on its way to the disk
        lives = bcache.running and self.registered
        return min(self.timers.next_at, now + load.idle_s()) if lives else self.timers.next_at

    def rest(self, steps: int, seconds: float, load: Load) -> None:
        """Equivalent to `steps` calls of `step` that end now, all before `quiet_until`, with identical rounding."""
        cache_mb_s = self._cache_mb_s()
        if self.bcache.running and self.registered:
            load.rest(steps, seconds)
            for _ in range(steps if self.bcache.write_limit_mb_s is not None else 1):
                self._write.begin(seconds, held=self.holds_writes)
            self._flush.rest(steps, seconds)
            self.shares.rest(self.clock.elapsed())
        before: tuple[float, ...] = ()
        for _ in range(steps):
            self._bytes(0, self._bucket.available_mb_s(self.credits_bytes), seconds)
            self._spend(0.0, seconds)
            self._bytes(1, cache_mb_s, seconds)
            if before == (before := (*self._fractions, self.credits_bytes)):
                break  # what follows depends on nothing else, and changes nothing
        weight = min(1.0, seconds / SMOOTHING_S)
        for _ in range(steps if self._backing_use else 0):
            self._backing_use += (0.0 - self._backing_use) * weight

    def _cache_mb_s(self) -> float:
        cache = self.cache_disk()
        return cache.mb_s * self.settings.cache_efficiency if cache else 0.0

    def _spend(self, moved_mb_s: float, seconds: float) -> None:
        if self.settings.backing_credits is None:
            return
        self.credits_bytes = self._bucket.after(self.credits_bytes, moved_mb_s, seconds)
        self.least_credits_bytes = min(self.least_credits_bytes, self.credits_bytes)

    def _bytes(self, disk: int, mb_s: float, seconds: float) -> int:
        exact = mb_s * MB * seconds + self._fractions[disk]
        self._fractions[disk] = exact % 1.0
        return int(exact)

    def _share(self, load: Load, budget: Budget) -> None:
        write, read, flush = self._write, self._read, self._flush
        movers = write.start(load) + read.start(load) + flush.may_run
        if movers == 1:
            budget.quantum = sys.maxsize  # a flow that is alone need not take turns
        moved = 1
        while moved:
            moved = write.turn(load, budget) + read.turn(load, budget)
            if flush.ready():
                waits = write.wants_backing(load) or read.wants_backing(load)
                moved += flush.turn(budget, yield_backing=waits)

    # --- disks come and go -----------------------------------------------------------------------------------

    def plug(self, disk: SimDisk) -> None:
        """A disk appears. udev registers one with a cache superblock; bcache attaches the set that it waits for."""
        names = (f"vd{letter}" for letter in string.ascii_lowercase[2:])
        taken = {d.name for d in self.disks.values()}
        disk.name = next(n for n in names if n not in taken)
        self.away.pop(disk.serial, None)
        self.disks[disk.serial] = disk
        if disk.superblock is not None:
            self._register(disk)

    def holds(self, serial: Serial) -> bool:
        """True while the machine uses the disk."""
        disk = self.disks.get(serial)
        return disk is not None and (disk.registered or disk.holder is not None)

    def unplug(self, serial: Serial) -> None:
        """Orderly removal. Raises DeviceBusyError while the disk is in use."""
        if self.holds(serial):
            raise DeviceBusyError(f"disk {serial} is in use")
        self.pull(serial)

    def pull(self, serial: Serial) -> None:
        """Surprise removal. A clean cache is just gone; a dirty one stops the adaptive device and keeps its data."""
        disk = self.disks.pop(serial, None)
        if disk is None:
            return
        self.away[serial] = disk
        attached = disk.superblock is not None and disk.superblock == self.bcache.cache_set
        if attached:
            is_known, is_dirty = self.bcache.sb_dirty, self.bcache.dirty_bytes > 0
            self._drop_in_flight()
            self.bcache.unlink()
            self._unlink_at = None
            if is_known:
                self.bcache.running = False
            # Otherwise the device goes on, even if the index had dirty data, and its superblock still names the set.
            self.bcache.is_forgiven = is_dirty
        if self._attaching is not None and self._attaching[0] == disk.superblock:
            self._attaching = None
        disk.registered = False

    def destroy(self, serial: Serial) -> None:
        """The volume is deleted, and the content of its disk with it."""
        self.pull(serial)
        self.away.pop(serial, None)

    def power_cut(self) -> None:
        """The machine loses power and boots at once, with the disks that are plugged now.

        Lost: requests in flight, volatile blocks of the backing disk, and every setting but `cache_mode`. A flushed
        block whose clean copy is still on its cache counts as kept: no agent can close that window.
        """
        self.boots += 1
        self.boot_id = self.new_uuid()
        self.timers.forget()
        bcache = self.bcache
        bcache.sb_set, bcache.sb_dirty, bcache.stale, bcache.mode = self._superblock.found(self.clock.elapsed())
        # A cache disk that was pulled keeps its content too.
        cached = self._recoverable(None, bcache.superblock.needed_set)
        self.bcache.backing.power_cut(cached.clean if cached else {})
        self._drop_in_flight()
        bcache.unlink()
        bcache.overflow_bytes, bcache.write_limit_mb_s = 0, None
        self.shares.end()
        bcache.writeback_mode, bcache.tuned, bcache.writeback_running = WritebackMode.TRICKLE, False, True
        self.resume_requests()
        self._attaching, self._unlink_at = None, None
        for traffic in (self.traffic.adaptive, self.traffic.backing, self.traffic.cache):
            traffic.read = traffic.written = 0
        self._backing_use, self._superblock_free_at = 0.0, 0.0
        bcache.running = bcache.superblock.needed_set is None
        for disk in self.disks.values():
            disk.registered = False
            disk.holder = None
            if disk.superblock is not None:
                self._register(disk)

    # --- what root can do ------------------------------------------------------------------------------------

    def format(self, serial: Serial) -> CacheSetUuid:
        """make-bcache. The caller has verified the disk."""
        disk = self.disk(serial)
        cache_set = CacheSetUuid(self.new_uuid())
        disk.superblock, disk.signature = cache_set, None
        disk.content = CacheContent(disk.size_bytes, self.settings.block_bytes)
        self.timers.later(UDEV_S, lambda: self._registered_by_udev(serial, cache_set))
        return cache_set

    def _registered_by_udev(self, serial: Serial, cache_set: CacheSetUuid) -> None:
        disk = self.disks.get(serial)
        if disk is not None and disk.superblock == cache_set and not disk.registered:
            self._register(disk)

    def register(self, serial: Serial) -> None:
        """Register a formatted disk. Raises HostError if it has no superblock."""
        disk = self.disk(serial)
        if disk.superblock is None:
            raise HostError(f"disk {serial} carries no bcache superblock")
        self._register(disk)

    def drop_backing(self) -> None:
        """The last close of a device whose cache died: bcache unregisters the backing device too."""
        self.registered, self.bcache.running = False, False

    def register_backing(self) -> None:
        """Register the backing device. Its superblock decides: it runs, waits for its set, or gets it at once."""
        if self.registered:
            return
        self.registered, self.bcache.running = True, self.bcache.superblock.needed_set is None
        for disk in self.disks.values():
            if disk.registered:
                self._register(disk)

    def force_run(self) -> None:
        """`echo 1 > running`: start without the cache; what only the cache holds is lost."""
        if not self.bcache.running:
            self.bcache.sb_dirty, self.bcache.stale = False, True
            self.bcache.passed = None
            self.bcache.running, self.bcache.is_forgiven = True, True
            self._superblock.put(self.bcache.superblock)

    def unregister(self, serial: Serial) -> None:
        """Unregister the cache set on this disk. Raises DeviceBusyError while it is attached."""
        disk = self.disk(serial)
        attaching = self._attaching[0] if self._attaching else None
        if disk.superblock is not None and disk.superblock in {self.bcache.cache_set, attaching}:
            raise DeviceBusyError(f"cache set {disk.superblock} is attached")
        disk.registered = False

    def swap_backing(self, serial: Serial | None = COPY_SERIAL) -> None:
        """An operator stops bcache and replaces the backing disk by an older copy whose superblock names no cache.

        The cache set stays registered. `lost` counts the data of the original disk until `swap_back`.
        """
        if self.original is not None:
            return
        self._drop_in_flight()
        self.bcache.unlink()
        self._attaching, self._unlink_at = None, None
        self.original = BackingDisk.of(self.bcache, self.backing_serial)
        self.was_swapped_unseen |= serial in (None, self.backing_serial)
        self._put(self.original.older_copy(serial))
        self.registered = True

    def swap_back(self) -> None:
        """The machine is off and gets its original disk back; `power_cut` boots it."""
        if self.original is not None:
            self._drop_in_flight()
            self.bcache.unlink()
            self._put(self.original)
            self.original = None

    def _put(self, disk: BackingDisk) -> None:
        disk.put_into(self.bcache)
        self.backing_serial = disk.serial
        self._superblock.put(disk.superblock)

    # --- what can be seen ------------------------------------------------------------------------------------

    def disk(self, serial: Serial) -> SimDisk:
        """The plugged disk with this serial. Raises HostError if there is none."""
        found = self.disks.get(serial)
        if found is None:
            raise HostError(f"no disk with serial {serial}", code="disk.missing")
        return found

    def cache_disk(self) -> SimDisk | None:
        """The disk whose cache set is attached, or None."""
        wanted = self.bcache.cache_set
        return next((d for d in self.disks.values() if wanted is not None and d.superblock == wanted), None)

    def lost(self, *, without: Serial | None = None, power_cut: bool = False) -> frozenset[int]:
        """Blocks whose newest acknowledged version is gone.

        `without`: as if that disk were gone; `power_cut`: as after one.
        """
        disks = [BackingDisk.of(self.bcache, self.backing_serial)]
        disks += [self.original] if self.original else []
        found = (d.lost(self._recoverable(without, d.superblock.needed_set), power_cut=power_cut) for d in disks)
        return frozenset().union(*found)

    def would_wait(self) -> bool:
        """True if the device, after a power cut, would wait for a detached set whose disk no longer exists."""
        named = self._superblock.superblock_set
        return named is not None and named != self.bcache.sb_set and self._recoverable(None, named) is None

    def could_be_mounted_alone(self) -> bool:
        """True if an adopted volume shows its filesystem although a cache is attached to it, or will be at a boot."""
        named = self.bcache.cache_set or self.bcache.sb_set or self._superblock.superblock_set
        return self.has_tombstone is False and named is not None

    def _recoverable(self, without: Serial | None, named: CacheSetUuid | None) -> CacheContent | None:
        return content_of(named, itertools.chain(self.disks.values(), self.away.values()), without)

    def cache_traffic(self) -> Traffic:
        """The counters of the cache disk; zeros without one."""
        return self.traffic.cache if self.cache_disk() else Traffic()

    # --- inside ----------------------------------------------------------------------------------------------

    def _register(self, disk: SimDisk) -> None:
        disk.registered = True
        content = disk.content
        if content is None or disk.superblock is None or disk.superblock != self.bcache.sb_set:
            return
        if self.bcache.cache is None and self.registered:
            self.bcache.link(disk.superblock, content)
            self.bcache.running = True

    def _drop_in_flight(self) -> None:
        for flow in (self._write, self._read, self._flush):
            flow.reset()
