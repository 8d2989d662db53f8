"""A bulk-synchronous checkpointing application, and the check of every byte it wrote.

For the command line see reporting.py. SPEC: `ranks`, `dumps` (bytes per dump over all ranks), `compute_s` (seconds
before each dump but the first). With `announced` (bytes per dump) each dump is announced to the agent at `agent_socket`
before it is computed, and the first one `first_s` seconds before it begins.

Each rank writes its share of a dump in writes of 1 MiB and fsyncs it; a dump ends when the last rank's fsync has
returned. Computing is simulated by sleeping: the measurement is about storage only.
"""

import multiprocessing
import os
import random
import struct
import threading
import time
import zlib
from typing import Any

from elastio_testbed.guest.announcement import AnnouncementError, announce
from elastio_testbed.guest.reporting import main, write_line

BLOCK = 1 << 20
STAMP_EVERY = 64 << 10
DROP_EVERY, KEPT_BLOCKS = 16, 128
STAMP = struct.Struct("<8sIIQ")


def base_block(seed: int, rank: int) -> bytearray:
    """One incompressible MiB, determined by seed and rank."""
    return bytearray(random.Random(seed * 1000 + rank).randbytes(BLOCK))


def stamp(block: bytearray, dump: int, rank: int, index: int) -> None:
    """Make the block unique, so that a stale or misplaced one is detected."""
    for offset in range(0, BLOCK, STAMP_EVERY):
        STAMP.pack_into(block, offset, b"elastio\0", dump, rank, index * BLOCK + offset)


def file_of(spec: dict[str, Any], dump: int, rank: int) -> str:
    return os.path.join(spec["directory"], f"dump-{dump}-rank-{rank}")


def blocks_of(spec: dict[str, Any], dump: int) -> int:
    """Blocks per rank of one dump."""
    share = float(spec["dumps"][dump]) / int(spec["ranks"])
    return max(1, round(share / BLOCK))


def write_share(spec: dict[str, Any], dump: int, rank: int, block: bytearray) -> None:
    descriptor = os.open(file_of(spec, dump, rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        for index in range(blocks_of(spec, dump)):
            stamp(block, dump, rank, index)
            if os.write(descriptor, block) != BLOCK:
                raise OSError("short write")
            if index % DROP_EVERY == 0:
                drop_pages(descriptor, (index - KEPT_BLOCKS) * BLOCK)
        os.fsync(descriptor)
        drop_pages(descriptor, blocks_of(spec, dump) * BLOCK)
    finally:
        os.close(descriptor)


def drop_pages(descriptor: int, end: int) -> None:
    """Drop the clean pages before `end` from the page cache.

    A guest under emulation stalls for seconds when it has to reclaim memory, which would distort the measurement.
    """
    if end > 0:
        os.posix_fadvise(descriptor, 0, end, os.POSIX_FADV_DONTNEED)


def rank_main(spec: dict[str, Any], rank: int, barrier: Any) -> None:
    block = base_block(spec["seed"], rank)
    try:
        for dump in range(len(spec["dumps"])):
            barrier.wait()
            write_share(spec, dump, rank, block)
            barrier.wait()
    except OSError:
        barrier.abort()
        raise


def run(spec: dict[str, Any], report_path: str) -> None:
    """Report one line per dump and a final one: `{"done": true}`, or `{"error": ...}` if a rank failed."""
    barrier = multiprocessing.Barrier(spec["ranks"] + 1)
    ranks = [
        multiprocessing.Process(target=rank_main, args=(spec, rank, barrier), daemon=True)
        for rank in range(spec["ranks"])
    ]
    for process in ranks:
        process.start()
    with open(report_path, "a", buffering=1) as report:
        try:
            run_dumps(spec, barrier, report)
            end: dict[str, Any] = {"done": True}
        except threading.BrokenBarrierError:
            end = {"error": "a rank failed"}
        except AnnouncementError as error:
            barrier.abort()
            end = {"error": str(error)}
        write_line(report, end)
    for process in ranks:
        process.join(timeout=60)


def compute(spec: dict[str, Any], dump: int) -> None:
    """Announce the dump, if the spec asks for it, and sleep; the announcement takes none of the compute time."""
    seconds = spec["compute_s"] if dump else spec.get("first_s", 0)
    until = time.monotonic() + seconds
    if "announced" in spec:
        announce(spec["agent_socket"], seconds, spec["announced"][dump])
    time.sleep(max(0.0, until - time.monotonic()))


def run_dumps(spec: dict[str, Any], barrier: Any, report: Any) -> None:
    for dump in range(len(spec["dumps"])):
        compute(spec, dump)
        began = time.time()
        barrier.wait()
        barrier.wait()
        size = blocks_of(spec, dump) * BLOCK * spec["ranks"]
        write_line(report, {"dump": dump, "began": began, "ended": time.time(), "bytes": size})


def verify(spec: dict[str, Any]) -> dict[str, Any]:
    """Compare every block of every file with what was written."""
    wrong, checksums = [], {}
    for rank in range(spec["ranks"]):
        block = base_block(spec["seed"], rank)
        for dump in range(len(spec["dumps"])):
            path, checksum = file_of(spec, dump, rank), 0
            with open(path, "rb", buffering=0) as file:
                for index in range(blocks_of(spec, dump)):
                    stamp(block, dump, rank, index)
                    data = file.read(BLOCK)
                    checksum = zlib.crc32(data, checksum)
                    if data != block:
                        wrong.append({"file": path, "block": index})
                if file.read(1):
                    wrong.append({"file": path, "block": "longer than written"})
            checksums[os.path.basename(path)] = f"{checksum:08x}"
    return {"ok": not wrong, "wrong": wrong[:20], "checksums": checksums}


if __name__ == "__main__":
    main(run, verify)
