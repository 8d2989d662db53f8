"""Records appended once and fsynced once: `appends write SPEC` until it is stopped, `appends verify SPEC`.

SPEC as in `records`. Only this fsync makes a record durable before the acknowledgement, and the writer pauses
afterwards: a power cut in the pause shows whether the fsync was effective. There is no second write of a record, as its
fsync would make the first one durable, too.
"""

import os
import time
from typing import Any

from elastio_testbed.guest.records import MOST_RECORDS, RECORD, Reader, ack_line, content, main, noise, sync_directory


def path(spec: dict[str, Any]) -> str:
    return os.path.join(spec["directory"], f"{spec['name']}.appends")


def write(spec: dict[str, Any]) -> None:
    os.makedirs(spec["directory"], exist_ok=True)
    log = os.open(path(spec), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
    os.fsync(log)
    sync_directory(spec["directory"])
    port = os.open(spec["port"], os.O_WRONLY)
    base = noise(spec["seed"])
    for number in range(1, MOST_RECORDS + 1):
        append(log, content(spec["name"], spec["seed"], number, base))
        os.write(port, ack_line(spec["name"], number, time.monotonic()))
        time.sleep(spec["pause_s"])


def append(log: int, record: bytes) -> None:
    """Write and fsync the record."""
    if os.write(log, record) != RECORD:
        raise OSError("short write")
    os.fsync(log)


def verify(spec: dict[str, Any], flags: int = os.O_DIRECT) -> dict[str, Any]:
    """Read every acknowledged record and compare all its bytes; `lost` has the numbers of the missing ones."""
    base = noise(spec["seed"])
    acknowledged = int(spec["acknowledged"])
    with Reader(path(spec), flags) as log:
        lost = [
            number
            for number in range(1, acknowledged + 1)
            if log.record(number - 1) != content(spec["name"], spec["seed"], number, base)
        ]
    return {"checked": acknowledged, "lost": lost}


if __name__ == "__main__":
    main(write, verify)
