"""Native modification: one volume that the cloud makes fast for the peaks and slow again between them. Pure.

An optimistic bound. Every change is made in time and in force at once, by somebody who knows the future; only the
cloud's rule limits it: a number of changes in any period, one at a time. Where changes run out the volume stays fast,
so that applications never wait for it.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class ChangeRule:
    """At most `changes` in any `window_s`, each at least `completes_s` after the one before. 0 changes: not possible.

    The default is the rule of EBS since January 2026, and that of Azure's Premium SSD v2. GCP's Hyperdisk: one change
    in 4 hours.
    """

    changes: int = 4
    window_s: float = DAY_S
    completes_s: float = 0.0

    def permits(self, times: Sequence[float]) -> bool:
        """Whether changes at these times, in ascending order, obey the rule."""
        if any(after - before < self.completes_s for before, after in pairwise(times)):
            return False
        return all(last - first >= self.window_s for first, last in zip(times, times[self.changes :], strict=False))


def fast_s(busy: Sequence[tuple[float, float]], period_s: float, rule: ChangeRule) -> float:
    """Seconds of a period in which the volume is fast: the mean over two windows of the rule.

    `busy`: stretches (begin, end) in which only the fast volume suffices, in ascending order; they recur each period.
    The longest pauses are made slow first, each if the rule still permits the change at its begin and that at its end.
    """
    if not busy or rule.changes < 1:
        return period_s if busy else 0.0
    periods = max(1, math.ceil(2 * rule.window_s / period_s))
    recurring = [(n * period_s + begin, n * period_s + end) for n in range(periods) for begin, end in busy]
    total_s = periods * period_s
    ends = [0.0, *(end for _, end in recurring)]
    begins = [*(begin for begin, _ in recurring), total_s]
    times: list[float] = []
    slow_s = 0.0
    for begin, end in sorted(zip(ends, begins, strict=True), key=lambda pause: pause[0] - pause[1]):
        if end <= begin:
            break
        changes = [at for at in (begin, end) if 0.0 < at < total_s]
        if _fits(times, changes, rule):
            for at in changes:
                insort(times, at)
            slow_s += end - begin
    return (total_s - slow_s) / periods


def _fits(times: list[float], changes: Sequence[float], rule: ChangeRule) -> bool:
    """Whether these changes may be added: only the neighbours of each can be affected."""
    reach = max(rule.window_s, rule.completes_s)
    near = sorted([*(t for t in times if changes and changes[0] - reach <= t <= changes[-1] + reach), *changes])
    return rule.permits(near)
