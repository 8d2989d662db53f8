"""Boosts ahead of bursts that somebody announced, or that a forecaster expects. Pure.

A boost that waits for the threshold comes late: by one sample, the cloud's latency and the agent's own steps. Where the
beginning of a burst is known, the cache is bought so much earlier that it is attached by then. Nobody pays for more
than that: the *lead* is the longest of the last measured times from a decision to the attached cache, and a little
more, because a second of waiting application costs more than a second of an idle cache.

An expected burst is *awaited* from its lead time on until it would have ended at the cache's bandwidth, but no longer
than some minutes after its begin, plus the inactivity delay, or for as long as its forecast says. Meanwhile a cache
that is attached already is not released for lack of load, and one that is being flushed takes writes again. If no load
comes in that time, or before another expected burst is due, the expectation was wrong. After three wrong ones in a row
nothing is bought ahead, until one that is only watched turns out right: what announces bursts that do not come must not
buy a volume each time. Announced bursts and forecast ones are counted apart: one says nothing about the other.
"""

from __future__ import annotations

from dataclasses import replace

from elastio.core.model import Forecast, Request
from elastio.core.phase import Phase
from elastio.core.policy import Ahead, Policy
from elastio.strategy.memory import Memory
from elastio.strategy.situation import Reply, Situation
from elastio.units import MB, format_duration, format_size

# Bursts that may be announced at the same time.
MOST_EXPECTED = 64
# Measured times to attach that are kept.
KEPT = 8
# Announcements of bursts that begin within this time of each other are one: a timer is announced again and again.
SAME_S = 2.0
# An expected burst may begin so much later than was said: an idle cache is paid for, whatever the burst would write.
BEGIN_S = 300.0
# Wrong expectations in a row after which nothing is bought ahead.
MOST_MISSED = 3


def expect(memory: Memory, burst: Forecast) -> Memory:
    """The memory with one more announced burst; it replaces an earlier announcement of the same one."""
    burst = replace(burst, is_announced=True)
    others = (b for b in memory.expected if not is_same(b, burst))
    return replace(memory, expected=tuple(sorted((*others, burst), key=lambda b: b.begins_at)))


def is_same(burst: Forecast, other: Forecast) -> bool:
    """Both announce one burst."""
    return abs(burst.begins_at - other.begins_at) < SAME_S


def update(memory: Memory, at: Situation, policy: Policy) -> Memory:
    """The memory at `at.now`: past bursts forgotten, the next one awaited, and the outcome of the awaited one noted."""
    if any(b.begins_at <= at.now for b in memory.expected):
        memory = replace(memory, expected=tuple(b for b in memory.expected if b.begins_at > at.now))
    memory = _judged(memory, at.now, policy)
    due = _due(memory, at, policy)
    if due is not None and (memory.awaited is None or due.begins_at > memory.awaited.begins_at):
        if memory.awaited is not None and memory.awaited.begins_at <= at.now:
            # Nobody would notice the end of its time: announcements that follow each other must not hold a cache.
            memory = _counted(memory, memory.awaited, _missed(memory, memory.awaited) + 1)
        memory = replace(memory, awaited=due)
    return _kept(memory, at, policy)


def _judged(memory: Memory, now: float, policy: Policy) -> Memory:
    """A load while a burst is awaited is that burst; a load before an announced begin is another one."""
    burst = memory.awaited
    if burst is None or (burst.is_announced and now < burst.begins_at):
        return memory
    if memory.load.above_since is not None:
        # From now on the load decides how long the cache is kept.
        memory = replace(memory, awaited=None, boost=replace(memory.boost, chance_until=None))
        return _counted(memory, burst, 0)
    if now < chance_until(burst, policy):
        return memory
    return _counted(replace(memory, awaited=None), burst, _missed(memory, burst) + 1)


def chance_until(forecast: Forecast, policy: Policy) -> float:
    """Until when (CLOCK_BOOTTIME) a boost ahead of this burst is kept.

    That is the end of the burst, written at the cache's bandwidth, but at most BEGIN_S after its begin, plus the
    inactivity delay, unless the forecast says how long. A load ends it earlier.
    """
    if forecast.kept_s is not None:
        return forecast.begins_at + forecast.kept_s
    seconds = min(forecast.written_bytes / MB / policy.cache_bandwidth_mb_s, BEGIN_S)
    return forecast.begins_at + seconds + policy.inactivity_delay_s


def _missed(memory: Memory, burst: Forecast) -> int:
    """How many bursts in a row of this one's kind did not come."""
    return memory.missed if burst.is_announced else memory.missed_forecasts


def _counted(memory: Memory, burst: Forecast, missed: int) -> Memory:
    return replace(memory, missed=missed) if burst.is_announced else replace(memory, missed_forecasts=missed)


def _due(memory: Memory, at: Situation, policy: Policy) -> Forecast | None:
    """The next expected burst, if its lead time has come."""
    if policy.ahead is Ahead.OFF:
        return None
    forecast = at.forecast
    is_sure = forecast is not None and forecast.confidence >= policy.least_confidence
    is_here = memory.load.above_since is not None  # a forecaster does not see it before it is over
    known = (*memory.expected, *((forecast,) if forecast is not None and is_sure and not is_here else ()))
    soon = [b for b in known if 0 < b.begins_at - at.now <= lead_of(b, memory, policy)]
    return min(soon, key=lambda b: b.begins_at, default=None)


def _kept(memory: Memory, at: Situation, policy: Policy) -> Memory:
    """The memory of a boost that keeps its cache for the awaited burst."""
    boost, burst = memory.boost, to_buy_for(memory)
    if at.cycle is None or burst is None or at.phase not in (Phase.ATTACHING, Phase.BOOSTING, Phase.FLUSHING):
        return memory
    until = max(chance_until(burst, policy), boost.chance_until or 0.0)
    return memory if until == boost.chance_until else replace(memory, boost=replace(boost, chance_until=until))


def to_buy_for(memory: Memory) -> Forecast | None:
    """The awaited burst, if a cache may be bought ahead of it; None: there is none, or too many were wrong."""
    burst = memory.awaited
    return burst if burst is not None and _missed(memory, burst) < MOST_MISSED else None


def asked(memory: Memory, request: Request, at: Situation, policy: Policy) -> tuple[Memory, Reply]:
    """A burst begins in `seconds`: its cache is bought so early that it is attached by then. None: none is expected."""
    if request.seconds is None:
        return _cancelled(memory, at.now)
    if policy.ahead is Ahead.OFF:
        return memory, Reply('no cache is bought ahead of a burst: policy.ahead is "off"', "expect.off")
    device, size = at.device, request.size_bytes or 0
    if device is not None and size > device.size_bytes:
        text = f"a burst of {format_size(size)} is more than the device holds ({format_size(device.size_bytes)})"
        return memory, Reply(text, "expect.size_bytes")
    burst = Forecast(at.now + request.seconds, size, 1.0)
    if not any(is_same(b, burst) for b in memory.expected) and len(memory.expected) >= MOST_EXPECTED:
        return memory, Reply(f"{MOST_EXPECTED} bursts are announced already", "expect.most")
    memory = expect(memory, burst)
    if memory.missed >= MOST_MISSED:
        return memory, Reply(f"the last {memory.missed} announced bursts did not come: this one is only watched")
    lead = format_duration(min(request.seconds, memory.lead_s(policy.lead_s)))
    burst_of = f"a burst of {format_size(size)}" if size else "a burst"
    text = f"{burst_of} is expected in {format_duration(request.seconds)}; its cache is bought {lead} before"
    return memory, Reply(text)


def _cancelled(memory: Memory, now: float) -> tuple[Memory, Reply]:
    """The memory without expected bursts. A cache that waits for one waits no longer."""
    boost = memory.boost
    if boost.chance_until is not None:
        boost = replace(boost, chance_until=min(boost.chance_until, now))
    begun = memory.awaited is not None and memory.awaited not in memory.expected
    forgotten = len(memory.expected) + begun
    memory = replace(memory, boost=boost, expected=(), awaited=None)
    return memory, Reply(f"expected bursts that are forgotten: {forgotten}")


def lead_of(burst: Forecast, memory: Memory, policy: Policy) -> float:
    """How long before this burst its cache is bought, in seconds."""
    return memory.lead_s(policy.lead_s) if burst.lead_s is None else burst.lead_s
