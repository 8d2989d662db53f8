"""A fluid model of one adaptive device: two disks with caps, bcache between them, power and plugs."""

from __future__ import annotations

import itertools
import string
import sys
import uuid
from dataclasses import dataclass
from random import Random

from elastio.errors import DeviceBusyError, HostError
from elastio.model import CacheMode, CacheSetUuid, Serial
from elastio.sim.bcache import Bcache, Pace
from elastio.sim.clock import SimClock
from elastio.sim.content import CacheContent
from elastio.sim.disk import SimDisk
from elastio.sim.flows import Budget, FlushFlow, Load, ReadFlow, Traffic, Traffics, WriteFlow
from elastio.sim.loss import BackingDisk, content_of
from elastio.sim.superblock import SuperblockOnDisk
from elastio.sim.timers import Timers
from elastio.units import GB, MB, MIB

# Share of a disk's cap in use above which its queue is full (a smoothed value can only come near 1).
SATURATED = 0.8
# How fast the smoothed use follows: after a second of saturation the queue is full.
SMOOTHING_S = 0.5
# An attach waits so long for writes in flight, and looks so often whether they are done.
SETTLE_S, ATTACH_AGAIN_S = 5.0, 0.05
UDEV_S = 1.2  # after a superblock was written
COPY_SERIAL = Serial("vol0backingcopy0001")


@dataclass(frozen=True, slots=True)
class KernelSettings:
    """Defaults are the values measured in guests with Debian's kernels 6.1 and 6.12."""

    backing_mb_s: float = 33.0
    backing_bytes: int = 50 * GB
    backing_uuid: str = "5f0e1d2c-0000-4000-8000-000000000001"
    backing_serial: str = "vol0backing0000001"
    machine: str = "i-00000000000000001"
    cutoff: float = 0.70  # bch_cutoff_writeback; the kernel takes no more than 0.90
    block_bytes: int = MIB
    cache_efficiency: float = 0.94  # the rest goes to bcache's index and journal
    superblock_s: float = 0.05
    superblock_loaded_s: float = 0.4  # behind the queue of a saturated backing disk whose queue is bounded
    superblock_untuned_s: float = 12.0  # behind the default queue of 256 requests of up to 1.3 MB
    unlink_s: float = 0.25  # from "no cache" to the end of a detach, at the least
    holds_back: bool = True  # False: no cgroup can be limited, or the device lies below LUKS or md
    in_use: bool = False  # mounted, mapped or stacked: nobody else can open it exclusively

    def __post_init__(self) -> None:
        if not 0 < self.cutoff <= 0.90:
            raise ValueError(f"bcache takes cutoffs up to 0.90, not {self.cutoff}")


class SimKernel:
    """The machine. Calls act at once or, like the real kernel's, some time later: `look` at the attributes."""

    def __init__(self, clock: SimClock, settings: KernelSettings, seed: int = 0) -> None:
        self.clock = clock
        self.settings = settings
        self.random = Random(seed)
        self.bcache = Bcache(cutoff=settings.cutoff, block_bytes=settings.block_bytes)
        self.traffic = Traffics()
        self.disks: dict[Serial, SimDisk] = {}
        self.away: dict[Serial, SimDisk] = {}
        self.always_busy = False
        self.registered = True
        self.backing_serial = Serial(settings.backing_serial)
        self.original: BackingDisk | None = None
        self.was_detached_by_hand = False
        self._superblock = SuperblockOnDisk(seed)
        self._held_back_until = self._writes_held_until = self._reads_held_until = 0.0
        self.boots = 0
        self.boot_id = self.new_uuid()
        self._backing_use = 0.0
        self._superblock_free_at = 0.0
        self._attaching: tuple[CacheSetUuid, float] | None = None
        self._unlink_at: float | None = None
        self.timers = Timers(clock)
        self._write = WriteFlow(self.bcache, self.traffic)
        self._read = ReadFlow(self.bcache, self.traffic)
        self._flush = FlushFlow(self.bcache, self.traffic)
        self._fractions = [0.0, 0.0]

    # --- time ------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Run the effects that are due."""
        self.timers.settle()

    def step(self, seconds: float, load: Load) -> None:
        """Move the bytes of the `seconds` that end now; at most 0.05 s at a time keeps the model honest."""
        self.settle()
        cache = self.cache_disk()
        mb_s = cache.mb_s * self.settings.cache_efficiency if cache else 0.0
        budget = Budget(self._bytes(0, self.settings.backing_mb_s, seconds), self._bytes(1, mb_s, seconds))
        had = budget.backing
        if self.bcache.running and self.registered:
            load.begin(seconds)
            self._write.begin(seconds, held=self.holds_writes)
            self._read.begin(held=self._holds_reads)
            self._flush.begin(seconds)
            bypassed = self.bcache.bypassed_bytes
            self._share(load, budget)
            self.bcache.settle()
            self._superblock.note(self.clock.elapsed(), self.bcache.superblock)
            if self.bcache.sb_set is None and self.bcache.bypassed_bytes != bypassed:
                self.fsync()  # applications sync what they write there, and with it all that was before
            self._finish_detach()
        use = 1 - budget.backing / had if had else 0.0
        weight = min(1.0, seconds / SMOOTHING_S)
        self._backing_use += (use - self._backing_use) * weight

    def quiet_until(self, load: Load) -> float:
        """`elapsed` before which every step would change nothing but what `rest` does; the past: there is work.

        Anybody who calls the kernel meanwhile ends the quiet: ask again after each call.
        """
        bcache, now = self.bcache, self.clock.elapsed()
        if bcache.detaching or not (self._write.is_idle and self._read.block is None and self._flush.is_idle):
            return now
        if bcache.sb_dirty and bcache.cache is not None and not bcache.cache.dirty:
            return now  # the writeback thread has yet to see that it is clean
        if bcache.superblock != self._superblock.newest:
            return now  # it has yet to be told to the disk
        lives = bcache.running and self.registered
        return min(self.timers.next_at, now + load.idle_s()) if lives else self.timers.next_at

    def rest(self, steps: int, seconds: float, load: Load) -> None:
        """So many steps of `seconds` that end now, all before `quiet_until`: to the bit what `step` would leave."""
        cache = self.cache_disk()
        mb_s = cache.mb_s * self.settings.cache_efficiency if cache else 0.0
        if self.bcache.running and self.registered:
            load.rest(steps, seconds)
            for _ in range(steps if self.bcache.write_limit_mb_s is not None else 1):
                self._write.begin(seconds, held=self.holds_writes)
            self._flush.rest(steps, seconds)
        weight = min(1.0, seconds / SMOOTHING_S)
        for _ in range(steps):
            self._bytes(0, self.settings.backing_mb_s, seconds)
            self._bytes(1, mb_s, seconds)
            self._backing_use += (0.0 - self._backing_use) * weight

    def _bytes(self, disk: int, mb_s: float, seconds: float) -> int:
        exact = mb_s * MB * seconds + self._fractions[disk]
        self._fractions[disk] = exact % 1.0
        return int(exact)

    def _share(self, load: Load, budget: Budget) -> None:
        movers = self._write.start(load) + self._read.start(load) + self._flush.may_run
        if movers == 1:
            budget.quantum = sys.maxsize  # whoever is alone need not take turns
        moved = 1
        while moved:
            moved = self._write.turn(load, budget) + self._read.turn(load, budget)
            if self._flush.ready():
                waits = self._write.wants_backing(load) or self._read.wants_backing(load)
                moved += self._flush.turn(budget, yield_backing=waits)

    # --- disks come and go -----------------------------------------------------------------------------------

    def plug(self, disk: SimDisk) -> None:
        """A disk appears. udev registers one with a cache superblock, and bcache attaches the set it waits for."""
        names = (f"vd{letter}" for letter in string.ascii_lowercase[2:])
        taken = {d.name for d in self.disks.values()}
        disk.name = next(n for n in names if n not in taken)
        self.away.pop(disk.serial, None)
        self.disks[disk.serial] = disk
        if disk.superblock is not None:
            self._register(disk)

    def holds(self, serial: Serial) -> bool:
        """True while something in the machine uses the disk."""
        disk = self.disks.get(serial)
        return disk is not None and (disk.registered or disk.holder is not None)

    def unplug(self, serial: Serial) -> None:
        """The polite way out. Raises DeviceBusyError while the disk is in use."""
        if self.holds(serial):
            raise DeviceBusyError(f"disk {serial} is in use")
        self.pull(serial)

    def pull(self, serial: Serial) -> None:
        """Surprise removal. A clean cache just ends; a dirty one stops the adaptive device and keeps its data."""
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
            # Else the device goes on, also where only the index knew of dirt, and its superblock keeps the set's name.
            self.bcache.is_forgiven = is_dirty
        if self._attaching is not None and self._attaching[0] == disk.superblock:
            self._attaching = None
        disk.registered = False

    def destroy(self, serial: Serial) -> None:
        """The volume is deleted: what was on its disk is gone for good."""
        self.pull(serial)
        self.away.pop(serial, None)

    def power_cut(self) -> None:
        """Power goes and comes back at once, with the disks that are plugged now.

        Gone: what is in flight, the backing disk's volatile blocks and every knob but `cache_mode`. A flushed
        block whose clean copy is still on its cache counts as kept: no agent can close that window.
        """
        self.boots += 1
        self.boot_id = self.new_uuid()
        self.timers.forget()
        bcache = self.bcache
        bcache.sb_set, bcache.sb_dirty, bcache.stale, bcache.mode = self._superblock.found(self.clock.elapsed())
        cached = self._recoverable(None, bcache.sb_set)  # a cache disk that is away keeps its content too
        self.bcache.backing.power_cut(cached.clean if cached else {})
        self._drop_in_flight()
        self.bcache.unlink()
        self.bcache.overflow_bytes = 0
        self.bcache.write_limit_mb_s = None
        self.let_go()
        self.bcache.pace, self.bcache.tuned, self.bcache.writeback_running = Pace.TRICKLE, False, True
        self._attaching, self._unlink_at = None, None
        for traffic in (self.traffic.adaptive, self.traffic.backing, self.traffic.cache):
            traffic.read = traffic.written = 0
        self._backing_use, self._superblock_free_at = 0.0, 0.0
        self.bcache.running = self.bcache.sb_set is None
        for disk in self.disks.values():
            disk.registered = False
            disk.holder = None
            if disk.superblock is not None:
                self._register(disk)

    # --- what root can do ------------------------------------------------------------------------------------

    def format(self, serial: Serial) -> CacheSetUuid:
        """make-bcache. The verification is the host's business."""
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
        """Register a formatted disk. Raises HostError for one without a superblock."""
        disk = self.disk(serial)
        if disk.superblock is None:
            raise HostError(f"disk {serial} carries no bcache superblock")
        self._register(disk)

    def attach(self, cache_set: CacheSetUuid, *, flush_mb_s: float | None) -> float:
        """Start to attach; seconds until the link is there (0 when it is). Raises HostError as sysfs would."""
        now = self.clock.elapsed()
        if self.bcache.cache_set == cache_set and not self.bcache.detaching:
            self.bcache.set_background(flush_mb_s)
            return 0.0
        if self._attaching is not None and self._attaching[0] == cache_set:
            return max(0.0, self._attaching[1] - now)
        if self.bcache.cache_set is not None or self._attaching is not None:
            raise HostError("a cache set is attached already, or is still detaching")
        if self.bcache.sb_dirty and self.bcache.sb_set != cache_set:
            raise HostError("the backing device waits for another cache set")
        if not any(d.registered and d.superblock == cache_set for d in self.disks.values()):
            raise HostError(f"no cache set {cache_set} is registered")
        done_at = self._write_superblock()
        self._attaching = (cache_set, done_at)
        self.hold(done_at - now + SETTLE_S)
        self.timers.later(done_at - now, lambda: self._end_attach(cache_set, flush_mb_s=flush_mb_s))
        return done_at - now

    def set_mode(self, mode: CacheMode) -> None:
        """In force at once; the superblock follows, unwaited for, and delays the next one."""
        if self.bcache.mode is not mode:
            self.bcache.mode = mode
            self._write_superblock()

    def detach(self, *, by_hand: bool = False) -> None:
        """Ask for a detach: cannot be undone, ends at an instant without I/O in flight.

        Meanwhile writes bypass the cache, also what is dirty there. `by_hand`: that is not the agent's doing.
        """
        if self.bcache.cache is not None:
            self.bcache.detaching = True
            self.bcache.is_forgiven |= by_hand
            self.was_detached_by_hand |= by_hand

    def hold_back(self, seconds: float) -> None:
        """Let no request of the application be in flight for a moment."""
        self._held_back_until = self.clock.elapsed() + seconds

    def hold(self, seconds: float, *, reads: bool = False) -> None:
        """Let no write of the application begin for a moment, and no read where `reads` says so."""
        if self.settings.holds_back:
            self._writes_held_until = self.clock.elapsed() + seconds
            self._reads_held_until = self._writes_held_until if reads else 0.0

    def let_go(self) -> None:
        """Whatever was held back may begin."""
        self._writes_held_until = self._reads_held_until = 0.0

    @property
    def holds_writes(self) -> bool:
        """Writes of the application do not begin now."""
        return self.clock.elapsed() < self._writes_held_until

    @property
    def _holds_reads(self) -> bool:
        return self.clock.elapsed() < self._reads_held_until

    @property
    def is_quiet(self) -> bool:
        """No request of the application is in flight."""
        return self._write.block is None and self._read.block is None

    def drop_backing(self) -> None:
        """The last close of a device whose cache died: bcache lets go of the backing device too."""
        self.registered, self.bcache.running = False, False

    def register_backing(self) -> None:
        """The backing superblock decides: the device runs, waits for its set, or gets it at once."""
        if self.registered:
            return
        self.registered, self.bcache.running = True, self.bcache.sb_set is None
        for disk in self.disks.values():
            if disk.registered:
                self._register(disk)

    def force_run(self) -> None:
        """`echo 1 > running`: what only the cache holds is lost."""
        if not self.bcache.running:
            self.bcache.sb_set, self.bcache.sb_dirty, self.bcache.stale = None, False, True
            self.bcache.passed = None
            self.bcache.running, self.bcache.is_forgiven = True, True
            self._superblock.put(self.bcache.superblock)

    def unregister(self, serial: Serial) -> None:
        """Free the cache set on this disk. Raises DeviceBusyError while it is attached."""
        disk = self.disk(serial)
        attaching = self._attaching[0] if self._attaching else None
        if disk.superblock is not None and disk.superblock in {self.bcache.cache_set, attaching}:
            raise DeviceBusyError(f"cache set {disk.superblock} is attached")
        disk.registered = False

    def fsync(self) -> None:
        """Make what is on the backing disk survive a power cut, its superblock too."""
        self.bcache.fsync()
        self._superblock.note(self.clock.elapsed(), self.bcache.superblock)
        self._superblock.flush()

    def swap_backing(self) -> None:
        """Somebody stops bcache by hand and puts an older copy of the backing disk there, which names no cache.

        The cache set stays registered. What only it and the right disk hold together counts until `swap_back`.
        """
        if self.original is not None:
            return
        self._drop_in_flight()
        self.bcache.unlink()
        self._attaching, self._unlink_at = None, None
        self.original = BackingDisk.of(self.bcache, self.backing_serial)
        self._put(self.original.older_copy(COPY_SERIAL))
        self.registered = True

    def swap_back(self) -> None:
        """The machine is off, and gets its own disk back; power comes with `power_cut`."""
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
        """The plugged disk with this serial. Raises HostError when there is none."""
        found = self.disks.get(serial)
        if found is None:
            raise HostError(f"no disk with serial {serial}")
        return found

    def cache_disk(self) -> SimDisk | None:
        """The disk whose cache set is attached."""
        wanted = self.bcache.cache_set
        return next((d for d in self.disks.values() if wanted is not None and d.superblock == wanted), None)

    def lost(self, *, without: Serial | None = None, power_cut: bool = False) -> frozenset[int]:
        """Blocks whose newest acknowledged version is gone.

        `without` asks what would be gone if that disk vanished now; `power_cut` what would be after one as well.
        """
        disks = [BackingDisk.of(self.bcache, self.backing_serial)]
        disks += [self.original] if self.original else []
        found = (d.lost(self._recoverable(without, d.superblock.cache_set), power_cut=power_cut) for d in disks)
        return frozenset().union(*found)

    def would_wait(self) -> bool:
        """A power cut would leave a superblock that names a set which is off, and whose disk is no more."""
        named = self._superblock.named_set
        return named is not None and named != self.bcache.sb_set and self._recoverable(None, named) is None

    def _recoverable(self, without: Serial | None, named: CacheSetUuid | None) -> CacheContent | None:
        return content_of(named, itertools.chain(self.disks.values(), self.away.values()), without)

    def new_uuid(self) -> str:
        """A UUID that follows from the seed."""
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def cache_traffic(self) -> Traffic:
        """The counters of the cache disk; zeros while there is none."""
        return self.traffic.cache if self.cache_disk() else Traffic()

    # --- inside ----------------------------------------------------------------------------------------------

    def _write_superblock(self) -> float:
        """When a superblock write that is asked for now is done: they queue up behind each other."""
        wait = self.settings.superblock_s
        if self._backing_use > SATURATED:
            tuned = self.bcache.tuned
            wait = self.settings.superblock_loaded_s if tuned else self.settings.superblock_untuned_s
        self._superblock_free_at = max(self._superblock_free_at, self.clock.elapsed()) + wait
        return self._superblock_free_at

    def _end_attach(self, cache_set: CacheSetUuid, *, flush_mb_s: float | None) -> None:
        if self._attaching is None or self._attaching[0] != cache_set:
            return
        in_flight = self._write.block is not None and self.settings.holds_back
        if in_flight and self.holds_writes:  # it knows nothing of the cache, whatever a read puts there meanwhile
            self.timers.later(ATTACH_AGAIN_S, lambda: self._end_attach(cache_set, flush_mb_s=flush_mb_s))
            return
        self._attaching = None
        self.let_go()
        if in_flight:
            return
        disk = next((d for d in self.disks.values() if d.superblock == cache_set), None)
        if disk is None or not disk.registered or disk.content is None:
            return
        self.traffic.cache.read = self.traffic.cache.written = 0
        self.bcache.link(cache_set, disk.content)
        self._superblock.note(self.clock.elapsed(), self.bcache.superblock)
        self.bcache.set_background(flush_mb_s)

    def _finish_detach(self) -> None:
        if not self.bcache.detach_written:
            self._unlink_at = None
            return
        now = self.clock.elapsed()
        if self._unlink_at is None:
            self._unlink_at = now + self.settings.unlink_s
        in_flight = self._write.block is not None or self._read.block is not None or self.always_busy
        in_flight = in_flight and now > self._held_back_until
        if now >= self._unlink_at and not in_flight:
            if self.bcache.is_forgiven:
                self.fsync()  # nobody else does, and a disk writes its own cache back within seconds
            self.bcache.unlink()
            self._unlink_at = None
            self.let_go()

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
