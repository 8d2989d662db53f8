"""Hold back the requests of applications for a moment, above bcache.

`io.max` of the cgroups right below the root, for the adaptive device alone. Four occasions ask for it:

- a cache is attached: writes wait until those in flight have reached the backing device. A read that fills the new
  cache while an older write to the same block is still on its way past it would put what was there before into it;
- writes begin to bypass the cache: all requests wait until nothing is dirty or in flight. A write that bypasses a dirty
  block takes it out of the index before it has itself reached the backing device: until then a read finds what was
  there before both, and after a power cut so would everybody;
- a flush that must come to an end although applications write: they write at most so fast, until it has;
- a detach: bcache finishes it at an instant without a request in flight, and under load there may be none. Requests
  then come so far apart that there is.

But for a flush a limit is taken back before the call returns, whatever happens; only a kill in between leaves it. The
agent takes all back when it gives up the child that held requests back, when it ends and when it starts. A cgroup that
cannot be limited (it is just leaving, or the unit may not) is passed over: less is held back then. Kernel threads are
in the root cgroup, which cannot be limited. Freezing cgroups would do as well, but a kill would leave all frozen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from elastio.errors import HostError
from elastio.host.sysfs import Sysfs
from elastio.units import MB

CGROUPS = "sys/fs/cgroup"
# Unusual figures, by which a limit that was left behind is known to be the agent's. The kernel takes none below 2.
SELDOM = "riops=11 wiops=11"
NO_WRITES = "wbps=2"
NOTHING = "rbps=2 wbps=2"
MOMENTARY = frozenset(
    {f"rbps=max wbps=max {SELDOM}", f"rbps=max {NO_WRITES} riops=max wiops=max", f"{NOTHING} riops=max wiops=max"}
)
LASTING = re.compile(r"rbps=max wbps=(\d+)111 riops=max wiops=max")  # kB/s, and the mark that it is ours
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
    try:
        yield _put(sysfs, number, limit)
    finally:
        release(sysfs)


def _put(sysfs: Sysfs, number: str, limit: str) -> tuple[str, ...]:
    """The cgroups that took the limit."""
    took = []
    for group in _free(sysfs, number):
        with suppress(HostError):
            sysfs.write(f"{CGROUPS}/{group}/io.max", f"{number} {limit}")
            took.append(group)
    return tuple(took)


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


def limit_writes(sysfs: Sysfs, number: str, mb_s: float) -> None:
    """Until `release`. Raises HostError where no cgroup can be limited."""
    if not _put(sysfs, number, f"wbps={max(1, round(mb_s * MB / 1000))}111"):
        raise HostError("no cgroup below the root offers io.max: applications cannot be slowed down")


def write_limit_mb_s(sysfs: Sysfs, number: str) -> float | None:
    """The limit that `limit_writes` set, or None."""
    shown = (LASTING.fullmatch(_limits(sysfs, group).get(number, "")) for group in _groups(sysfs))
    return next((int(found[1]) * 1000 / MB for found in shown if found), None)


def is_ours(limits: str | None) -> bool:
    return limits is not None and (limits in MOMENTARY or LASTING.fullmatch(limits) is not None)


def _free(sysfs: Sysfs, number: str) -> tuple[str, ...]:
    """The cgroups on which nobody else has put a limit."""
    shown = {g: _limits(sysfs, g).get(number) for g in _groups(sysfs)}
    return tuple(g for g, limits in shown.items() if limits is None or is_ours(limits))


def _groups(sysfs: Sysfs) -> tuple[str, ...]:
    """Those that may have processes; systemd's cgroups of mounts have none."""
    names = (name for name in sysfs.names(CGROUPS) if not name.endswith(".mount"))
    return tuple(name for name in names if sysfs.exists(f"{CGROUPS}/{name}/io.max"))


def _limits(sysfs: Sysfs, group: str) -> dict[str, str]:
    """The limits of each device, by its MAJOR:MINOR, as the kernel shows them."""
    lines = (line.split(None, 1) for line in sysfs.read_or(f"{CGROUPS}/{group}/io.max", "").splitlines())
    return {words[0]: words[1].strip() for words in lines if len(words) > 1}
