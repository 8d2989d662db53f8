"""`slo`: latency bounds beside another application, as published for a two-level scheduler (Figures 1, 3 to 5). Pure.

Published: while less is wanted than there is, 90 % of the seconds have their 95th percentile within the bound. Beside a
writer an application gets back 59 % of its throughput with large requests, and 11 % with small ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from elastio_testbed.bars import Bar
from elastio_testbed.sharing.controls import BFQ, NONE, SHARES, STRICT, WEIGHTS
from elastio_testbed.sharing.courses import (
    AS_PUBLISHED,
    BESIDE_WRITER,
    IDLE,
    LARGE,
    SMALL,
    WITHIN_SHARE,
    WRITER,
    Run,
    Second,
    Wants,
    Wish,
)
from elastio_testbed.sharing.turns import SETTLE_S

CONTROLS = (NONE, STRICT, WEIGHTS, BFQ, SHARES)
FIRST, SECOND = 0, 1
# Figure 1: throughput beside the writer over that alone, without control and with the published scheduler. Its text
# says what is lost without control, 68.83 and 96.9 %.
SIZES = {"large requests": LARGE, "small requests": SMALL}
PUBLISHED = {LARGE: (0.3117, 0.5876), SMALL: (0.031, 0.1124)}


# 99th percentile of a write of 4 KiB that waits until it is durable, in ms.
COMMIT_MS = 100.0


@dataclass(frozen=True, slots=True)
class Commits:
    """How long writes took that wait until they are durable, alone and beside `tar`, which moved `tar_mb_s`.

    99th percentiles in ms of one interval after the other; None: no write ended in it.
    """

    control: str
    alone_ms: tuple[float | None, ...]
    beside_ms: tuple[float | None, ...]
    tar_mb_s: float

    @property
    def worst_ms(self) -> float | None:
        """Beside `tar`, without the first interval, in which limits settle; None: writes did not end in one of them."""
        found = self.beside_ms[1:]
        return None if None in found else max((ms for ms in found if ms is not None), default=None)

    def to_json(self) -> dict[str, Any]:
        return {key: list(each) if isinstance(each, tuple) else each for key, each in asdict(self).items()}


def commits_of_json(found: Mapping[str, Any]) -> Commits:
    """Those of a stored result."""
    return Commits(found["control"], tuple(found["alone_ms"]), tuple(found["beside_ms"]), found["tar_mb_s"])


def commits_of_intervals(
    control: str, intervals: Sequence[Mapping[str, Any]], alone: int, count: int, tar_mb_s: float
) -> Commits:
    """From what each service reported, see `guest/beside.py`: of `count` intervals the first `alone` without `tar`."""
    p99_ms = [max((each["p99_ms"] for each in intervals if each["interval"] == n), default=None) for n in range(count)]
    return Commits(control, tuple(p99_ms[:alone]), tuple(p99_ms[alone:]), round(tar_mb_s, 2))


def of_course(runs: Iterable[Run], course: str, control: str) -> Run | None:
    """The run of this course under this control; None: there is none."""
    return next((run for run in runs if (run.course, run.control) == (course, control)), None)


def calm_kept(runs: Sequence[Run], control: str) -> float | None:
    """The share of seconds of an application, without overload, in which its bound was kept."""
    found = [
        second.is_within(application)
        for course in (AS_PUBLISHED, WITHIN_SHARE)
        for second in _seconds(runs, course, control)
        for application in (FIRST, SECOND)
        if second.is_calm and second.wants_any(application)
    ]
    return fmean(found) if found else None


def overloaded_kept(runs: Sequence[Run], course: str, control: str, application: int = FIRST) -> float | None:
    """The share of overloaded seconds, with both applications on, in which the bound of one of them was kept."""
    found = [second.is_within(application) for second in _overloaded(runs, course, control)]
    return fmean(found) if found else None


def overloaded_got(runs: Sequence[Run], control: str, capacity_mb_s: float) -> float | None:
    """How much of its wish the first application, which keeps within its share, gets in these seconds."""
    seconds = _overloaded(runs, WITHIN_SHARE, control)
    found = [second.mb_s[FIRST] / capacity_mb_s / share for second in seconds if (share := second.wants[FIRST])]
    return fmean(found) if found else None


def total_over_none(runs: Sequence[Run], control: str) -> float | None:
    """What was moved in the overloaded seconds of the published course, over that without control."""
    own, none = ([sum(s.mb_s) for s in _overloaded(runs, AS_PUBLISHED, each)] for each in (control, NONE))
    return fmean(own) / fmean(none) if own and any(none) else None


def restored(runs: Sequence[Run], wish: Wish, control: str) -> float | None:
    """Throughput beside the writer over that alone and without control, both without the first SETTLE_S."""
    alone_mb_s = _settled_mb_s(of_course(runs, BESIDE_WRITER, NONE), (wish.share, IDLE.share))
    beside_mb_s = _settled_mb_s(of_course(runs, BESIDE_WRITER, control), (wish.share, WRITER.share))
    return beside_mb_s / alone_mb_s if alone_mb_s and beside_mb_s is not None else None


def bars(runs: Sequence[Run], waited: Sequence[Commits], capacity_mb_s: float) -> list[Bar]:
    """What has to be."""
    late, total = "App1 within 100 ms while App2 overloads", "as published, overloaded: total over no control"
    baselines = [control for control in (NONE, WEIGHTS) if of_course(runs, WITHIN_SHARE, control)]
    found = [
        Bar("not overloaded: seconds within their bound", calm_kept(runs, SHARES), least=0.9, published=0.9),
        Bar(late, overloaded_kept(runs, WITHIN_SHARE, SHARES), least=0.8),
        *(Bar(f"{late}, {each}", overloaded_kept(runs, WITHIN_SHARE, each), most=0.8) for each in baselines),
        Bar("App1 of its wish while App2 overloads", overloaded_got(runs, SHARES, capacity_mb_s), least=0.97),
        Bar(total, total_over_none(runs, SHARES), least=0.95),
    ]
    for size, wish in SIZES.items():
        name = f"{size} beside a writer: throughput over that alone"
        without, published = PUBLISHED[wish]
        found.append(Bar(name, restored(runs, wish, SHARES), least=0.8, published=published))
        of_baseline = {NONE: without}
        found += [
            Bar(f"{name}, {each}", restored(runs, wish, each), most=0.8, published=of_baseline.get(each))
            for each in baselines
        ]
    ms = next((each.worst_ms for each in waited if each.control == SHARES), None)
    return [*found, Bar("durable writes of 4 KiB beside tar: 99th percentile, ms", ms, most=COMMIT_MS)]


def _seconds(runs: Sequence[Run], course: str, control: str) -> list[Second]:
    run = of_course(runs, course, control)
    return [] if run is None else run.seconds


def _overloaded(runs: Sequence[Run], course: str, control: str) -> list[Second]:
    return [s for s in _seconds(runs, course, control) if s.is_overloaded and s.wants_any(FIRST)]


def _settled_mb_s(run: Run | None, wants: Wants) -> float | None:
    """What the first application got in the step with these wishes."""
    if run is None:
        return None
    found = [second.mb_s[FIRST] for step in run.of_steps for second in step[round(SETTLE_S) :] if second.wants == wants]
    return fmean(found) if found else None
