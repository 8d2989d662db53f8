"""The input and the output of a decision."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from elastio.core.actions import Action, Outcome, Worker
from elastio.core.cycle import Cycle
from elastio.core.model import Forecast, HostView, Request, RequestKind, Sample, Spend
from elastio.core.state import AgentState, Phase
from elastio.strategy.bandwidth import BurstLesson
from elastio.strategy.market import Advice


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that is known at `now` (CLOCK_BOOTTIME) and `wall` (seconds since the epoch).

    `host` is None while the kernel's state is unknown: not scanned yet, too old, or a host action has run since the
    scan. `sample` is set only when there is a new one. `busy`: workers that run an action. `jitter` is uniform in
    [0, 1), because the core uses no random numbers of its own. `forecast` None: no burst is expected, or there is no
    forecaster. `advice` None: no burst is known, or nothing is decided by money. `can_record` False: the last write to
    the journal failed. `spend_at` is when `spend` was last known. `burst`: the last boosted burst that has ended.
    """

    now: float
    wall: float
    host: HostView | None = None
    sample: Sample | None = None
    outcomes: tuple[Outcome, ...] = ()
    requests: tuple[Request, ...] = ()
    busy: frozenset[Worker] = frozenset()
    spend: Spend = field(default_factory=Spend)
    spend_at: float = float("-inf")
    jitter: float = 0.0
    forecast: Forecast | None = None
    advice: Advice | None = None
    can_record: bool = True
    burst: BurstLesson | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request: `accepted`, and one sentence for the operator.

    `code` says why it was refused, for programs: a short word that does not change; empty if it was accepted.
    """

    request: Request
    accepted: bool
    text: str
    code: str = ""


@dataclass(frozen=True, slots=True)
class Transition:
    """One event of the table, as it was seen: its name (`detection.Event`), the phases before and after, and why.

    `is_capped`: a cap is why.
    """

    event: str
    before: Phase
    after: Phase
    reason: str
    is_capped: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """A request that was accepted, its answer, and the user who asked; None: not known, or not over the socket."""

    kind: RequestKind
    text: str
    asked_by: int | None = None


@dataclass(frozen=True, slots=True)
class Course:
    """What happened in one decision, in order, for the journal and the log. `ended` is the cycle that it ended."""

    transitions: tuple[Transition, ...] = ()
    orders: tuple[Order, ...] = ()
    ended: Cycle | None = None


NO_COURSE = Course()


@dataclass(frozen=True, slots=True)
class Decision:
    """The new state, at most one safe action, and why.

    `reason` is one sentence, empty if nothing was decided. `records` are cycles whose ledger row changed. `answers`
    has one answer for each request, in order. `wake_at` (CLOCK_BOOTTIME) is when to decide again even if nothing
    happens; None: at the next sample. `course` is what happened, as far as `reason` has no room for it.
    """

    state: AgentState
    actions: tuple[Action, ...] = ()
    reason: str = ""
    records: tuple[Cycle, ...] = ()
    answers: tuple[Answer, ...] = ()
    wake_at: float | None = None
    course: Course = NO_COURSE


def course_of(seen: Iterable[Transition], answers: Iterable[Answer], ended: tuple[Cycle, ...]) -> Course:
    """The course of a decision that saw these transitions, gave these answers, and ended at most one cycle."""
    orders = tuple(Order(a.request.kind, a.text, a.request.asked_by) for a in answers if a.accepted)
    return Course(tuple(seen), orders, ended[-1] if ended else None)
