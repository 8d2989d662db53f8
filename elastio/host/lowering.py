"""How a lower limit has to be written, so that the kernel keeps to it. Pure.

Theory of operation. blk-throttle counts in slices of 0.1 s, and what a limit allows in one may pass at its begin. A
limit that is written while requests wait begins a slice, from which is taken off what has passed too early in the one
before: up to all that the limit before allowed in a slice. Linux 6.1 compares what is left as an unsigned number
(block/blk-throttle.c: tg_within_bps_limit with carryover_bytes, a u64; later kernels have it signed). So where a lower
limit allows less in a slice than has passed too early, everything passes for the slice, that is, all that waits; and as
this is again too early, each limit that is written soon after it has no effect either, for as long as it needs to allow
all of that. What has passed stands in a queue, and who has most in it gets most.

So a limit that is to go down is first written as it is. That is always safe, and the slice begins at a known time.
SETTLES_S later, near the end of it, most of what has passed has been allowed by then, and the lower limit is written.
It may be LEAST of the one before; if it is to be lower, the next turn goes on.

Each limit has a time of its own for this, as many take long to write. After it the next slice may have begun, and the
limit stays for a turn. After LATE_TURNS such turns in a row it is written even so: all that waits may pass for a slice,
which is better than a share that is never kept.
"""

from __future__ import annotations

from collections.abc import Mapping

# With a jiffy of 10 ms at least 60 % of the slice have passed then, so what has passed too early is LEAST at most.
SETTLES_S, LATEST_S = 0.07, 0.09
LEAST = 0.5
LATE_TURNS = 2


def lowered(limits_mb_s: Mapping[str, float], in_force_mb_s: Mapping[str, float]) -> dict[str, float]:
    """Of the limits those that are lower than the ones in force: what to write first, which is what is in force."""
    return {g: before for g, mb_s in limits_mb_s.items() if (before := in_force_mb_s.get(g, 0.0)) > mb_s}


def allowed(limits_mb_s: Mapping[str, float], first_mb_s: Mapping[str, float]) -> dict[str, float]:
    """What to write once the first have settled, none too low; those that go down come first, in the same order."""
    return {g: max(limits_mb_s[g], LEAST * first_mb_s.get(g, 0.0)) for g in {**first_mb_s, **limits_mb_s}}


def window(begun_s: float, ended_s: float) -> tuple[float, float]:
    """From when until when a lower limit may be written, whose first step was written between these two."""
    return ended_s + SETTLES_S, begun_s + LATEST_S
