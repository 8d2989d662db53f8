"""Keeps a process's pages in memory.

A boost comes when applications write all that memory holds. A page of the agent's program that had to make room is
then read back from a disk that the burst saturates, perhaps the very disk that the boost is for.
"""

from __future__ import annotations

import ctypes
import os

# include/uapi/asm-generic/mman.h
MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT = 1, 2, 4


def stay_in_memory() -> str | None:
    """Lock every page that is there and every later one when it is first used, so that none is set aside for stacks
    nobody fills. Holds for this process, not for its children. Returns why it could not, or None.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0:
        return None
    return os.strerror(ctypes.get_errno())
