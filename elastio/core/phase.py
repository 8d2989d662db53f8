"""What mechanism and strategy both know of a cycle: its phase, what began it, why it failed, its times and its use."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """The phases of the state machine, see `machine`."""

    IDLE = "idle"  # no cache, nothing bought
    ATTACHING = "attaching"  # a volume is bought, and its cache set attached
    BOOSTING = "boosting"  # phase 1: application I/O first
    FLUSHING = "flushing"  # phase 2: flush first; at its end writes bypass the cache
    DETACHING = "detaching"  # the cache set is detached and the volume released
    FAULTED = "faulted"  # only an operator may decide how to go on; nothing is released


class Trigger(StrEnum):
    """What began a cycle."""

    LOAD = "load"
    OPERATOR = "operator"
    ANNOUNCED = "announced"  # ahead of a load that somebody announced
    FORECAST = "forecast"  # ahead of a load that a forecaster expects
    ORPHAN = "orphan"  # a volume of this agent was found that belongs to no cycle

    @property
    def is_ahead(self) -> bool:
        """The cache is bought before the load is there."""
        return self in (Trigger.ANNOUNCED, Trigger.FORECAST)


class FailureKind(StrEnum):
    """Why a boost failed before its cache was attached."""

    ERROR = "error"  # the cloud or the kernel refused
    LOST = "lost"  # the volume or its disk is gone or unusable
    TIMED_OUT = "timed out"
    WITHDRAWN = "withdrawn"  # the boost is no longer wanted
    CAPPED = "capped"  # another device was faster to use up a shared cap: nothing was bought
    QUOTA = "quota"  # a limit of the account or the machine, or of the cloud's capacity, leaves no room
    UNKNOWN = "unknown"  # read from a journal of 0.1.0, which records no kind


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a boost failed: the kind, and a sentence for people."""

    kind: FailureKind
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Timestamps:
    """When each step of a cycle was first seen done (CLOCK_BOOTTIME seconds); None: not yet.

    `installing` and `detaching` are set with the intent, before the effect: from then on the cache may serve, or may be
    detached.
    """

    crossed: float | None = None  # the end of the sample that showed the load
    decided: float | None = None
    created: float | None = None  # the cloud accepted the purchase
    available: float | None = None  # the cloud showed that it can be attached
    asked: float | None = None  # the cloud accepted the request to attach
    appeared: float | None = None  # the kernel shows the disk
    installing: float | None = None  # the agent was about to attach the cache
    formatted: float | None = None  # the superblock was written; in journals of 0.1.0, which took three steps
    registered: float | None = None  # the kernel knew the cache set; in journals of 0.1.0
    boosted: float | None = None  # the cache is attached in writeback mode
    quiet: float | None = None  # phase 2 began (the last time it did)
    bypassed: float | None = None  # writes bypass the cache, until it is detached
    clean: float | None = None
    detaching: float | None = None  # the agent was about to detach the cache set
    failed_clean: float | None = None  # the cache failed while clean, and the kernel runs the device without it
    detached: float | None = None  # the cache set is detached from the backing device
    durable: float | None = None  # the backing device is durable, with everything that its cache held
    released: float | None = None  # the disk no longer carries a superblock
    deleted: float | None = None  # the cloud accepted the deletion


@dataclass(frozen=True, slots=True)
class CacheUse:
    """What the kernel has shown of a cache while it was attached: how full it was, and what it did not absorb.

    `cutoff_percent` is the kernel's own, `overflow_base` what its counter showed before the cache was attached; None:
    not seen.
    """

    peak_dirty_bytes: int = 0
    peak_in_use_percent: int = 0
    cutoff_percent: int | None = None
    overflow_base: int | None = None
    written_through_bytes: int = 0  # not absorbed, because the cache was full
    forced_writeback_bytes: int = 0  # flushed at the application's expense, because the cache was nearly full

    @property
    def missing_bytes(self) -> int:
        """What a cache that was large enough would have held in addition."""
        return self.written_through_bytes + self.forced_writeback_bytes
