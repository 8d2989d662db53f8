"""Hold back the requests of applications for a moment, above bcache.

`io.max` of the cgroups right below the root, for the adaptive device and what is stacked on it. Four occasions ask for
it:

- a cache is attached: writes wait until those in flight have reached the backing device. A read that fills the new
  cache while an older write to the same block is still on its way past it would put what was there before into it;
- writes begin to bypass the cache: all requests wait until nothing is dirty or in flight. A write that bypasses a dirty
  block takes it out of the index before it has itself reached the backing device: until then a read finds what was
  there before both, and after a power cut so would everybody;
- a flush that must come to an end although applications write: they write at most so fast, until it has;
- a detach: bcache finishes it at an instant without a request in flight, and under load there may be none. Requests
  then come so far apart that there is.

The first two go on only once the kernel has counted nothing in flight; else they are refused, and tried again. Whoever
cannot be held back only makes that instant rarer: a cgroup on which an administrator has put a limit, the kernel's own
threads (they are in the root cgroup, which cannot be limited), everybody where there is no io controller. What dm-crypt
or md submit comes from such threads, so requests are held back where processes make them: on every device above, too.

A limit ends by itself, whatever becomes of the agent: see `guard`. Freezing cgroups would do as well, but a kill would
leave all frozen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import partial

from elastio.errors import DeviceBusyError, HostError
from elastio.host import blockdev, guard
from elastio.host.sysfs import Sysfs, Wait
from elastio.units import MB

CGROUPS = "sys/fs/cgroup"
# Unusual figures, by which a limit that was left behind is known to be the agent's. The kernel takes none below 2.
TRICKLE = "riops=11 wiops=11"
NO_WRITES = "wbps=2"
STOP = "rbps=2 wbps=2"
MOMENTARY = frozenset(
    {f"rbps=max wbps=max {TRICKLE}", f"rbps=max {NO_WRITES} riops=max wiops=max", f"{STOP} riops=max wiops=max"}
)
LASTING = re.compile(r"rbps=max wbps=(\d+)111 riops=max wiops=max")  # kB/s, and the mark that it is ours
FREE = "rbps=max wbps=max riops=max wiops=max"
MOST_S = 2.0
# What was in flight when the last request was let through: the disk's queue and a request of each application, of a
# MiB and more. Applications wait for them anyway: the slow volume takes no longer because others wait.
SETTLE_S = 5.0


class Reach(Enum):
    """Whom a limit has reached."""

    NOBODY = 0
    SOME = 1
    ALL = 2  # every cgroup below the root, on every device


NOT_ALL = "not all that use it can be held back (see `elastio doctor`)"
WHY = {
    Reach.ALL: "its volume is slow, or a thread of the kernel writes to it",
    Reach.SOME: NOT_ALL,
    Reach.NOBODY: NOT_ALL,
}


def hold_back(sysfs: Sysfs, disk: str, is_done: Callable[[], bool], wait: Wait) -> bool:
    """Whether `is_done` came true while applications of the adaptive device `disk` were held back, for MOST_S at most.

    A cgroup with a limit of somebody else's is left alone. Raises HostError where no cgroup can be limited.
    """
    with limited(sysfs, stacked(sysfs, disk), TRICKLE) as reach:
        if reach is Reach.NOBODY:
            raise HostError("no cgroup below the root has io.max: requests cannot be held back", code="limit.none")
        return wait(is_done, MOST_S)


@contextmanager
def drained(
    sysfs: Sysfs, disk: str, limit: str, wait: Wait, is_ready: Callable[[], bool] = lambda: True
) -> Iterator[bool]:
    """Inside, `is_ready` is true, and what had entered the device `disk` is done; whether all others wait, too.

    What waits is what `limit` says, NO_WRITES or STOP. Raises DeviceBusyError when it did not come to that in
    SETTLE_S. Where not all wait, the next request may come at any time: what needs the moment is done at once.
    """
    devices = stacked(sysfs, disk)
    with limited(sysfs, devices, limit) as reach:
        if not wait(lambda: is_ready() and all(_is_drained(sysfs, d, limit) for d in devices), SETTLE_S):
            raise DeviceBusyError(f"{disk} had requests in flight, or dirty data, for {SETTLE_S:g} s: {WHY[reach]}")
        yield reach is Reach.ALL


def stacked(sysfs: Sysfs, disk: str) -> tuple[str, ...]:
    """The disk and every device above it (dm, md), each once."""
    found = [disk]
    for name in found:
        found += [h for h in blockdev.holders(sysfs, name) if sysfs.exists(f"sys/block/{h}/dev") and h not in found]
    return tuple(found)


def _is_drained(sysfs: Sysfs, disk: str, limit: str) -> bool:
    """The kernel counts reads and writes that have entered the device; those held back have not."""
    reads, writes = (int(word) for word in sysfs.read(f"sys/block/{disk}/inflight").split())
    return writes == 0 and (reads == 0 or limit == NO_WRITES)


@contextmanager
def limited(sysfs: Sysfs, devices: tuple[str, ...], limit: str) -> Iterator[Reach]:
    """Whom the limit has reached, inside. Raises HostError, and limits nobody, when nobody can watch over it."""
    if not _groups(sysfs):
        yield Reach.NOBODY
        return
    with guard.watched(partial(release, sysfs)):
        try:
            yield _put(sysfs, devices, limit)
        finally:
            release(sysfs)


def _put(sysfs: Sysfs, devices: tuple[str, ...], limit: str) -> Reach:
    took = [_limit(sysfs, group, device, limit) for device in devices for group in _groups(sysfs)]
    if all(took):
        return Reach.ALL if took else Reach.NOBODY
    return Reach.SOME if any(took) else Reach.NOBODY


def _limit(sysfs: Sysfs, group: str, device: str, limit: str) -> bool:
    """Whether the cgroup makes no more requests: not where somebody else has put a limit; one that left makes none."""
    number = sysfs.read(f"sys/block/{device}/dev")
    shown = _limits(sysfs, group).get(number)
    if shown is not None and not is_ours(shown):
        return False
    try:
        sysfs.write(f"{CGROUPS}/{group}/io.max", f"{number} {limit}")
    except HostError:
        return not sysfs.exists(f"{CGROUPS}/{group}")
    return True


def release(sysfs: Sysfs) -> tuple[str, ...]:
    """Take back every limit of ours, also of a killed predecessor; the cgroups that had one.

    Asks nothing of bcache. Raises HostError after trying all.
    """
    found = tuple((g, n) for g in _groups(sysfs) for n, limits in _limits(sysfs, g).items() if is_ours(limits))
    failed = []
    for group, number in found:
        try:
            sysfs.write(f"{CGROUPS}/{group}/io.max", f"{number} {FREE}")
        except HostError as error:
            failed.append(str(error))
    if failed:
        raise HostError(f"applications may still be held back: {failed[0]}")
    return tuple(group for group, _ in found)


def limit_writes(sysfs: Sysfs, disk: str, mb_s: float) -> None:
    """Until `release`; the caller has begun a lease. Raises HostError where no cgroup can be limited."""
    if _put(sysfs, stacked(sysfs, disk), f"wbps={max(1, round(mb_s * MB / 1000))}111") is Reach.NOBODY:
        raise HostError("no cgroup below the root has io.max: writes cannot be limited", code="limit.none")


def write_limit_mb_s(sysfs: Sysfs, number: str) -> float | None:
    """The limit that `limit_writes` set, or None."""
    shown = (LASTING.fullmatch(_limits(sysfs, group).get(number, "")) for group in _groups(sysfs))
    return next((int(found[1]) * 1000 / MB for found in shown if found), None)


def is_ours(limits: str | None) -> bool:
    return limits is not None and (limits in MOMENTARY or LASTING.fullmatch(limits) is not None)


def _groups(sysfs: Sysfs) -> tuple[str, ...]:
    """Those that may have processes; systemd's cgroups of mounts have none."""
    names = (name for name in sysfs.names(CGROUPS) if not name.endswith(".mount"))
    return tuple(name for name in names if sysfs.exists(f"{CGROUPS}/{name}/io.max"))


def _limits(sysfs: Sysfs, group: str) -> dict[str, str]:
    """The limits of each device, by its MAJOR:MINOR, as the kernel shows them."""
    lines = (line.split(None, 1) for line in sysfs.read_or(f"{CGROUPS}/{group}/io.max", "").splitlines())
    return {words[0]: words[1].strip() for words in lines if len(words) > 1}
