"""The cgroups of version 2: whose I/O the kernel counts, their weights and limits. Reads only; takes no lock of bcache.

Sources: Documentation/admin-guide/cgroup-v2.rst, `io.stat`, `io.weight`, `io.max`, and the format "nested keyed". Only
a cgroup without children with controllers has processes, so these are the ones that share a device. Where the io
controller is not enabled for the children of a cgroup, the cgroup counts for them. A name that is no text, which
whoever owns a part of the tree may make, could neither be written nor found again: the cgroup is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

from elastio.core.moved import Moved
from elastio.core.shares import path
from elastio.errors import HostError
from elastio.host.sysfs import Sysfs

CGROUPS = "sys/fs/cgroup"
FREE = "rbps=max wbps=max riops=max wiops=max"


def limits_of(sysfs: Sysfs, group: str) -> dict[str, str]:
    """The limits of each device, by its MAJOR:MINOR, as the kernel shows them."""
    lines = (line.split(None, 1) for line in sysfs.read_or(f"{CGROUPS}/{group}/io.max", "").splitlines())
    return {words[0]: words[1].strip() for words in lines if len(words) > 1}


# The kernel's, and systemd's.
DEFAULT_WEIGHT = 100.0


def check_counted(sysfs: Sysfs) -> None:
    """Raises HostError, with what an operator can do, where the kernel counts no cgroup's I/O."""
    if not sysfs.exists(f"{CGROUPS}/cgroup.controllers"):
        raise HostError(
            "this machine has cgroups of version 1 only, and their I/O cannot be told apart: boot with "
            "systemd.unified_cgroup_hierarchy=1",
            code="cgroup.version",
        )
    if "io" not in sysfs.read_or(f"{CGROUPS}/cgroup.controllers", "").split():
        raise HostError(
            "cgroup version 2 has no io controller here: boot a kernel with CONFIG_BLK_CGROUP, and without "
            "cgroup_disable=io",
            code="cgroup.controller",
        )
    if "io" not in sysfs.read_or(f"{CGROUPS}/cgroup.subtree_control", "").split():
        raise HostError(
            "the io controller is not enabled, so the kernel counts no cgroup's I/O: set IOAccounting=yes for a "
            "service, or start elastiod, whose unit does so",
            code="cgroup.disabled",
        )


def check_limitable(sysfs: Sysfs) -> None:
    """Raises HostError, with what an operator can do, where the kernel limits no cgroup's I/O."""
    if not any(sysfs.exists(f"{CGROUPS}/{name}/io.max") for name in sysfs.folders(CGROUPS)):
        raise HostError(
            "this kernel limits no cgroup's I/O (no io.max), so the device is not shared: boot one with "
            "CONFIG_BLK_DEV_THROTTLING, or set share.enabled = false",
            code="cgroup.no_limits",
        )


def counted(sysfs: Sysfs, above: str = "") -> tuple[str, ...]:
    """Every cgroup below this one whose I/O the kernel counts, by its path below the root: parents first."""
    folder = f"{CGROUPS}/{above}" if above else CGROUPS
    children = (f"{above}/{name}" if above else name for name in sysfs.folders(folder) if name.isprintable())
    found = [child for child in children if sysfs.exists(f"{CGROUPS}/{child}/io.stat")]
    return tuple(group for child in found for group in (child, *counted(sysfs, child)))


def sharers(sysfs: Sysfs) -> tuple[str, ...]:
    """Those that share a device: the counted cgroups that have no counted child."""
    groups = counted(sysfs)
    parents = {group.rpartition("/")[0] for group in groups}
    return tuple(group for group in groups if group not in parents)


def chosen(sysfs: Sysfs, patterns: Iterable[str]) -> tuple[str, ...]:
    """The counted cgroups whose path fits a pattern, part by part: `system.slice/*.service`. In order.

    One that contains another chosen one is left out, so that no task counts twice.
    """
    fitting = {group for pattern in patterns for group in _fitting(sysfs, "", pattern.strip("/").split("/"))}
    containing = {above for group in fitting for above in path(group) if above != group}
    return tuple(sorted(fitting - containing))


def _fitting(sysfs: Sysfs, above: str, parts: list[str]) -> Iterator[str]:
    for name in sysfs.folders(f"{CGROUPS}/{above}" if above else CGROUPS):
        group = f"{above}/{name}" if above else name
        if not name.isprintable() or not fnmatchcase(name, parts[0]) or not sysfs.exists(f"{CGROUPS}/{group}/io.stat"):
            continue
        if parts[1:]:
            yield from _fitting(sysfs, group, parts[1:])
        else:
            yield group


def moved(sysfs: Sysfs, group: str, number: str) -> Moved | None:
    """What the cgroup has moved of the device MAJOR:MINOR since it exists; None: nothing, or it is gone."""
    counts = by_device(sysfs, group, "io.stat").get(number, {})
    if "rbytes" not in counts or "wbytes" not in counts:
        return None
    requests = int(counts.get("rios", 0)) + int(counts.get("wios", 0))
    return Moved(int(counts["rbytes"]), int(counts["wbytes"]), requests)


def written_bytes(sysfs: Sysfs, group: str, device: str) -> int:
    """What the cgroup has written to this device of the kernel; 0 if that is not counted."""
    found = moved(sysfs, group, sysfs.read(f"sys/block/{device}/dev"))
    return found.written_bytes if found else 0


def all_moved(sysfs: Sysfs, groups: Iterable[str], number: str) -> dict[str, Moved]:
    """`moved` by cgroup; without those that have moved nothing, or are gone."""
    return {group: found for group in groups if (found := moved(sysfs, group, number)) is not None}


def weight(sysfs: Sysfs, group: str) -> float:
    """The weight of the cgroup among its siblings, 1 to 10000. The first line of `io.weight` is `default WEIGHT`."""
    words = sysfs.read_or(f"{CGROUPS}/{group}/io.weight", "").split()
    is_shown = words[:1] == ["default"] and "".join(words[1:2]).isdecimal()
    return float(words[1]) if is_shown else DEFAULT_WEIGHT


def has_weight(sysfs: Sysfs, group: str) -> bool:
    """Whether the kernel keeps a weight of the cgroup. One without CONFIG_BLK_CGROUP_IOCOST has none at all."""
    return sysfs.exists(f"{CGROUPS}/{group}/io.weight")


def weights(sysfs: Sysfs, groups: tuple[str, ...]) -> dict[str, float]:
    """The weights of these cgroups and of all above them, by path."""
    return {node: weight(sysfs, node) for node in dict.fromkeys(node for group in groups for node in path(group))}


def by_device(sysfs: Sysfs, group: str, file: str, root: str = CGROUPS) -> Mapping[str, Mapping[str, str]]:
    """The values of a file such as `io.max`, by MAJOR:MINOR and key; nothing where there is no such file.

    Not read by lines: some kernels show devices without values before another one on its line (canonical/lxd#10052).
    """
    found: dict[str, dict[str, str]] = {}
    values: dict[str, str] = {}
    for word in sysfs.read_or(f"{root}/{group}/{file}" if group else f"{root}/{file}", "").split():
        key, is_value, value = word.partition("=")
        if is_value:
            values[key] = value
        else:
            values = found.setdefault(word, {})
    return found
