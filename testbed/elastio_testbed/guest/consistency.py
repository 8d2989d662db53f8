"""Checks that no read returns stale data. `consistency.py SPEC` runs until the speed file says `stop`.

SPEC is a JSON file: `device`, `speed` and `report` (files), `seed`, and `regions`, each with `offset` (bytes), `blocks`
(of 4 KiB), `direct` (O_DIRECT or buffered), `writers`, `readers`, and optionally `write_blocks` (of every write) and
`slow_pause_s`. Each region is accessed by its own processes only: mixing direct and buffered I/O on the same bytes is
undefined on any device.

Every block has a version. A writer, alone in its part of a region, notes the version that it begins, writes, and notes
that it has completed. A reader notes which version had completed before it reads, and which had begun afterwards: each
sector that it gets must lie between the two. Versions are in shared memory. Readers prefer blocks that are being
written.

The speed file holds `full`, `slow` or `stop`. The report gets a JSON line every second, and a final one with `done`
after every block was read once more with nothing in flight.
"""

import ctypes
import json
import mmap
import multiprocessing
import os
import random
import struct
import sys
import time
from typing import Any

BLOCK, SECTOR = 4096, 512
MOST_BLOCKS = 16  # in one request: 64 KiB
STAMP = struct.Struct("<8sQQII")  # magic, block, version, sector in the block, seed
VERSION_AT = 16  # in a stamp
MAGIC = b"elastver"
STOP, SLOW, FULL = 0, 1, 2
SPEEDS = {"stop": STOP, "slow": SLOW, "full": FULL}
SLOW_PAUSE_S = 0.5
HOT = 0.7  # the share of reads near a writer
SYNCED = 0.3  # the share of buffered writes that are synced: only clean pages can be dropped and read again
EXAMPLES = 20


def block_of(index: int, version: int, seed: int) -> bytes:
    fill = bytes(SECTOR - STAMP.size)
    return b"".join(STAMP.pack(MAGIC, index, version, n, seed) + fill for n in range(BLOCK // SECTOR))


def restamp(data: bytearray, version: int) -> None:
    """Change the version of whole blocks in place, which is faster: an emulated processor is slower than the device."""
    sectors = len(data) // SECTOR
    for at, byte in enumerate(version.to_bytes(8, "little"), start=VERSION_AT):
        data[at::SECTOR] = bytes([byte]) * sectors


def defect_in(data: bytes, first: int, low: list[int], high: list[int], seed: int) -> dict[str, Any] | None:
    """What is wrong with the data, or None: `stale`, `future` or `foreign` (not of this block)."""
    for at in range(0, len(data), SECTOR):
        magic, index, version, sector, whose = STAMP.unpack_from(data, at)
        wanted = first + at // BLOCK
        found = {"block": wanted, "sector": at % BLOCK // SECTOR, "version": version}
        if (magic, index, sector, whose) != (MAGIC, wanted, at % BLOCK // SECTOR, seed):
            return {**found, "kind": "foreign"}
        if version < low[at // BLOCK]:
            return {**found, "kind": "stale", "completed": low[at // BLOCK]}
        if version > high[at // BLOCK]:
            return {**found, "kind": "future", "begun": high[at // BLOCK]}
    return None


class Shared:
    """The memory that the processes of one region share."""

    def __init__(self, region: dict[str, Any]) -> None:
        workers = region["writers"] + region["readers"]
        self.begun = multiprocessing.RawArray(ctypes.c_uint64, region["blocks"])
        self.completed = multiprocessing.RawArray(ctypes.c_uint64, region["blocks"])
        self.hot = multiprocessing.RawArray(ctypes.c_uint64, region["writers"])
        self.done = multiprocessing.RawArray(ctypes.c_uint64, workers)
        self.wrong = multiprocessing.RawArray(ctypes.c_uint64, workers)


class Device:
    """The bytes of one region, through one descriptor and an aligned buffer."""

    def __init__(self, spec: dict[str, Any], region: dict[str, Any]) -> None:
        self.is_direct = region["direct"]
        self.offset = region["offset"]
        self.descriptor = os.open(spec["device"], os.O_RDWR | (os.O_DIRECT if self.is_direct else 0))
        self.buffer = mmap.mmap(-1, max(MOST_BLOCKS, region.get("write_blocks", 0)) * BLOCK)

    def read(self, first: int, count: int) -> bytes:
        at = self.offset + first * BLOCK
        if not self.is_direct:
            os.posix_fadvise(self.descriptor, at, count * BLOCK, os.POSIX_FADV_DONTNEED)
        got = os.preadv(self.descriptor, [memoryview(self.buffer)[: count * BLOCK]], at)
        return self.buffer[:got]

    def write(self, first: int, data: bytes | bytearray) -> None:
        self.buffer[: len(data)] = data
        at = self.offset + first * BLOCK
        if os.pwritev(self.descriptor, [memoryview(self.buffer)[: len(data)]], at) != len(data):
            raise OSError("short write")

    def sync(self) -> None:
        os.fdatasync(self.descriptor)


class Worker:
    """One reader or writer of a region."""

    def __init__(self, spec: dict[str, Any], region: dict[str, Any], shared: Shared, number: int) -> None:
        self.spec, self.region, self.shared, self.number = spec, region, shared, number
        self.rng = random.Random(f"{spec['seed']} {region['offset']} {number}")
        self.device = Device(spec, region)
        self.large = bytearray()  # the last data, where every write is of the same blocks

    def write_step(self) -> None:
        part = self.region["blocks"] // self.region["writers"]
        count = self.region.get("write_blocks") or self.rng.randint(1, min(MOST_BLOCKS, part))
        first = self.number * part + self.rng.randrange(part - count + 1)
        shared, blocks = self.shared, range(first, first + count)
        shared.hot[self.number] = first
        versions = [shared.begun[b] + 1 for b in blocks]
        for block, version in zip(blocks, versions, strict=True):
            shared.begun[block] = version
        self.device.write(first, self.content(blocks, versions))
        for block, version in zip(blocks, versions, strict=True):
            shared.completed[block] = version
        if not self.device.is_direct and self.rng.random() < SYNCED:
            self.device.sync()
        shared.done[self.number] += 1

    def content(self, blocks: range, versions: list[int]) -> bytes | bytearray:
        if self.large:
            restamp(self.large, versions[0])
            return self.large
        data = b"".join(block_of(b, v, self.spec["seed"]) for b, v in zip(blocks, versions, strict=True))
        if self.region.get("write_blocks") == self.region["blocks"] // self.region["writers"]:
            self.large = bytearray(data)
        return data

    def read_step(self) -> dict[str, Any] | None:
        count = self.rng.randint(1, MOST_BLOCKS)
        last = self.region["blocks"] - count
        if self.rng.random() < HOT:
            hot = self.shared.hot[self.rng.randrange(self.region["writers"])]
            first = max(0, min(last, hot + self.rng.randint(-2, 2)))
        else:
            first = self.rng.randrange(last + 1)
        found = self.check(first, count)
        self.shared.done[self.number] += 1
        if found is not None:
            self.shared.wrong[self.number] += 1
        return found

    def check(self, first: int, count: int) -> dict[str, Any] | None:
        """Read and check blocks. The order of the first three lines is essential."""
        low = self.shared.completed[first : first + count]
        data = self.device.read(first, count)
        high = self.shared.begun[first : first + count]
        if len(data) != count * BLOCK:
            return {"kind": "short", "block": first, "bytes": len(data)}
        return defect_in(data, first, low, high, self.spec["seed"])

    def fill(self) -> None:
        """Write version 1 to every block."""
        for first in range(0, self.region["blocks"], MOST_BLOCKS):
            blocks = range(first, min(first + MOST_BLOCKS, self.region["blocks"]))
            self.device.write(first, b"".join(block_of(b, 1, self.spec["seed"]) for b in blocks))
            for block in blocks:
                self.shared.begun[block] = self.shared.completed[block] = 1
        self.device.sync()

    def sweep(self) -> list[dict[str, Any]]:
        """Check every block with nothing in flight: data that is stale now stays stale."""
        wrong = [self.check(block, 1) for block in range(self.region["blocks"])]
        return [found for found in wrong if found is not None]

    def run(self, speed: Any) -> None:
        while speed.value != STOP:
            if self.number < self.region["writers"]:
                self.write_step()
            else:
                found = self.read_step()
                if found is not None and self.shared.wrong[self.number] <= EXAMPLES:
                    add_line(self.spec["report"], {"t": time.time(), "direct": self.device.is_direct, **found})
            if speed.value == SLOW:
                time.sleep(self.region.get("slow_pause_s", SLOW_PAUSE_S))


def add_line(path: str, line: dict[str, Any]) -> None:
    """Append a line in one write: several processes share the report."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, (json.dumps(line) + "\n").encode())
    finally:
        os.close(descriptor)


def speed_in(path: str) -> int:
    """The speed in the file; slow while it is being rewritten."""
    try:
        with open(path) as file:
            return SPEEDS.get(file.read().strip(), SLOW)
    except FileNotFoundError:
        return SLOW


def totals(regions: list[dict[str, Any]], shared: list[Shared]) -> dict[str, int]:
    counted = {"writes": 0, "reads": 0, "wrong": 0}
    for region, known in zip(regions, shared, strict=True):
        counted["writes"] += sum(known.done[: region["writers"]])
        counted["reads"] += sum(known.done[region["writers"] :])
        counted["wrong"] += sum(known.wrong)
    return counted


def main() -> None:
    with open(sys.argv[1]) as file:
        spec = json.load(file)
    regions = spec["regions"]
    shared = [Shared(region) for region in regions]
    speed = multiprocessing.RawValue(ctypes.c_int, SLOW)
    for region, known in zip(regions, shared, strict=True):
        Worker(spec, region, known, 0).fill()
    workers = [
        multiprocessing.Process(target=lambda r=r, k=k, n=n: Worker(spec, r, k, n).run(speed))
        for r, k in zip(regions, shared, strict=True)
        for n in range(r["writers"] + r["readers"])
    ]
    for process in workers:
        process.start()
    failed = watch(spec, shared, speed, workers)
    at_rest = [found for r, k in zip(regions, shared, strict=True) for found in Worker(spec, r, k, 0).sweep()]
    last = {**totals(regions, shared), "stale_at_rest": len(at_rest), "examples": at_rest[:EXAMPLES], "failed": failed}
    add_line(spec["report"], {"done": True, **last})


def watch(spec: dict[str, Any], shared: list[Shared], speed: Any, workers: list[Any]) -> int:
    """Pass the speed on and report until it is `stop`. Returns the number of processes that failed."""
    next_line = time.monotonic()
    while speed.value != STOP and all(process.exitcode is None for process in workers):
        speed.value = speed_in(spec["speed"])
        if time.monotonic() >= next_line:
            next_line += 1.0
            add_line(spec["report"], {"t": time.time(), **totals(spec["regions"], shared)})
        time.sleep(0.1)
    speed.value = STOP
    for process in workers:
        process.join(120)
    return sum(process.exitcode != 0 for process in workers)


if __name__ == "__main__":
    main()
