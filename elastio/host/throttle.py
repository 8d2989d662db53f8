"""Hold back the requests of applications for a moment, so that bcache finds the instant without any that it needs.

`io.max` of the cgroups right below the root, for the adaptive device alone: requests then come so far apart that there
is such an instant between two of them. The limit is taken back before this returns, whatever happens; only a kill in
between leaves it, and the next start of the agent takes it back. Freezing the cgroups would do as well, but a kill in
between would leave everything frozen.
"""

from __future__ import annotations

from collections.abc import Callable

from elastio.errors import HostError
from elastio.host.sysfs import Sysfs

CGROUPS = "sys/fs/cgroup"
# An unusual figure, by which a limit that was left behind is known to be the agent's.
OPERATIONS_S = 11
LIMIT = f"riops={OPERATIONS_S} wiops={OPERATIONS_S}"
FREE = "riops=max wiops=max"
MOST_S = 2.0


def hold_back(
    sysfs: Sysfs, number: str, is_done: Callable[[], bool], wait: Callable[[Callable[[], bool], float], bool]
) -> bool:
    """Whether `is_done` came true while applications were held back, for MOST_S at most.

    `number` is the adaptive device's MAJOR:MINOR. A cgroup with a limit of somebody else's is left alone. Raises
    HostError where no cgroup can be limited.
    """
    groups = [g for g in _groups(sysfs) if _limits(sysfs, g).get(number) in (None, _ours())]
    if not groups:
        raise HostError("no cgroup below the root offers io.max: a detach cannot be helped")
    try:
        for group in groups:
            sysfs.write(f"{CGROUPS}/{group}/io.max", f"{number} {LIMIT}")
        return wait(is_done, MOST_S)
    finally:
        release(sysfs)


def release(sysfs: Sysfs) -> tuple[str, ...]:
    """Take back every limit of ours, also of a killed predecessor; the cgroups that had one.

    Asks nothing of bcache. Raises HostError after trying all.
    """
    found = tuple((g, n) for g in _groups(sysfs) for n, limits in _limits(sysfs, g).items() if limits == _ours())
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


def _ours() -> str:
    return f"rbps=max wbps=max {LIMIT}"


def _limits(sysfs: Sysfs, group: str) -> dict[str, str]:
    """The limits of each device, by its MAJOR:MINOR, as the kernel shows them."""
    lines = (line.split(None, 1) for line in sysfs.read_or(f"{CGROUPS}/{group}/io.max", "").splitlines())
    return {words[0]: words[1].strip() for words in lines if len(words) > 1}
