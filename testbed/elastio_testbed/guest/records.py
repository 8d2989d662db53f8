"""Numbered, checksummed, fsynced records: `records.py write SPEC` until it is ended, `records.py verify SPEC`.

SPEC, a JSON file: `directory`, `name` (of one writer's life), `seed`, and to write `port` and `pause_s`, to verify
`acknowledged` (the host's count). Each record is written twice: behind the one before, never to be touched again, and
over an older one in a small table, so that a block which turns old again is seen. After the fsync of both, one line
`ack NAME NUMBER CRC` goes to the port. A record counts as acknowledged once the host has that line.
"""

import json
import mmap
import os
import random
import struct
import sys
import time
import zlib
from typing import Any

RECORD = 16 << 10
SLOTS = 128
# 300 MB in a life; nobody's life is that long.
MOST_RECORDS = 20_000
# Lines that may be on their way to the host when the power is cut: so many slots beyond the last may be half written.
ON_THE_WAY = 32
HEADER = struct.Struct("<8sQIQ")  # magic, number, CRC of the name, seed
MAGIC = b"elrecord"
TAIL = struct.Struct("<I")


def noise(seed: int) -> bytes:
    """Twice a record, so that every record takes another part of it."""
    return random.Random(seed).randbytes(2 * RECORD)


def content(name: str, seed: int, number: int, base: bytes) -> bytes:
    """Exactly RECORD bytes, unlike those of every other number and name."""
    head = HEADER.pack(MAGIC, number, zlib.crc32(name.encode()), seed)
    start = number * 64 % RECORD
    body = head + base[start : start + RECORD - HEADER.size - TAIL.size]
    return body + TAIL.pack(zlib.crc32(body))


def number_of(record: bytes) -> int | None:
    """The number in a whole record; None when it is torn, or none."""
    if len(record) != RECORD or TAIL.unpack(record[-TAIL.size :])[0] != zlib.crc32(record[: -TAIL.size]):
        return None
    magic, number, _, _ = HEADER.unpack_from(record)
    return int(number) if magic == MAGIC else None


def ack_line(name: str, number: int) -> bytes:
    text = f"{name} {number}"
    return f"ack {text} {zlib.crc32(text.encode()):08x}\n".encode()


def paths(spec: dict[str, Any]) -> tuple[str, str]:
    place = os.path.join(spec["directory"], spec["name"])
    return f"{place}.log", f"{place}.table"


# --- writing -------------------------------------------------------------------------------------------------


def write(spec: dict[str, Any]) -> None:
    os.makedirs(spec["directory"], exist_ok=True)
    log_path, table_path = paths(spec)
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    table = os.open(table_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.pwrite(table, bytes(SLOTS * RECORD), 0)
    os.fsync(table)
    sync_directory(spec["directory"])
    port = os.open(spec["port"], os.O_WRONLY)
    base = noise(spec["seed"])
    for number in range(1, MOST_RECORDS + 1):
        write_record(log, table, number, content(spec["name"], spec["seed"], number, base))
        os.write(port, ack_line(spec["name"], number))
        time.sleep(spec["pause_s"])


def write_record(log: int, table: int, number: int, record: bytes) -> None:
    """Durable in both places before it returns."""
    for descriptor, at in ((log, (number - 1) * RECORD), (table, number % SLOTS * RECORD)):
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
    """Read every acknowledged record from the device, past the page cache, and compare all of it."""
    acknowledged = int(spec["acknowledged"])
    base = noise(spec["seed"])
    log_path, table_path = paths(spec)
    lost = []
    with Reader(log_path, flags) as log:
        for number in range(1, acknowledged + 1):
            if log.record(number - 1) != content(spec["name"], spec["seed"], number, base):
                lost.append({"number": number, "where": "log"})
    with Reader(table_path, flags) as table:
        for slot in range(SLOTS):
            oldest = last_in_slot(slot, acknowledged)
            if oldest and not is_kept(table.record(slot), oldest, acknowledged, spec, base):
                lost.append({"number": oldest, "where": "table"})
    return {"checked": acknowledged, "lost": len({row["number"] for row in lost}), "examples": lost[:20]}


def last_in_slot(slot: int, acknowledged: int) -> int:
    """The last acknowledged number that was written to this slot; 0: none was."""
    last = acknowledged - (acknowledged - slot) % SLOTS
    return max(0, last)


def is_kept(record: bytes, oldest: int, acknowledged: int, spec: dict[str, Any], base: bytes) -> bool:
    """The slot holds that record or a later one; half a record only where one may have been on its way."""
    number = number_of(record)
    if number is not None:
        of_this_slot = number >= oldest and (number - oldest) % SLOTS == 0
        return of_this_slot and record == content(spec["name"], spec["seed"], number, base)
    return oldest + SLOTS <= acknowledged + ON_THE_WAY


class Reader:
    """Whole records of a file; a file that is missing or short has empty ones."""

    def __init__(self, path: str, flags: int) -> None:
        try:
            self.descriptor = os.open(path, os.O_RDONLY | flags)
        except FileNotFoundError:
            self.descriptor = -1
        self.buffer = mmap.mmap(-1, RECORD)  # aligned to a page, as O_DIRECT wants it

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


def main() -> None:
    with open(sys.argv[2]) as file:
        spec = json.load(file)
    if sys.argv[1] == "write":
        write(spec)
    else:
        print(json.dumps(verify(spec)))


if __name__ == "__main__":
    main()
