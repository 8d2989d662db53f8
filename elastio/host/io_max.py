"""`io.max`, the limits of a cgroup. Source: Documentation/admin-guide/cgroup-v2.rst."""

from __future__ import annotations

from elastio.host.sysfs import Sysfs

CGROUPS = "sys/fs/cgroup"
FREE = "rbps=max wbps=max riops=max wiops=max"


def limits_of(sysfs: Sysfs, group: str) -> dict[str, str]:
    """The limits of each device, by its MAJOR:MINOR, as the kernel shows them."""
    lines = (line.split(None, 1) for line in sysfs.read_or(f"{CGROUPS}/{group}/io.max", "").splitlines())
    return {words[0]: words[1].strip() for words in lines if len(words) > 1}
