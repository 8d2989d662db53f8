"""What two applications want of a device, second by second, and what they got of it. Pure.

Published are rates for a disk of 50 MB/s with requests of 1 MiB, which take 20 ms each. Here they are shares of the
capacity. At bandwidth 0.5 a request of 256 KiB takes 16 ms, so that the published bounds stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elastio.units import KIB, MB
from elastio_testbed.sharing.patterns import JOBS, SEQUENTIAL

# What each application wants, as in Wish.share.
Wants = tuple[float | None, float | None]
# Of the first and of the second application, for the 95th percentile of a second.
BOUNDS_MS = (100.0, 300.0)
# Of the capacity. From there on it is overloaded.
OVERLOADED = 0.95
# A course, and one period of it, in which the first application is either on or off, at scale 1.
COURSE_S, PERIOD_S = 1000, 50
# A shorter period has too few seconds in which limits have settled, and fewer ones no overload.
LEAST_PERIOD_S, LEAST_PERIODS = 8, 5
# The second application: its first and its last rate. The first one wants all, or less than its two thirds.
RISES = (0.4, 1.0)
FIRST_WANTS_ALL, FIRST_WANTS_LESS = 1.0, 0.35
AS_PUBLISHED, WITHIN_SHARE, BESIDE_WRITER = "as published", "within its share", "beside a writer"


@dataclass(frozen=True, slots=True)
class Wish:
    """What an application wants. `share`: of the capacity, 0: nothing, None: all. `jobs`: threads."""

    share: float | None
    sizes: tuple[int, ...] = SEQUENTIAL
    is_random: bool = False
    reads: float = 0.0
    jobs: int = JOBS


IDLE, WRITER = Wish(0.0), Wish(None)
# Figure 1. Alone, each has what it wants: it computes, too. Few wait at the same time, so latency decides.
LARGE = Wish(0.6, reads=0.5, jobs=8)
SMALL = Wish(0.1, (4 * KIB,), is_random=True, reads=0.5, jobs=8)


@dataclass(frozen=True, slots=True)
class Step:
    """So many seconds with the same wishes of both applications."""

    seconds: int
    wishes: tuple[Wish, Wish]


def period_s(scale: float) -> int:
    return max(LEAST_PERIOD_S, round(PERIOD_S * scale))


def courses(scale: float) -> dict[str, tuple[Step, ...]]:
    """Figures 3 to 5 as published; the same with a first application that keeps within its share; and Figure 1."""
    each_s = period_s(scale)
    pairs = ((LARGE, IDLE), (LARGE, WRITER), (SMALL, IDLE), (SMALL, WRITER))
    return {
        AS_PUBLISHED: _on_and_off(FIRST_WANTS_ALL, scale),
        WITHIN_SHARE: _on_and_off(FIRST_WANTS_LESS, scale),
        BESIDE_WRITER: tuple(Step(each_s, pair) for pair in pairs),
    }


def _on_and_off(first: float, scale: float) -> tuple[Step, ...]:
    each_s = period_s(scale)
    count = max(LEAST_PERIODS, round(COURSE_S * scale / each_s))
    low, high = RISES
    return tuple(
        Step(each_s, (Wish(first) if n % 2 else IDLE, Wish(low + (high - low) * n / (count - 1)))) for n in range(count)
    )


@dataclass(frozen=True, slots=True)
class Second:
    """One second of a course. `wants`: shares of the capacity, as in Wish. `p95_ms` None: no request ended in it.

    `is_overloaded`: more is wanted than there is. `is_left`: so it was in the second before, which has left a queue.
    """

    wants: Wants
    mb_s: tuple[float, float]
    p95_ms: tuple[float | None, float | None]
    is_left: bool

    @property
    def is_overloaded(self) -> bool:
        return is_overloaded(self.wants)

    @property
    def is_calm(self) -> bool:
        """Neither is there too much, nor was there just now."""
        return not self.is_overloaded and not self.is_left

    def wants_any(self, application: int) -> bool:
        return self.wants[application] != 0

    def is_within(self, application: int) -> bool:
        """Whether the bound of the application (0 or 1) was kept; one whose requests all waited was not."""
        p95_ms = self.p95_ms[application]
        return p95_ms is not None and p95_ms <= BOUNDS_MS[application]


def is_overloaded(wants: Iterable[float | None]) -> bool:
    return sum(math.inf if share is None else share for share in wants) > OVERLOADED


@dataclass(frozen=True, slots=True)
class Run:
    """One course under one control. `steps`: how long each lasts, and what both applications want in it.

    By second: `mb_s` and `p95_ms` of both applications; `in_flight`, requests at the device, where nothing limits them
    any more.
    """

    control: str
    course: str
    steps: tuple[tuple[int, Wants], ...]
    mb_s: tuple[tuple[float, float], ...]
    p95_ms: tuple[tuple[float | None, float | None], ...]
    in_flight: tuple[float, ...]

    @property
    def of_steps(self) -> list[list[Second]]:
        """The seconds of each step."""
        found: list[list[Second]] = []
        number, was_overloaded = 0, False
        for seconds, wants in self.steps:
            step = []
            for n in range(number, number + seconds):
                step.append(Second(wants, self.mb_s[n], self.p95_ms[n], was_overloaded))
                was_overloaded = is_overloaded(wants)
            found.append(step)
            number += seconds
        return found

    @property
    def seconds(self) -> list[Second]:
        return [second for step in self.of_steps for second in step]

    def to_json(self) -> dict[str, Any]:
        return {
            "control": self.control,
            "course": self.course,
            "steps": [[seconds, list(wants)] for seconds, wants in self.steps],
            "mb_s": [[round(each, 2) for each in both] for both in self.mb_s],
            "p95_ms": [[None if each is None else round(each, 1) for each in both] for both in self.p95_ms],
            "in_flight": [round(each, 2) for each in self.in_flight],
        }


def run_of_json(found: Mapping[str, Any]) -> Run:
    """The run of a stored result."""
    return Run(
        found["control"],
        found["course"],
        tuple((seconds, (first, second)) for seconds, (first, second) in found["steps"]),
        tuple((first, second) for first, second in found["mb_s"]),
        tuple((first, second) for first, second in found["p95_ms"]),
        tuple(found["in_flight"]),
    )


def run_of_intervals(
    control: str,
    course: str,
    steps: Sequence[Step],
    intervals: Sequence[Sequence[Mapping[str, Any]]],
    in_flight: Mapping[int, float],
) -> Run:
    """From what both applications reported of each second, see `guest/beside.py`; `in_flight`: by second.

    An application may be two services: what both moved, and the larger of their percentiles.
    """
    length = sum(step.seconds for step in steps)
    mb_s, p95_ms = (
        list(zip(*([_of(n, each, key) for n in range(length)] for each in intervals), strict=True))
        for key in ("bytes", "p95_ms")
    )
    return Run(
        control,
        course,
        tuple((step.seconds, (step.wishes[0].share, step.wishes[1].share)) for step in steps),
        tuple((sum(first) / MB, sum(second) / MB) for first, second in mb_s),
        tuple((max(first, default=None), max(second, default=None)) for first, second in p95_ms),
        tuple(in_flight.get(n, 0.0) for n in range(length)),
    )


def _of(second: int, intervals: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    return [each[key] for each in intervals if each["interval"] == second]
