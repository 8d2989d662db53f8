"""A load for a disk: disk_load.py KIND DEVICE SECONDS COUNTS, where KIND is sync, libaio or io_uring.

It writes 128 KiB at a time, directly, with 16 requests at once in the latter two, by system calls of x86-64 and arm64.
At the end the scheduler's counts of its one thread go to the file COUNTS.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

BLOCK, DEPTH, SIZE = 128 * 1024, 16, 32 * 1024 * 1024
IS_ARM = platform.machine() == "aarch64"
IO_SETUP, IO_SUBMIT, IO_GETEVENTS = (0, 2, 4) if IS_ARM else (206, 209, 208)
URING_SETUP, URING_ENTER = 425, 426
IOCB_WRITE, SQE_WRITE, GET_EVENTS, RING_OF_ENTRIES = 1, 23, 1, 0x10000000
LIBC = ctypes.CDLL(None, use_errno=True)


def call(number: int, *args: object) -> int:
    found = int(LIBC.syscall(ctypes.c_long(number), *args))
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


class Blocks:
    """Aligned memory for each request, and where the next one goes."""

    def __init__(self, device: str) -> None:
        self.memory = mmap.mmap(-1, BLOCK * DEPTH)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.file, self.next = os.open(device, os.O_RDWR | os.O_DIRECT), 0

    def offset(self) -> int:
        self.next = (self.next + BLOCK) % SIZE
        return self.next


def sync(blocks: Blocks, is_over: Callable[[], bool]) -> None:
    while not is_over():
        os.pwrite(blocks.file, memoryview(blocks.memory)[:BLOCK], blocks.offset())


def libaio(blocks: Blocks, is_over: Callable[[], bool]) -> None:
    context, events = ctypes.c_ulong(0), ctypes.create_string_buffer(32 * DEPTH)
    call(IO_SETUP, DEPTH, ctypes.byref(context))
    kept: dict[int, object] = {}

    def submit(number: int) -> None:
        where = blocks.address + number * BLOCK
        packed = struct.pack(
            "<QIiHhIQQqQII", number, 0, 0, IOCB_WRITE, 0, blocks.file, where, BLOCK, blocks.offset(), 0, 0, 0
        )
        kept[number] = block = ctypes.create_string_buffer(packed, 64)
        call(IO_SUBMIT, context, ctypes.c_long(1), (ctypes.c_void_p * 1)(ctypes.addressof(block)))

    for number in range(DEPTH):
        submit(number)
    while not is_over():
        for index in range(call(IO_GETEVENTS, context, ctypes.c_long(1), ctypes.c_long(DEPTH), events, None)):
            submit(struct.unpack_from("<Q", events, 32 * index)[0])


def io_uring(blocks: Blocks, is_over: Callable[[], bool]) -> None:
    shown = ctypes.create_string_buffer(120)
    ring = call(URING_SETUP, DEPTH, shown)
    asked, done = struct.unpack_from("<7I", shown, 40), struct.unpack_from("<7I", shown, 80)
    entries = struct.unpack_from("<2I", shown)
    both = mmap.mmap(ring, max(asked[6] + 4 * entries[0], done[5] + 16 * entries[1]))
    requests = mmap.mmap(ring, 64 * entries[0], offset=RING_OF_ENTRIES)

    def value(at: int) -> int:
        return int(struct.unpack_from("<I", both, at)[0])

    free = list(range(DEPTH))
    while not is_over():
        tail = value(asked[1])
        for index, number in enumerate(free):
            slot = (tail + index) & value(asked[2])
            where = blocks.address + number * BLOCK
            entry = (SQE_WRITE, 0, 0, blocks.file, blocks.offset(), where, BLOCK, 0, number, 0, 0, 0)
            struct.pack_into("<BBHiQQIIQQQQ", requests, 64 * slot, *entry)
            struct.pack_into("<I", both, asked[6] + 4 * slot, slot)
        struct.pack_into("<I", both, asked[1], tail + len(free))
        call(URING_ENTER, ring, len(free), 1, GET_EVENTS, None, 0)
        head, end = value(done[0]), value(done[1])
        places = [done[5] + 16 * (at & value(done[2])) for at in range(head, end)]
        free = [struct.unpack_from("<Q", both, place)[0] for place in places]
        struct.pack_into("<I", both, done[0], end)


def run(kind: str, device: str, seconds: str, counts: str) -> None:
    end = time.monotonic() + float(seconds)
    {"sync": sync, "libaio": libaio, "io_uring": io_uring}[kind](Blocks(device), lambda: time.monotonic() > end)
    Path(counts).write_text(Path("/proc/self/schedstat").read_text())
    os._exit(0)  # what an interpreter does at its end would not be in the counts


if __name__ == "__main__":
    run(*sys.argv[1:])
