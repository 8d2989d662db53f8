"""Runs whose account is known, as the moments that a sampler would have read of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from elastio.strategy.account import Totals
from elastio.strategy.waits import NO_TIMES, DiskCount, Instant, ThreadTimes, Times, sample_of
from elastio.units import KIB, MB

STEP_S = 0.02
PER_SAMPLE = 50


@dataclass(frozen=True)
class Stretch:
    """`seconds` in which so many tasks run and wait, and the disk and another one move `mb_s` and `other_mb_s`.

    The disk is busy for `busy_share` of the time in which it moves something.
    """

    seconds: float
    running: int = 0
    waiting: int = 0
    mb_s: float = 0.0
    other_mb_s: float = 0.0
    request_bytes: int = 512 * KIB
    delayed: float = 0.0
    pending: int = 0
    unclear: int = 0
    busy_share: float = 1.0


def moments(run: Iterable[Stretch]) -> list[Instant]:
    """A moment each STEP_S, with what delay accounting would have counted."""
    at = moved = requests = busy = other = 0.0
    found: list[Instant] = []
    for stretch in run:
        for _ in range(round(stretch.seconds / STEP_S)):
            disk = DiskCount(round(moved), round(requests), busy)
            found.append(
                Instant(
                    at,
                    stretch.running,
                    stretch.waiting,
                    disk,
                    {"vdb": other},
                    stretch.delayed * STEP_S,
                    pending=stretch.pending,
                    unclear=stretch.unclear,
                )
            )
            at += STEP_S
            moved += stretch.mb_s * MB * STEP_S
            requests += stretch.mb_s * MB * STEP_S / stretch.request_bytes
            busy += STEP_S * stretch.busy_share if stretch.mb_s else 0.0
            other += STEP_S if stretch.other_mb_s else 0.0
    return found


def alternating(
    period_s: float, waits: float, cap_mb_s: float, rate: float = 1.0, background: float = 0.0, seed: int = 0
) -> list[Instant]:
    """One task that computes and waits in turn, read at irregular moments, with the scheduler's times of each second.

    `waits` is the share of a period in which it waits while the disk moves `rate` of its limit, and else `background`.
    """
    spent, told = ThreadTimes(), NO_TIMES
    chance = random.Random(seed)
    seconds = max(12.0, 4 * period_s)
    seconds = period_s * round(seconds / period_s)
    at, found, waited_s = 0.0, list[Instant](), waits * period_s
    while at < seconds:
        whole, into_s = divmod(at, period_s)
        waiting_s = whole * waited_s + min(into_s, waited_s)
        moved = (waiting_s * rate + (at - waiting_s) * background) * cap_mb_s * MB
        is_waiting = into_s < waited_s
        disk = DiskCount(round(moved), round(moved / (128 * KIB)), waiting_s + (at - waiting_s) * background)
        is_told = len(found) % PER_SAMPLE == 0
        times = Times(spent, spent.with_run(at - waiting_s))
        since = Times(times.sampled.less(told.sampled), times.exact.less(told.exact)) if is_told else NO_TIMES
        told = times if is_told else told
        found.append(Instant(at, int(not is_waiting), int(is_waiting), disk, {}, times=since))
        step_s = STEP_S * (0.5 + chance.random())
        at += step_s
        is_next = at % period_s < waited_s
        spent = spent.plus(ThreadTimes(waited_s=step_s) if is_next else ThreadTimes(ran_s=step_s))
    return found


def totals(found: Sequence[Instant], cap_mb_s: float | None = None, per_sample: int = PER_SAMPLE) -> Totals:
    """The sums over samples of a second."""
    made = Totals()
    for first in range(0, len(found) - 1, per_sample):
        sample = sample_of(found[first : first + per_sample + 1])
        if sample is not None:
            made = made.added(sample, cap_mb_s)
    return made


def undelayed(*run: Stretch, cap_mb_s: float | None = None) -> Totals:
    """The sums of a run on a kernel without delay accounting."""
    return totals([replace(moment, delayed_s=None) for moment in moments(run)], cap_mb_s)


def job(mb_s: float, computing_s: float = 2.0, mb: float = 30.0, times: int = 6) -> list[Stretch]:
    """A staged job: it computes, then waits until so much is written."""
    return [Stretch(computing_s, running=1), Stretch(mb / mb_s, waiting=1, mb_s=mb_s)] * times
