"""The record of a calibration: JSON lines, one per measurement, synced as they are made, so that it can be resumed.

The first line is the header (conditions, prices). Prices that become known later get lines of their own. An incomplete
last line, left by an interruption, is cut off. The later stages need only the record and run on any machine.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from elastio.codec import decode
from elastio_calibration.deserialize import parse
from elastio_calibration.errors import CalibrationError, unreadable
from elastio_calibration.measurement import Conditions, Measurement, Prices
from elastio_calibration.run_lock import run_lock
from elastio_calibration.schedule import Point, Schedule

FORMAT = "elastio-calibration-record"
VERSION = 1
AGENT = "agent"


@dataclass(frozen=True, slots=True)
class Header:
    """Where and with what the record was begun; `prices`: all that are known by now."""

    conditions: Conditions
    backing_bytes: int
    made: str
    program: str
    prices: Prices | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One attempt to measure `wanted`; `measurement` None: it failed, for the reason `failure`."""

    wanted: Point
    measurement: Measurement | None
    took_s: float
    failure: str = ""


@dataclass(frozen=True, slots=True)
class SavedState:
    """The agent's settings before a run, restored at its end. `learned_bytes` None: it had learned nothing."""

    learned_bytes: int | None
    paused: bool


@dataclass(frozen=True, slots=True)
class Record:
    """A record as read. `saved`: what a killed run has not restored."""

    header: Header
    entries: tuple[Entry, ...]
    saved: SavedState | None = None

    def measurements(self) -> tuple[Measurement, ...]:
        return tuple(e.measurement for e in self.entries if e.measurement is not None)

    def remaining(self, schedule: Schedule) -> tuple[Point, ...]:
        """The points of the schedule that the record does not have yet, also those that failed."""
        have = Counter(e.wanted for e in self.entries if e.measurement is not None)
        left = []
        for number, point in schedule.rounds():
            if have[point] <= number:
                left.append(point)
        return tuple(left)


class RecordFile:
    """The file. `append` syncs each line to disk: a measurement costs minutes and money."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def preview(self, header: Header) -> Record:
        """The record so far, with the prices known by now. Writes nothing.

        Raises CalibrationError where it was made under other conditions.
        """
        if self._is_new():
            return Record(header, ())
        found = read(self.path)
        known, newer = found.header.prices, header.prices
        differences = found.header.conditions.differences(header.conditions)
        if known is not None and newer is not None and known.currency != newer.currency:
            differences += (f"currency ({known.currency} and {newer.currency})",)
        if differences:
            text = f"{self.path} was begun under other conditions: {', '.join(differences)}; name another --record"
            raise CalibrationError(text, code="conditions")
        prices = known.updated(newer) if known is not None and newer is not None else newer or known
        return replace(found, header=replace(found.header, prices=prices))

    def begin(self, header: Header) -> Record:
        """The record so far, as `preview` returns it, ready for `append`.

        A new file gets the header, an existing one the prices that it does not have yet.
        """
        known = None if self._is_new() else read(self.path).header.prices
        found = self.preview(header)
        if self._is_new():
            self._write({"kind": "header", "format": FORMAT, "version": VERSION, **asdict(header)})
            return found
        self._cut_incomplete_line()
        prices = found.header.prices
        if prices is not None and prices != known:
            self._write({"kind": "prices", **asdict(prices)})
        return found

    def _is_new(self) -> bool:
        return not (self.path.exists() and self.path.stat().st_size)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run lock on this record. Raises CalibrationError where another calibration has it."""
        with run_lock(self.path, os.O_RDWR | os.O_CREAT):
            yield

    def append(self, entry: Entry) -> None:
        self._write({"kind": "measurement", **asdict(entry)})

    def keep(self, saved: SavedState | None) -> None:
        """Save the agent's settings, to be restored if this run is killed; None: they were restored."""
        self._write({"kind": AGENT, "before": None if saved is None else asdict(saved)})

    def _write(self, document: dict[str, Any]) -> None:
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(document, separators=(",", ":")) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise CalibrationError(f"{self.path} cannot be written: {error.strerror or error}") from error

    def _cut_incomplete_line(self) -> None:
        raw = self.path.read_bytes()
        whole = raw[: raw.rfind(b"\n") + 1]
        if len(whole) < len(raw):
            with self.path.open("r+b") as file:
                file.truncate(len(whole))


def read(path: Path) -> Record:
    """Raises CalibrationError where the file is not a record of this version, or a complete line is damaged."""
    try:
        raw = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CalibrationError(unreadable(path, error)) from error
    lines = raw.split("\n")[:-1]
    documents = [_document(path, number, line) for number, line in enumerate(lines, 1)]
    if not documents or documents[0].get("format") != FORMAT:
        raise CalibrationError(f"{path} is not a calibration record: its first line is not a header")
    if documents[0].get("version") != VERSION:
        version = documents[0].get("version")
        raise CalibrationError(f"{path} is of version {version}; this release reads {VERSION}", code="version")
    return _record(path, documents)


def _document(path: Path, number: int, line: str) -> dict[str, Any]:
    with _damaged(path, number):
        document = parse(line)
        if not isinstance(document, dict):
            raise ValueError("it is not a JSON object")
        return document


def _record(path: Path, documents: Sequence[dict[str, Any]]) -> Record:
    with _damaged(path, 1):
        header = decode(Header, documents[0])
    prices, saved, entries = header.prices, None, []
    for number, document in enumerate(documents[1:], 2):
        with _damaged(path, number):
            if document.get("kind") == "measurement":
                entries.append(decode(Entry, document))
            elif document.get("kind") == "prices":
                prices = decode(Prices, document)
            elif document.get("kind") == AGENT:
                saved = None if document["before"] is None else decode(SavedState, document["before"])
            else:
                raise ValueError(f"its kind {document.get('kind')!r} is unknown")
    return Record(replace(header, prices=prices), tuple(entries), saved)


@contextmanager
def _damaged(path: Path, line: int) -> Iterator[None]:
    """Raises CalibrationError with the number of the line for any error in it."""
    try:
        yield
    except (KeyError, TypeError, ValueError, CalibrationError) as error:
        raise CalibrationError(f"{path} is damaged in line {line}: {error}", code=f"line.{line}") from error
