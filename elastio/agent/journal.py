"""The journal: every intent before its effect, every outcome after it, every decision with its reason.

Append-only JSON lines, flushed to the disk before an effect starts. After a crash the last record tells which cycle
was open; an intent without an outcome is in doubt and is looked up, never replayed. A torn last line is what a
power cut leaves and is cut off. `elastio why` reads the same records.

Every record says whose it is. A cycle of another backing device is nobody's to end here; and the journal that came with
a machine image tells of a volume that another machine still writes to.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from elastio.codec import decode, encode
from elastio.core.actions import Action, Outcome
from elastio.core.inhibition import snapshot_of
from elastio.core.model import VolumeId
from elastio.core.state import AgentState, Cycle, Hold, Lesson, Phase, Thrift
from elastio.errors import ConfigError, JournalError

ROTATE_BYTES = 4 * 1024 * 1024
OLDER = ".old"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose records these are: of a backing device, and of a machine. What is empty is not known, nor compared."""

    backing_uuid: str = ""
    machine: str = ""


NOBODY = Owner()


@dataclass(frozen=True, slots=True)
class Memory:
    """What the journal remembers of the agent: what its last record says, and in which boot it was written.

    `failures` boosts in a row did not come to be; none is begun before `cool_until` (CLOCK_BOOTTIME).
    """

    phase: Phase = Phase.IDLE
    cycle: Cycle | None = None
    paused: bool = False
    failures: int = 0
    cool_until: float = 0.0
    hold: Hold | None = None
    accepted: str = ""
    given_up: tuple[VolumeId, ...] = ()
    is_stale_accepted: bool = False
    outlived: str = ""
    create_s: float | None = None
    lessons: tuple[Lesson, ...] = ()
    thrift: Thrift = field(default_factory=Thrift)
    boot_id: str = ""
    machine: str = ""
    foreign: str = ""  # what was found of another machine and is not believed, for people

    def state(self, *, learned_size_bytes: int | None) -> AgentState:
        """Where an agent that has just started stands."""
        return AgentState(
            phase=self.phase,
            cycle=self.cycle,
            paused=self.paused,
            failures=self.failures,
            cool_until=self.cool_until,
            hold=self.hold,
            accepted=self.accepted,
            given_up=self.given_up,
            is_stale_accepted=self.is_stale_accepted,
            outlived=self.outlived,
            create_s=self.create_s,
            lessons=self.lessons,
            thrift=self.thrift,
            boot_id=self.boot_id,
            machine=self.machine,
            learned_size_bytes=learned_size_bytes,
        )


class Journal:
    """One writer. Every method raises JournalError when the record is not safely on the disk."""

    def __init__(self, path: Path, boot_id: str, owner: Owner = NOBODY) -> None:
        self.path, self.boot_id, self.owner = path, boot_id, owner
        self._sequence = 0
        self._file: int | None = None
        self._is_torn = False  # the file may end in half a line

    def open(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._cut_torn_line()
            numbers = (r.get("seq") for r in read(self.path))
            self._sequence = max((n for n in numbers if isinstance(n, int)), default=0)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(self.path, flags, 0o640)
            _make_names_durable(self.path.parent)
        except OSError as error:
            raise JournalError(f"cannot open the journal {self.path}: {error.strerror}") from error

    def close(self) -> None:
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
        """Durable before it returns: the effect may start."""
        body = {"action": type(action).__name__, "with": encode(action), **_remembered(state)}
        self._append("intent", body, now, wall, durable=True)

    def outcome(self, outcome: Outcome, *, now: float, wall: float) -> None:
        body = {
            "action": type(outcome.action).__name__,
            "verdict": outcome.verdict.value,
            "seconds": round(outcome.seconds, 3),
            "error": outcome.error,
            "value": encode(outcome.value),
        }
        self._append("outcome", body, now, wall, durable=False)

    def decision(self, before: Phase, state: AgentState, reason: str, *, now: float, wall: float) -> None:
        body = {"from": before.value, "to": state.phase.value, "reason": reason, **_remembered(state)}
        self._append("decision", body, now, wall, durable=True)

    def note(self, state: AgentState, *, now: float, wall: float) -> None:
        """How much is dirty now, for the case that the cache is lost: worth no flush of its own."""
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
        start = b"\n" if self._is_torn else b""  # ends the half line, which readers pass over
        try:
            self._is_torn = True
            if os.write(self._file, start + line) != len(start + line):
                raise OSError(errno.ENOSPC, "the disk is full")
            self._is_torn = False
            if durable:
                os.fdatasync(self._file)
        except OSError as error:
            raise JournalError(f"cannot write the journal {self.path}: {error.strerror}") from error
        if durable and os.fstat(self._file).st_size >= ROTATE_BYTES:
            self._rotate(line)

    def _rotate(self, last: bytes) -> None:
        """Keep one older file. The new one begins with the last durable record, so that nothing is forgotten.

        A failure costs only space: the record is safe in the old file, which goes on.
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
            _make_names_durable(self.path.parent)
        except OSError as error:
            raise JournalError(f"the new journal {self.path} is not safe on the disk: {error.strerror}") from error

    def _replace_with(self, fresh: Path, descriptor: int, last: bytes) -> None:
        if os.write(descriptor, last) != len(last):
            raise OSError(errno.ENOSPC, "the disk is full")
        os.fdatasync(descriptor)
        older = self.path.with_suffix(OLDER)
        older.unlink(missing_ok=True)
        os.link(self.path, older)
        fresh.replace(self.path)


def _make_names_durable(directory: Path) -> None:
    """Without this a power cut may bring back the file that a name stood for before."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remembered(state: AgentState) -> dict[str, Any]:
    return {
        "phase": state.phase.value,
        "cycle": encode(state.cycle),
        "paused": state.paused,
        "failures": state.failures,
        "cool_until": state.cool_until,
        "hold": encode(snapshot_of(state.hold)),
        "accepted": state.accepted,
        "given_up": encode(state.given_up),
        "is_stale_accepted": state.is_stale_accepted,
        "outlived": state.outlived,
        "create_s": state.create_s,
        "lessons": encode(state.lessons),
        "thrift": encode(state.thrift),
    }


# --- reading ---------------------------------------------------------------------------------------------


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Records from the oldest; a line that is not a record is passed over (a torn write)."""
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise JournalError(f"cannot read the journal {path}: {error.strerror}") from error
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield record


def read_with_older(path: Path) -> Iterator[dict[str, Any]]:
    """`read` of the file that was rotated away, then of this one; what stands in both (one record, or all) once."""
    told = set()
    for record in (*read(path.with_suffix(OLDER)), *read(path)):
        name = (record.get("seq"), record.get("boot"), record.get("wall"))
        if name not in told:
            told.add(name)
            yield record


def remember(path: Path, *, now: float, wall: float, boot_id: str, owner: Owner = NOBODY) -> Memory:
    """What the last record with a cycle says, its clock moved into this boot.

    Raises JournalError when the last record cannot be understood: the operator has to decide, not a guess. Raises
    ConfigError when it tells of an open cycle of another backing device.
    """
    return recall(read(path), path, now=now, wall=wall, boot_id=boot_id, owner=owner)


def recall(
    records: Iterable[dict[str, Any]], source: Path, *, now: float, wall: float, boot_id: str, owner: Owner = NOBODY
) -> Memory:
    """`remember` of records that lie anywhere; `source` is what an error names."""
    last = None
    for record in records:
        if "phase" in record:
            last = record
    if last is None:
        return Memory(machine=owner.machine)
    try:
        cycle = None if last["cycle"] is None else decode(Cycle, last["cycle"])
        written = Owner(str(last.get("backing") or _bought_for(cycle)), str(last.get("machine", "")))
        if not _is_same(written.machine, owner.machine):
            return Memory(machine=owner.machine, foreign=_foreign(written, cycle, source))
        if not _is_same(written.backing_uuid, owner.backing_uuid):
            _require_no_cycle(written, cycle, source)
            return Memory(machine=owner.machine)
        return replace(_memory(last, cycle, now=now, wall=wall, boot_id=boot_id), machine=owner.machine)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise JournalError(
            f"the last record of {source} is not understood ({error}); move it away to start anew"
        ) from error


def _memory(last: Mapping[str, Any], cycle: Cycle | None, *, now: float, wall: float, boot_id: str) -> Memory:
    """Raises KeyError, TypeError, ValueError or OverflowError for a record that this release does not understand."""
    written_now, written_wall = float(last["now"]), float(last["wall"])
    if not math.isfinite(written_now - written_wall):
        raise ValueError("its times are no times")
    same_boot = last.get("boot") == boot_id
    shift_s = 0.0 if same_boot else (now - wall) - (written_now - written_wall)
    hold = None if last.get("hold") is None else decode(Hold, last["hold"])
    return Memory(
        phase=Phase(last["phase"]),
        cycle=cycle if cycle is None or same_boot else shift(cycle, shift_s, now),
        paused=bool(last.get("paused", False)),
        failures=int(last.get("failures", 0)),
        # Never longer than it was to be from the last record on, whatever the time of day does.
        cool_until=min(float(last.get("cool_until", 0.0)) + shift_s, now + max(0.0, _cool_s(last, written_now))),
        hold=hold if same_boot else _shift_hold(hold, shift_s, now=now, written_now=written_now),
        **_given_up(last),
        outlived=str(last.get("outlived", "")),
        create_s=None if last.get("create_s") is None else float(last["create_s"]),
        lessons=decode(tuple[Lesson, ...], last.get("lessons", [])),
        thrift=decode(Thrift, last.get("thrift", {})),
        boot_id=str(last.get("boot", "")),
    )


def _is_same(written: str, here: str) -> bool:
    return "" in (written, here) or written == here


def _bought_for(cycle: Cycle | None) -> str:
    """Records of before name no device, but a volume does."""
    return cycle.volume.backing_uuid if cycle is not None and cycle.volume is not None else ""


def _foreign(written: Owner, cycle: Cycle | None, source: Path) -> str:
    told = "" if cycle is None else f": volume {cycle.volume_id or 'unknown'} may still be its cache and is left alone"
    return f"{source} was written on another machine ({written.machine}), so nothing in it is believed{told}"


def _require_no_cycle(written: Owner, cycle: Cycle | None, source: Path) -> None:
    if cycle is not None:
        raise ConfigError(
            f"{source} tells of an open cycle of backing device {written.backing_uuid} (volume "
            f"{cycle.volume_id or 'not known yet'}): set device.backing_uuid to that one until `elastio status` says "
            "idle, or give the other device an agent.state_dir of its own"
        )


def _given_up(record: Mapping[str, Any]) -> dict[str, Any]:
    """What an operator gave up. Records of before kept the order after it was carried out: no order then, only that."""
    accepted = str(record.get("accepted", ""))
    if "given_up" not in record:
        return {"given_up": (VolumeId(accepted),) if accepted else (), "is_stale_accepted": bool(accepted)}
    named = record["given_up"]
    if not isinstance(named, list):
        raise TypeError("given_up is no list")
    stale = bool(record.get("is_stale_accepted", False))
    return {"accepted": accepted, "given_up": tuple(VolumeId(str(v)) for v in named), "is_stale_accepted": stale}


def _cool_s(record: Mapping[str, Any], written_now: float) -> float:
    """Seconds that were left of a cool-down when the record was written."""
    return float(record.get("cool_until", 0.0)) - written_now


def _shift_hold(hold: Hold | None, shift_s: float, *, now: float, written_now: float) -> Hold | None:
    """The hold in the clock of this boot; never longer than it had left when it was written down."""
    if hold is None:
        return None
    return replace(hold, until=min(hold.until + shift_s, now + max(0.0, hold.until - written_now)))


def shift(cycle: Cycle, seconds: float, now: float = math.inf) -> Cycle:
    """Every CLOCK_BOOTTIME value of the cycle moved: that clock starts anew with each boot.

    None of them becomes later than `now`: a machine that boots with a wrong time of day must not wait for years.
    """

    def moved(value: float | None) -> float | None:
        return None if value is None else min(value + seconds, now)

    marks = {name: moved(getattr(cycle.marks, name)) for name in type(cycle.marks).__slots__}
    return replace(
        cycle,
        started_at=min(cycle.started_at + seconds, now),
        doubt_at=moved(cycle.doubt_at),
        unready_at=moved(cycle.unready_at),
        chance_until=moved(cycle.chance_until),
        marks=replace(cycle.marks, **marks),
        pace={},
    )
