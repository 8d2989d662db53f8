"""The input of a decision. Its output: `state.Decision`."""

from __future__ import annotations

from dataclasses import dataclass, field

from elastio.core.actions import Outcome, Worker
from elastio.core.model import BackingView, Forecast, HostView, Request, Sample, Spend
from elastio.strategy.memory import BurstLesson
from elastio.strategy.worth import Advice


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

    @property
    def backing(self) -> BackingView | None:
        """The backing device; None: the kernel's state is not known, or it does not show the device."""
        return self.host.backing if self.host else None
