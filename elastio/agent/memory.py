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
from elastio.codec import decode, kept_fields
from elastio.core.cycle import Cycle, FailureKind
from elastio.core.model import Forecast
from elastio.core.state import KEPT_FAULTS, AgentState, Inhibition, Phase
from elastio.errors import ConfigError, JournalError
from elastio.strategy.credits import CreditBalance
from elastio.strategy.memory import Boost, Memory

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
class Remembered:
    """The state of an agent that starts, as the journal's last record says.

    `foreign` is a sentence for people if the record is of another machine, and therefore ignored.
    """

    state: AgentState = field(default_factory=AgentState)
    foreign: str = ""


def remember(path: Path, *, now: float, wall: float, boot_id: str, owner: Owner = NOBODY) -> Remembered:
    """What the last record of the journal says, with its times moved to this boot's clock.

    `now` is CLOCK_BOOTTIME, `wall` seconds since the epoch. Raises JournalError if the last record is malformed: an
    operator has to decide, not a guess. Raises ConfigError if it has an open cycle of another backing device.
    """
    return recall(read(path), path, now=now, wall=wall, boot_id=boot_id, owner=owner)


def recall(
    records: Iterable[dict[str, Any]], source: Path, *, now: float, wall: float, boot_id: str, owner: Owner = NOBODY
) -> Remembered:
    """`remember`, from records instead of a file; errors name `source`."""
    last = None
    for record in records:
        if "phase" in record:
            last = record
    if last is None:
        return Remembered(AgentState(machine=owner.machine))
    last = _of_today(last)
    nothing = AgentState(machine=owner.machine)
    try:
        cycle = decode(AgentState, {"cycle": last["cycle"]}).cycle
        written = Owner(str(last.get("backing") or _bought_for(cycle)), str(last.get("machine", "")))
        if not _is_same(written.machine, owner.machine):
            return Remembered(nothing, foreign=_foreign(written, cycle, source))
        if not _is_same(written.backing_uuid, owner.backing_uuid):
            _require_no_cycle(written, cycle, source)
            return Remembered(nothing)
        return Remembered(replace(_state(last, now=now, wall=wall, boot_id=boot_id), machine=owner.machine))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise JournalError(
            f"the last record of {source} is malformed ({error}); move the file away to start without it",
            code="record.unknown",
        ) from error


def with_learned_size(state: AgentState, size_bytes: int | None) -> AgentState:
    """The state that knows the size to buy next, which the ledger keeps."""
    return replace(state, memory=replace(state.memory, learned_size_bytes=size_bytes))


def with_cutoff(state: AgentState, percent: int | None) -> AgentState:
    """The state that takes the module's configured cutoff for the kernel's own, until a cache has shown that."""
    if state.memory.cutoff_percent is not None:
        return state
    return replace(state, memory=replace(state.memory, cutoff_percent=percent))


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
        # What was seen of the use of a cache stood in its cycle.
        return {"use": today, **today} if "token" in today else today
    return [with_current_names(part) for part in value] if isinstance(value, list) else value


def _of_today(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record as this release writes it. 0.1.0 kept an order after it was carried out: it is not pending."""
    today: dict[str, Any] = with_current_names(record)
    if "given_up" not in today:
        order = str(today.get("loss_accepted_for", ""))
        today |= {"given_up": [order] if order else [], "is_stale_accepted": bool(order), "loss_accepted_for": ""}
    # 0.1.0, and what was written before the strategy had a memory of its own, have its fields beside the others.
    past = today.get("memory", today)
    if isinstance(past, Mapping):
        # Before the strategy kept what it knows of a boost, it stood in the cycle.
        past = {"boost": today.get("cycle") or {}, **past}
        today["memory"] = {name: past[name] for name in kept_fields(Memory) if name in past}
    return today


def _state(last: Mapping[str, Any], *, now: float, wall: float, boot_id: str) -> AgentState:
    """Raises KeyError, TypeError, ValueError or OverflowError for a malformed record."""
    written_now, written_wall = float(last["now"]), float(last["wall"])
    if not math.isfinite(written_now - written_wall):
        raise ValueError("its times are not finite")
    written = decode(AgentState, {name: last[name] for name in kept_fields(AgentState) if name in last})
    if written.fault and (written.fault.kind not in KEPT_FAULTS or written.phase is not Phase.FAULTED):
        raise ValueError(f"its fault {written.fault.kind} ends with a start")
    written = replace(written, boot_id=str(last.get("boot", "")))
    same_boot = written.boot_id == boot_id
    shift_s = 0.0 if same_boot else (now - wall) - (written_now - written_wall)
    past = written.memory
    moved = replace(
        written,
        # Never longer than it had left at the last record, whatever happens to the time of day.
        cool_until=min(written.cool_until + shift_s, now + max(0.0, written.cool_until - written_now)),
        memory=replace(
            past,
            expected=_shift_expected(past.expected, shift_s, now=now, written_now=written_now),
            credits=_shift_credits(past.credits, shift_s, now),
        ),
    )
    if same_boot:
        return moved
    return replace(
        moved,
        cycle=written.cycle and shift(written.cycle, shift_s, now),
        # No load outlives its boot: one that fills the cache now is another one.
        memory=replace(moved.memory, boost=_shift_boost(past.boost, shift_s, now), filling=None),
        inhibition=_shift_inhibition(written.inhibition, shift_s, now=now, written_now=written_now),
    )


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


def _shift_inhibition(
    inhibition: Inhibition | None, shift_s: float, *, now: float, written_now: float
) -> Inhibition | None:
    """The inhibition in this boot's clock; never longer than it had left when it was recorded."""
    if inhibition is None:
        return None
    left_s = max(0.0, inhibition.until - written_now)
    return replace(inhibition, until=min(inhibition.until + shift_s, now + left_s))


def _shift_expected(
    bursts: tuple[Forecast, ...], shift_s: float, *, now: float, written_now: float
) -> tuple[Forecast, ...]:
    """The announced bursts in this boot's clock; none later than it was when it was recorded."""
    return tuple(replace(b, begins_at=min(b.begins_at + shift_s, now + b.begins_at - written_now)) for b in bursts)


def _shift_credits(balance: CreditBalance | None, shift_s: float, now: float) -> CreditBalance | None:
    """The balance in this boot's clock; none is left if the time of day says that it was recorded in the future."""
    if balance is None:
        return None
    at = balance.at + shift_s
    if not (math.isfinite(at) and balance.balance_bytes >= 0):
        raise ValueError("its credits are not a balance")
    return CreditBalance(balance.balance_bytes, at) if at <= now else CreditBalance(0.0, now)


def _moved(value: float | None, seconds: float, now: float) -> float | None:
    """None becomes later than `now`: a machine that boots with a wrong time of day must not wait for years."""
    return None if value is None else min(value + seconds, now)


def _shift_boost(boost: Boost, seconds: float, now: float) -> Boost:
    until, since = (_moved(value, seconds, now) for value in (boost.chance_until, boost.clean_since))
    return replace(boost, chance_until=until, clean_since=since)


def shift(cycle: Cycle, seconds: float, now: float = math.inf) -> Cycle:
    """The cycle with all its CLOCK_BOOTTIME values moved by `seconds`: that clock starts at 0 with each boot."""
    times = {name: _moved(getattr(cycle.times, name), seconds, now) for name in type(cycle.times).__slots__}
    return replace(
        cycle,
        started_at=min(cycle.started_at + seconds, now),
        create_unconfirmed_at=_moved(cycle.create_unconfirmed_at, seconds, now),
        unready_at=_moved(cycle.unready_at, seconds, now),
        times=replace(cycle.times, **times),
        backoffs={},
    )
