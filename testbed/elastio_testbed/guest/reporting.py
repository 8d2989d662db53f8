"""The common part of the workload programs in the guest.

`python3 -m elastio_testbed.guest.PROGRAM run SPEC REPORT` and `... verify SPEC`. SPEC is a JSON file with at least
`directory` and `seed`. REPORT gets one JSON line after each dump (`dump`, `began` and `ended` on the wall clock,
`bytes`; where it applies `write_s`, the time spent writing, and `figures` of the workload's own) and a final one:
`{"done": true}` or `{"error": ...}`. `verify` prints one JSON object: `ok`, `wrong`, `checksums`.
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
    """Write one event. `report` is line-buffered, so that the host can read it at once."""
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
    """Bytes that this process has read from devices so far, excluding what the page cache served."""
    with open("/proc/self/io") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("read_bytes:"))
