"""Which bandwidth one profiled run advises, and the bandwidths of its table, by the curve of `inflection`. Pure."""

from __future__ import annotations

import math
from enum import Enum
from typing import NamedTuple

from elastio.strategy.account import Account, Totals, account
from elastio.strategy.bandwidth import FARTHEST, LEAST_SHARE, MOST_UNKNOWN, STEP, Curve
from elastio.strategy.memory import STOP_GAIN

MOST_STEPS = 9
# If more of the readings are lost, there is no answer: those that are left were made when the machine was less busy.
MOST_LOST = 0.5


def steps_mb_s(curve: Curve, stop_gain: float = STOP_GAIN) -> tuple[float, ...]:
    """Bandwidths of a table: from the measured one, in steps of the square root of 2 or of 2, to twice the inflection.

    Empty where nothing waited for bandwidth. At most MOST_STEPS, and not beyond what is believed.
    """
    measured = curve.measured_mb_s
    if measured is None:
        return ()
    farthest = FARTHEST * measured
    end = min(farthest, 2 * max(measured, curve.inflection_mb_s(stop_gain))) * (1 + 1e-9)
    step = STEP if measured * STEP ** (MOST_STEPS - 1) >= end else 2.0
    count = min(MOST_STEPS, 1 + int(math.log(end / measured, step)))
    return tuple(measured * step**number for number in range(count))


class Why(Enum):
    """What decides the bandwidth of the next cache."""

    NOTHING_SEEN = "nothing_seen"
    READINGS_LOST = "readings_lost"
    UNKNOWN = "unknown"
    NOT_BANDWIDTH = "not_bandwidth"
    ENOUGH = "enough"
    INFLECTION = "inflection"
    DEMAND = "demand"
    FARTHEST = "farthest"


class BandwidthAdvice(NamedTuple):
    """The bandwidth of the next cache in MB/s, None: none; why; and the share of the time that it saves."""

    mb_s: float | None
    why: Why
    saved: float = 0.0


def lost_share(totals: Totals, lost: int) -> float:
    """Of the readings that should have been made, those that were lost, from 0 to 1."""
    return lost / (lost + totals.instants) if lost > 0 else 0.0


def _not_known(totals: Totals, found: Account, lost: int) -> Why | None:
    if found.seconds <= 0:
        return Why.NOTHING_SEEN
    if lost_share(totals, lost) > MOST_LOST:
        return Why.READINGS_LOST
    return Why.UNKNOWN if found.unknown_s > MOST_UNKNOWN * found.seconds else None


def advise(totals: Totals, curve: Curve, stop_gain: float = STOP_GAIN, lost: int = 0) -> BandwidthAdvice:
    """What to buy for a run like this one; never above the inflection. Nothing where the account is not known.

    `lost`: readings that a busy machine did not let happen.
    """
    found = account(totals)
    measured = curve.measured_mb_s
    unknown = _not_known(totals, found, lost)
    if unknown is not None:
        return BandwidthAdvice(None, unknown)
    if measured is None or curve.waited_s < LEAST_SHARE * found.seconds:
        return BandwidthAdvice(None, Why.NOT_BANDWIDTH)
    bounds = (
        (curve.inflection_mb_s(stop_gain), Why.INFLECTION),
        (curve.demand_mb_s, Why.DEMAND),
        (FARTHEST * measured, Why.FARTHEST),
    )
    mb_s = min(bound for bound, _ in bounds)
    if mb_s <= measured:
        return BandwidthAdvice(None, Why.ENOUGH)
    why = next(why for bound, why in reversed(bounds) if bound <= mb_s)
    return BandwidthAdvice(mb_s, why, 1 - curve.time_s(mb_s) / curve.time_s(measured))
