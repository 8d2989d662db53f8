"""The cost of a prediction's volumes in currency. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from elastio_calibration.measurement import Prices, Setup
from elastio_calibration.model import Dump


def cost(prices: Prices, setup: Setup, paid_s: float, dumps: Sequence[Dump], vms: int) -> float | None:
    """Currency for all VMs: the permanent volume for `paid_s`, and each cache for the time it is held.

    None where a price is unknown: nothing is extrapolated beyond the quoted sizes.
    """
    permanent = permanent_per_hour(prices, setup)
    caches = [of_cache(prices, dump) for dump in dumps]
    known = [each for each in caches if each is not None]
    if permanent is None or len(known) < len(caches):
        return None
    return vms * (permanent * paid_s / 3600 + sum(known))


def permanent_per_hour(prices: Prices, setup: Setup) -> float | None:
    """The price of the permanent volume of a set-up."""
    return prices.fast_per_hour if setup is Setup.STATIC_FAST else prices.slow_per_hour


def of_cache(prices: Prices, dump: Dump) -> float | None:
    """Currency for the cache of one dump; 0 without one."""
    if not dump.cache_bytes:
        return 0.0
    per_hour = cache_per_hour(prices, dump.cache_bytes)
    return None if per_hour is None else per_hour * prices.billing.billed_s(dump.held_s) / 3600


def cache_per_hour(prices: Prices, size_bytes: float) -> float | None:
    """Linear between two quoted sizes, as clouds charge per GB; None beyond them."""
    known = sorted((p.size_bytes, p.per_hour) for p in prices.caches)
    if not known or not 0.99 * known[0][0] <= size_bytes <= 1.01 * known[-1][0]:
        return None
    return float(np.interp(size_bytes, [s for s, _ in known], [p for _, p in known]))
