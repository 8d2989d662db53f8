"""The processes of a command that is profiled, and the kernel's own sum of what waits for I/O. Reads only."""

from __future__ import annotations

from collections.abc import Mapping

from elastio.host.sysfs import Sysfs


class Descendants:
    """A process and all that it starts, also what outlives its parent once it was seen."""

    def __init__(self, sysfs: Sysfs, pid: int) -> None:
        self._sysfs, self._known = sysfs, {pid: None}

    def tasks(self) -> Mapping[int, tuple[str, ...]]:
        found: dict[int, tuple[str, ...]] = {}
        left = list(self._known)
        while left:
            pid = left.pop()
            threads = self._sysfs.names(f"proc/{pid}/task")
            if pid in found or not threads:
                continue
            found[pid] = threads
            for thread in threads:  # needs CONFIG_PROC_CHILDREN, which distributions set
                left += map(int, self._sysfs.read_or(f"proc/{pid}/task/{thread}/children", "").split())
        self._known = dict.fromkeys(found)
        return found


def pressure_s(sysfs: Sysfs, cgroup_folder: str | None) -> float | None:
    """Seconds in which some task waited for I/O, by the kernel's pressure: of a cgroup, or of the machine.

    None: the kernel does not say. A hint only: it halves the waiting of a task that moves between processors.
    """
    name = "proc/pressure/io" if cgroup_folder is None else f"{cgroup_folder}/io.pressure"
    for line in sysfs.read_or(name, "").splitlines():
        kind, _, rest = line.partition(" ")
        total = rest.rpartition("total=")[2]
        if kind == "some" and total.isdigit():
            return int(total) / 1e6
    return None
