"""The bursts of a load, from samples of its throughput: what `hindsight` replays. Pure.

A burst begins with the first sample at or above the utilization threshold and ends with the last one that is not below
the release threshold, once QUIET_S of low load have followed. Samples come from the history in the ledger, later from
the agent itself; both are runs of time with the bytes that were written in them.

Whether an application was limited by the device or wrote at a rate of its own shows in its fastest samples. On a cache
whose bandwidth is known a rate well below that was its own; the fastest sample is left out where there are more: an
application that was late catches up. Without a cache, or where nobody knows if there was one, a rate well below that of
the backing volume, or between this and that of a cache, was its own. A burst that the backing volume limited counts as
fast as the fastest one that was seen on a cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from elastio.strategy.hindsight import PastLoad, Pause

# A pause that is shorter does not end a burst.
QUIET_S = 2.0
# Bursts that are kept for pauses, and how many of the last ones a plan is chosen for.
KEPT, REPLAYED = 65, 16
# An application that used less than this share of what the device offered wrote at its own rate.
OWN_RATE = 0.8
# Fewer samples on a cache say nothing; the last of them are kept.
LEAST_RATES, KEPT_RATES = 3, 60
# Samples of a steady load differ by less.
STEADY = 0.9
# A volume that gives this share of its bandwidth throughout is the limit. Samples under load take a second.
SATURATED, SAMPLE_S = 0.97, 1.0
# Samples of this length or more show a rate.
LEAST_SAMPLE_S = 0.5
# Without samples for so long, or after the clock was set back, nobody saw how a burst went on.
UNSEEN_S, SET_BACK_S = 60.0, 1.0


@dataclass(frozen=True, slots=True)
class LoadRun:
    """Throughput over some time: MB written, and MB read and written together. `begun_wall` as everywhere.

    `offered_mb_s`: what a cache offered to applications all the time; 0: there was none, or nobody knows.
    """

    begun_wall: float
    seconds: float
    written_mb: float
    moved_mb: float
    offered_mb_s: float = 0.0

    @property
    def ended_wall(self) -> float:
        return self.begun_wall + self.seconds


@dataclass(frozen=True, slots=True)
class PastBurst:
    """One burst that ended. `peak_mb_s`: of its fastest sample, writes only; `moved_mb_s`: reads and writes together.

    `cached_mb_s`: of its last samples on its last cache, which offered `offered_mb_s`; oldest first. `bare_mb_s` is as
    `moved_mb_s`, of the samples before the first cache but for `last_mb_s`, the last two: they may have had it.
    """

    begun_wall: float
    ended_wall: float
    written_mb: float
    peak_mb_s: float
    cached_mb_s: tuple[float, ...] = ()
    offered_mb_s: float = 0.0
    moved_mb_s: float = math.inf
    bare_mb_s: float = 0.0
    last_mb_s: tuple[float, float] = (0.0, 0.0)

    def never_waited(self, given_mb_s: float) -> bool:
        """No whole sample of it showed what the backing volume gives while somebody waits for it."""
        return self.moved_mb_s < SATURATED * given_mb_s and not _is_short(self)


@dataclass(frozen=True, slots=True)
class BurstWatch:
    """The bursts that have ended, oldest first, and the one that goes on.

    `since_wall`: the begin of the first run; None: there was none. `seen_wall`: the end of the last run.
    """

    bursts: tuple[PastBurst, ...] = ()
    current: PastBurst | None = None
    since_wall: float | None = None
    seen_wall: float = -math.inf


def with_run(
    watch: BurstWatch, run: LoadRun, backing_mb_s: float, threshold: float, release_threshold: float
) -> BurstWatch:
    """The watch after one more run. Thresholds are shares of `backing_mb_s`."""
    if run.seconds <= 0:
        return watch
    if not -SET_BACK_S <= run.begun_wall - watch.seen_wall <= UNSEEN_S:
        watch = _ended(watch)
    since = run.begun_wall if watch.since_wall is None else watch.since_wall
    used = run.moved_mb / run.seconds / backing_mb_s
    current = watch.current
    if used >= threshold and current is None:
        current = PastBurst(run.begun_wall, run.begun_wall, 0.0, 0.0, moved_mb_s=0.0)
    watch = replace(watch, current=current, since_wall=since, seen_wall=run.ended_wall)
    if current is None:
        return watch
    if used < release_threshold:
        return _ended(watch) if run.ended_wall - current.ended_wall >= QUIET_S else watch
    rate, moved = (mb / run.seconds if run.seconds >= LEAST_SAMPLE_S else 0.0 for mb in (run.written_mb, run.moved_mb))
    peak, most = max(current.peak_mb_s, rate), max(current.moved_mb_s, moved)
    written = current.written_mb + run.written_mb
    current = replace(current, ended_wall=run.ended_wall, written_mb=written, peak_mb_s=peak, moved_mb_s=most)
    if not run.offered_mb_s and not current.offered_mb_s:
        older, newer = current.last_mb_s
        current = replace(current, bare_mb_s=max(current.bare_mb_s, older), last_mb_s=(newer, moved))
    elif run.offered_mb_s and rate:
        before = current.cached_mb_s if current.offered_mb_s == run.offered_mb_s else ()
        cached = (*before, rate)[-KEPT_RATES:]
        current = replace(current, cached_mb_s=cached, offered_mb_s=run.offered_mb_s)
    return replace(watch, current=current)


def _ended(watch: BurstWatch) -> BurstWatch:
    """The watch after the end of the current burst; one that only read is not kept: a cache absorbs writes."""
    current = watch.current
    if current is None:
        return watch
    kept = (*watch.bursts, current)[-KEPT:] if current.written_mb > 0 else watch.bursts
    return replace(watch, bursts=kept, current=None)


def given_mb_s(bursts: Sequence[PastBurst], backing_mb_s: float) -> float:
    """What the backing volume gives while somebody waits for it: at most what is configured, which may be too much.

    A burst that wrote faster on its cache waited before.
    """
    shown = ((burst.bare_mb_s, _shown_mb_s(burst)) for burst in bursts if burst.bare_mb_s > 0)
    return min(backing_mb_s, max((bare for bare, rate in shown if rate and rate > bare / OWN_RATE), default=math.inf))


def unwaited_s(bursts: Sequence[PastBurst], backing_mb_s: float) -> float:
    """For how long the last ones lasted, since one that had a cache or waited for the backing volume."""
    seconds, given = 0.0, given_mb_s(bursts, backing_mb_s)
    for burst in reversed(bursts):
        if burst.offered_mb_s or not burst.never_waited(given):
            break
        seconds += burst.ended_wall - burst.begun_wall
    return seconds


def past_loads(bursts: Sequence[PastBurst], backing_mb_s: float, cache_mb_s: float) -> tuple[PastLoad, ...]:
    """The last bursts with the pauses after them, oldest first; `cache_mb_s`: what a cache offered to applications.

    The pause after the last one is the median of the others, and infinite where there is none.
    """
    kept = bursts[-REPLAYED:]
    if not kept:
        return ()
    pauses = [max(0.0, after.begun_wall - before.ended_wall) for before, after in pairwise(kept)]
    last_s = median(pauses) if pauses else math.inf
    rates = _rates(kept, backing_mb_s, cache_mb_s)
    return tuple(
        PastLoad(burst.written_mb, rate, pause_s)
        for burst, rate, pause_s in zip(kept, rates, (*pauses, last_s), strict=True)
    )


def _rates(kept: Sequence[PastBurst], backing_mb_s: float, cache_mb_s: float) -> list[float]:
    """The application's own rate in each burst; infinite where nothing says that it is below the device's.

    Where its cache was the limit, the rate of a burst on a faster cache, or as it was if that is more; until a later
    burst has had a faster cache, by as much more as its cache may have cost it. Where the backing volume may have been
    the limit, the fastest rate that is known.
    """
    known, given = [_known_rate(burst, backing_mb_s) for burst in kept], given_mb_s(kept, backing_mb_s)
    usual = max((rate for rate in known if rate is not None), default=math.inf)

    def rate_of(index: int) -> float:
        burst, rate = kept[index], known[index]
        if rate is not None:
            return rate
        if burst.never_waited(given):
            return burst.peak_mb_s
        shown = _shown_mb_s(burst)
        if shown is not None and _is_limited(burst):
            faster = {
                number: found
                for number, (found, other) in enumerate(zip(known, kept, strict=True))
                if found is not None and other.offered_mb_s > burst.offered_mb_s
            }
            least = shown if max(faster, default=-1) > index else shown / OWN_RATE
            return max(*faster.values(), least) if faster else math.inf
        seen = own_rate(burst.peak_mb_s, backing_mb_s, burst.offered_mb_s or cache_mb_s)
        if seen > backing_mb_s and (burst.offered_mb_s or _is_short(burst)):
            seen = math.inf
        least = backing_mb_s / OWN_RATE if _is_saturated(burst, backing_mb_s) else min(burst.peak_mb_s, backing_mb_s)
        return min(seen, max(usual, least))

    return [rate_of(index) for index in range(len(kept))]


def _known_rate(burst: PastBurst, backing_mb_s: float) -> float | None:
    """The application's own rate, as it showed on a cache. None: the cache was the limit, or the burst had hardly one.

    Less than the burst wrote without a cache is no rate either, but its end.
    """
    rate = _shown_mb_s(burst)
    if rate is None or _is_limited(burst):
        return None
    return rate if rate >= STEADY * min(burst.peak_mb_s, backing_mb_s) else None


def _shown_mb_s(burst: PastBurst) -> float | None:
    """The rate that shows on the burst's cache: of the fastest sample but one. None: nothing shows.

    An application that was late catches up first. So the later half of the samples speaks alone, if all that was
    written fits into the time of the burst at the rate that it shows. Of few samples some are of parts of a second.
    """
    rates = burst.cached_mb_s
    if len(rates) < LEAST_RATES:
        return None
    fastest, second, third = sorted(rates, reverse=True)[:LEAST_RATES]
    if len(rates) < 2 * LEAST_RATES:
        return second if third >= STEADY * fastest else None
    _, settled, other = sorted(rates[len(rates) // 2 :], reverse=True)[:LEAST_RATES]
    fits = settled * (burst.ended_wall - burst.begun_wall) >= STEADY * burst.written_mb
    return settled if fits and other >= STEADY * settled else second


def _is_limited(burst: PastBurst) -> bool:
    """The application used what its cache offered, and more at no time: else it has made up for what was late."""
    rate = _shown_mb_s(burst)
    most = min(burst.peak_mb_s, burst.offered_mb_s)
    return rate is not None and rate >= max(OWN_RATE * burst.offered_mb_s, STEADY * most)


def _is_short(burst: PastBurst) -> bool:
    """Each of its samples may be of a part of a second."""
    return burst.ended_wall - burst.begun_wall <= LEAST_RATES * SAMPLE_S


def _is_saturated(burst: PastBurst, backing_mb_s: float) -> bool:
    """The application used all of the backing volume, from the second to the last but one sample."""
    lasted_s = burst.ended_wall - burst.begun_wall
    return burst.written_mb >= SATURATED * backing_mb_s * max(0.0, lasted_s - 2 * SAMPLE_S)


def own_rate(peak_mb_s: float, backing_mb_s: float, cache_mb_s: float) -> float:
    """The application's own rate in MB/s; infinite where the device was the limit, or may have been."""
    is_slow = peak_mb_s < OWN_RATE * backing_mb_s
    is_between = backing_mb_s / OWN_RATE < peak_mb_s < OWN_RATE * cache_mb_s
    return peak_mb_s if peak_mb_s > 0 and (is_slow or is_between) else math.inf


def pauses(watch: BurstWatch, backing_mb_s: float, cache_mb_s: float) -> tuple[Pause, ...]:
    """The pauses before all of them, oldest first. Of the first one nobody knows how much longer it was."""
    bursts, since = watch.bursts, watch.since_wall
    between = tuple(
        Pause(max(0.0, after.begun_wall - b.ended_wall), b.written_mb, b.ended_wall - b.begun_wall, rate)
        for (b, after), rate in zip(pairwise(bursts), _rates(bursts, backing_mb_s, cache_mb_s), strict=False)
    )
    if since is None or not 0 < len(bursts) < KEPT:
        return between
    return Pause(max(0.0, bursts[0].begun_wall - since), 0.0, 0.0), *between
