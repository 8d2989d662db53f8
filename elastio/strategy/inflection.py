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
from typing import NamedTuple

from elastio.strategy.account import AtCap, Totals, refine
from elastio.units import MB

FARTHEST = 8.0
STOP_GAIN = 0.05
# A learned or shown bandwidth is a multiple of the one in force by steps of this.
STEP = math.sqrt(2)
# Less waiting for bandwidth than this share of the time is nothing to buy for.
LEAST_SHARE = 0.01
# Of the time: if more is unknown, it may be waiting for bandwidth, and nothing is advised.
MOST_UNKNOWN = 0.1


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
