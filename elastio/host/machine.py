"""The machine: its identity, without a call to the cloud; its two clocks; a process's pages in its memory."""

from __future__ import annotations

import ctypes
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from elastio.host.sysfs import Sysfs

DMI = "sys/class/dmi/id"
# Set by the firmware of EC2's Nitro; elsewhere the tag is empty, or holds text of the hypervisor's vendor.
EC2_INSTANCE = re.compile(r"i-[0-9a-f]{8,32}")
# Default values of firmware that was not given a UUID.
NO_UUIDS = frozenset({"0" * 32, "f" * 32, "03000200040005000006000700080009"})


def machine_id(sysfs: Sysfs) -> str:
    """The instance's identity from its firmware, or an empty string where it has none.

    An EC2 instance ID, else the UUID that the hypervisor gave the machine, in lower case. Not /etc/machine-id: it is a
    file, and every copy of a disk has the same one. The firmware's identity does not depend on the disk.
    """
    tag = sysfs.read_or(f"{DMI}/board_asset_tag", "").lower()
    if EC2_INSTANCE.fullmatch(tag):
        return tag
    try:
        shown = UUID(sysfs.read_or(f"{DMI}/product_uuid", ""))
    except ValueError:
        return ""
    return "" if shown.hex in NO_UUIDS else str(shown)


class SystemClock:
    """`ports.Clock` of the running machine. CLOCK_BOOTTIME includes suspend and never jumps."""

    def now(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall(self) -> float:
        return time.time()


# include/uapi/asm-generic/mman.h
MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT = 1, 2, 4


def stay_in_memory() -> str | None:
    """Lock every page that is present, and each later one when it is first used: unused stack takes no memory.

    mlockall(2). A boost is needed when applications write more than memory holds. If pages of the agent were evicted
    then, they would have to be read back from a disk that is saturated, perhaps the one that the boost is for.

    Applies to this process, not to its children. Returns the reason of a failure, or None.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0:
        return None
    return os.strerror(ctypes.get_errno())


# include/uapi/linux/prctl.h
PR_SET_IO_FLUSHER = 57


@contextmanager
def as_io_flusher() -> Iterator[None]:
    """Memory that this thread gets inside is got without I/O: see PR_SET_IO_FLUSHER in prctl(2).

    While the requests of others to a device wait for this process, it must not wait for one of them. Needs
    CAP_SYS_RESOURCE and Linux 5.6; without these nothing changes.
    """
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_IO_FLUSHER, *map(ctypes.c_ulong, (1, 0, 0, 0)))
    try:
        yield
    finally:
        libc.prctl(PR_SET_IO_FLUSHER, *map(ctypes.c_ulong, (0, 0, 0, 0)))
