"""How big the next cache is to be, from what the last boosts taught. Pure.

A size is the product of two things that vary for different reasons: how much a burst moves, and which share of that had
to be held. The application decides the first; the second falls when something slows a burst down, because more of it
flows back meanwhile. One boost may be odd in either; so each is taken from several.

**How much** is a newsvendor's question (K. Arrow, T. Harris, J. Marschak, *Optimal Inventory Policy*, Econometrica
1951): of N past bursts, which is the next cache to have room for? A GB of room costs its price per second, p, for the
H seconds that a cache is held, in every boost. A GB that is missing costs, in the share q of boosts that need it, the
price per second of the machine that waits, m, for the time in which the backing volume (b) takes what the cache (B)
would have taken, with the cutoff u as the share of a cache that holds dirty data:

    room pays while  q > p x H / (m x u x 1000 MB x (1/b - 1/B))

A machine costs as much as some thousand GB of volume (MACHINE_GB, on the low side), so with 33 and 128 MB/s and an H of
two minutes a hundredth is enough: room for every burst that comes again is worth buying. But what came once need not
come again, so a size has to have been asked for twice. What none of the last three bursts asked for is not bought any
more: an application that changed is followed within three bursts, at the price that a burst which is large every
fourth time finds too small a cache.
"""

from __future__ import annotations

import math
from statistics import median

from elastio.core.cycle import Cycle
from elastio.core.policy import Policy, in_steps
from elastio.core.state import Lesson
from elastio.units import MB

KEPT = 8
RECENT = 3
# Bursts that differ by less are the same burst.
ALIKE = 1.15
# A burst of which less than SLOWED of the usual share had to be held was slowed down; more than ODD is odd as well.
# What is measured of steady bursts varies by some per cent, and a little too much room is better than too little.
SLOWED, ODD = 0.9, 1.25
# What a second of a waiting machine costs, in seconds of a GB of cache volume.
MACHINE_GB = 1000.0
GB_MB = 1000.0


def lesson_of(cycle: Cycle, policy: Policy) -> Lesson | None:
    """What this boost would have needed; None where next to nothing was asked of its cache.

    Nothing was evicted: what was used. Something was, or had to be flushed lest it was: its size and that. bcache
    counts buckets, not bytes, and stops absorbing at the cutoff, so both are divided by the share of the cache that
    can be dirty.
    """
    if cycle.moved_bytes < policy.backing_bandwidth_mb_s * MB and cycle.missing_bytes == 0:
        return None
    size = cycle.provisioned.size_bytes
    cutoff = cutoff_of(cycle, policy)
    if cycle.missing_bytes > 0:
        needed = size + cycle.missing_bytes / cutoff * policy.headroom
    else:
        needed = min(size, size * cycle.peak_in_use_percent / 100 / cutoff * policy.headroom)
    return Lesson(int(needed), max(1, cycle.moved_bytes))


def cutoff_of(cycle: Cycle, policy: Policy) -> float:
    """The share of its cache that can be dirty."""
    return policy.cutoff if cycle.cutoff_percent is None else cycle.cutoff_percent / 100


def with_lesson(lessons: tuple[Lesson, ...], lesson: Lesson) -> tuple[Lesson, ...]:
    """The last ones, the newest at the end."""
    return (*lessons, lesson)[-KEPT:]


def learned_bytes(lessons: tuple[Lesson, ...], cycle: Cycle, policy: Policy) -> int:
    """Bytes to buy after this cycle, in whole steps and within the bounds."""
    if len(lessons) == 1:
        return in_steps(_alone(lessons[0], cycle, policy), policy)
    held_s = 0.0 if cycle.opened_wall is None else (cycle.closed_wall or cycle.opened_wall) - cycle.opened_wall
    return in_steps(_moved(lessons, held_s, policy) * _share(lessons), policy)


def _alone(lesson: Lesson, cycle: Cycle, policy: Policy) -> float:
    """Nothing shows yet whether this burst is usual. If much less of it was held than of one that saturates the cache,
    it may have been slowed down, and the next one gets room as if it had; never more than this one had."""
    cache_mb_s = policy.cache_bandwidth_mb_s
    flows_back = min(policy.drain_bandwidth_mb_s, policy.backing_bandwidth_mb_s, cache_mb_s) / cache_mb_s
    usual = lesson.moved_bytes * (1 - flows_back) / cutoff_of(cycle, policy) * policy.headroom
    return max(lesson.needed_bytes, min(SLOWED * usual, cycle.provisioned.size_bytes))


def _moved(lessons: tuple[Lesson, ...], held_s: float, policy: Policy) -> float:
    moved = [lesson.moved_bytes for lesson in lessons]
    newest = moved[-1]
    if len(moved) < RECENT:
        return newest
    asked_twice = sorted(moved, reverse=True)[_asked(len(moved), held_s, policy) - 1]
    if newest <= asked_twice:
        # Of bursts that are alike the last one counts: what it needed was measured, not made of two.
        usual = min(asked_twice, max(moved[-RECENT:]))
        return newest if newest * ALIKE >= usual else usual
    # Larger than any before but one it may be the first of many, and a little more room is cheap.
    return min(newest, asked_twice * ALIKE)


def _asked(bursts: int, held_s: float, policy: Policy) -> int:
    """In how many of so many bursts room must be needed, so that it pays; at least in two."""
    slow, fast = policy.backing_bandwidth_mb_s, policy.cache_bandwidth_mb_s
    wait_s = policy.cutoff * GB_MB * max(0.0, 1 / slow - 1 / fast)
    least = held_s / (MACHINE_GB * wait_s) if wait_s else 1.0
    return max(2, min(bursts, math.ceil(least * bursts)))


def _share(lessons: tuple[Lesson, ...]) -> float:
    """Bytes of cache for each byte that is moved: the last burst's, unless it was not like those before it."""
    shares = [lesson.needed_bytes / lesson.moved_bytes for lesson in lessons[-RECENT:]]
    usual = median(shares) if len(shares) == RECENT else max(shares)
    last = shares[-1]
    return last if SLOWED * usual <= last <= ODD * usual else usual
