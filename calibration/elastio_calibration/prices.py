"""AGBs into currency: what the volumes of a prediction would be billed at. Pure but for numpy's interpolation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from elastio_calibration.measurement import Prices, Setup
from elastio_calibration.model import Dump


def cost(prices: Prices, setup: Setup, paid_s: float, dumps: Sequence[Dump], vms: int) -> float | None:
    """Currency for all VMs: the permanent volume for `paid_s` and each cache for as long as it is held.

    None where a price is not known: nothing is extrapolated beyond the sizes that were quoted.
    """
    permanent = prices.fast_per_hour if setup is Setup.STATIC_FAST else prices.slow_per_hour
    if permanent is None:
        return None
    total = permanent * paid_s
    for dump in dumps:
        if dump.cache_bytes:
            per_hour = cache_per_hour(prices, dump.cache_bytes)
            if per_hour is None:
                return None
            total += per_hour * max(dump.held_s, prices.minimum_s)
    return vms * total / 3600


def cache_per_hour(prices: Prices, size_bytes: float) -> float | None:
    """Between two quoted sizes the price is linear, as clouds charge by the GB."""
    known = sorted((p.size_bytes, p.per_hour) for p in prices.caches)
    if not known or not 0.99 * known[0][0] <= size_bytes <= 1.01 * known[-1][0]:
        return None
    return float(np.interp(size_bytes, [s for s, _ in known], [p for _, p in known]))
