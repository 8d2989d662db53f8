"""The journal: every intent before its effect, every outcome after it, every decision with its reason.

A file of JSON lines, appended and synced to the disk before an effect starts. After a crash the last record shows which
cycle was open. The effect of an intent without an outcome is looked up; the intent is never replayed. An incomplete
last line, which a power cut leaves, is cut off. `elastio why` reads the same records.

Every record names its backing device and its machine. `elastio.agent.memory` reads them at a start.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elastio.codec import encode, encode_kept
from elastio.core.actions import Action, Outcome
from elastio.core.state import KEPT_FAULTS, NO_COURSE, AgentState, Course, Phase
from elastio.errors import JournalError, UnsyncedError
from elastio.whole_file import sync_directory

ROTATE_BYTES = 4 * 1024 * 1024
OLDER = ".old"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Owner:
    """The backing device and the machine of a record. Empty: not known, and not compared."""

    backing_uuid: str = ""
    machine: str = ""


NOBODY = Owner()


class Journal:
    """The only writer of a journal file. Every method raises JournalError if it fails."""

    def __init__(self, path: Path, boot_id: str, owner: Owner = NOBODY) -> None:
        self.path, self.boot_id, self.owner = path, boot_id, owner
        self._sequence = 0
        self._file: int | None = None
        self._is_torn = False  # the file may end in an incomplete line

    def open(self) -> None:
        """Create the file, or cut off an incomplete last line and continue after the last record."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._cut_torn_line()
            numbers = (r.get("seq") for r in read(self.path))
            self._sequence = max((n for n in numbers if isinstance(n, int)), default=0)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(self.path, flags, 0o640)
            sync_directory(self.path.parent)
        except OSError as error:
            raise JournalError(f"cannot open the journal {self.path}: {error.strerror}", code=_code(error)) from error

    def close(self) -> None:
        """Close the file; nothing can be recorded until it is opened again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _cut_torn_line(self) -> None:
        if not self.path.exists():
            return
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole != len(data):
            os.truncate(self.path, whole)

    # --- records -----------------------------------------------------------------------------------------

    def intend(self, action: Action, state: AgentState, *, now: float, wall: float) -> None:
        """Record that `action` is about to start. Durable when it returns: then the effect may start."""
        body = {"action": type(action).__name__, "with": encode(action), **_remembered(state)}
        self._append("intent", body, now, wall, durable=True)

    def outcome(self, outcome: Outcome, *, now: float, wall: float) -> None:
        """Record what came of an action. Not synced: a lost outcome is looked up."""
        body = {
            "action": type(outcome.action).__name__,
            "verdict": outcome.kind.value,
            "seconds": round(outcome.seconds, 3),
            "error": outcome.error,
            "code": outcome.code,
            "value": encode(outcome.value),
        }
        self._append("outcome", body, now, wall, durable=False)

    def decision(
        self, before: Phase, state: AgentState, reason: str, *, now: float, wall: float, course: Course = NO_COURSE
    ) -> None:
        """Record a decision with its reason and its course. Durable when it returns."""
        seen = {} if course == NO_COURSE else {"course": encode(course)}
        body = {"from": before.value, "to": state.phase.value, "reason": reason, **seen, **_remembered(state)}
        self._append("decision", body, now, wall, durable=True)

    def note(self, state: AgentState, *, now: float, wall: float) -> None:
        """Record the credits, and how much is dirty, which an operator has to know if the cache is lost. Not synced."""
        self._append("note", _remembered(state), now, wall, durable=False)

    def _append(self, kind: str, body: dict[str, Any], now: float, wall: float, *, durable: bool) -> None:
        self._sequence += 1
        head = {
            "seq": self._sequence,
            "kind": kind,
            "wall": round(wall, 3),
            "now": round(now, 3),
            "boot": self.boot_id,
            "backing": self.owner.backing_uuid,
            "machine": self.owner.machine,
        }
        self._write(json.dumps({**head, **body}, separators=(",", ":")).encode() + b"\n", durable=durable)

    def _write(self, line: bytes, *, durable: bool) -> None:
        if self._file is None:
            raise JournalError("the journal is not open")
        start = b"\n" if self._is_torn else b""  # ends an incomplete line, which readers skip
        try:
            self._is_torn = True
            if os.write(self._file, start + line) != len(start + line):
                raise OSError(errno.ENOSPC, "the disk is full")
            self._is_torn = False
            if durable:
                os.fdatasync(self._file)
        except OSError as error:
            kind = JournalError if self._is_torn else UnsyncedError
            raise kind(f"cannot write the journal {self.path}: {error.strerror}", code=_code(error)) from error
        if durable and os.fstat(self._file).st_size >= ROTATE_BYTES:
            self._rotate(line)

    def _rotate(self, last: bytes) -> None:
        """Begin a new file with the last durable record, and keep one older file.

        A failure costs only space: the record is safe in the old file, which stays in use.
        """
        fresh = self.path.with_suffix(".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor = os.open(fresh, flags, 0o640)
        except OSError as error:
            _log.warning("the journal is not rotated: %s", error)
            return
        try:
            self._replace_with(fresh, descriptor, last)
        except OSError as error:
            _log.warning("the journal is not rotated: %s", error)
            os.close(descriptor)
            return
        self.close()
        self._file = descriptor
        try:
            sync_directory(self.path.parent)
        except OSError as error:
            raise UnsyncedError(f"cannot sync the new journal {self.path} to the disk: {error.strerror}") from error

    def _replace_with(self, fresh: Path, descriptor: int, last: bytes) -> None:
        if os.write(descriptor, last) != len(last):
            raise OSError(errno.ENOSPC, "the disk is full")
        os.fdatasync(descriptor)
        older = self.path.with_suffix(OLDER)
        older.unlink(missing_ok=True)
        os.link(self.path, older)
        fresh.replace(self.path)


def _code(error: OSError) -> str:
    """The name of its errno, such as ENOSPC."""
    return errno.errorcode.get(error.errno or 0, "")


def _remembered(state: AgentState) -> dict[str, Any]:
    is_kept = state.fault is not None and state.fault.kind in KEPT_FAULTS
    kept = replace(state, inhibition=state.snapshot_hold, fault=state.fault if is_kept else None)
    return dict(encode_kept(kept))


# --- reading ---------------------------------------------------------------------------------------------


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The records, the oldest first. A line that is not a record is skipped. Raises JournalError if unreadable."""
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise JournalError(f"cannot read the journal {path}: {error.strerror}", code=_code(error)) from error
    yield from parsed(text.splitlines())


def parsed(lines: Iterable[str | bytes]) -> Iterator[dict[str, Any]]:
    """The records of these lines, without those that are none."""
    for line in lines:
        with suppress(ValueError, RecursionError):
            record = json.loads(line)
            if isinstance(record, dict):
                yield record


def open_cycle(records: Iterable[Mapping[str, Any]]) -> object:
    """The cycle of the last record that has one or says that there is none; None: no cycle is open.

    Whatever is not null counts as open, also what no release wrote.
    """
    cycle: object = None
    for record in records:
        if "cycle" in record:
            cycle = record["cycle"]
    return cycle


def read_with_older(path: Path) -> Iterator[dict[str, Any]]:
    """The records of the older file, then of this one; a record that is in both files comes once."""
    return unseen((*read(path.with_suffix(OLDER)), *read(path)), set())


def unseen(records: Iterable[dict[str, Any]], seen: set[tuple[object, ...]]) -> Iterator[dict[str, Any]]:
    """The records that are not in `seen`, where they are noted: a rotation repeats the last one."""
    for record in records:
        name = (record.get("seq"), record.get("boot"), record.get("wall"))
        if name not in seen:
            seen.add(name)
            yield record
