"""The size and the bandwidth of the next cache, learned from the last boosts. Pure.

A size is the product of two factors: how much a burst moves, and which share of that the cache had to hold. The
application decides the first. The second falls when something slows a burst down, because more is flushed meanwhile.
One boost may be unusual in either, so each factor is taken from several boosts.

**How much** is the newsvendor problem (K. Arrow, T. Harris, J. Marschak, *Optimal Inventory Policy*, Econometrica
1951): of N past bursts, for which must the next cache have room? A GB of room costs its price per second, p, for the
H seconds that a cache is billed, in every boost. A missing GB costs, in the share q of boosts that need it, the price
per second of the waiting machine, m, for the time that the backing volume (b) needs longer than the cache (B) would
have. The cutoff u is the share of a cache that can hold dirty data:

    room pays while  q > p x H / (m x u x 1000 MB x (1/b - 1/B))

A machine costs as much as about a thousand GB of volume (MACHINE_GB, a low estimate). So with 33 and 128 MB/s and an H
of two minutes, q = 0.01 is enough: room for every burst that recurs is worth buying. A burst that came once need not
recur, so a size is bought only after two bursts needed it. A size that none of the last three bursts needed is no
longer bought: the size follows a changed application within three bursts. The price is that an application whose every
fourth burst is large finds too small a cache for it.

**A quota** may leave no room for that size, and nobody says for which there is room, or whether it is one of sizes at
all. Each refusal halves what is asked for, and each sale of that doubles it again, until one is refused after a sale:
then the size that was sold is asked for. An hour after the last refusal no limit is left: a quota is shared, and what
others use of it changes. What was learned is not forgotten meanwhile.

How the bandwidth is learned is said in `bandwidth`. It changes only between cycles.
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median

from elastio.core.model import Forecast, Request
from elastio.core.phase import FailureKind, Phase
from elastio.core.policy import Policy
from elastio.strategy import backing_credits, bandwidth
from elastio.strategy.memory import LearnedBandwidth, Lesson, Memory, QuotaReached, SpeedBounds
from elastio.strategy.situation import CycleView, Reply, Situation
from elastio.units import MB, format_size

KEPT = 8
RECENT = 3
# Bursts whose sizes differ by less than this ratio count as equal.
ALIKE = 1.15
# A burst that needed less than SLOWED times the usual share was slowed down; more than ODD times is unusual as well.
# Measurements of steady bursts vary by a few per cent, and a little too much room is better than too little.
SLOWED, ODD = 0.9, 1.25
# The cost of one second of a waiting machine, in seconds of one GB of cache volume.
MACHINE_GB = 1000.0
GB_MB = 1000.0
# For so long after a refusal no more is asked for, in seconds.
REFUSED_S = 3600.0


def lesson_of(cycle: CycleView, moved_bytes: int, policy: Policy) -> Lesson | None:
    """What this boost would have needed; None if its cache was hardly used.

    If every write was absorbed: the peak of the buckets in use. If writes were written through, or flushing had to be
    forced: the cache's size plus those bytes. bcache counts buckets, not bytes, and stops absorbing at the cutoff, so
    both are divided by the cutoff.
    """
    if moved_bytes < policy.backing_bandwidth_mb_s * MB and cycle.use.missing_bytes == 0:
        return None
    size = cycle.provisioned.size_bytes
    cutoff = cutoff_of(cycle, policy)
    if cycle.use.missing_bytes > 0:
        needed = size + cycle.use.missing_bytes / cutoff * policy.headroom
    else:
        needed = min(size, size * cycle.use.peak_in_use_percent / 100 / cutoff * policy.headroom)
    return Lesson(int(needed), max(1, moved_bytes))


def in_steps(wanted_bytes: float, policy: Policy) -> int:
    """`wanted_bytes` rounded up to a whole step, within the bounds."""
    steps = -(-int(wanted_bytes) // policy.size_step_bytes)
    return max(policy.min_size_bytes, min(steps * policy.size_step_bytes, policy.caps.max_size_bytes))


def cutoff_of(cycle: CycleView, policy: Policy) -> float:
    """The share of this cycle's cache that can be dirty, 0 to 1."""
    return policy.cutoff if cycle.use.cutoff_percent is None else cycle.use.cutoff_percent / 100


def with_lesson(lessons: tuple[Lesson, ...], lesson: Lesson) -> tuple[Lesson, ...]:
    """The last KEPT lessons, the newest at the end."""
    return (*lessons, lesson)[-KEPT:]


def learned_bytes(lessons: tuple[Lesson, ...], cycle: CycleView, policy: Policy) -> int:
    """The size to buy after this cycle: bytes, in whole steps, within the configured bounds."""
    if len(lessons) == 1:
        return in_steps(_after_one(lessons[0], cycle, policy), policy)
    held_s = 0.0 if cycle.opened_wall is None else (cycle.closed_wall or cycle.opened_wall) - cycle.opened_wall
    return in_steps(_expected_moved(lessons, held_s, policy) * share(lessons), policy)


def _after_one(lesson: Lesson, cycle: CycleView, policy: Policy) -> float:
    """Bytes after a single boost. Nothing shows yet whether its burst is usual.

    If much less of it was held than of one that saturates the cache, it may have been slowed down. The next cache then
    gets the room of a full-speed burst, but not more than this one had.
    """
    usual = lesson.moved_bytes * full_speed_share(cutoff_of(cycle, policy), policy)
    return max(lesson.needed_bytes, min(SLOWED * usual, cycle.provisioned.size_bytes))


def full_speed_share(cutoff: float, policy: Policy) -> float:
    """Bytes of cache for each byte of a burst that saturates the cache: what does not flow back meanwhile stays."""
    cache_mb_s = policy.cache_bandwidth_mb_s
    flows_back = min(policy.drain_bandwidth_mb_s, policy.backing_bandwidth_mb_s, cache_mb_s) / cache_mb_s
    return (1 - flows_back) / cutoff * policy.headroom


def _expected_moved(lessons: tuple[Lesson, ...], held_s: float, policy: Policy) -> float:
    """Bytes that the next burst is expected to move."""
    moved = [lesson.moved_bytes for lesson in lessons]
    newest = moved[-1]
    if len(moved) < RECENT:
        return newest
    asked_twice = sorted(moved, reverse=True)[_bursts_asking(len(moved), held_s, policy) - 1]
    if newest <= asked_twice:
        # Among equal bursts the last one counts: its need was measured, not computed from two.
        usual = min(asked_twice, max(moved[-RECENT:]))
        return newest if newest * ALIKE >= usual else usual
    # It is larger than all but one: it may be the first of many, and a little more room is cheap.
    return min(newest, asked_twice * ALIKE)


def _bursts_asking(bursts: int, held_s: float, policy: Policy) -> int:
    """Of `bursts`, the number that must have needed a room for it to pay; at least two."""
    slow, fast = policy.backing_bandwidth_mb_s, policy.cache_bandwidth_mb_s
    wait_s = policy.cutoff * GB_MB * max(0.0, 1 / slow - 1 / fast)
    least = held_s / (MACHINE_GB * wait_s) if wait_s else 1.0
    return max(2, min(bursts, math.ceil(least * bursts)))


def asked(memory: Memory, request: Request, policy: Policy) -> tuple[Memory, Reply]:
    """Set the learned size. A size outside the bounds is refused; an open cycle does not change it again."""
    size = request.size_bytes
    if size is None:
        return memory, Reply("learn needs a size (size_bytes)", "learn.size_bytes")
    if not policy.min_size_bytes <= size <= policy.caps.max_size_bytes:
        bounds = f"{format_size(policy.min_size_bytes)} to {format_size(policy.caps.max_size_bytes)}"
        text = f"a cache of {format_size(size)} is outside cache.*_size_gib ({bounds})"
        return memory, Reply(text, "learn.size_bytes")
    boost = replace(memory.boost, updates_learned_size=False)
    memory = replace(memory, boost=boost, learned_size_bytes=size, lessons=(), quota=None)
    return memory, Reply(f"the next cache gets {format_size(size)}")


def share(lessons: tuple[Lesson, ...]) -> float:
    """Bytes of cache for each byte moved: the last burst's, unless it differs from the ones before it."""
    shares = [lesson.needed_bytes / lesson.moved_bytes for lesson in lessons[-RECENT:]]
    usual = median(shares) if len(shares) == RECENT else max(shares)
    last = shares[-1]
    return last if SLOWED * usual <= last <= ODD * usual else usual


def next_size(learned_size_bytes: int | None, policy: Policy) -> int:
    """Bytes to buy for the next boost: the learned size, else the initial size; within the bounds."""
    wanted = policy.initial_size_bytes if learned_size_bytes is None else learned_size_bytes
    return max(policy.min_size_bytes, min(wanted, policy.caps.max_size_bytes))


def size_for(burst: Forecast, memory: Memory, policy: Policy) -> int:
    """Bytes to buy ahead of this burst: the learned share of what it writes, or that of a burst at full speed.

    Without an announced size: the learned size, else the initial one. A forecast gets at least the learned size: the
    bursts that it was learned from were met late, and in part without a cache.
    """
    if not burst.written_bytes:
        return next_size(memory.learned_size_bytes, policy)
    held = share(memory.lessons) if memory.lessons else full_speed_share(policy.cutoff, policy)
    size = in_steps(burst.written_bytes * held, policy)
    is_learned = not burst.is_announced and memory.learned_size_bytes is not None
    return max(size, next_size(memory.learned_size_bytes, policy)) if is_learned else size


# --- what the cloud refuses ------------------------------------------------------------------------------


def with_refusal(memory: Memory, cycle: CycleView, wall: float, policy: Policy) -> Memory:
    """The memory if the cloud has refused this purchase: for its bandwidth, or for its size if it was a quota."""
    known, kind = memory.bandwidth, None if cycle.failure is None else cycle.failure.kind
    if known is not None and kind in (FailureKind.ERROR, FailureKind.QUOTA):
        memory = replace(memory, bandwidth=bandwidth.with_refusal(known))
    if kind is not FailureKind.QUOTA:
        return memory
    asked, sold = cycle.provisioned.size_bytes, memory.quota.sold_bytes if memory.quota else 0
    steps = asked // 2 // policy.size_step_bytes
    most = sold if 0 < sold < asked else max(policy.min_size_bytes, steps * policy.size_step_bytes)
    return replace(memory, quota=QuotaReached(most, wall, sold if sold < asked else 0))


def with_sale(memory: Memory, cycle: CycleView) -> Memory:
    """The memory once the cache of this cycle was sold and attached: there may be room for more."""
    quota, sold = memory.quota, cycle.provisioned.size_bytes
    if quota is None or sold <= quota.sold_bytes:
        return memory
    return replace(memory, quota=replace(quota, most_bytes=2 * sold, sold_bytes=sold))


def most_bytes(memory: Memory, wall: float, policy: Policy) -> int:
    """The largest cache that is asked for now: the configured one, or half of what a quota has refused."""
    quota = memory.quota
    if quota is None or not 0 <= wall - quota.at_wall < REFUSED_S:
        return policy.caps.max_size_bytes
    return min(quota.most_bytes, policy.caps.max_size_bytes)


# --- the bandwidth ---------------------------------------------------------------------------------------


def in_force(policy: Policy, memory: Memory) -> Policy:
    """The policy with the bandwidths that hold now: of the backing volume by its credits, of a cache as learned."""
    policy = backing_credits.in_force(policy, memory)
    known = memory.bandwidth
    if policy.bandwidth is None:
        return policy
    mb_s = bandwidth.next_mb_s(known, policy.bandwidth, _carried_mb_s(known, policy, policy.bandwidth))
    return replace(policy, cache_bandwidth_mb_s=mb_s)


def with_burst(memory: Memory, at: Situation, policy: Policy) -> tuple[Memory, str]:
    """The memory with the burst that has ended, and what it teaches: the reason of a change, or an empty string."""
    known, bounds = memory.bandwidth, policy.bandwidth
    if bounds is None:
        return memory, ""
    if at.burst is not None:
        known = bandwidth.noted(known or LearnedBandwidth(bounds.first_mb_s), at.burst)
    is_between = at.phase_known and at.phase is Phase.IDLE and at.cycle is None
    is_carried_known = known is not None and known.instance_mb_s is not None
    known, why = _of_instance(known, at.instance_mb_s, bounds) if is_between else known, ""
    if known is not None and known.is_fresh and is_between and is_carried_known:
        known, why = bandwidth.learn(known, bounds, _carried_mb_s(known, policy, bounds))
    if known is memory.bandwidth:
        return memory, ""
    return replace(memory, bandwidth=known), why


def _of_instance(
    known: LearnedBandwidth | None, carried_mb_s: float | None, bounds: SpeedBounds
) -> LearnedBandwidth | None:
    """With what the instance carries, as soon as the cloud has said it: it holds until it says something else."""
    if carried_mb_s is None or (known is not None and known.instance_mb_s == carried_mb_s):
        return known
    return replace(known or LearnedBandwidth(bounds.first_mb_s), instance_mb_s=carried_mb_s)


def _carried_mb_s(known: LearnedBandwidth | None, policy: Policy, bounds: SpeedBounds) -> float:
    """What the instance carries of applications' writes, while dirty data is read back and written again.

    Until the cloud has said what it carries, no more is bought than where learning begins.
    """
    known_mb_s = known.instance_mb_s if known else None
    return bounds.first_mb_s if known_mb_s is None else known_mb_s - 2 * policy.drain_bandwidth_mb_s
