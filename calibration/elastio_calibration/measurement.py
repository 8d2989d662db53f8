"""What is measured, under which conditions, and what it would be paid with: the values of records and profiles."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from elastio.units import GB, MB
from elastio_calibration.errors import CalibrationError

# What is slower or shorter was not measured: its quotients are beyond all volumes.
LEAST = 1e-6


class Setup(StrEnum):
    """The three storage set-ups that every comparison names."""

    STATIC_SLOW = "static-slow"
    STATIC_FAST = "static-fast"
    ADAPTIVE = "adaptive"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One dataset written once.

    `seconds` run from the first write to the return of the last fsync, as the application waits. `cache_bytes` is what
    was sold; `held_s` how long it was paid for (from purchase to deletion), `attached_s` how long it was in front of
    the backing device, `boost_s` from the decision to the first cached write. `learned_bytes` is what the agent would
    buy next. Without a cache all of these are 0.
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
    evicted_bytes: int = 0
    learned_bytes: int = 0

    def __post_init__(self) -> None:
        """Raises CalibrationError where this cannot have been measured."""
        usable = self.seconds >= LEAST and self.dataset_bytes > 0
        usable = usable and (self.setup is not Setup.ADAPTIVE or (self.cache_bytes > 0 and self.held_s >= LEAST))
        if not usable:
            raise CalibrationError(f"a measurement makes no sense ({self}): its times and sizes must be above 0")

    @property
    def throughput_mb_s(self) -> float:
        return self.dataset_bytes / MB / self.seconds

    @property
    def key(self) -> tuple[Setup, str, int, int]:
        """Repeats of one measurement share it."""
        return self.setup, self.pattern, self.dataset_bytes, self.cache_bytes

    def __str__(self) -> str:
        cache = f" with a cache of {self.cache_bytes / GB:.3g} GB" if self.cache_bytes else ""
        return f"{self.setup}, {self.pattern} of {self.dataset_bytes / GB:.3g} GB{cache}"


@dataclass(frozen=True, slots=True)
class Conditions:
    """Everything that the figures depend on beside dataset and cache. Profiles are merged only when all agree.

    `cache_mb_s` is what a cache gives to applications (and what static-fast has); `drain_mb_s` is bought on top.
    `pace_mb_s`: as fast as the data was made, 0 where it was only written.
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
        """Bandwidth of a cache volume: what is paid for."""
        return self.cache_mb_s + self.drain_mb_s

    def differences(self, other: Conditions) -> tuple[str, ...]:
        """`kernel (6.1 and 6.12)` for each that does not agree."""
        mine, theirs = asdict(self), asdict(other)
        return tuple(f"{k.replace('_', ' ')} ({mine[k]} and {theirs[k]})" for k in mine if mine[k] != theirs[k])


@dataclass(frozen=True, slots=True)
class Price:
    """What one cache size costs."""

    size_bytes: int
    per_hour: float


@dataclass(frozen=True, slots=True)
class Prices:
    """Currency per hour of the volumes; None: not known. `minimum_s`: the shortest time that is billed."""

    currency: str
    source: str
    minimum_s: float
    slow_per_hour: float | None
    fast_per_hour: float | None
    caches: tuple[Price, ...]

    def updated(self, newer: Prices) -> Prices:
        """The newer prices, in the same currency, and these for what those do not tell."""
        quoted = {p.size_bytes: p for p in (*self.caches, *newer.caches)}
        return replace(
            newer,
            slow_per_hour=self.slow_per_hour if newer.slow_per_hour is None else newer.slow_per_hour,
            fast_per_hour=self.fast_per_hour if newer.fast_per_hour is None else newer.fast_per_hour,
            caches=tuple(quoted[size] for size in sorted(quoted)),
        )
