"""The fixed alternative to an adaptive device: dm-writecache, set up with LVM, on a permanent fast volume."""

from __future__ import annotations

from typing import Protocol

from elastio.units import GIB
from elastio_testbed.experiment import Scaled

FAST_SERIAL = "fast"  # how the serial of the fast volume ends
GROUP, DATA_VOLUME, FAST_VOLUME = "lab", "data", "fast"
# The device-mapper name of the device with the filesystem. Device-mapper doubles `-` in names; these have none.
MAPPED_NAME = f"{GROUP}-{DATA_VOLUME}"
_LVM_S = 120.0


class Shell(Protocol):
    """The part of a guest that is used here."""

    def disk_name(self, serial: str | None = None) -> str: ...

    def check(self, argv: list[str], *, timeout_s: float = ...) -> str: ...


class LvmCache:
    """The fast volume: as large as the adaptive set-up's first cache, as fast as each of them."""

    def __init__(self, serial: str, scaled: Scaled) -> None:
        self.serial = serial
        self.size_bytes = round(scaled.initial_cache_gib * GIB)

    def make(self, guest: Shell, backing: str) -> str:
        """Put the cache in front of `backing` and return the path of the resulting device. Raises GuestError."""
        for argv in lvm_commands(backing, f"/dev/{guest.disk_name(self.serial)}"):
            guest.check(argv, timeout_s=_LVM_S)
        return f"/dev/{GROUP}/{DATA_VOLUME}"


def lvm_commands(backing: str, fast: str) -> list[list[str]]:
    """One volume group over both disks, one logical volume on each, the fast one as write cache of the other."""
    data, cache = f"{GROUP}/{DATA_VOLUME}", f"{GROUP}/{FAST_VOLUME}"
    # Blocks as the filesystem has them: the default is the disk's 512 bytes, for eight times the memory.
    settings = ["--cachesettings", "block_size=4096"]
    return [
        ["modprobe", "dm-writecache"],
        ["vgcreate", "--yes", GROUP, backing, fast],
        ["lvcreate", "--yes", "--name", DATA_VOLUME, "--extents", "100%PVS", GROUP, backing],
        ["lvcreate", "--yes", "--name", FAST_VOLUME, "--extents", "100%PVS", GROUP, fast],
        ["lvchange", "--activate", "n", cache],
        ["lvconvert", "--yes", "--type", "writecache", "--cachevol", FAST_VOLUME, *settings, data],
    ]
