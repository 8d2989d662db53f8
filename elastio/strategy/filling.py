"""When a cache that is full is released under a load that does not end. Pure.

Theory of operation. A cache whose dirty data is at the cutoff absorbs no more than is flushed at the same time: the
application gets the bandwidth b of the backing volume, with the cache or without. What the cache still costs, c_h a
second, buys nothing until the load ends, and nobody knows when that is. To give it up costs something too: its D bytes
of dirty data have to be flushed now, and applications wait for that,

    c_g = (v + c_h) D/b        v, c_h: see `worth`. A flush under load takes 2 D/b instead of D/b (`policy.LIMITED`)

That is the ski rental problem again (see `hold`): keep the full cache until the rent has reached that price,

    t = c_g / c_h = (1 + v/c_h) D/b

and then give it up; this costs at most twice what somebody pays who knows the end of the load. Where waiting is dear
for what a cache costs, t is long, and loads end before. The rent begins where the paid time ends.

Where no burst is known, each doubling of what a load has written is as likely to be its last, up to M, the largest size
of the first guess. If the backing volume needs e seconds for what is written, it ends in the next one with probability
1/(e ln(M/(b e))). So the rent is above what staying may save once e ln(M/(b e)) > c_g/c_h, the logarithm being at least
1. That is before t: a first cache that is too small for its load costs little.

Sooner it is given up for a larger one, if that pays. How much is still to come nobody knows; of a load that has written
W it is taken to be as much again, as for anything of unknown length. While the cache is flushed, D are written. So
what the larger cache saves of the other W - D, its bill included, has to be more than c_g: for that W has to be more
than 2 D, and a load gets a few at the most. The rate at which it filled its cache says how much faster than b it is. It
is taken from the begin of the load, which may find a cache that was held, or bought ahead, with dirty data in it.

The flush is forced, as one that a cap begins: it is carried out to its end, and only a proven drain detaches the cache.
Where no larger one pays, none is bought for the same load. By AGBs, and for an operator's boost, a full cache stays.

A cache that was bought in doubt, for a load that leaves bandwidth unused, and that stays empty, is given up after a
trial (`is_needless`): it costs nothing to give up, and a load that begins to wait gets another one.
"""

from __future__ import annotations

import math
from dataclasses import replace

from elastio.billing import Billing
from elastio.core.phase import Phase, Trigger
from elastio.core.policy import LIMITED, Policy
from elastio.strategy.hold import release_in_s
from elastio.strategy.load import is_quiet
from elastio.strategy.memory import Filling, Memory, Unended
from elastio.strategy.situation import CycleView, DeviceView, Situation
from elastio.strategy.worth import SIZES_MB
from elastio.units import MB, format_duration

# A cache counts as full until so much of its room is free again: the governor keeps it near the limit.
FREE_AGAIN = 0.8
# How long a load may show that it needs the cache that was bought in doubt; longer where more is paid anyway.
TRIAL_S = 60.0
NEEDLESS = "the load has left bandwidth of the backing volume unused with its cache, too: it does not need one"


def noted(memory: Memory, at: Situation, policy: Policy) -> Memory:
    """The memory that knows since when the load finds its cache full, and whether a load that filled one goes on."""
    cycle, device = at.cycle, at.device
    knows_one = memory.has_filled or memory.unended is not None or memory.is_needless
    # A release holds requests back, which is not the end of the load: what is low counts from the end of the release.
    is_releasing = at.phase in (Phase.FLUSHING, Phase.DETACHING)
    if knows_one and is_releasing and memory.load.below_since is not None:
        memory = replace(memory, load=replace(memory.load, below_since=at.now))
    if knows_one and is_quiet(memory.load, at.now, policy):
        memory = replace(memory, has_filled=False, unended=None, is_needless=False)
    if cycle is None or cycle.choice is None or at.phase is not Phase.BOOSTING:
        return _with(memory, None, None)
    filling = None if is_quiet(memory.load, at.now, policy) else memory.filling
    if memory.load.above_since is None:
        return _with(memory, filling, None)
    if device is None:
        return memory
    filling, since = filling or Filling(device.seen_at, device.dirty_bytes), memory.full_since
    if device.is_nearly_full:
        return memory if since is not None else _with(memory, _filled(filling, cycle, device), at.now)
    is_free_again = device.dirty_bytes < FREE_AGAIN * cycle.use.peak_dirty_bytes
    return _with(memory, filling, None if is_free_again else since)


def _filled(filling: Filling, cycle: CycleView, device: DeviceView) -> Filling:
    """With the rate at which the load has filled its cache: the first one.

    What was dirty before the load, or became so when it was full, is not counted, and what was flushed meanwhile is not
    known: the rate may be too low, after a pause as well, and is never too high.
    """
    written, seconds = device.dirty_bytes - filling.dirty_bytes, device.seen_at - filling.begun_at
    is_seen = written > (1 - FREE_AGAIN) * cycle.use.peak_dirty_bytes and seconds > 0
    if filling.rate_mb_s is not None or not is_seen:
        return filling
    return replace(filling, rate_mb_s=written / MB / seconds)


def _with(memory: Memory, filling: Filling | None, full_since: float | None) -> Memory:
    if (filling, full_since) == (memory.filling, memory.full_since):
        return memory
    return replace(memory, filling=filling, full_since=full_since)


def why_over(memory: Memory, cycle: CycleView, at: Situation, policy: Policy) -> str:
    """Why a full cache is released although the load goes on; empty: it is kept."""
    since = memory.full_since
    begun = None if at.advice is not None and at.advice.bursts else memory.load.above_since
    if since is None or at.now < _until(cycle, since, policy, begun, at.now):
        return ""
    full = format_duration(at.now - since)
    return f"full for {full} under a load that goes on: keeping the cache costs more than releasing it"


def is_needless(memory: Memory, at: Situation, policy: Policy, saturated: float) -> bool:
    """Whether a load goes on that has had a cache for its trial, and has never used what the backing volume gives.

    A load of which nobody knows whether it waits gets a cache to see that (`money.doubt_s`). It may never end. Where
    all known bursts waited, this one may be about to. `saturated`: the utilization at which loads wait (0 to 1).
    """
    cycle, device, load, advice = at.cycle, at.device, memory.load, at.advice
    if cycle is None or cycle.choice is None or device is None or at.phase is not Phase.BOOSTING:
        return False
    begun = load.above_since  # of the load that the cache was bought for: it has never ended since
    is_for_it = cycle.trigger is Trigger.LOAD and begun is not None and begun <= cycle.started_at
    if not is_for_it or (advice is not None and advice.pays and advice.all_waited):
        return False
    used = load.peak >= saturated * (1.0 if advice is None else advice.waits_at)
    is_clean = device.dirty_bytes <= policy.backing_bandwidth_mb_s * MB  # of a second
    return not used and is_clean and at.now >= _trial_until(cycle, cycle.choice.billing)


def _trial_until(cycle: CycleView, billing: Billing) -> float:
    boosted = cycle.times.boosted
    if boosted is None:
        return math.inf
    age_s = 0.0 if cycle.opened_wall is None else max(0.0, cycle.wall_at(boosted) - cycle.opened_wall)
    return boosted + max(TRIAL_S, release_in_s(billing, age_s, billing.release_s, TRIAL_S))


def unended(memory: Memory, at: Situation, policy: Policy) -> Unended | None:
    """The load that finds its cache full, if that cache could be given up for a larger one; else None."""
    since, filling, cycle = memory.full_since, memory.filling, at.cycle
    if since is None or filling is None or cycle is None or cycle.choice is None or cycle.trigger is Trigger.OPERATOR:
        return None
    # Buckets that wait for garbage collection are not dirty: then it is not the load that fills the cache.
    if filling.rate_mb_s is None or cycle.dirty_bytes <= FREE_AGAIN * cycle.use.peak_dirty_bytes:
        return None
    before_mb = 0.0 if memory.unended is None else memory.unended.written_mb
    filled_mb = (cycle.dirty_bytes - filling.dirty_bytes) / MB
    written_mb = before_mb + filled_mb + policy.backing_bandwidth_mb_s * (at.now - since)
    return Unended(written_mb + cycle.dirty_bytes / MB, filling.rate_mb_s)


def _until(cycle: CycleView, since: float, policy: Policy, begun: float | None, now: float) -> float:
    """Until when (CLOCK_BOOTTIME) the cache, full `since`, is kept. `begun`: of a load like none before; else None."""
    market, choice = policy.market, cycle.choice
    if market is None or choice is None or cycle.trigger is Trigger.OPERATOR:
        return float("inf")
    flush_s = cycle.dirty_bytes / MB / policy.backing_bandwidth_mb_s
    hold_per_s = market.tariff.per_hour(cycle.provisioned) / 3600
    if hold_per_s <= 0:
        return float("inf")
    kept_s = (1 + market.waiting_per_s / hold_per_s) * flush_s
    if begun is not None:
        rarely = math.log(SIZES_MB[-1] / policy.backing_bandwidth_mb_s / (now - begun + flush_s))
        kept_s = max(0.0, kept_s / max(1.0, rarely) - (since - begun) - flush_s)
    age_s = 0.0 if cycle.opened_wall is None else max(0.0, cycle.wall_at(since) - cycle.opened_wall)
    release_s = choice.billing.release_s + flush_s / LIMITED
    return since + release_in_s(choice.billing, age_s, release_s, kept_s)
