"""What every workload program of the guest has in common.

`python3 -m elastio_testbed.guest.PROGRAM run SPEC REPORT` and `... verify SPEC`, SPEC being a JSON file with at least
`directory` and `seed`. REPORT gets one JSON line per dump as soon as it is over (`dump`, `began` and `ended` on the
wall clock, `bytes`; where it applies `write_s`, the part of it spent writing, and `figures`, the workload's own) and a
last one: `{"done": true}` or `{"error": ...}`. `verify` prints one JSON object: `ok`, `wrong`, `checksums`.
"""

import json
import os
import sys
import zlib
from collections.abc import Callable
from typing import Any

READ_BYTES = 1 << 20


def main(run: Callable[[dict[str, Any], str], None], verify: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    with open(sys.argv[2]) as file:
        spec = json.load(file)
    if sys.argv[1] == "run":
        run(spec, sys.argv[3])
    else:
        print(json.dumps(verify(spec)))


def write_line(report: Any, line: dict[str, Any]) -> None:
    """One event, with the host able to read it at once: `report` is line-buffered."""
    report.write(json.dumps(line) + "\n")


def checksum(path: str) -> str:
    """CRC-32 of a whole file."""
    value = 0
    with open(path, "rb", buffering=0) as file:
        while data := file.read(READ_BYTES):
            value = zlib.crc32(data, value)
    return f"{value:08x}"


def sync_to_device(path: str) -> None:
    """fsync a file or a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def device_read_bytes() -> int:
    """Bytes that this process has read from devices so far: what the page cache served is not among them."""
    with open("/proc/self/io") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("read_bytes:"))
