"""What one would build by hand today: dm-writecache, by LVM, on a fast volume that is there all the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elastio.units import GIB
from elastio_testbed.experiment import Scaled

if TYPE_CHECKING:
    from elastio_testbed.machine import Guest

FAST_SERIAL = "fast"  # how the serial of the fast volume ends
GROUP, DATA_VOLUME, FAST_VOLUME = "lab", "data", "fast"
# What device-mapper calls the device on which the filesystem lies, `-` doubled or not: neither name has one.
MAPPED_NAME = f"{GROUP}-{DATA_VOLUME}"
_LVM_S = 120.0


class LvmCache:
    """The fast volume: as large as the adaptive set-up's first cache, as fast as each of them."""

    def __init__(self, serial: str, scaled: Scaled) -> None:
        self.serial = serial
        self.size_bytes = round(scaled.initial_cache_gib * GIB)

    def make(self, guest: Guest, backing: str) -> str:
        """Put the cache before `backing` in the guest; the path of the device to be used. Raises GuestError."""
        for argv in lvm_commands(backing, f"/dev/{guest.disk_name(self.serial)}"):
            guest.check(argv, timeout_s=_LVM_S)
        return f"/dev/{GROUP}/{DATA_VOLUME}"


def lvm_commands(backing: str, fast: str) -> list[list[str]]:
    """One volume group over both disks, one volume on each, and the fast one as the other's write cache."""
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
