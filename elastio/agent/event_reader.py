"""Reads log events from the agent's journal, also while the agent appends to it and rotates it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from elastio.agent.journal import OLDER, parsed, unseen
from elastio.agent.log_events import LogEvent
from elastio.agent.memory import with_current_names
from elastio.agent.narration import Moment, error, narrate
from elastio.agent.troubles import Troubles, no_longer_needed
from elastio.codec import decode
from elastio.core.actions import OutcomeKind
from elastio.core.cycle import Cycle
from elastio.core.state import AgentState, Course, Decision, Phase
from elastio.errors import JournalError


class Narrator:
    """Makes log events of records, one after the other. A record that is malformed makes none.

    Errors are those of actions that the journal records; the log has those of reads as well.
    """

    def __init__(self) -> None:
        self._cycle: Cycle | None = None
        self._raw: object = None
        self._device, self._wall = "", 0.0
        self._found: list[LogEvent] = []
        self._troubles = Troubles(lambda: self._wall, lambda: self)

    def take(self, record: Mapping[str, Any]) -> tuple[LogEvent, ...]:
        """The log events of the next record, the oldest first."""
        self._found = []
        try:
            self._device, self._wall = str(record.get("backing", "")), float(record["wall"])
            if record.get("kind") == "outcome":
                self._take_outcome(record)
            elif "phase" in record:
                self._take_state(record)
        except (KeyError, TypeError, ValueError, OverflowError):
            return ()
        return tuple(self._found)

    def _take_outcome(self, record: Mapping[str, Any]) -> None:
        if record["error"]:
            self._troubles.failed(record["action"], record["error"], record.get("code", ""))
        elif record["verdict"] == OutcomeKind.DONE:
            self._troubles.works(record["action"])

    def _take_state(self, record: Mapping[str, Any]) -> None:
        before, after = self._cycle, self._cycle_of(record["cycle"])
        phase, course = Phase(record["phase"]), Course()
        if "course" in record:
            course = decode(Course, with_current_names(record["course"]))
        at = Moment(float(record["now"]), self._wall, self._device)
        self._found += narrate(before, after, phase, record.get("reason", ""), course, at)
        self._cycle = after
        state = AgentState(phase=phase, cycle=after, recovered=True)
        self._troubles.works(*no_longer_needed(self._troubles.sources, state, is_running=True))

    def _cycle_of(self, raw: object) -> Cycle | None:
        """The cycle, which most records share with the record before."""
        if raw != self._raw:
            cycle = None if raw is None else decode(Cycle, with_current_names(raw))
            self._raw = raw
            return cycle
        return self._cycle

    # --- the reporter of the troubles ----------------------------------------------------------------------

    def decided(self, before: AgentState, decision: Decision, *, now: float, wall: float) -> None:
        """See `ports.Reporter`; decisions come as records."""

    def failed(self, text: str, *, wall: float) -> None:
        """See `ports.Reporter`."""
        self._found.append(error(text, wall=wall, device=self._device))

    def works_again(self, text: str, *, wall: float) -> None:
        """See `ports.Reporter`."""
        self._found.append(error(text, wall=wall, device=self._device, is_over=True))


class JournalFollower:
    """The records of a journal: those that are there, and with each further call those that were added since.

    Methods raise JournalError if a file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._rest = b""
        self._seen: set[tuple[object, ...]] = set()

    def older(self) -> Iterator[dict[str, Any]]:
        """The records of the file before the last rotation."""
        try:
            data = self._path.with_suffix(OLDER).read_bytes()
        except FileNotFoundError:
            return
        except OSError as failure:
            raise self._unreadable(failure) from failure
        yield from unseen(parsed(data.splitlines()), self._seen)

    def added(self) -> Iterator[dict[str, Any]]:
        """The records since the last call, also from the new file after a rotation."""
        while True:
            try:
                yield from unseen(parsed(self._lines()), self._seen)
                if not self._is_rotated():
                    return
                self.close()
                self._file, self._rest = self._path.open("rb"), b""
            except FileNotFoundError:
                return  # between two files, or no agent has started yet
            except OSError as failure:
                raise self._unreadable(failure) from failure

    def _lines(self) -> list[bytes]:
        """The complete lines that were not read yet."""
        if self._file is None:
            return []
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        return lines

    def _is_rotated(self) -> bool:
        """Another file has the journal's name, or none was opened yet."""
        if self._file is None:
            return True
        return not os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())

    def _unreadable(self, failure: OSError) -> JournalError:
        text = f"cannot read the journal {self._path}: {failure.strerror}; use sudo"
        return JournalError(text, code="journal.unreadable")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> JournalFollower:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
