"""The kernel's release, and whether its bcache may be trusted with data."""

from __future__ import annotations

import re

from elastio.host.sysfs import Sysfs

Version = tuple[int, ...]

# `cached_dev_detach_finish` forgot the set's UUID when a cache failed: dirty data was lost without a word.
# Fixed by df4ad53242158 in 5.11.
FIRST_SAFE: Version = (5, 11)


def version(sysfs: Sysfs) -> Version:
    """Empty where nothing can be read."""
    release = sysfs.read_or("proc/sys/kernel/osrelease", "")
    return version_of(release, sysfs.read_or("proc/sys/kernel/version", ""))


def version_of(release: str, built: str) -> Version:
    """`6.1.192` of a Debian kernel stands in its build line (its release says `6.1.0-42`); else in the release."""
    found = re.search(r"Debian (\d+\.\d+\.\d+)", built) or re.match(r"(\d+\.\d+(?:\.\d+)?)", release)
    return tuple(int(n) for n in found[1].split(".")) if found else ()


def why_unfit(sysfs: Sysfs) -> str:
    """Why no cache may be attached on this kernel; empty where one may."""
    shown = version(sysfs)
    if not shown or shown >= FIRST_SAFE:
        return ""
    return f"Linux {'.'.join(map(str, shown))} loses dirty data when a cache fails: use Linux 5.11 or newer"
