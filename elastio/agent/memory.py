"""What the agent remembers at a start: the last record of the journal, with its times moved to this boot's clock.

Memory only supplies names. The phase is read from the kernel, see `elastio.core.recovery`, and so are faults, but for
that of a broken rule, which nothing outside shows. The open cycle of another
backing device must not be ended here. And a journal that came with a machine image names a volume that another machine
may still write to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from elastio.agent.journal import NOBODY, Owner, read
from elastio.codec import decode
from elastio.core.credits import CreditBalance
from elastio.core.cycle import Cycle, FailureKind
from elastio.core.model import Forecast, VolumeId
from elastio.core.state import KEPT_FAULTS, AgentState, Capped, Fault, Inhibition, Lesson, Phase, Waste
from elastio.errors import ConfigError, JournalError

# Keys of release 0.1.0, and their names of today.
RENAMED = {
    "accepted": "loss_accepted_for",
    "again_at": "retry_at",
    "doubt_at": "create_unconfirmed_at",
    "evicted_bytes": "written_through_bytes",
    "hold": "inhibition",
    "is_lesson": "updates_learned_size",
    "is_vouched_for": "operator_confirmed",
    "mark": "tag",
    "marks": "times",
    "outlived": "failed_clean_set",
    "pace": "backoffs",
    "pressed_bytes": "forced_writeback_bytes",
}


@dataclass(frozen=True, slots=True)
class Memory:
    """What the journal's last record says about the agent, and in which boot it was written.

    `fault` is one that no scan and no list would show again (`state.KEPT_FAULTS`), or None.

    `failures` boosts in a row failed before their cache was attached; none begins before `cool_until` (CLOCK_BOOTTIME).
    """

    phase: Phase = Phase.IDLE
    cycle: Cycle | None = None
    paused: bool = False
    failures: int = 0
    cool_until: float = 0.0
    inhibition: Inhibition | None = None
    loss_accepted_for: str = ""
    given_up: tuple[VolumeId, ...] = ()
    is_stale_accepted: bool = False
    failed_clean_set: str = ""
    fault: Fault | None = None
    create_s: float | None = None
    cutoff_percent: int | None = None
    lessons: tuple[Lesson, ...] = ()
    waste: Waste = field(default_factory=Waste)
    expected: tuple[Forecast, ...] = ()
    missed: int = 0
    missed_forecasts: int = 0
    attach_s: tuple[float, ...] = ()
    appear_s: tuple[float, ...] = ()
    release_s: tuple[float, ...] = ()
    capped: Capped | None = None
    has_filled: bool = False
    credits: CreditBalance | None = None
    boot_id: str = ""
    machine: str = ""
    foreign: str = ""  # a record of another machine was found and ignored: a sentence for people

    def state(self, *, learned_size_bytes: int | None) -> AgentState:
        """The state of an agent that has just started."""
        return AgentState(
            phase=self.phase,
            cycle=self.cycle,
            paused=self.paused,
            failures=self.failures,
            cool_until=self.cool_until,
            inhibition=self.inhibition,
            loss_accepted_for=self.loss_accepted_for,
            given_up=self.given_up,
            is_stale_accepted=self.is_stale_accepted,
            failed_clean_set=self.failed_clean_set,
            fault=self.fault,
            create_s=self.create_s,
            cutoff_percent=self.cutoff_percent,
            lessons=self.lessons,
            waste=self.waste,
            expected=self.expected,
            missed=self.missed,
            missed_forecasts=self.missed_forecasts,
            attach_s=self.attach_s,
            appear_s=self.appear_s,
            release_s=self.release_s,
            capped=self.capped,
            has_filled=self.has_filled,
            credits=self.credits,
            boot_id=self.boot_id,
            machine=self.machine,
            learned_size_bytes=learned_size_bytes,
        )


def remember(path: Path, *, now: float, wall: float, boot_id: str, owner: Owner = NOBODY) -> Memory:
    """What the last record of the journal says, with its times moved to this boot's clock.

    `now` is CLOCK_BOOTTIME, `wall` seconds since the epoch. Raises JournalError if the last record is malformed: an
    operator has to decide, not a guess. Raises ConfigError if it has an open cycle of another backing device.
    """
    return recall(read(path), path, now=now, wall=wall, boot_id=boot_id, owner=owner)


def recall(
    records: Iterable[dict[str, Any]], source: Path, *, now: float, wall: float, boot_id: str, owner: Owner = NOBODY
) -> Memory:
    """`remember`, from records instead of a file; errors name `source`."""
    last = None
    for record in records:
        if "phase" in record:
            last = record
    if last is None:
        return Memory(machine=owner.machine)
    last = with_current_names(last)
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
            f"the last record of {source} is malformed ({error}); move the file away to start without it",
            code="record.unknown",
        ) from error


def bought(records: Iterable[Mapping[str, Any]], owner: Owner = NOBODY) -> tuple[tuple[Cycle, float], ...]:
    """The cycles of volumes that these records name, as they are named last, each with wall clock minus CLOCK_BOOTTIME.

    None of another machine or device. A record that is malformed is left out.
    """
    named: dict[str, tuple[Any, float]] = {}
    for record in records:
        is_own = _is_same(str(record.get("machine", "")), owner.machine)
        if not is_own or not _is_same(str(record.get("backing", "")), owner.backing_uuid):
            continue
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            offset_s = float(record["wall"]) - float(record["now"])
            for cycle in (record.get("cycle"), record.get("course", {}).get("ended")):
                if cycle is not None:
                    named[str(cycle["token"])] = cycle, offset_s
    known = []
    for cycle, offset_s in named.values():
        with suppress(TypeError, ValueError):
            known.append((decode(Cycle, with_current_names(cycle)), offset_s))
    return tuple((cycle, offset_s) for cycle, offset_s in known if cycle.opened_wall is not None)


def with_current_names(value: Any) -> Any:
    if isinstance(value, Mapping):
        today = {RENAMED.get(name, name): with_current_names(part) for name, part in value.items()}
        if isinstance(text := today.get("failure"), str):
            today["failure"] = {"kind": FailureKind.UNKNOWN, "text": text} if text else None
        return today
    return [with_current_names(part) for part in value] if isinstance(value, list) else value


def _memory(last: Mapping[str, Any], cycle: Cycle | None, *, now: float, wall: float, boot_id: str) -> Memory:
    """Raises KeyError, TypeError, ValueError or OverflowError for a malformed record."""
    written_now, written_wall = float(last["now"]), float(last["wall"])
    if not math.isfinite(written_now - written_wall):
        raise ValueError("its times are not finite")
    same_boot = last.get("boot") == boot_id
    shift_s = 0.0 if same_boot else (now - wall) - (written_now - written_wall)
    inhibition = None if last.get("inhibition") is None else decode(Inhibition, last["inhibition"])
    return Memory(
        phase=Phase(last["phase"]),
        cycle=cycle if cycle is None or same_boot else shift(cycle, shift_s, now),
        paused=bool(last.get("paused", False)),
        failures=int(last.get("failures", 0)),
        # Never longer than it had left at the last record, whatever happens to the time of day.
        cool_until=min(float(last.get("cool_until", 0.0)) + shift_s, now + max(0.0, _cool_s(last, written_now))),
        inhibition=inhibition
        if same_boot
        else _shift_inhibition(inhibition, shift_s, now=now, written_now=written_now),
        **_given_up(last),
        failed_clean_set=str(last.get("failed_clean_set", "")),
        fault=_fault(last),
        create_s=None if last.get("create_s") is None else float(last["create_s"]),
        cutoff_percent=None if last.get("cutoff_percent") is None else int(last["cutoff_percent"]),
        lessons=decode(tuple[Lesson, ...], last.get("lessons", [])),
        waste=decode(Waste, last.get("waste", {})),
        expected=_shift_expected(last, shift_s, now=now, written_now=written_now),
        missed=int(last.get("missed", 0)),
        missed_forecasts=int(last.get("missed_forecasts", 0)),
        attach_s=decode(tuple[float, ...], last.get("attach_s", [])),
        appear_s=decode(tuple[float, ...], last.get("appear_s", [])),
        release_s=decode(tuple[float, ...], last.get("release_s", [])),
        capped=None if last.get("capped") is None else decode(Capped, last["capped"]),
        has_filled=bool(last.get("has_filled", False)),
        credits=_shift_credits(last, shift_s, now),
        boot_id=str(last.get("boot", "")),
    )


def _fault(record: Mapping[str, Any]) -> Fault | None:
    """The fault that outlasts a start; records of earlier releases have none. Raises ValueError for an unknown kind."""
    if record.get("fault") is None:
        return None
    fault = decode(Fault, record["fault"])
    if fault.kind not in KEPT_FAULTS or record.get("phase") != Phase.FAULTED:
        raise ValueError(f"its fault {fault.kind} ends with a start")
    return fault


def _is_same(written: str, here: str) -> bool:
    return "" in (written, here) or written == here


def _bought_for(cycle: Cycle | None) -> str:
    """The backing UUID of the cycle's volume; records of 0.1.0 do not name the device themselves."""
    return cycle.volume.backing_uuid if cycle is not None and cycle.volume is not None else ""


def _foreign(written: Owner, cycle: Cycle | None, source: Path) -> str:
    left = "" if cycle is None else f"; volume {cycle.volume_id or 'unknown'} may still be its cache and is left alone"
    return f"{source} was written on another machine ({written.machine}) and is ignored{left}"


def _require_no_cycle(written: Owner, cycle: Cycle | None, source: Path) -> None:
    if cycle is not None:
        raise ConfigError(
            f"{source} has an open cycle of backing device {written.backing_uuid} (volume "
            f"{cycle.volume_id or 'not known yet'}): set device.backing_uuid to that one until `elastio status` says "
            "idle, or give each device its own agent.state_dir",
            code="device.backing_uuid",
        )


def _given_up(record: Mapping[str, Any]) -> dict[str, Any]:
    """What an operator gave up. Records of 0.1.0 kept the order after it was carried out: it is not pending."""
    order = str(record.get("loss_accepted_for", ""))
    if "given_up" not in record:
        return {"given_up": (VolumeId(order),) if order else (), "is_stale_accepted": bool(order)}
    named = record["given_up"]
    if not isinstance(named, list):
        raise TypeError("given_up is not a list")
    stale = bool(record.get("is_stale_accepted", False))
    return {"loss_accepted_for": order, "given_up": tuple(VolumeId(str(v)) for v in named), "is_stale_accepted": stale}


def _cool_s(record: Mapping[str, Any], written_now: float) -> float:
    """Seconds of cool-down that were left when the record was written."""
    return float(record.get("cool_until", 0.0)) - written_now


def _shift_inhibition(
    inhibition: Inhibition | None, shift_s: float, *, now: float, written_now: float
) -> Inhibition | None:
    """The inhibition in this boot's clock; never longer than it had left when it was recorded."""
    if inhibition is None:
        return None
    left_s = max(0.0, inhibition.until - written_now)
    return replace(inhibition, until=min(inhibition.until + shift_s, now + left_s))


def _shift_expected(
    record: Mapping[str, Any], shift_s: float, *, now: float, written_now: float
) -> tuple[Forecast, ...]:
    """The announced bursts in this boot's clock; none later than it was when it was recorded."""
    bursts = decode(tuple[Forecast, ...], record.get("expected", []))
    return tuple(replace(b, begins_at=min(b.begins_at + shift_s, now + b.begins_at - written_now)) for b in bursts)


def _shift_credits(record: Mapping[str, Any], shift_s: float, now: float) -> CreditBalance | None:
    """The balance in this boot's clock; none is left if the time of day says that it was recorded in the future."""
    if record.get("credits") is None:
        return None
    balance = decode(CreditBalance, record["credits"])
    at = balance.at + shift_s
    if not (math.isfinite(at) and balance.balance_bytes >= 0):
        raise ValueError("its credits are not a balance")
    return CreditBalance(balance.balance_bytes, at) if at <= now else CreditBalance(0.0, now)


def shift(cycle: Cycle, seconds: float, now: float = math.inf) -> Cycle:
    """The cycle with all its CLOCK_BOOTTIME values moved by `seconds`: that clock starts at 0 with each boot.

    None becomes later than `now`: a machine that boots with a wrong time of day must not wait for years.
    """

    def moved(value: float | None) -> float | None:
        return None if value is None else min(value + seconds, now)

    times = {name: moved(getattr(cycle.times, name)) for name in type(cycle.times).__slots__}
    return replace(
        cycle,
        started_at=min(cycle.started_at + seconds, now),
        create_unconfirmed_at=moved(cycle.create_unconfirmed_at),
        unready_at=moved(cycle.unready_at),
        chance_until=moved(cycle.chance_until),
        clean_since=moved(cycle.clean_since),
        times=replace(cycle.times, **times),
        backoffs={},
    )
