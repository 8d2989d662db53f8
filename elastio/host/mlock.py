"""Keeps a process's pages in memory: mlockall(2).

A boost is needed when applications write more than memory holds. If pages of the agent were evicted then, they would
have to be read back from a disk that is saturated, perhaps the one that the boost is for.
"""

from __future__ import annotations

import ctypes
import os

# include/uapi/asm-generic/mman.h
MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT = 1, 2, 4


def stay_in_memory() -> str | None:
    """Lock every page that is present, and each later one when it is first used: unused stack takes no memory.

    Applies to this process, not to its children. Returns the reason of a failure, or None.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0:
        return None
    return os.strerror(ctypes.get_errno())
