"""The input and the output of a decision."""

from __future__ import annotations

from dataclasses import dataclass, field

from elastio.core.actions import Action, Outcome, Worker
from elastio.core.cycle import Cycle
from elastio.core.model import Forecast, HostView, Request, Sample, Spend
from elastio.core.state import AgentState


@dataclass(frozen=True, slots=True)
class Observation:
    """All that is known at `now`.

    `host` is None while the kernel's state is unknown: not looked at yet, too old, or a host action has run since.
    `sample` is set only when a new throughput sample is in. `jitter` is uniform in [0, 1): the core has no random.
    `forecast` None: nothing is expected, or nobody forecasts. `can_record` False: the journal took nothing when it was
    last asked to.
    """

    now: float
    wall: float
    host: HostView | None = None
    sample: Sample | None = None
    outcomes: tuple[Outcome, ...] = ()
    requests: tuple[Request, ...] = ()
    busy: frozenset[Worker] = frozenset()
    spend: Spend = field(default_factory=Spend)
    jitter: float = 0.0
    forecast: Forecast | None = None
    can_record: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """What an operator is told about a request."""

    request: Request
    accepted: bool
    text: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The new state, the next safe actions, and why.

    `records` are cycles whose ledger row changed; `reason` is one sentence, empty when nothing was decided;
    `wake_at` is when to decide again even if nothing happens (None: the next sample is soon enough).
    """

    state: AgentState
    actions: tuple[Action, ...] = ()
    reason: str = ""
    records: tuple[Cycle, ...] = ()
    answers: tuple[Answer, ...] = ()
    wake_at: float | None = None
