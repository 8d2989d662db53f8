"""The bandwidth of the next cache, learned from the accounts of the last boosted bursts. Pure.

Theory of operation. Each account has a curve T(B), the time of the burst at another bandwidth (`Curve`), and from
B* on a doubling saves at most the stop gain. The curves of the last KEPT bursts are added up, so that one unusual burst
decides nothing alone. The bandwidth is within the bounds, and

    bandwidth <= max(least, min(B*, most, limit of the instance))

at every purchase. It is lowered to that at once, and raised by the factor STEP after a burst, the last time by what is
left to that. Raises are a trial: the curve promises what they save of the time, and bursts show what they did save, by
the time that a MB takes, which differs from burst to burst. Less than half of the promise even if that error is allowed
for: they are taken back, and there is none for FORGOTTEN_AFTER bursts. Less than half of the stop gain is no promise:
B* differs a little from burst to burst, and is not followed up.

The curve. Of a run of T seconds, W were waiting for a volume at its limit, which moved V meanwhile. At another
bandwidth B the rest takes as long as before, and V takes V/B:

    T(B) = (T - W) + V/B                       flat from the demand on: the most that the run can move

A doubling from B on saves V/(2B). It saves at most the share e of the time, the stop gain, if

    V/(2B) <= e T(B)      <=>      B >= B* = V (1 - 2e) / (2 e (T - W))

B* is the inflection. Beyond it nothing is bought. One run gives the whole curve, whatever the limit was during it; with
several tasks W is between two bounds, and so are the curve and B* (`account`).

A curve is not believed farther than FARTHEST times the bandwidth at which it was measured: T - W is then small beside
its own error, or other limits come first.

Below the limit. A load that asks for no more than X while it waits does so below the limit of a cache faster than
X / AT_CAP: W2 seconds, in which V2 = X W2 moves. From X on these take as long as before and belong to T - W; below X
they would be waiting for bandwidth too. So B* is

    max(B* of V in W, with W2 in the rest, and at most what the load asks for;  min(X, B* of V + V2 in W + W2))

What it asks for is the largest X of the remembered bursts that waited mostly below the limit, unless one has moved STEP
times as much at the limit: of few moments some are taken for the other kind, and small random requests beside a stream
say nothing of that. A limit of the cgroup itself (`io.max`) is such an X. Without this a cache faster than X would be
followed by one of the mean throughput, which has to climb back to X. B* is never below that mean: with less, what did
not wait would begin to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import NamedTuple

from elastio.strategy.account import ROUNDING, SIGMAS, AtCap, Totals, account, refine
from elastio.strategy.memory import STOP_GAIN, BurstLesson, LearnedBandwidth, Raise, SpeedBounds
from elastio.units import MB, format_duration

FARTHEST = 8.0
# A learned bandwidth is raised by this factor at most, and those that are shown differ by it.
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

    def saved(self, mb_s: float, faster_mb_s: float) -> float:
        """The share of the time that the faster one saves."""
        now_s = self.time_s(mb_s)
        return 1 - self.time_s(faster_mb_s) / now_s if now_s > 0 else 0.0

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
    """The curves of a run. Waiting at a limit of the cgroup itself is in the rest: no volume shortens it."""
    refined, _ = refine(totals)
    free_s, free = (1 - part / of if of > 0 else 1.0 for part, of in zip(refined.limited, refined.likely, strict=True))

    def curve(at_cap: AtCap) -> Curve:
        waited_s = free_s * at_cap.seconds
        rest_s = max(0.0, refined.seconds - waited_s)
        return Curve(rest_s, waited_s, free * at_cap.moved_bytes / MB, demand_mb_s)

    return Curves(curve(refined.least), curve(refined.likely), curve(refined.most))


# Of so many bursts the curves are added up, and so many show what a raise has saved.
KEPT, REMEMBERED = 3, 8
FORGOTTEN_AFTER = 8
# An account of fewer readings, or of a smaller part of the burst's time or bytes, says too little.
LEAST_INSTANTS, LEAST_SEEN = 20, 0.2
# A raise that saves less than this share of what was promised is taken back, once so many bursts have shown it.
KEPT_PROMISE, LEAST_BURSTS = 0.5, 2
# A burst that has moved less shows no time for a MB.
LEAST_MOVED_MB = 1.0
# The time that a MB takes differs so much at least from burst to burst, relative: they begin and end within samples.
VARIES = 0.03


class Before(NamedTuple):
    """Of a burst, its seconds and bytes until it had its cache."""

    seconds: float = 0.0
    moved_bytes: int = 0


AT_ONCE = Before()


def lesson_of(
    at: float,
    mb_s: float,
    groups: Mapping[str, Totals],
    seconds: float,
    moved_bytes: int,
    before: Before = AT_ONCE,
) -> BurstLesson | None:
    """What the account of a burst with its cache, by cgroup, teaches; None: too little of it was seen, or is known.

    It is that of the cgroup which waited longest for bandwidth, in as much time and for as many bytes as the burst had:
    looks have seen a part. What was `before` is as long with any cache, whatever it waited for.
    """
    whole = {
        name: totals.standing_for(seconds, moved_bytes)
        for name, totals in groups.items()
        if totals.instants >= LEAST_INSTANTS
        and totals.seconds >= LEAST_SEEN * seconds
        and totals.moved_bytes >= LEAST_SEEN * moved_bytes
    }
    known = {name: account(totals) for name, totals in whole.items()}
    curves = {name: curves_of(totals).likely for name, totals in whole.items()}
    longest = max(known, key=lambda name: (curves[name].waited_s, known[name].bandwidth_s), default=None)
    if longest is None or known[longest].unknown_s > MOST_UNKNOWN * seconds:
        return None
    curve, (refined, _) = curves[longest], refine(whole[longest])
    moved_mb = (before.moved_bytes + moved_bytes) / MB
    below_s, below_mb = refined.latency_s + refined.limited.seconds, refined.latency_bytes + refined.limited.moved_bytes
    waits = curve.waited_s, curve.moved_mb, moved_mb, below_s, below_mb / MB
    return BurstLesson(at, mb_s, before.seconds + seconds, *waits)


def noted(known: LearnedBandwidth, lesson: BurstLesson) -> LearnedBandwidth:
    """With this lesson, which may be the newest one again."""
    if known.lessons and known.lessons[-1].at == lesson.at:
        return known
    return replace(known, lessons=(*known.lessons, lesson)[-REMEMBERED:], is_fresh=True)


def with_refusal(known: LearnedBandwidth) -> LearnedBandwidth:
    """After a purchase that the cloud has refused: for a while nothing above the bandwidth that it has sold last.

    Nothing where that was asked for: then it has refused something else.
    """
    sold_mb_s = known.lessons[-1].mb_s if known.lessons else math.inf
    if known.mb_s <= sold_mb_s * ROUNDING:
        return known
    return replace(known, is_fresh=True, trial=None, refused_mb_s=sold_mb_s, refused_for=FORGOTTEN_AFTER + 1)


def next_mb_s(known: LearnedBandwidth | None, bounds: SpeedBounds, limit_mb_s: float) -> float:
    """What to buy next for applications. The least bandwidth is bought even if the instance carries less."""
    wanted = bounds.first_mb_s if known is None else known.mb_s
    return max(bounds.least_mb_s, min(wanted, bounds.most_mb_s, limit_mb_s))


def curve_of(lessons: Sequence[BurstLesson]) -> Curve:
    """T(B) of these bursts together, where the cache has no less than they ask for."""
    waited_s = sum(lesson.waited_s for lesson in lessons)
    rest_s = sum(lesson.seconds for lesson in lessons) - waited_s
    return Curve(rest_s, waited_s, sum(lesson.waited_mb for lesson in lessons))


def best_mb_s(lessons: Sequence[BurstLesson], stop_gain: float, asked_mb_s: float = math.inf) -> float:
    """B* of these bursts together, as far as their curve is believed, and the load asks for it."""
    seconds = sum(lesson.seconds for lesson in lessons)
    best = sum(lesson.moved_mb for lesson in lessons) / seconds
    curve = curve_of(lessons)
    measured = curve.measured_mb_s
    if measured is not None and curve.waited_s >= LEAST_SHARE * seconds:
        best = max(best, min(curve.inflection_mb_s(stop_gain), FARTHEST * measured, asked_mb_s))
    below_s, below_mb = sum(each.latency_s for each in lessons), sum(each.latency_mb for each in lessons)
    if below_s <= 0:
        return best
    slower = Curve(curve.rest_s - below_s, curve.waited_s + below_s, curve.moved_mb + below_mb, below_mb / below_s)
    return max(best, slower.inflection_mb_s(stop_gain))


def asked_mb_s(lessons: Sequence[BurstLesson]) -> float:
    """What the load asks for while it waits, as bursts show that waited mostly below the limit; infinite: none does."""
    below = [each for each in lessons if each.latency_s > max(each.waited_s, LEAST_SHARE * each.seconds)]
    asked = max((each.latency_mb / each.latency_s for each in below), default=math.inf)
    at_cap = (each for each in lessons if each.waited_s >= LEAST_SHARE * each.seconds)
    return math.inf if any(each.waited_mb > STEP * asked * each.waited_s for each in at_cap) else asked


def learn(known: LearnedBandwidth, bounds: SpeedBounds, limit_mb_s: float) -> tuple[LearnedBandwidth, str]:
    """What the newest lesson changes, and why, in a sentence; empty: nothing. `limit_mb_s`: what the instance carries.

    There must be a lesson.
    """
    best = best_mb_s(known.lessons[-KEPT:], bounds.stop_gain, asked_mb_s(known.lessons))
    allowed = min(bounds.most_mb_s, limit_mb_s)
    most = max(bounds.least_mb_s, min(best, allowed))
    before = max(known.mb_s, bounds.least_mb_s)  # what is bought, if the bounds were changed
    known = replace(known, mb_s=before, is_fresh=False, refused_for=max(0, known.refused_for - 1))
    known, why = _judged(known)
    refused_mb_s = _refused_mb_s(known)
    if known.mb_s > refused_mb_s * ROUNDING:
        known, why = replace(known, mb_s=refused_mb_s), "the cloud has refused to sell that"
    if known.mb_s > most * ROUNDING:
        known, why = replace(known, mb_s=most, trial=None), _why_less(best, allowed, bounds.stop_gain)
    elif not why and not _is_unseen(known):
        known, why = _raised(known, bounds, most)
    if _shown(known.mb_s) == _shown(before):
        return known, ""
    return known, f"the next cache has {_shown(known.mb_s)} instead of {_shown(before)}: {why}"


def _judged(known: LearnedBandwidth) -> tuple[LearnedBandwidth, str]:
    """Whether the last raise was worth it, as far as bursts have shown that."""
    trial, newest = known.trial, known.lessons[-1]
    if trial is None or _is_unseen(known):
        return known, ""
    before, after = _paces(known, trial.before_mb_s), _paces(known, trial.mb_s)
    if not before or not _is_near(newest.mb_s, trial.mb_s):  # forgotten, or the bounds were changed: it is never bought
        return replace(known, trial=None), ""
    if len(after) < LEAST_BURSTS:
        return known, ""
    most = 1 - mean(after) / mean(before) * (1 - SIGMAS * math.hypot(_error(before), _error(after)))
    if most >= KEPT_PROMISE * trial.promised:
        return known, ""
    mb_s = min(known.mb_s, trial.before_mb_s)
    known = replace(known, mb_s=mb_s, trial=None, refused_mb_s=mb_s, refused_for=FORGOTTEN_AFTER)
    why = f"{_shown(trial.mb_s)} were to save {trial.promised:.0%} of the time, and saved {max(0.0, most):.0%} at most"
    return known, why


def _is_unseen(known: LearnedBandwidth) -> bool:
    """The newest burst has not had the last raise."""
    return known.trial is not None and _is_near(known.lessons[-1].mb_s, known.trial.before_mb_s)


def _paces(known: LearnedBandwidth, mb_s: float) -> list[float]:
    """Seconds for a MB in each burst at this bandwidth."""
    shown = (each for each in known.lessons if _is_near(each.mb_s, mb_s) and each.moved_mb >= LEAST_MOVED_MB)
    return [each.seconds / each.moved_mb for each in shown]


def _error(paces: Sequence[float]) -> float:
    """The relative standard error of their mean."""
    spread = stdev(paces) / mean(paces) if len(paces) > 1 else 0.0
    return max(VARIES, spread) / math.sqrt(len(paces))


def _is_near(mb_s: float, other_mb_s: float) -> bool:
    return other_mb_s / ROUNDING <= mb_s <= other_mb_s * ROUNDING


def _raised(known: LearnedBandwidth, bounds: SpeedBounds, most_mb_s: float) -> tuple[LearnedBandwidth, str]:
    """One step more, if there is one that pays."""
    mb_s = min(known.mb_s * STEP, most_mb_s)
    if mb_s <= known.mb_s * ROUNDING or mb_s > _refused_mb_s(known) * ROUNDING:
        return known, ""
    last = known.lessons[-KEPT:]
    curve = curve_of(last)
    promised = curve.saved(known.mb_s, mb_s)
    if promised < bounds.stop_gain / 2:  # a whole step is half a doubling
        return known, ""
    seconds = curve.rest_s + curve.waited_s
    before_mb_s = known.trial.before_mb_s if known.trial else known.mb_s
    trial = Raise(before_mb_s, mb_s, curve.saved(before_mb_s, mb_s))
    bursts = "burst" if len(last) == 1 else f"{len(last)} bursts"
    why = f"{curve.waited_s / seconds:.0%} of {format_duration(seconds)} in the last {bursts} were waiting for "
    return replace(known, mb_s=mb_s, trial=trial), f"{why}bandwidth, and it would save {promised:.0%} of the time"


def _refused_mb_s(known: LearnedBandwidth) -> float:
    """Nothing above it is bought for now; infinite: nothing was refused lately."""
    return known.refused_mb_s if known.refused_for and known.refused_mb_s is not None else math.inf


def _why_less(best_mb_s: float, allowed_mb_s: float, stop_gain: float) -> str:
    if best_mb_s > allowed_mb_s:
        return "no more is allowed (cache.max_bandwidth_mb_s), or carried by the instance"
    return f"from {_shown(best_mb_s)} on, a doubling saves at most {stop_gain:.0%} (policy.stop_gain)"


def _shown(mb_s: float) -> str:
    return f"{mb_s:.0f} MB/s"
