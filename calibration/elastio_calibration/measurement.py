"""Measurements, their conditions, and prices: the values of records and profiles."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from elastio.billing import Billing
from elastio.units import GB, MB
from elastio_calibration.errors import CalibrationError

# The least duration in seconds and bandwidth in MB/s: quotients of smaller ones mean nothing.
LEAST = 1e-6


class Setup(StrEnum):
    """The three storage set-ups of every comparison."""

    STATIC_SLOW = "static-slow"
    STATIC_FAST = "static-fast"
    ADAPTIVE = "adaptive"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One dataset written once.

    `seconds`: from the first write to the return of the last fsync, as the application waits. `cache_bytes`: the
    provisioned size of the cache; `held_s`: from its purchase to its deletion; `attached_s`: from its attach to its
    detach; `boost_s`: from the decision to the first cached write; `written_through_bytes`: not absorbed by the cache;
    `learned_bytes`: the size that the agent would buy next. Without a cache all of these are 0.
    """

    setup: Setup
    dataset_bytes: int
    seconds: float
    pattern: str = "write"
    cache_bytes: int = 0
    held_s: float = 0.0
    attached_s: float = 0.0
    boost_s: float = 0.0
    peak_in_use_percent: int = 0
    written_through_bytes: int = 0
    learned_bytes: int = 0

    def __post_init__(self) -> None:
        """Raises CalibrationError for values that no measurement can have."""
        usable = self.seconds >= LEAST and self.dataset_bytes > 0
        usable = usable and (self.setup is not Setup.ADAPTIVE or (self.cache_bytes > 0 and self.held_s >= LEAST))
        if not usable:
            raise CalibrationError(f"{self} is not a measurement: its times and sizes must be above 0")

    @property
    def throughput_mb_s(self) -> float:
        return self.dataset_bytes / MB / self.seconds

    @property
    def key(self) -> tuple[Setup, str, int, int]:
        """The same for all repeats of one measurement."""
        return self.setup, self.pattern, self.dataset_bytes, self.cache_bytes

    def __str__(self) -> str:
        cache = f" with a cache of {self.cache_bytes / GB:.3g} GB" if self.cache_bytes else ""
        return f"{self.setup}, {self.pattern} of {self.dataset_bytes / GB:.3g} GB{cache}"


@dataclass(frozen=True, slots=True)
class Conditions:
    """Everything that the figures depend on apart from dataset and cache. Only profiles that agree in all are merged.

    `cache_mb_s`: the bandwidth of a cache for applications, and of static-fast; `drain_mb_s`: bought in addition, for
    flushing. `pace_mb_s`: the rate at which the application produced its data; 0: faster than it was written.
    """

    kernel: str
    cloud: str
    instance_type: str
    backing_type: str
    cache_type: str
    backing_mb_s: float
    cache_mb_s: float
    utilization_threshold: float
    inactivity_delay_s: float
    sample_interval_s: float
    writers: int = 1
    block_bytes: int = 1024 * 1024
    scale: float = 1.0
    drain_mb_s: float = 0.0
    pace_mb_s: float = 0.0

    def __post_init__(self) -> None:
        """Raises CalibrationError for a volume without bandwidth."""
        for name in ("backing_mb_s", "cache_mb_s"):
            if getattr(self, name) < LEAST:
                raise CalibrationError(f"{name} must be above 0")

    @property
    def bought_mb_s(self) -> float:
        """Bandwidth of a cache volume in MB/s, as paid for."""
        return self.cache_mb_s + self.drain_mb_s

    def differences(self, other: Conditions) -> tuple[str, ...]:
        """`kernel (6.1 and 6.12)` for each condition that differs."""
        mine, theirs = asdict(self), asdict(other)
        return tuple(f"{k.replace('_', ' ')} ({mine[k]} and {theirs[k]})" for k in mine if mine[k] != theirs[k])


@dataclass(frozen=True, slots=True)
class Price:
    """The price of one cache size, in currency per hour."""

    size_bytes: int
    per_hour: float


@dataclass(frozen=True, slots=True)
class Prices:
    """Currency per hour of each volume; None: unknown. `minimum_s`, `step_s`: see `billing`."""

    currency: str
    source: str
    minimum_s: float
    slow_per_hour: float | None
    fast_per_hour: float | None
    caches: tuple[Price, ...]
    step_s: float = 0.0

    @property
    def billing(self) -> Billing:
        return Billing(self.minimum_s, self.step_s)

    def updated(self, newer: Prices) -> Prices:
        """The newer prices, in the same currency, and these where a newer one is missing."""
        quoted = {p.size_bytes: p for p in (*self.caches, *newer.caches)}
        return replace(
            newer,
            slow_per_hour=self.slow_per_hour if newer.slow_per_hour is None else newer.slow_per_hour,
            fast_per_hour=self.fast_per_hour if newer.fast_per_hour is None else newer.fast_per_hour,
            caches=tuple(quoted[size] for size in sorted(quoted)),
        )
