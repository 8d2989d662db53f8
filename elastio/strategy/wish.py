"""What the strategy wants of the mechanism. The mechanism decides when that is safe, and never asks why."""

from __future__ import annotations

from dataclasses import dataclass

from elastio.core.cycle import Trigger
from elastio.strategy.market import Choice
from elastio.strategy.memory import Capped


@dataclass(frozen=True, slots=True)
class BoostPlan:
    """What a boost buys, and why. `chance_until` (CLOCK_BOOTTIME) is until when the burst may come that
    it is bought ahead of; None: the load is here.

    `choice` is what was decided by money; None: the settings apply. `asked_by` is the uid of an operator who asked,
    `reason` a sentence for people.
    """

    trigger: Trigger
    size_bytes: int
    chance_until: float | None = None
    choice: Choice | None = None
    asked_by: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Decline:
    """No boost is bought, for the reason in this sentence: it is not worth its price, or a cap forbids it."""

    reason: str
    is_capped: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """The cache that is there, or on its way, is to be released, for the reason in this sentence.

    `capped`: a cap ends it, and no boost follows in its day or month. `is_filled`: its load goes on, and is to fill no
    other cache. `is_ordered`: it pays even if the load has to wait for the flush, which is carried out then.
    """

    reason: str
    capped: Capped | None = None
    is_filled: bool = False
    is_ordered: bool = False


@dataclass(frozen=True, slots=True)
class Wish:
    """`release` None: the cache is kept. `note` is a sentence for people, or empty."""

    release: Release | None = None
    note: str = ""
