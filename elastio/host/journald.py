"""Sends log records to the journal of systemd, with fields and priorities.

Protocol: https://systemd.io/JOURNAL_NATIVE_PROTOCOL/. One datagram is one record: lines `NAME=value`, or, for a value
of several lines, the name, its length as 64 bits, little-endian, and the bytes. A record that does not fit a datagram
would need a memory file; here values are cut instead, so that it always fits.

Where stderr is not the journal (JOURNAL_STREAM, sd_journal_stream_fd(3)), records are plain lines on stderr.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import sys
from collections.abc import Mapping
from pathlib import Path

SOCKET = Path("/run/systemd/journal/socket")
IDENTIFIER = "elastiod"
# Bytes of one value. Some twenty fields of this length fit the smallest usual limit of a datagram, 208 KiB.
MAX_VALUE_BYTES = 4096

# Between info and warning: syslog's "normal but significant condition".
NOTICE = 25
logging.addLevelName(NOTICE, "NOTICE")
# The least level of each priority of syslog(3).
PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (NOTICE, 5), (logging.INFO, 6))
# The attribute of a log record that carries its fields (`extra=`).
FIELDS = "fields"


def priority(level: int) -> int:
    """The priority of syslog(3) of a level of `logging`."""
    return next((p for least, p in PRIORITIES if level >= least), 7)


def encode(fields: Mapping[str, str]) -> bytes:
    """The record as one datagram."""
    return b"".join(_field(name, value) for name, value in fields.items())


def _field(name: str, value: str) -> bytes:
    data = value.encode(errors="replace")[:MAX_VALUE_BYTES]
    if b"\n" not in data:
        return name.encode() + b"=" + data + b"\n"
    return name.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n"


def is_journal(stream_fd: int, environment: Mapping[str, str]) -> bool:
    """The file descriptor is the one that systemd connected to its journal for this process."""
    try:
        seen = os.fstat(stream_fd)
    except OSError:
        return False
    return environment.get("JOURNAL_STREAM", "") == f"{seen.st_dev}:{seen.st_ino}"


class JournaldHandler(logging.Handler):
    """Sends each record to the journal, with the fields of its attribute `fields`. Never waits, never raises.

    While the journal does not take records they are counted, and the next one that it takes says how many are missing.
    If there is no journal any more, they are lines on stderr.
    """

    def __init__(self, path: Path = SOCKET) -> None:
        super().__init__()
        self._path, self._lost = str(path), 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)

    def emit(self, record: logging.LogRecord) -> None:
        """Send it."""
        try:
            message = self.format(record)
        except Exception:
            self.handleError(record)
            return
        fields = {"MESSAGE": message, "PRIORITY": str(priority(record.levelno)), "SYSLOG_IDENTIFIER": IDENTIFIER}
        fields |= {"LOGGER": record.name} | getattr(record, FIELDS, {})
        if self._lost:
            fields["ELASTIO_LOST_RECORDS"] = str(self._lost)
        try:
            self._socket.sendto(encode(fields), self._path)
            self._lost = 0
        except BlockingIOError:
            self._lost += 1
        except OSError:
            with contextlib.suppress(OSError, ValueError):
                # systemd reads the priority off the beginning of a line (sd-daemon(3)).
                sys.stderr.write(f"<{fields['PRIORITY']}>{' '.join(message.splitlines())}\n")

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
        super().close()


def handler(environment: Mapping[str, str] | None = None) -> logging.Handler:
    """The handler for this process: to the journal if stderr is the journal, else lines on stderr."""
    if is_journal(2, os.environ if environment is None else environment):
        return JournaldHandler()
    plain = logging.StreamHandler(sys.stderr)
    plain.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    return plain
