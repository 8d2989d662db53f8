"""Hold back the requests of applications for a moment, above bcache.

Theory of operation. The agent writes `io.max` of the cgroups directly below the root, for the adaptive device and for
every device stacked on it, on four occasions:

- a cache is attached: writes wait until those in flight have reached the backing device. Otherwise a read could fill
  the new cache with old data, while a newer write to the same block is still in flight to the backing device;
- writes start to bypass the cache: all requests wait until nothing is dirty or in flight. A write that bypasses a dirty
  block invalidates it in the index before the write itself reaches the backing device. Until then a read returns data
  that is older than both, and after a power cut that is what remains;
- a flush must end although applications write: their write bandwidth is limited until it has ended;
- a detach: bcache ends it at an instant without any request in flight, which may not come under load. Requests are
  limited to a trickle, so that it comes.

The first two proceed only after the kernel has counted no request in flight; otherwise they are refused, and tried
again. Requests that cannot be held back only make that instant rarer: those of a cgroup on which an administrator has
set a limit, those of the kernel's own threads (the root cgroup cannot be limited), and all where there is no io
controller. dm-crypt and md submit requests from kernel threads. So requests are held back where processes submit them,
on every device above, too, and what these have in flight is waited for. It has to pass the devices below, so the limit
comes to the devices on top first. But dm-crypt takes all that is dirty at once, which is seconds of the slow volume.
Where its writes count below for the cgroup that they are made for, a limit there holds them back, and nothing above has
to be waited for.

While requests are held back the kernel goes on to submit what is dirty, so all of it is in flight as soon as the limit
ends. Until the slow volume has written it, which takes seconds, no instant without a write comes. So a limit that will
be needed again soon stays.

The limits of one agent look like those of another. So before an agent sets one it claims the numbers of its devices in
a file of its own below /run, and what an agent removes are all limits of this kind but those that another agent has
claimed. Without claims that is every limit: nothing is needed to free applications, neither configuration nor state.

The limits by which cgroups share the device (`sharer`) are another kind, mostly of cgroups further below. They are
lifted on each of these occasions, by the same process, as soon as requests are held back.

A limit ends by itself, whatever happens to the agent: see `guard`. Freezing cgroups would have the same effect, but if
the agent were killed they would stay frozen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from elastio.core.actions import HELD_MB_S
from elastio.errors import DeviceBusyError, HostError
from elastio.host import cgroups, usage
from elastio.host.cgroups import CGROUPS, FREE, limits_of
from elastio.host.guard import Guard
from elastio.host.share_limits import claim, claimed_by_others, freed_kinds, is_share, release_shares
from elastio.host.sysfs import Sysfs, Wait
from elastio.units import MB, SECTOR

# Unusual figures, by which the agent recognizes a limit that it left behind. The kernel accepts none below 2. All four
# kinds are named: those that are not stay as they are, such as a share of reads under a limit on writes.
TRICKLE = "rbps=max wbps=max riops=11 wiops=11"
NO_WRITES = "rbps=max wbps=2 riops=max wiops=max"
STOP = "rbps=2 wbps=2 riops=max wiops=max"
MOMENTARY = frozenset({TRICKLE, NO_WRITES, STOP})
LASTING = re.compile(r"rbps=max wbps=(\d+)111 riops=max wiops=max")  # kB/s, then the digits that mark it as ours
# Kinds that are still ours where somebody else has set another one meanwhile.
PART = re.compile(r"\b([rw]bps)=(?:2|\d+111)\b|\b(riops)=11 (wiops)=11\b")
MOST_S = 2.0
# For what was in flight when requests were held back: the disk's queue, and one request of a MiB or more of each
# application. It costs applications nothing: the slow volume takes that long for these requests in any case.
SETTLE_S = 5.0
# The share of all writes that is at least the cgroups' own where only the kernel's own journals are nobody's.
COUNTED = 0.9
# Field of /sys/block/NAME/stat: written sectors (Documentation/block/stat.rst).
WRITTEN = 6


class Reach(Enum):
    """Which cgroups accepted a limit."""

    NOBODY = 0
    SOME = 1
    ALL = 2  # every cgroup below the root, on every device


NOT_ALL = "not all requests to it can be held back (see `elastio doctor`)"
WHY = {
    Reach.ALL: "its volume is slow, or a thread of the kernel writes to it",
    Reach.SOME: NOT_ALL,
    Reach.NOBODY: NOT_ALL,
}


def hold_back(watch: Guard, sysfs: Sysfs, disk: str, is_done: Callable[[], bool], wait: Wait) -> bool:
    """Whether `is_done` became true while requests to the adaptive device `disk` were held back, for MOST_S at most.

    A cgroup in which somebody else has set a limit is left alone. Raises HostError where no cgroup can be limited.
    """
    with limited(watch, sysfs, stacked(sysfs, disk), TRICKLE) as reach:
        if reach is Reach.NOBODY:
            raise HostError("no cgroup below the root has io.max: requests cannot be held back", code="limit.none")
        return wait(is_done, MOST_S)


@contextmanager
def drained(
    watch: Guard,
    sysfs: Sysfs,
    disk: str,
    limit: str,
    wait: Wait,
    is_ready: Callable[[], bool] = lambda: True,
    prepare: Callable[[], object] = lambda: None,
) -> Iterator[bool]:
    """Inside, `is_ready` is true, and no request that `limit` (NO_WRITES or STOP) stops is in flight on `disk`.

    A limit of ours that is in force already is replaced, and no request passes between the two. What takes its time and
    needs the moment, too, is done by `prepare`, before the last look, and again at the next moment if this one is over.

    Yields whether all such requests are held back. If not, the next one may come at any time: do at once what needs
    the moment. Raises DeviceBusyError when `disk` was not drained in SETTLE_S, or somebody has removed the limit since.
    """
    held = _Held.of(sysfs, disk, limit)

    def is_drained() -> bool:
        return is_ready() and held.are_drained()

    def is_prepared() -> bool:
        if not is_drained():
            return False
        prepare()
        return is_drained()

    with limited(watch, sysfs, held.first, limit, held.devices) as held.reach:
        _let_pass(sysfs, held.left)
        if not wait(is_prepared, SETTLE_S):
            raise _not_drained(disk, held.reach)
        if _reach(sysfs, held.devices) is not held.reach:
            raise DeviceBusyError(f"requests to {disk} are not held back any more", code="device.not_drained")
        yield held.reach is Reach.ALL


@dataclass(slots=True)
class _Held:
    """Devices that are limited `first`, those that are `left` until nothing comes from these, and what is `watched`."""

    sysfs: Sysfs
    limit: str
    devices: tuple[str, ...]
    first: tuple[str, ...]
    watched: tuple[str, ...]
    reach: Reach = Reach.NOBODY

    @classmethod
    def of(cls, sysfs: Sysfs, disk: str, limit: str) -> _Held:
        devices = stacked(sysfs, disk)
        top = topmost(sysfs, devices)
        if limit == NO_WRITES and len(devices) > 1 and _counts_for_cgroups(sysfs, disk):
            return cls(sysfs, limit, devices, devices, (disk,))
        return cls(sysfs, limit, devices, top, devices)

    @property
    def left(self) -> tuple[str, ...]:
        return tuple(device for device in self.devices if device not in self.first)

    def are_drained(self) -> bool:
        if not all(_is_drained(self.sysfs, device, self.limit) for device in self.first if device in self.watched):
            return False
        if self.left:
            reach = _put(self.sysfs, self.left, self.limit, self.devices)
            self.reach = reach if reach is self.reach else Reach.SOME
            self.first = self.devices
        return all(_is_drained(self.sysfs, device, self.limit) for device in self.watched)


def _counts_for_cgroups(sysfs: Sysfs, disk: str) -> bool:
    """Whether what the devices above write to `disk` counts there for the cgroups, so that a limit there holds it.

    dm-crypt's threads write in the name of whom they write for. Shown by the bytes so far; in doubt it is not.
    """
    counted = sum(cgroups.written_bytes(sysfs, group, disk) for group in _groups(sysfs))
    if not counted:
        return False
    return counted >= COUNTED * int(sysfs.read(f"sys/block/{disk}/stat").split()[WRITTEN]) * SECTOR


def settle(watch: Guard, sysfs: Sysfs, disk: str, meanwhile: Callable[[], object], wait: Wait) -> None:
    """Hold all writes back until `release`, and wait until none is in flight. Raises DeviceBusyError.

    They stay so also where it raises: the next try has less to wait for. `meanwhile` is called as soon as they are.
    """
    held = _Held.of(sysfs, disk, NO_WRITES)
    watch.begin_lease()
    held.reach = _put(sysfs, held.first, _lasting(HELD_MB_S), held.devices)
    meanwhile()
    if not wait(lambda: all(_is_drained(sysfs, device, NO_WRITES) for device in held.watched), SETTLE_S):
        raise _not_drained(disk, held.reach)


def _not_drained(disk: str, reach: Reach) -> DeviceBusyError:
    text = f"{disk} had requests in flight, or dirty data, for {SETTLE_S:g} s: {WHY[reach]}"
    return DeviceBusyError(text, code="device.not_drained")


def stacked(sysfs: Sysfs, disk: str) -> tuple[str, ...]:
    """The disk and every device above it (dm, md), each once, without partitions: those have no limits of their own."""
    above = (name for name in usage.tree(sysfs, disk) if name != disk)
    return (disk, *(name for name in above if sysfs.exists(f"sys/block/{name}/dev")))


def topmost(sysfs: Sysfs, devices: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the devices on which no other of them is stacked."""
    return tuple(each for each in devices if set(devices) & usage.tree(sysfs, each).keys() == {each})


def _let_pass(sysfs: Sysfs, devices: tuple[str, ...]) -> None:
    """What comes from the devices above must not wait for a limit on all writes that is in force."""
    numbers = {device: sysfs.read(f"sys/block/{device}/dev") for device in devices}
    for group in _groups(sysfs) if devices else ():
        shown = limits_of(sysfs, group)
        for device, number in numbers.items():
            if is_ours(found := shown.get(number, "")) and not is_share(found):
                _limit(sysfs, group, device, FREE)


def _is_drained(sysfs: Sysfs, disk: str, limit: str) -> bool:
    """The kernel counts the reads and writes that have entered the device, not those that are held back."""
    reads, writes = (int(word) for word in sysfs.read(f"sys/block/{disk}/inflight").split())
    return writes == 0 and (reads == 0 or limit == NO_WRITES)


@contextmanager
def limited(
    watch: Guard, sysfs: Sysfs, devices: tuple[str, ...], limit: str, claimed: tuple[str, ...] = ()
) -> Iterator[Reach]:
    """Limited inside; yields which cgroups. `claimed`: other devices that may be limited before the end.

    Raises HostError, and sets no limit, where no guard can be started.
    """
    if not _groups(sysfs):
        yield Reach.NOBODY
        return
    with watch.holding():
        try:
            yield _put(sysfs, devices, limit, claimed)
        finally:
            release(sysfs)


def _put(sysfs: Sysfs, devices: tuple[str, ...], limit: str, claimed: tuple[str, ...]) -> Reach:
    claim(sysfs, {sysfs.read(f"sys/block/{device}/dev") for device in (*devices, *claimed)})
    return _reach_of([_limit(sysfs, group, device, limit) for device in devices for group in _groups(sysfs)])


def _reach(sysfs: Sysfs, devices: tuple[str, ...]) -> Reach:
    """Which cgroups have a limit of ours."""
    shown = [limits_of(sysfs, group) for group in _groups(sysfs)]
    numbers = [sysfs.read(f"sys/block/{device}/dev") for device in devices]
    return _reach_of([is_ours(limits.get(number)) for number in numbers for limits in shown])


def _reach_of(took: list[bool]) -> Reach:
    if all(took):
        return Reach.ALL if took else Reach.NOBODY
    return Reach.SOME if any(took) else Reach.NOBODY


def _limit(sysfs: Sysfs, group: str, device: str, limit: str) -> bool:
    """Whether the cgroup is limited now, or gone. False where somebody else has set a limit."""
    number = sysfs.read(f"sys/block/{device}/dev")
    shown = limits_of(sysfs, group).get(number)
    if shown is not None and not is_ours(shown):
        return False
    try:
        sysfs.write(f"{CGROUPS}/{group}/io.max", f"{number} {limit}")
    except HostError:
        return not sysfs.exists(f"{CGROUPS}/{group}")
    return True


def release(sysfs: Sysfs) -> tuple[str, ...]:
    """Remove every limit of ours, also those of a killed predecessor; returns the cgroups that had one.

    Those of another device's agent stay. Takes no lock of bcache. Raises HostError after trying all.
    """
    spared = claimed_by_others(sysfs)
    shown = ((g, n, limits) for g in _groups(sysfs) for n, limits in limits_of(sysfs, g).items() if n not in spared)
    found = tuple((group, number, text) for group, number, limits in shown if (text := _freed(limits)))
    failed = []
    for group, number, text in found:
        try:
            sysfs.write(f"{CGROUPS}/{group}/io.max", f"{number} {text}")
        except HostError as error:
            failed.append(str(error))
    shared: tuple[str, ...] = ()
    try:
        shared = release_shares(sysfs)
    except HostError as error:
        failed.append(str(error))
    if failed:
        raise HostError(f"applications may still be held back: {failed[0]}")
    return tuple(dict.fromkeys((*(group for group, _, _ in found), *shared)))


def _freed(limits: str) -> str:
    """What ends our limit in this line of io.max, or what is left of it; empty: nothing is ours."""
    return FREE if is_ours(limits) else freed_kinds(limits, PART)


def limit_writes(sysfs: Sysfs, disk: str, mb_s: float) -> None:
    """Limit writes until `release`; the caller has begun a lease. Raises HostError where no cgroup can be limited.

    With 0 MB/s all are held back, as by `drained`.
    """
    every = stacked(sysfs, disk)
    devices = every if mb_s else _Held.of(sysfs, disk, NO_WRITES).first
    if _put(sysfs, devices, _lasting(mb_s), every) is Reach.NOBODY:
        raise HostError("no cgroup below the root has io.max: writes cannot be limited", code="limit.none")


def _lasting(mb_s: float) -> str:
    return f"rbps=max wbps={max(1, round(mb_s * MB / 1000))}111 riops=max wiops=max"


def write_limit_mb_s(sysfs: Sysfs, disk: str) -> float | None:
    """The limit that `limit_writes` set, or None."""
    numbers = [sysfs.read(f"sys/block/{device}/dev") for device in topmost(sysfs, stacked(sysfs, disk))]
    limits = [limits_of(sysfs, group) for group in _groups(sysfs)]
    shown = (LASTING.fullmatch(each.get(number, "")) for each in limits for number in numbers)
    return next((int(found[1]) * 1000 / MB for found in shown if found), None)


def is_ours(limits: str | None) -> bool:
    return limits is not None and (limits in MOMENTARY or LASTING.fullmatch(limits) is not None or is_share(limits))


def _groups(sysfs: Sysfs) -> tuple[str, ...]:
    """The cgroups that may have processes; those that systemd has for mounts have none."""
    names = (name for name in sysfs.names(CGROUPS) if not name.endswith(".mount"))
    return tuple(name for name in names if sysfs.exists(f"{CGROUPS}/{name}/io.max"))
