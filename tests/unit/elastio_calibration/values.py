"""A made-up machine for tests: throughput and holding time by a formula, so that every expectation can be computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from click.testing import Result

from elastio.units import GB, MB
from elastio_calibration.measurement import Conditions, Measurement, Price, Prices, Setup
from elastio_calibration.profile import Profile

CONDITIONS = Conditions(
    kernel="6.1.0-32-amd64",
    cloud="aws",
    instance_type="m5.large",
    backing_type="gp3",
    cache_type="gp3",
    backing_mb_s=33.0,
    cache_mb_s=128.0,
    utilization_threshold=0.3,
    inactivity_delay_s=30.0,
    sample_interval_s=1.0,
)
PRICES = Prices("USD", "a list", 60.0, 0.01, 0.02, (Price(2 * GB, 0.002), Price(12 * GB, 0.012)))
UUID = "01234567-89ab-cdef-0123-456789abcdef"
CONFIG = f"""[device]
backing_uuid = "{UUID}"
bandwidth_mb_s = 33
[cache]
bandwidth_mb_s = 128
drain_bandwidth_mb_s = 0
[provider]
name = "sim"
"""
APP = ("--iteration-s", "400", "--iterations", "3", "--checkpoints", "3", "--checkpoint-gb", "4", "--initial-gb", "6")
PLAN = (*APP[:-2], "--checkpoint-gb", "6")
Shell = Callable[..., Result]
Golden = Callable[[str, str], None]
DATASETS, CACHES = (3, 4, 6), (4, 6, 8, 10)


def mb_s(dataset_gb: float, cache_gb: float) -> float:
    """Fast where the cache holds the dataset, slower the less it does."""
    return min(100.0, 100.0 * cache_gb / dataset_gb / 1.5)


def held_s(dataset_gb: float) -> float:
    """Written at 100, flushed at 33 MB/s, and 10 s for the cloud."""
    return dataset_gb * 1000 / 100 + dataset_gb * 1000 / 33 + 10


def measured(dataset_gb: float, cache_gb: float, factor: float = 1.0, **changes: Any) -> Measurement:
    """One run whose throughput is `factor` times the formula's."""
    size = round(dataset_gb * GB)
    made = Measurement(
        Setup.ADAPTIVE,
        size,
        size / MB / (mb_s(dataset_gb, cache_gb) * factor),
        cache_bytes=round(cache_gb * GB),
        held_s=held_s(dataset_gb) * factor,
        attached_s=held_s(dataset_gb) - 10,
        boost_s=5.0,
        learned_bytes=round(dataset_gb * 1.5 * GB),
    )
    return replace(made, **changes)


def static(setup: Setup, dataset_gb: float, rate_mb_s: float) -> Measurement:
    return Measurement(setup, round(dataset_gb * GB), dataset_gb * 1000 / rate_mb_s)


def cached(*factors: float) -> tuple[Measurement, ...]:
    """Every dataset with every cache, once per factor."""
    return tuple(measured(x, m, f) for f in factors for x in DATASETS for m in CACHES)


def grid(*factors: float) -> tuple[Measurement, ...]:
    """The same, and the slow volume."""
    return (*cached(*factors), *(static(Setup.STATIC_SLOW, x, 33.0) for x in DATASETS for _ in factors))


def profile(*factors: float, **changes: Any) -> Profile:
    made = Profile(
        CONDITIONS, 50 * GB, grid(*(factors or (1.0,))), "2026-11-20T08:00:00+00:00", "elastio 0.1.0", PRICES
    )
    return replace(made, **changes)
