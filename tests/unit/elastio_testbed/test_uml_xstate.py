"""The library that completes a processor's extended state for user-mode Linux, on a process that stands still."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastio_testbed.hypervisor.uml.kernel import compile_xstate

pytestmark = pytest.mark.runs_programs

GETREGSET, SETREGSET, SEIZE, INTERRUPT = 0x4204, 0x4205, 0x4206, 0x4207  # ptrace.h
NT_X86_XSTATE = 0x202  # elf.h
MOST_BYTES = 1 << 16
# The standard form of XSAVE: a register of SSE, the components in use, the end of their header.
XMM0, XSTATE_BV, END_OF_HEADER = slice(160, 176), slice(512, 520), 576
SSE, AMX_TILES = 1 << 1, 1 << 18


class Range(ctypes.Structure):
    """`struct iovec`."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def library(name: str | None) -> ctypes.CDLL:
    loaded = ctypes.CDLL(name, use_errno=True)
    loaded.ptrace.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    loaded.ptrace.restype = ctypes.c_long
    return loaded


LIBC = library(None)


@pytest.fixture
def stopped() -> Iterator[int]:
    """A process that this one traces, and that stands still."""
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            assert LIBC.ptrace(SEIZE, process.pid, None, None) == 0
            assert LIBC.ptrace(INTERRUPT, process.pid, None, None) == 0
            os.waitpid(process.pid, os.WUNTRACED)
            yield process.pid
        finally:
            process.kill()


def moved(by: ctypes.CDLL, request: int, pid: int, state: bytearray) -> int:
    """The bytes of the extended state that were read or written. Raises OSError."""
    part = Range(ctypes.addressof(ctypes.c_char.from_buffer(state)), len(state))
    if by.ptrace(request, pid, NT_X86_XSTATE, ctypes.addressof(part)) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")
    return int(part.length)


def test_a_state_that_ends_early_is_completed(stopped: int, tmp_path: Path) -> None:
    """As a buffer that ends before AMX is too short on a processor with AMX, so is here one that ends before AVX."""
    compile_xstate(tmp_path / "xstate.so")
    completing = library(str(tmp_path / "xstate.so"))
    size = moved(LIBC, GETREGSET, stopped, bytearray(MOST_BYTES))
    part = bytearray(END_OF_HEADER)
    assert moved(completing, GETREGSET, stopped, part) == END_OF_HEADER < size
    part[XMM0], part[XSTATE_BV] = b"0123456789abcdef", (SSE | AMX_TILES).to_bytes(8, "little")

    with pytest.raises(OSError, match="ptrace") as refused:
        moved(LIBC, SETREGSET, stopped, part)
    assert refused.value.errno == errno.EFAULT
    moved(completing, SETREGSET, stopped, part)

    seen = bytearray(MOST_BYTES)
    assert moved(LIBC, GETREGSET, stopped, seen) == size
    assert seen[XMM0] == b"0123456789abcdef"
    assert int.from_bytes(seen[XSTATE_BV], "little") == SSE
