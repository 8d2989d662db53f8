"""Which filesystems are mounted where. Reads /proc only, which takes no lock of bcache."""

from __future__ import annotations

import re

from elastio.host.sysfs import Sysfs

_OCTAL = re.compile(r"\\([0-7]{3})")


def mounts(sysfs: Sysfs) -> list[tuple[str, str]]:
    """`major:minor` and mount point of every mount, in mount order (proc(5), fields 3 and 5 of mountinfo)."""
    lines = (line.split() for line in sysfs.read_or("proc/self/mountinfo", "").splitlines())
    return [(words[2], unescape(words[4])) for words in lines if len(words) > 4]


def mounted_at(sysfs: Sysfs, device: str) -> list[str]:
    """Mount points of a disk such as `bcache0`, in mount order."""
    number = sysfs.read_or(f"sys/block/{device}/dev", "")
    return [place for of, place in mounts(sysfs) if number and of == number]


def filesystems_on(sysfs: Sysfs, numbers: frozenset[str]) -> set[str]:
    """The kinds of the filesystems mounted from these `major:minor` (the field after the dash of mountinfo)."""
    lines = (line.partition(" - ") for line in sysfs.read_or("proc/self/mountinfo", "").splitlines())
    fields = ((mount.split(), rest.split()) for mount, _, rest in lines)
    return {rest[0] for mount, rest in fields if rest and len(mount) > 2 and mount[2] in numbers}


def unescape(place: str) -> str:
    """mountinfo writes spaces, tabs, newlines and backslashes as octal numbers."""
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), place)
