"""What the strategy sees of a decision: the mechanism shows this, once, and nothing else. Its answer: `wish.Wish`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from elastio.core.model import Forecast, Quote, Request, Sample, Spend, VolumeSpec
from elastio.core.phase import CacheUse, Failure, Phase, Timestamps, Trigger
from elastio.core.policy import Policy
from elastio.strategy.memory import BurstLesson, Choice
from elastio.strategy.worth import Advice


@dataclass(frozen=True, slots=True)
class DeviceView:
    """The adaptive device, as it was at `seen_at` (CLOCK_BOOTTIME).

    `has_cache`: a cache is attached; `is_served`: it is that of the cycle, and takes writes.
    """

    seen_at: float
    size_bytes: int
    dirty_bytes: int
    has_cache: bool
    is_served: bool
    is_nearly_full: bool


@dataclass(frozen=True, slots=True)
class CycleView:
    """The cache volume that is there, or on its way; the fields are those of `Cycle`.

    `provisioned` is what the cloud sold, or what was asked for. `has_volume`: the cloud has answered the purchase.
    """

    token: str
    trigger: Trigger
    provisioned: VolumeSpec
    started_at: float
    started_wall: float
    opened_wall: float | None
    closed_wall: float | None
    times: Timestamps
    use: CacheUse
    dirty_bytes: int
    has_volume: bool
    forced: bool
    choice: Choice | None
    quote: Quote | None
    failure: Failure | None

    def wall_at(self, now: float) -> float:
        """Seconds since the epoch at `now`, by the clock as it was set when the cycle began."""
        return self.started_wall + (now - self.started_at)


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything beside its memory that the strategy decides from, at `now` (CLOCK_BOOTTIME) and `wall`.

    `settings` are those of the configuration. `phase_known` False: the phase has not been read from the kernel yet.
    `may_buy` False: no boost can begin now; `may_follow` False: nor could one if the cache that is there were gone.
    `is_held`: an operator has paused boosts, or they are inhibited. `failures` boosts in a row had no cache.
    `has_device` False: the kernel shows none that runs. `device` None: it shows none, or its state is not known.
    `instance_mb_s` is what the instance carries, infinite where there is no limit; None: the cloud has not said it.
    The rest is as in `Observation`.
    """

    now: float
    wall: float
    settings: Policy
    phase: Phase
    phase_known: bool
    may_buy: bool
    may_follow: bool
    is_held: bool
    failures: int
    has_device: bool
    device: DeviceView | None
    cycle: CycleView | None
    instance_mb_s: float | None
    sample: Sample | None
    requests: tuple[Request, ...]
    spend: Spend
    spend_at: float
    forecast: Forecast | None
    advice: Advice | None
    burst: BurstLesson | None

    @property
    def choice(self) -> Choice | None:
        """What was decided by money for the cycle; None: there is none, or the settings apply."""
        return None if self.cycle is None else self.cycle.choice

    def with_choice(self, choice: Choice | None) -> Situation:
        """The situation in which this was decided by money for the cycle."""
        if self.cycle is None or choice is self.cycle.choice:
            return self
        return replace(self, cycle=replace(self.cycle, choice=choice))
