"""Numbered, checksummed, fsynced records: `records.py write SPEC` until it is stopped, `records.py verify SPEC`.

SPEC is a JSON file: `directory`, `name` (of the writer), `seed`; to write, `port`, `pause_s` and `kernel_log`; to
verify, `acknowledged` (the host's count). A record with an odd number is written twice, each time with an fsync:
appended to a log, and over an older record in a small table, which shows blocks that revert to old data. A record with
an even number is appended to a third file and fsynced once: no later fsync can make up for one that did nothing. Then
a line `ack NAME NUMBER TIME CRC` goes to the port; TIME is CLOCK_MONOTONIC in seconds. A record counts as acknowledged
once the host has that line. An error stops the writer, with a line `failed NAME NUMBER TIME ERRNO CRC`.

The kernel's log has another clock. Lines `records: NAME TIME` in it, at the start and after an error, relate the two.
"""

import json
import mmap
import os
import random
import struct
import sys
import time
import zlib
from collections.abc import Callable
from typing import Any

RECORD = 16 << 10
SLOTS = 128
# 300 MB, more than any writer gets to.
MOST_RECORDS = 20_000
# Lines that may be in transit when the power is cut: this many slots beyond the last may be partially written.
IN_TRANSIT = 32
HEADER = struct.Struct("<8sQIQ")  # magic, number, CRC of the name, seed
MAGIC = b"elrecord"
TAIL = struct.Struct("<I")


def noise(seed: int) -> bytes:
    """Random data of twice a record's size; every record uses another part of it."""
    return random.Random(seed).randbytes(2 * RECORD)


def content(name: str, seed: int, number: int, base: bytes) -> bytes:
    """The RECORD bytes of this record, different for every number and name."""
    head = HEADER.pack(MAGIC, number, zlib.crc32(name.encode()), seed)
    start = number * 64 % RECORD
    body = head + base[start : start + RECORD - HEADER.size - TAIL.size]
    return body + TAIL.pack(zlib.crc32(body))


def number_of(record: bytes) -> int | None:
    """The number in a complete record; None for anything else."""
    if len(record) != RECORD or TAIL.unpack(record[-TAIL.size :])[0] != zlib.crc32(record[: -TAIL.size]):
        return None
    magic, number, _, _ = HEADER.unpack_from(record)
    return int(number) if magic == MAGIC else None


def ack_line(name: str, number: int, at_s: float) -> bytes:
    return _line("ack", f"{name} {number} {at_s:.6f}")


def failed_line(name: str, number: int, at_s: float, code: int) -> bytes:
    return _line("failed", f"{name} {number} {at_s:.6f} {code}")


def _line(word: str, text: str) -> bytes:
    return f"{word} {text} {zlib.crc32(text.encode()):08x}\n".encode()


def paths(spec: dict[str, Any]) -> tuple[str, str, str]:
    """The log, the table, and the file of the records that are written once."""
    place = os.path.join(spec["directory"], spec["name"])
    return f"{place}.log", f"{place}.table", f"{place}.once"


def is_twice(number: int) -> bool:
    """Whether the record goes to log and table."""
    return number % 2 == 1


def nth(number: int) -> int:
    """How many records of its kind there are up to this one, inclusive."""
    return (number + 1) // 2


# --- writing -------------------------------------------------------------------------------------------------


def write(spec: dict[str, Any]) -> None:
    os.makedirs(spec["directory"], exist_ok=True)
    files = [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644) for path in paths(spec)]
    os.pwrite(files[1], bytes(SLOTS * RECORD), 0)
    os.fsync(files[1])
    sync_directory(spec["directory"])
    port = os.open(spec["port"], os.O_WRONLY)
    log_clock(spec)
    base = noise(spec["seed"])
    for number in range(1, MOST_RECORDS + 1):
        try:
            write_record(files, number, content(spec["name"], spec["seed"], number, base))
        except OSError as error:
            os.write(port, failed_line(spec["name"], number, time.monotonic(), error.errno or 0))
            log_clock(spec)
            raise
        os.write(port, ack_line(spec["name"], number, time.monotonic()))
        time.sleep(spec["pause_s"])


def log_clock(spec: dict[str, Any]) -> None:
    descriptor = os.open(spec["kernel_log"], os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, f"records: {spec['name']} {time.monotonic():.6f}\n".encode())
    os.close(descriptor)


def write_record(files: list[int], number: int, record: bytes) -> None:
    """Write and fsync the record in each of its files."""
    log, table, once = files
    behind = (nth(number) - 1) * RECORD
    twice = ((log, behind), (table, nth(number) % SLOTS * RECORD))
    for descriptor, at in twice if is_twice(number) else ((once, behind),):
        if os.pwrite(descriptor, record, at) != RECORD:
            raise OSError("short write")
        os.fsync(descriptor)


def sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- verifying -----------------------------------------------------------------------------------------------


def verify(spec: dict[str, Any], flags: int = os.O_DIRECT) -> dict[str, Any]:
    """Read every acknowledged record from the device, bypassing the page cache, and compare all its bytes."""
    acknowledged = int(spec["acknowledged"])
    base = noise(spec["seed"])
    log_path, table_path, once_path = paths(spec)
    lost = []
    for path, where, first in ((log_path, "log", 1), (once_path, "once", 2)):
        with Reader(path, flags) as appended:
            for number in range(first, acknowledged + 1, 2):
                if appended.record(nth(number) - 1) != content(spec["name"], spec["seed"], number, base):
                    lost.append({"number": number, "where": where})
    with Reader(table_path, flags) as table:
        for slot in range(SLOTS):
            oldest = last_in_slot(slot, acknowledged)
            if oldest and not is_kept(table.record(slot), oldest, acknowledged, spec, base):
                lost.append({"number": oldest, "where": "table"})
    return {"checked": acknowledged, "lost": len({row["number"] for row in lost}), "examples": lost[:20]}


def last_in_slot(slot: int, acknowledged: int) -> int:
    """The last acknowledged number that was written to this slot; 0 if none was."""
    count = nth(acknowledged)
    last = count - (count - slot) % SLOTS
    return max(0, 2 * last - 1)


def is_kept(record: bytes, oldest: int, acknowledged: int, spec: dict[str, Any], base: bytes) -> bool:
    """Whether the slot holds that record or a later one. A partial record is accepted where one may be in transit."""
    number = number_of(record)
    if number is not None:
        of_this_slot = number >= oldest and (number - oldest) % (2 * SLOTS) == 0
        return of_this_slot and record == content(spec["name"], spec["seed"], number, base)
    following = oldest + 2 * SLOTS
    return len(record) == RECORD and following <= acknowledged + IN_TRANSIT


class Reader:
    """The records of a file; those of a missing or truncated file are empty."""

    def __init__(self, path: str, flags: int) -> None:
        try:
            self.descriptor = os.open(path, os.O_RDONLY | flags)
        except FileNotFoundError:
            self.descriptor = -1
        self.buffer = mmap.mmap(-1, RECORD)  # aligned to a page, as O_DIRECT requires

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self.buffer.close()
        if self.descriptor >= 0:
            os.close(self.descriptor)

    def record(self, index: int) -> bytes:
        if self.descriptor < 0:
            return b""
        try:
            return self.buffer[: os.preadv(self.descriptor, [self.buffer], index * RECORD)]
        except OSError as error:
            print(f"record {index}: {error}", file=sys.stderr)
            return b""


def main(write: Callable[[dict[str, Any]], None], verify: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """The command line of a writer: `write SPEC` or `verify SPEC`."""
    with open(sys.argv[2]) as file:
        spec = json.load(file)
    if sys.argv[1] == "write":
        write(spec)
    else:
        print(json.dumps(verify(spec)))


if __name__ == "__main__":
    main(write, verify)
