"""The fixed alternative to an adaptive device: dm-writecache, set up with LVM, on a permanent fast volume."""

from __future__ import annotations

FAST_SERIAL = "fast"  # how the serial of the fast volume ends
GROUP, DATA_VOLUME, FAST_VOLUME = "lab", "data", "fast"
# The device-mapper name of the device with the filesystem. Device-mapper doubles `-` in names; these have none.
MAPPED_NAME = f"{GROUP}-{DATA_VOLUME}"
DEVICE = f"/dev/{GROUP}/{DATA_VOLUME}"


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
