"""The kernel's version, and whether its bcache is safe to use."""

from __future__ import annotations

import re

from elastio.host.sysfs import Sysfs

Version = tuple[int, ...]

# Before, `cached_dev_detach_finish` cleared the set's UUID when a cache failed, and dirty data was lost silently.
# Fixed by df4ad53242158 in 5.11.
FIRST_SAFE: Version = (5, 11)


def version(sysfs: Sysfs) -> Version:
    """The running kernel's version; empty where it cannot be read."""
    release = sysfs.read_or("proc/sys/kernel/osrelease", "")
    return version_of(release, sysfs.read_or("proc/sys/kernel/version", ""))


def version_of(release: str, built: str) -> Version:
    """For a Debian kernel from its build string (`6.1.192`; its release is `6.1.0-42`), otherwise from the release."""
    found = re.search(r"Debian (\d+\.\d+\.\d+)", built) or re.match(r"(\d+\.\d+(?:\.\d+)?)", release)
    return tuple(int(n) for n in found[1].split(".")) if found else ()


def why_unsupported(sysfs: Sysfs) -> str:
    """Why a cache may not be attached on this kernel; empty where it may."""
    shown = version(sysfs)
    if not shown or shown >= FIRST_SAFE:
        return ""
    return f"Linux {'.'.join(map(str, shown))} loses dirty data when a cache fails: use Linux 5.11 or newer"
