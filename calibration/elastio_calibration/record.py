"""The record of a calibration: JSON lines, one per measurement, written as it is made, so that it can be resumed.

The first line is the header (conditions, prices). A torn last line, left by an interruption, is cut off. The record is
all that the later stages need: they run from it on any machine.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elastio_calibration.errors import CalibrationError
from elastio_calibration.measurement import Conditions, Measurement, Price, Prices, measurement_of
from elastio_calibration.schedule import Schedule, Wanted

FORMAT = "elastio-calibration-record"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Header:
    """Where and with what the record was begun."""

    conditions: Conditions
    backing_bytes: int
    made: str
    program: str
    prices: Prices | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One measurement that was tried; `measurement` None: it failed, `failure` says why. `wanted` is what was asked."""

    wanted: Wanted
    measurement: Measurement | None
    took_s: float
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """A record as read."""

    header: Header
    entries: tuple[Entry, ...]

    def measurements(self) -> tuple[Measurement, ...]:
        return tuple(e.measurement for e in self.entries if e.measurement is not None)

    def left(self, schedule: Schedule) -> tuple[Wanted, ...]:
        """What the schedule asks for and the record does not have yet. What failed is asked for again."""
        have = Counter(e.wanted for e in self.entries if e.measurement is not None)
        left = []
        for number, point in schedule.rounds():
            if have[point] <= number:
                left.append(point)
        return tuple(left)


class RecordFile:
    """The file. Every line is on the disk before `append` returns: each stands for minutes and money."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, header: Header) -> Record:
        """The record so far. A new file gets the header; one that is there must have been made under the same
        conditions. Raises CalibrationError."""
        if self.path.exists() and self.path.stat().st_size:
            found = read(self.path)
            differences = found.header.conditions.differences(header.conditions)
            if differences:
                raise CalibrationError(
                    f"{self.path} was begun under other conditions: {', '.join(differences)}; name another --record"
                )
            self._cut_torn_line()
            return found
        document = {"kind": "header", "format": FORMAT, "version": VERSION, **asdict(header)}
        self._write(document)
        return Record(header, ())

    def append(self, entry: Entry) -> None:
        self._write({"kind": "measurement", **asdict(entry)})

    def _write(self, document: dict[str, Any]) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(document, separators=(",", ":")) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise CalibrationError(f"{self.path} cannot be written: {error.strerror or error}") from error

    def _cut_torn_line(self) -> None:
        raw = self.path.read_bytes()
        whole = raw[: raw.rfind(b"\n") + 1]
        if len(whole) < len(raw):
            with self.path.open("r+b") as file:
                file.truncate(len(whole))


def read(path: Path) -> Record:
    """Raises CalibrationError where the file is no record of this version or a whole line of it is damaged."""
    try:
        raw = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CalibrationError(f"{path} cannot be read: {error}") from error
    lines = raw[: raw.rfind("\n") + 1].splitlines()
    documents = [_document(path, number, line) for number, line in enumerate(lines, 1)]
    if not documents or documents[0].get("format") != FORMAT:
        raise CalibrationError(f"{path} is no calibration record: its first line is no header")
    if documents[0].get("version") != VERSION:
        raise CalibrationError(f"{path} is of version {documents[0].get('version')}, this elastio reads {VERSION}")
    try:
        return Record(_header(documents[0]), tuple(_entries(documents[1:])))
    except (KeyError, TypeError, ValueError) as error:
        raise CalibrationError(f"{path} is damaged: {error}") from error


def _document(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except ValueError as error:
        raise CalibrationError(f"{path} is damaged in line {number}: {error}") from error
    if not isinstance(document, dict):
        raise CalibrationError(f"{path} is damaged in line {number}: it is no JSON object")
    return document


def _header(document: dict[str, Any]) -> Header:
    prices = document["prices"]
    return Header(
        conditions=Conditions(**document["conditions"]),
        backing_bytes=document["backing_bytes"],
        made=document["made"],
        program=document["program"],
        prices=None if prices is None else Prices(**{**prices, "caches": tuple(Price(**c) for c in prices["caches"])}),
    )


def _entries(documents: Iterable[dict[str, Any]]) -> Iterable[Entry]:
    for document in documents:
        made = document["measurement"]
        wanted = Wanted(**document["wanted"])
        yield Entry(wanted, None if made is None else measurement_of(made), document["took_s"], document["failure"])
