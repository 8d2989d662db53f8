"""Where the time of a run went, from samples of it: computing, or waiting for what. Pure.

On its disk the tasks wait for bandwidth while the disk moves AT_CAP of its bandwidth limit; below it, for latency.
Where no limit is known, requests of LARGE_BYTES tell: their time is mostly transfer. The waits of a second are judged
together, by what moved while somebody waited (`waits`); the error of so few moments is allowed for. A task of which it
is unclear whether it waits does so for bandwidth, if the disk is at its limit; below it nobody can tell. `Totals` are
sums over samples: nothing grows with time.

The whole is scaled by the scheduler's own times (`refine`), which also divide what runs and what is in the queue for a
processor. Delay accounting, where it is on, is exact about the waits that it counts. It replaces the samples unless
they show significantly more, which are the waits that it does not count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from elastio.strategy.waits import LEAST_SPENT_S, NO_TIMES, Times, WaitSample
from elastio.units import KIB, MB

# A volume that moves this share of its limit is at it.
AT_CAP = 0.9
# No error of a sample lowers that by more than this.
MOST_DOUBT = 0.25
# The mean request from which on a wait is for bandwidth, where the limit is not known.
LARGE_BYTES = 64 * KIB
# Where the limit is not known, waits that are rarer than this may be beside what moves in the background.
RARE = 0.1
CLASSES = 10
# Of the standard error of samples: from here on a difference is significant.
SIGMAS = 2.0
# The last bit decides nothing: four moments of which all wait differ from none by just two standard errors.
ROUNDING = 1 + 1e-9


class Limit(NamedTuple):
    """What a cgroup, by its name, may read and write of the disk; infinite: as much as it likes."""

    cgroup: str
    read_mb_s: float
    write_mb_s: float

    def for_mix_mb_s(self, sample: WaitSample) -> float:
        """What it leaves of such a mix of reads and writes, where one waits for the other."""
        read, written = sample.moved_bytes - sample.written_bytes, sample.written_bytes
        needed = read / self.read_mb_s + written / self.write_mb_s
        return sample.moved_bytes / needed if needed > 0 else math.inf


def cap_in(sample: WaitSample, known_mb_s: float | None, limits: Sequence[Limit]) -> float | None:
    """The bandwidth limit in force in a sample: what is known of the disk, or less by a cgroup; None: not known."""
    cap = min([known_mb_s or math.inf, *(limit.for_mix_mb_s(sample) for limit in limits)])
    return cap if math.isfinite(cap) else None


def error_of(sample: WaitSample) -> float:
    """The relative standard error of its waiting: that of a share of so many independent moments."""
    share = min(1.0, sample.waits_share)
    return math.sqrt((1 - share) / (share * sample.instants)) if share > 0 else math.inf


def rate_of(sample: WaitSample, cap_mb_s: float | None) -> float:
    """Bytes in a second of waiting for this disk."""
    between, local = sample.rates
    if cap_mb_s is None:
        rate = between if sample.waits_share >= RARE else local
    else:
        rate = between if between <= cap_mb_s * MB * (1 + SIGMAS * error_of(sample)) else local
    return rate / sample.disk_share if sample.disk_share else rate


def is_at_cap(sample: WaitSample, cap_mb_s: float | None) -> bool:
    """Whether the disk was at its limit while it was waited for; None: by the size of requests."""
    if sample.waits_share <= 0 or not sample.disk_share or sample.moved_bytes <= 0:
        return False
    if cap_mb_s is None:
        return sample.requests > 0 and sample.moved_bytes >= LARGE_BYTES * sample.requests
    doubt = min(MOST_DOUBT, SIGMAS * error_of(sample))
    return rate_of(sample, cap_mb_s) >= AT_CAP * (1 - doubt) * cap_mb_s * MB


def placed(sample: WaitSample, cap_mb_s: float | None) -> WaitSample:
    """The sample, with all waiting for this disk where that moves what its limit allows in so much waiting.

    Behind the limit of a cgroup a disk is busy for moments only, and another one beside it would take the wait.
    """
    ours = replace(sample, disk_share=1.0)
    return ours if cap_mb_s is not None and is_at_cap(ours, cap_mb_s) else sample


# --- sums ------------------------------------------------------------------------------------------------


class AtCap(NamedTuple):
    """W and V: seconds of waiting for bandwidth, and the bytes that the disk moved meanwhile."""

    seconds: float = 0.0
    moved_bytes: float = 0.0


NEVER = AtCap()


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over samples. `classes`: seconds by the share of the sample that was waiting, in tenths.

    `least`, `likely` and `most` are waiting for bandwidth by the three measures, the rest is by the likely one.
    `unplaced_s`: waiting while no disk did anything. `unclear_s`: sleep that may be waiting. `counted_bytes`: what the
    disk moved in all of the time that samples stand for; 0: not counted. `latency_bytes`: during `latency_s`.
    `limited`: of `likely`, what was at a limit of the cgroup itself.
    """

    seconds: float = 0.0
    asleep_s: float = 0.0
    latency_s: float = 0.0
    other_s: float = 0.0
    unplaced_s: float = 0.0
    unclear_s: float = 0.0
    least: AtCap = NEVER
    likely: AtCap = NEVER
    most: AtCap = NEVER
    classes: tuple[float, ...] = (0.0,) * CLASSES
    moved_bytes: int = 0
    requests: int = 0
    task_wait_s: float = 0.0
    pending_s: float = 0.0
    delayed_s: float | None = 0.0
    instants: int = 0
    counted_bytes: int = 0
    times: Times = NO_TIMES
    latency_bytes: float = 0.0
    limited: AtCap = NEVER

    def added(self, sample: WaitSample, cap_mb_s: float | None) -> Totals:
        """With one sample more; `cap_mb_s` is the limit that was in force in it, None: not known."""
        return self.plus(totals_of(sample, cap_mb_s))

    def plus(self, other: Totals) -> Totals:
        """The sums of both. So a run may be cut anywhere, and its parts added in any order."""
        return Totals(*(_sum(getattr(self, name), getattr(other, name)) for name in NAMES))

    def standing_for(self, seconds: float, counted_bytes: int | None = None) -> Totals:
        """As if the same had been seen for so long, in which the disk has moved so much; None: as much as then.

        It is of as many moments as before, so its error grows with it.
        """
        factor = seconds / self.seconds
        scaled = Totals(*(_times(getattr(self, name), factor) for name in NAMES))
        counted = scaled.counted_bytes if counted_bytes is None else counted_bytes
        return replace(scaled, seconds=seconds, instants=self.instants, counted_bytes=counted)


NAMES = tuple(f.name for f in fields(Totals))


def totals_of(sample: WaitSample, cap_mb_s: float | None) -> Totals:
    """The sums of this sample alone."""
    sample = placed(sample, cap_mb_s)
    at_cap, share, spent = is_at_cap(sample, cap_mb_s), sample.disk_share, sample.spent
    found_s = 0.0 if share is None else spent.likely * share
    waited_s = spent.likely + (spent.unclear if at_cap else 0.0)
    its_class = min(CLASSES - 1, int(CLASSES * waited_s / sample.seconds + 1e-9))
    is_unclear = not at_cap and sample.moved_bytes > 0
    rate = rate_of(sample, cap_mb_s)
    latency_s = 0.0 if at_cap else found_s

    def for_bandwidth(waits_s: float) -> AtCap:
        seconds = waits_s * (share or 0.0) + spent.unclear
        return AtCap(seconds, rate * seconds) if at_cap else NEVER

    return Totals(
        seconds=sample.seconds,
        asleep_s=spent.asleep + (0.0 if at_cap or is_unclear else spent.unclear),
        latency_s=latency_s,
        other_s=0.0 if share is None else spent.likely * (1 - share),
        unplaced_s=spent.likely if share is None else 0.0,
        unclear_s=spent.unclear if is_unclear else 0.0,
        least=for_bandwidth(spent.least),
        likely=for_bandwidth(spent.likely),
        most=for_bandwidth(spent.most),
        classes=tuple(sample.seconds if number == its_class else 0.0 for number in range(CLASSES)),
        moved_bytes=sample.moved_bytes,
        requests=sample.requests,
        task_wait_s=sample.task_wait_s,
        pending_s=sample.pending_s,
        delayed_s=sample.delayed_s,
        instants=sample.instants,
        counted_bytes=sample.moved_bytes,
        times=sample.times,
        latency_bytes=rate * latency_s,
    )


def _sum(one: Any, other: Any) -> Any:
    """Tuples by their elements. What is not known of a part is not known of the sum."""
    if isinstance(one, tuple):
        return _like(one, map(_sum, one, other))
    return None if one is None or other is None else one + other


def _times(value: Any, factor: float) -> Any:
    if isinstance(value, tuple):
        return _like(value, (_times(each, factor) for each in value))
    if isinstance(value, int):
        return round(value * factor)
    return None if value is None else value * factor


def _like(model: Any, values: Iterable[Any]) -> Any:
    return type(model)(*values) if hasattr(model, "_fields") else tuple(values)


@dataclass(frozen=True, slots=True)
class Account:
    """Where `seconds` went; the six parts are all of it. `asleep_s` is a part of `elsewhere_s`.

    `queue_s`: ready to run, while all processors are taken. `unknown_s`: it waits, or may, for what cannot be told.
    `by_delays`: delay accounting has refined what the samples show. `uncounted_s`: waiting of tasks that only the
    samples show, or (negative) only delay accounting.
    """

    seconds: float
    computing_s: float
    queue_s: float
    bandwidth_s: float
    latency_s: float
    elsewhere_s: float
    unknown_s: float
    asleep_s: float
    by_delays: bool
    uncounted_s: float


COMPUTING = "computing"
PARTS = (COMPUTING, "queue", "bandwidth", "latency", "elsewhere", "unknown")


def seconds_of(found: Account, part: str) -> float:
    """The seconds of one of the PARTS."""
    seconds: float = getattr(found, f"{part}_s")
    return seconds


def account(totals: Totals) -> Account:
    """The account of these sums."""
    refined, by_delays = refine(totals)
    elsewhere_s = refined.other_s + refined.asleep_s
    unknown_s = refined.unplaced_s + refined.unclear_s
    ready_s = max(0.0, refined.seconds - _waited_s(refined) - _slept_s(refined))
    exact = totals.times.exact.ran_s
    queue_s = ready_s * min(1.0, totals.times.queued_s / exact) if exact >= LEAST_SPENT_S else 0.0
    uncounted_s = 0.0 if by_delays or refined.delayed_s is None else refined.task_wait_s - refined.delayed_s
    return Account(
        seconds=refined.seconds,
        computing_s=ready_s - queue_s,
        queue_s=queue_s,
        bandwidth_s=refined.likely.seconds,
        latency_s=refined.latency_s,
        elsewhere_s=elsewhere_s,
        unknown_s=unknown_s,
        asleep_s=refined.asleep_s,
        by_delays=by_delays,
        uncounted_s=uncounted_s,
    )


def refine(totals: Totals) -> tuple[Totals, bool]:
    """The sums with their waiting and sleep scaled to what the kernel has counted; whether by delay accounting too.

    It is not used where it is off, where it differs by more than the samples' error, and where tasks wait asleep for
    their requests, which it does not count.
    """
    exact = _by_scheduler(_by_bytes(totals))
    delayed, sampled, error = exact.delayed_s, exact.task_wait_s, SIGMAS * error_s(exact) * ROUNDING
    if delayed is None or sampled <= 0 or abs(delayed - sampled) > error or totals.pending_s > error:
        return exact, False
    return _scaled(exact, delayed / sampled, 1.0), True


def _by_bytes(totals: Totals) -> Totals:
    """With as much waiting for bandwidth as all that the disk has moved took it: looks meet some of that by chance."""
    moved, waited_s = totals.moved_bytes, totals.likely.seconds
    if moved <= 0 or totals.counted_bytes in (0, moved) or waited_s <= 0:
        return totals
    factor = min(totals.counted_bytes / moved, totals.seconds / waited_s)
    rest_s = totals.seconds - waited_s
    rest = (totals.seconds - factor * waited_s) / rest_s if rest_s > 0 else 1.0
    return _parts(totals, factor, rest, rest)


def _by_scheduler(totals: Totals) -> Totals:
    """Scaled so that running, waiting and sleep are to each other as the scheduler's times show."""
    sampled, exact, _ = totals.times
    ran, waited, slept = (new / old if old >= LEAST_SPENT_S else 1.0 for old, new in zip(sampled, exact, strict=True))
    wait_s, slept_s = _waited_s(totals), _slept_s(totals)
    computing_s = max(0.0, totals.seconds - wait_s - slept_s) * ran
    computing_s = computing_s if sampled.ran_s >= LEAST_SPENT_S else max(computing_s, exact.ran_s)  # it was never met
    whole = computing_s + wait_s * waited + slept_s * slept
    norm = totals.seconds / whole if whole > 0 else 1.0
    return replace(_scaled(totals, waited * norm, slept * norm), task_wait_s=totals.task_wait_s * waited)


def _waited_s(totals: Totals) -> float:
    return totals.likely.seconds + totals.latency_s + totals.other_s + totals.unplaced_s


def _slept_s(totals: Totals) -> float:
    return totals.asleep_s + totals.unclear_s


def _scaled(totals: Totals, waits: float, sleeps: float) -> Totals:
    """With waiting and sleep by these factors. A factor does not make more of either than there was time."""
    slept_s, waited_s = _slept_s(totals), _waited_s(totals)
    sleeps = min(sleeps, totals.seconds / slept_s) if slept_s > 0 else sleeps
    waits = min(waits, (totals.seconds - slept_s * sleeps) / waited_s) if waited_s > 0 else waits
    return _parts(totals, waits, waits, sleeps)


def _parts(totals: Totals, at_cap: float, waits: float, sleeps: float) -> Totals:
    """With waiting for bandwidth, other waiting and sleep by these factors."""
    return replace(
        totals,
        asleep_s=totals.asleep_s * sleeps,
        unclear_s=totals.unclear_s * sleeps,
        latency_s=totals.latency_s * waits,
        latency_bytes=totals.latency_bytes * waits,
        other_s=totals.other_s * waits,
        unplaced_s=totals.unplaced_s * waits,
        least=_within(totals.least, at_cap, totals.seconds),
        likely=_within(totals.likely, at_cap, totals.seconds),
        limited=_within(totals.limited, at_cap, totals.seconds),
        most=_within(totals.most, at_cap, totals.seconds),
    )


def _within(total: AtCap, factor: float, seconds: float) -> AtCap:
    if total.seconds <= 0:
        return total
    factor = min(factor, seconds / total.seconds)
    return AtCap(total.seconds * factor, total.moved_bytes * factor)


def error_s(totals: Totals) -> float:
    """The standard error of `task_wait_s`: that of a share of so many independent moments."""
    if not totals.instants or totals.seconds <= 0:
        return 0.0
    waits = max(totals.task_wait_s, totals.seconds / totals.instants)
    return math.sqrt(waits * totals.seconds / totals.instants)
