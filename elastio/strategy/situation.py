"""What mechanism and strategy exchange, once in a decision: it is shown a `Situation`, and its answer is a `Wish`.

The strategy sees nothing else. The mechanism decides when what is wanted is safe, and never asks why.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from elastio.core.model import Forecast, Quote, Request, Sample, VolumeSpec
from elastio.core.phase import CacheUse, Failure, Phase, Timestamps, Trigger
from elastio.core.policy import Policy
from elastio.strategy.memory import NO_BOOST, Boost, BurstLesson, Capped, Choice, Memory
from elastio.strategy.spending import Spend
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


# --- the answer ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BoostPlan:
    """What a boost buys, and why. `least_s`: for how long its volume exists at the least.

    `choice` is what was decided by money; None: the settings apply. `crossed_at` is when a sample first showed the load
    (CLOCK_BOOTTIME); None: it is not here. `asked_by` is the uid of an operator who asked, `reason` a sentence for
    people. `known` is what is known of the boost as it begins.
    """

    trigger: Trigger
    spec: VolumeSpec
    least_s: float
    choice: Choice | None = None
    crossed_at: float | None = None
    asked_by: int | None = None
    reason: str = ""
    known: Boost = NO_BOOST


@dataclass(frozen=True, slots=True)
class Decline:
    """No boost is bought, for the reason in this sentence: it is not worth its price, or a cap forbids it."""

    reason: str
    is_capped: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """The cache that is there, or on its way, is to be released, for the reason in this sentence.

    `capped`: a cap ends it, and no boost follows in its day or month. `is_filled`: its load goes on, and is to fill no
    other cache as large. `is_ordered`: it pays even if the load has to wait for the flush, which is carried out then.
    """

    reason: str
    capped: Capped | None = None
    is_filled: bool = False
    is_ordered: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """What is answered to a request that concerns the strategy, unless the mechanism refuses it.

    `code` says why it is refused, for programs; empty: it is not. `plan` is what an operator's boost buys; None:
    nothing. `not_again`: why a cache that is being flushed may not take writes again instead; empty: it may.
    """

    text: str = ""
    code: str = ""
    plan: BoostPlan | None = None
    not_again: str = ""


@dataclass(frozen=True, slots=True)
class Wish:
    """`policy` has the bandwidths that hold now, of the device and of the cache that is there.

    `release` None: the cache is kept. `boost` None: nothing asks for one. `again`: why a cache that is being flushed is
    to take writes again; empty: it is not. `flush_mb_s` is the writeback rate that the sample asks
    for (0: no flushing, None: no limit), and `forced_mb_s` what it shows to be flushed at applications' expense. `note`
    is a sentence for people, or empty, and `learned` one for every reason of this decision. `replies` has one for each
    request, in their order. `released` is the memory if the volume of this cycle is gone now; None: it cannot be.
    `choice` is what was decided by money for the cache that is there, as it is known now; None: as it was.
    """

    policy: Policy
    release: Release | None = None
    boost: BoostPlan | Decline | None = None
    again: str = ""
    flush_mb_s: float | None = 0.0
    forced_mb_s: float = 0.0
    note: str = ""
    learned: str = ""
    replies: tuple[Reply, ...] = ()
    released: Memory | None = None
    choice: Choice | None = None
