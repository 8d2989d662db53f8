"""Makes log events of decisions, and writes them to the log of the agent: one record each, with priority and fields.

Theory of operation. A log event is never recorded by itself. It is made from what the journal holds anyway: the course
of a decision (its transitions and orders), and the times of the cycle, of which those that were not there at the
decision before are news. So the log of the running agent and `elastio events`, which reads the journal later, are made
by one function and say the same. An outcome that was lost in a crash is told as soon as a scan or a list shows its
effect.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from elastio.accounting.rows import row_of
from elastio.agent.log_events import EventKind, LogEvent, Priority, fields_of
from elastio.core.cycle import Cycle, Trigger
from elastio.core.detection import Event
from elastio.core.model import RequestKind, VolumeState
from elastio.core.state import AgentState, Course, Decision, Order, Phase, Transition
from elastio.host.journald import FIELDS, NOTICE
from elastio.units import GIB, format_duration, format_size

ATTACHED = (VolumeState.ATTACHED, VolumeState.DETACHING, VolumeState.BUSY)
DETACHED = (VolumeState.AVAILABLE, VolumeState.DELETING, VolumeState.GONE)


@dataclass(frozen=True, slots=True)
class Moment:
    """When a decision was made (`now` is CLOCK_BOOTTIME, `wall` seconds since the epoch), for which device."""

    now: float
    wall: float
    device: str

    def wall_at(self, then: float) -> float:
        """Seconds since the epoch at a CLOCK_BOOTTIME of this boot; not later than the decision."""
        return self.wall - max(0.0, self.now - then)


def narrate(
    before: Cycle | None, after: Cycle | None, phase: Phase, reason: str, course: Course, at: Moment
) -> tuple[LogEvent, ...]:
    """The log events of one decision, the oldest first.

    `before` and `after` are the cycles of the states before and after it, `phase` the one after it.
    """
    cycle = after or course.ended
    known = before if before is not None and cycle is not None and before.token == cycle.token else None
    steps_in = phase if after is not None else Phase.DETACHING  # of an ended cycle, only its end is news
    found = [] if cycle is None else [*_steps(known, cycle, steps_in, at)]
    found += [_ordered(order, phase, at) for order in course.orders]
    for transition in course.transitions:
        last = course.ended if transition.after is Phase.IDLE else None
        found += _of_transition(transition, last or after or before, at)
    ended = course.ended
    if ended is not None and ended.opened_wall is not None and ended.trigger is not Trigger.ORPHAN:
        found.append(_summary(ended, phase, at))
    if reason and not course.transitions and not course.orders:
        found.append(replace(_event(EventKind.DECIDED, reason, cycle, phase, at), reason=reason))
    return tuple(sorted(found, key=lambda e: e.wall))


def error(text: str, *, wall: float, device: str, is_over: bool = False) -> LogEvent:
    """The log event of an error, or of its end."""
    if is_over:
        return LogEvent(EventKind.ERROR_OVER, wall, f"works again, or is no longer needed: {text}", device, reason=text)
    return LogEvent(EventKind.ERROR, wall, text, device, reason=text)


# --- what the cycle shows ------------------------------------------------------------------------------------


def _steps(known: Cycle | None, cycle: Cycle, phase: Phase, at: Moment) -> Iterator[LogEvent]:
    """The steps of the cycle that are news."""
    is_orphan = cycle.trigger is Trigger.ORPHAN
    told = (
        ("created", EventKind.VOLUME_CREATED, f"volume {cycle.volume_id} is bought: {_bought(cycle)}"),
        ("appeared", EventKind.VOLUME_ATTACHED, f"volume {cycle.volume_id} is attached{_after(cycle, 'appeared')}"),
        ("boosted", EventKind.CACHE_ATTACHED, f"the cache takes writes{_after(cycle, 'boosted')}: {_what(cycle)}"),
        ("deleted", EventKind.VOLUME_DELETED, f"volume {cycle.volume_id} is deleted{_billed(cycle)}"),
    )
    for name, kind, message in told:
        then = getattr(cycle.times, name)
        is_known = known is not None and getattr(known.times, name) is not None
        if then is not None and not is_known and not (is_orphan and kind is EventKind.VOLUME_CREATED):
            event = _event(kind, message, cycle, phase, at)
            yield replace(event, wall=at.wall_at(then), after_s=_rounded(then - cycle.started_at))
    if known is not None and known.volume_state in ATTACHED and cycle.volume_state in DETACHED:
        # Before its deletion, which may be seen at the same time.
        wall = at.wall if cycle.times.deleted is None else at.wall_at(cycle.times.deleted) - 0.001
        event = _event(EventKind.VOLUME_DETACHED, f"volume {cycle.volume_id} is detached", cycle, phase, at)
        yield replace(event, wall=wall)


def _summary(cycle: Cycle, phase: Phase, at: Moment) -> LogEvent:
    row, boosted = row_of(cycle), cycle.times.boosted
    until = at.wall if cycle.closed_wall is None else cycle.closed_wall
    cost, billed_s = row.cost(0.0, until), row.billed_s(0.0, until)
    served = "no cache was attached" if boosted is None else f"attached{_after(cycle, 'boosted')}"
    bill = f"billed for {format_duration(billed_s)}"
    if cost is not None:
        bill += f", {cost:.4f} {row.currency}"
    if cycle.closed_wall is None:
        bill += " so far: the volume is left to the operator"
    who = f"asked by {_who(cycle.asked_by)}" if cycle.trigger is Trigger.OPERATOR else f"begun by {cycle.trigger}"
    message = f"boost over: {bill}; {_bought(cycle)}; volume {cycle.volume_id}, {served}, {who}"
    return replace(
        _event(EventKind.BOOST_OVER, message, cycle, phase, at),
        reason=None if cycle.failure is None else str(cycle.failure),
        dirty_gib=_rounded(cycle.use.peak_dirty_bytes / GIB),
        after_s=None if boosted is None else _rounded(boosted - cycle.started_at),
        billed_s=_rounded(billed_s),
        cost=_rounded(cost, 6),
    )


# --- what was decided ----------------------------------------------------------------------------------------

KINDS: dict[str, EventKind] = {
    Event.BOOST_WANTED: EventKind.BOOST_WANTED,
    Event.BOOST_DECLINED: EventKind.BOOST_DECLINED,
    Event.BOOST_REFUSED: EventKind.BOOST_REFUSED,
    Event.BOOST_ABANDONED: EventKind.BOOST_ABANDONED,
    Event.BOOST_WITHDRAWN: EventKind.BOOST_WITHDRAWN,
    Event.ORPHAN_FOUND: EventKind.ORPHAN_FOUND,
    Event.WENT_QUIET: EventKind.FLUSH_BEGUN,
    Event.FILLED_UP: EventKind.FLUSH_BEGUN,
    Event.DIRTIED: EventKind.FLUSH_BEGUN,
    Event.LOAD_RETURNED: EventKind.BOOST_RESUMED,
    Event.DRAINED: EventKind.FLUSH_OVER,
    Event.CACHE_LEFT: EventKind.CACHE_LEFT,
    Event.REPAIRED: EventKind.RECOVERED,
}


def _of_transition(seen: Transition, cycle: Cycle | None, at: Moment) -> Iterator[LogEvent]:
    """RELEASED and CACHE_ATTACHED are told by what the cycle shows; a cap is told beside what it caused."""
    if seen.is_capped:
        message = seen.reason if seen.event == Event.BOOST_CAPPED else f"the boost ends: {seen.reason}"
        yield replace(_event(EventKind.BOOST_CAPPED, message, cycle, seen.after, at), reason=seen.reason)
    kind = KINDS.get(seen.event)
    if seen.after is Phase.FAULTED:
        kind = EventKind.FAULT
    elif seen.event == Event.CAP_REACHED and seen.before is Phase.BOOSTING:
        kind = EventKind.FLUSH_BEGUN
    if kind is None:
        return
    dirty = cycle.dirty_bytes / GIB if kind is EventKind.FLUSH_BEGUN and cycle is not None else None
    event = _event(kind, _sentence(kind, seen.reason, cycle), cycle, seen.after, at)
    yield replace(event, reason=seen.reason, dirty_gib=_rounded(dirty))


def _sentence(kind: EventKind, reason: str, cycle: Cycle | None) -> str:
    match kind, cycle:
        case EventKind.BOOST_WANTED, Cycle():
            who = f", asked by {_who(cycle.asked_by)}" if cycle.trigger is Trigger.OPERATOR else ""
            speed = "" if cycle.choice is not None and not who else f" at {_mb_s(cycle)}"
            return f"{reason}{speed}{who}"
        case EventKind.BOOST_REFUSED, _:
            return f"nothing was bought: {reason}"
        case EventKind.BOOST_ABANDONED | EventKind.BOOST_WITHDRAWN, Cycle():
            return f"the boost is given up: {reason}"
        case EventKind.FLUSH_BEGUN, Cycle():
            return f"flushing {format_size(cycle.dirty_bytes)}: {reason}"
        case EventKind.BOOST_RESUMED, _:
            return f"the cache takes writes again: {reason}"
        case EventKind.FLUSH_OVER, Cycle():
            quiet, clean = cycle.times.quiet, cycle.times.clean
            took = "" if quiet is None or clean is None else f" after a flush of {format_duration(clean - quiet)}"
            return f"{reason}{took}"
        case EventKind.FAULT, _:
            return f"an operator must decide: {reason}"
        case EventKind.RECOVERED, _:
            return f"the fault is over: {reason}"
        case _:
            return reason


def _ordered(order: Order, phase: Phase, at: Moment) -> LogEvent:
    is_own = order.kind is RequestKind.STOP
    message = f"{'the service manager' if is_own else _who(order.asked_by)} asked to {order.kind}: {order.text}"
    asked_by = "agent" if is_own else "operator" if order.asked_by is None else str(order.asked_by)
    return LogEvent(
        EventKind.ORDER,
        at.wall,
        message,
        at.device or None,
        phase.value,
        reason=order.text,
        asked_by=asked_by,
        order=order.kind.value,
    )


# --- words and fields ------------------------------------------------------------------------------------------


def _who(uid: int | None) -> str:
    return "an operator" if uid is None else "root" if uid == 0 else f"uid {uid}"


def _mb_s(cycle: Cycle) -> str:
    return f"{round(cycle.provisioned.bandwidth_mb_s, 1):g} MB/s"


def _what(cycle: Cycle) -> str:
    return f"{format_size(cycle.provisioned.size_bytes)} at {_mb_s(cycle)}"


def _bought(cycle: Cycle) -> str:
    quote = cycle.quote
    if quote is None or not quote.price_known:
        return f"{_what(cycle)}, price not known"
    return f"{_what(cycle)} for {quote.price_per_hour:.4f} {quote.currency} an hour"


def _after(cycle: Cycle, step: str) -> str:
    then = getattr(cycle.times, step)
    return "" if then is None else f" {format_duration(max(0.0, then - cycle.started_at))} after the decision"


def _billed(cycle: Cycle) -> str:
    if cycle.opened_wall is None or cycle.closed_wall is None:
        return ""
    return f" after {format_duration(max(0.0, cycle.closed_wall - cycle.opened_wall))}"


def _event(kind: EventKind, message: str, cycle: Cycle | None, phase: Phase, at: Moment) -> LogEvent:
    """The log event at the time of the decision, with what the cycle shows of its volume."""
    event = LogEvent(kind, at.wall, message, at.device or None, phase.value)
    if cycle is None:
        return event
    quote = cycle.quote if cycle.quote is not None and cycle.quote.price_known else None
    unknown = "operator" if cycle.trigger is Trigger.OPERATOR else "agent"
    return replace(
        event,
        cycle=cycle.token,
        volume=cycle.volume_id,
        gib=_rounded(cycle.provisioned.size_bytes / GIB),
        mb_s=_rounded(cycle.provisioned.bandwidth_mb_s),
        price_per_hour=None if quote is None else _rounded(quote.price_per_hour, 6),
        currency=None if quote is None else quote.currency,
        trigger=cycle.trigger.value,
        asked_by=unknown if cycle.asked_by is None else str(cycle.asked_by),
    )


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(float(value), digits)


LEVELS: Mapping[Priority, int] = {
    Priority.ERR: logging.ERROR,
    Priority.WARNING: logging.WARNING,
    Priority.NOTICE: NOTICE,
    Priority.INFO: logging.INFO,
}

_log = logging.getLogger("elastio")


class EventLog:
    """`ports.Reporter`: tells the log. `device` is the backing UUID."""

    def __init__(self, device: str) -> None:
        self._device = device

    def decided(self, before: AgentState, decision: Decision, *, now: float, wall: float) -> None:
        """See `Reporter`. Most decisions produce no log event."""
        state = decision.state
        if before.cycle is state.cycle and not decision.reason:
            return
        at = Moment(now, wall, self._device)
        for event in narrate(before.cycle, state.cycle, state.phase, decision.reason, decision.course, at):
            write(event)

    def failed(self, text: str, *, wall: float) -> None:
        """See `Reporter`."""
        write(error(text, wall=wall, device=self._device))

    def works_again(self, text: str, *, wall: float) -> None:
        """See `Reporter`."""
        write(error(text, wall=wall, device=self._device, is_over=True))


def write(event: LogEvent) -> None:
    """One record of the log."""
    _log.log(LEVELS[event.kind.priority], "%s", event.message, extra={FIELDS: fields_of(event)})
