"""How long a run would have taken at another bandwidth, and from where on more is not worth buying. Pure.

Theory of operation. Of a run of T seconds, W were waiting for a volume at its limit, which moved V meanwhile. At
another bandwidth B the rest takes as long as before, and V takes V/B:

    T(B) = (T - W) + V/B                       flat from the demand on: the most that the run can move

A doubling from B on saves V/(2B). It saves at most the share e of the time, the stop gain, if

    V/(2B) <= e T(B)      <=>      B >= B* = V (1 - 2e) / (2 e (T - W))

B* is the inflection. Beyond it nothing is bought. One run gives the whole curve, whatever the limit was during it; with
several tasks W is between two bounds, and so are the curve and B* (`account`).

A curve is not believed farther than FARTHEST times the bandwidth at which it was measured: T - W is then small beside
its own error, or other limits come first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from elastio.strategy.account import Account, AtCap, Totals, account, refine
from elastio.units import MB

FARTHEST = 8.0
STOP_GAIN = 0.05
# A learned or shown bandwidth is a multiple of the one in force by steps of this.
STEP = math.sqrt(2)
MOST_STEPS = 9
# Less waiting for bandwidth than this share of the time is nothing to buy for.
LEAST_SHARE = 0.01
# Of the time: if more is unknown, it may be waiting for bandwidth, and nothing is advised.
MOST_UNKNOWN = 0.1
# If more of the readings are lost, there is no answer: those that are left were made when the machine was less busy.
MOST_LOST = 0.5


@dataclass(frozen=True, slots=True)
class Curve:
    """T(B) of a run: `rest_s` is T - W, `moved_mb` is V; at `demand_mb_s` it becomes flat."""

    rest_s: float
    waited_s: float
    moved_mb: float
    demand_mb_s: float = math.inf

    def time_s(self, mb_s: float) -> float:
        """Seconds of the run at this bandwidth, which is above 0."""
        return self.rest_s + self.moved_mb / min(mb_s, self.demand_mb_s)

    @property
    def measured_mb_s(self) -> float | None:
        """What was moved in a second of waiting; None: nothing waited for bandwidth."""
        return self.moved_mb / self.waited_s if self.waited_s > 0 and self.moved_mb > 0 else None

    def inflection_mb_s(self, stop_gain: float = STOP_GAIN) -> float:
        """B* for a stop gain above 0 and below 0.5, at most the demand.

        0: no bandwidth helps. Infinite: all of the run waits, and each doubling halves it.
        """
        if self.moved_mb <= 0:
            return 0.0
        if self.rest_s <= 0:
            return self.demand_mb_s
        return min(self.demand_mb_s, self.moved_mb * (1 - 2 * stop_gain) / (2 * stop_gain * self.rest_s))


class Curves(NamedTuple):
    """By the three measures of waiting. `least` bounds the gain from below, `most` from above."""

    least: Curve
    likely: Curve
    most: Curve


def curves_of(totals: Totals, demand_mb_s: float = math.inf) -> Curves:
    """The curves of a run."""
    refined, _ = refine(totals)

    def curve(at_cap: AtCap) -> Curve:
        rest_s = max(0.0, refined.seconds - at_cap.seconds)
        return Curve(rest_s, at_cap.seconds, at_cap.moved_bytes / MB, demand_mb_s)

    return Curves(curve(refined.least), curve(refined.likely), curve(refined.most))


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


# --- what to buy -----------------------------------------------------------------------------------------


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
    if measured is None or found.bandwidth_s < LEAST_SHARE * found.seconds:
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
