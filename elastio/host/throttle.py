"""Hold back the requests of applications for a moment, above bcache.

`io.max` of the cgroups right below the root, for the adaptive device alone. Three occasions ask for it:

- a cache is attached: writes wait until those in flight have reached the backing device. A read that fills the new
  cache while an older write to the same block is still on its way past it would put what was there before into it;
- writes begin to bypass the cache: all requests wait until those in flight are done, lest a read that was let in to
  fill the cache does so beside the first write that bypasses it;
- a detach: bcache finishes it at an instant without a request in flight, and under load there may be none. Requests
  then come so far apart that there is.

A limit is taken back before the call returns, whatever happens; only a kill in between leaves it. The agent takes it
back when it gives up the child that held it, and when it starts. Kernel threads are in the root cgroup, which cannot
be limited. Freezing cgroups would do as well, but a kill in between would leave everything frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from elastio.errors import HostError
from elastio.host.sysfs import Sysfs

CGROUPS = "sys/fs/cgroup"
# Unusual figures, by which a limit that was left behind is known to be the agent's. The kernel takes none below 2.
SELDOM = "riops=11 wiops=11"
NO_WRITES = "wbps=2"
NOTHING = "rbps=2 wbps=2"
OURS = frozenset(
    {f"rbps=max wbps=max {SELDOM}", f"rbps=max {NO_WRITES} riops=max wiops=max", f"{NOTHING} riops=max wiops=max"}
)
FREE = "rbps=max wbps=max riops=max wiops=max"
MOST_S = 2.0
# What was in flight when the last request was let through: at most the disk's queue and a request of each application.
SETTLE_S = 1.0

Wait = Callable[[Callable[[], bool], float], bool]


def hold_back(sysfs: Sysfs, number: str, is_done: Callable[[], bool], wait: Wait) -> bool:
    """Whether `is_done` came true while applications were held back, for MOST_S at most.

    `number` is the adaptive device's MAJOR:MINOR. A cgroup with a limit of somebody else's is left alone. Raises
    HostError where no cgroup can be limited.
    """
    with limited(sysfs, number, SELDOM) as groups:
        if not groups:
            raise HostError("no cgroup below the root offers io.max: a detach cannot be helped")
        return wait(is_done, MOST_S)


@contextmanager
def quiet(sysfs: Sysfs, disk: str, limit: str, wait: Wait) -> Iterator[bool]:
    """Inside, what `limit` says (NO_WRITES or NOTHING) waits, and what had entered the device `disk` is done.

    Whether that is so: not where no cgroup can be limited, or where what was in flight takes more than SETTLE_S.
    """
    with limited(sysfs, sysfs.read(f"sys/block/{disk}/dev"), limit) as groups:
        yield bool(groups) and wait(lambda: _is_quiet(sysfs, disk, limit), SETTLE_S)


def _is_quiet(sysfs: Sysfs, disk: str, limit: str) -> bool:
    """The kernel counts reads and writes that have entered the device; those held back have not."""
    reads, writes = (int(word) for word in sysfs.read(f"sys/block/{disk}/inflight").split())
    return writes == 0 and (reads == 0 or limit == NO_WRITES)


@contextmanager
def limited(sysfs: Sysfs, number: str, limit: str) -> Iterator[tuple[str, ...]]:
    """The cgroups that have the limit inside."""
    groups = tuple(g for g in _groups(sysfs) if _limits(sysfs, g).get(number) in (None, *OURS))
    try:
        for group in groups:
            sysfs.write(f"{CGROUPS}/{group}/io.max", f"{number} {limit}")
        yield groups
    finally:
        release(sysfs)


def release(sysfs: Sysfs) -> tuple[str, ...]:
    """Take back every limit of ours, also of a killed predecessor; the cgroups that had one.

    Asks nothing of bcache. Raises HostError after trying all.
    """
    found = tuple((g, n) for g in _groups(sysfs) for n, limits in _limits(sysfs, g).items() if limits in OURS)
    failed = []
    for group, number in found:
        try:
            sysfs.write(f"{CGROUPS}/{group}/io.max", f"{number} {FREE}")
        except HostError as error:
            failed.append(str(error))
    if failed:
        raise HostError(f"applications may still be held back: {failed[0]}")
    return tuple(group for group, _ in found)


def _groups(sysfs: Sysfs) -> tuple[str, ...]:
    return tuple(g for g in sysfs.names(CGROUPS) if sysfs.exists(f"{CGROUPS}/{g}/io.max"))


def _limits(sysfs: Sysfs, group: str) -> dict[str, str]:
    """The limits of each device, by its MAJOR:MINOR, as the kernel shows them."""
    lines = (line.split(None, 1) for line in sysfs.read_or(f"{CGROUPS}/{group}/io.max", "").splitlines())
    return {words[0]: words[1].strip() for words in lines if len(words) > 1}
