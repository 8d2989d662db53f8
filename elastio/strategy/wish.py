"""What the strategy wants of the mechanism. The mechanism decides when that is safe, and never asks why."""

from __future__ import annotations

from dataclasses import dataclass

from elastio.core.model import VolumeSpec
from elastio.core.phase import Trigger
from elastio.core.policy import Policy
from elastio.strategy.memory import NO_BOOST, Boost, Capped, Choice, Memory


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
    to take writes again; empty: it is not. A flush takes no more than `flush_limit_mb_s` (None: no limit). `note` is a
    sentence for people, or empty, and `learned` one for every reason of this decision. `replies` has one for each
    request, in their order. `released` is the memory if the volume of this cycle is gone now; None: it cannot be.
    `choice` is what was decided by money for the cache that is there, as it is known now; None: as it was.
    """

    policy: Policy
    release: Release | None = None
    boost: BoostPlan | Decline | None = None
    again: str = ""
    flush_limit_mb_s: float | None = None
    note: str = ""
    learned: str = ""
    replies: tuple[Reply, ...] = ()
    released: Memory | None = None
    choice: Choice | None = None
