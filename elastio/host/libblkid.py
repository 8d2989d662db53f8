"""What libblkid recognizes on an open device, asked in this process: a boost waits for it, and starts no program.

It is the judge of udev, mount(8) and LVM. It reads about 1 MiB of the first 4 MiB and the last 512 KiB.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

from elastio.errors import HostError
from elastio.host.superblock import UNREADABLE

LIBRARY = "libblkid.so.1"


def recognized(descriptor: int, shown: str) -> str:
    """What is on the device: its type, "several", or "a partition table"; empty if nothing is. Raises HostError.

    libblkid reads through the page cache. What that has of the device is dropped before and afterwards: the device may
    be written to through another one.
    """
    try:
        library = ctypes.CDLL(LIBRARY, use_errno=True)
    except OSError as error:
        raise HostError(f"{LIBRARY} cannot be used: {error}", code="libblkid.missing") from error
    library.blkid_new_probe.restype = ctypes.c_void_p
    probe = ctypes.c_void_p(library.blkid_new_probe())
    try:
        with _cached(descriptor) as cached:
            return _probed(library, probe, cached, shown)
    except OSError as error:
        raise HostError(f"{shown} cannot be opened: {error.strerror}", code=UNREADABLE) from error
    finally:
        library.blkid_free_probe(probe)


@contextmanager
def _cached(descriptor: int) -> Iterator[int]:
    """The same device through its page cache, which is empty before and afterwards."""
    again = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(again, 0, 0, os.POSIX_FADV_DONTNEED)
        yield again
    finally:
        os.posix_fadvise(again, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(again)


def _probed(library: ctypes.CDLL, probe: ctypes.c_void_p, descriptor: int, shown: str) -> str:
    whole = ctypes.c_int64(0)
    if not probe.value or library.blkid_probe_set_device(probe, descriptor, whole, whole):
        raise HostError(f"libblkid cannot look at {shown}: {os.strerror(ctypes.get_errno())}", code="libblkid.failed")
    library.blkid_probe_enable_partitions(probe, 1)
    match library.blkid_do_safeprobe(probe):  # as superblocks/probe.c of libblkid says
        case 0:
            value = ctypes.c_char_p()
            is_named = library.blkid_probe_lookup_value(probe, b"TYPE", ctypes.byref(value), None) == 0
            return (value.value or b"").decode(errors="replace") if is_named else "a partition table"
        case 1:
            return ""
        case -2:
            return "several"
    raise HostError(f"libblkid could not look at {shown}: {os.strerror(ctypes.get_errno())}", code="libblkid.failed")
