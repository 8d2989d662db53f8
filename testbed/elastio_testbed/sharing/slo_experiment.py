"""`elastio-testbed run slo`: three courses on the slow volume, under every control, in one guest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

from elastio_testbed.bars import Asked
from elastio_testbed.conditions import observe
from elastio_testbed.console import Say
from elastio_testbed.image import build_guest_image
from elastio_testbed.sharing.applications import Applications, Work, applications, partition
from elastio_testbed.sharing.commits import commits
from elastio_testbed.sharing.controls import BFQ, NONE, SHARES, STRICT, WEIGHTS
from elastio_testbed.sharing.courses import (
    BESIDE_WRITER,
    BOUNDS_MS,
    Run,
    Step,
    Wish,
    courses,
    period_s,
    run_of_intervals,
)
from elastio_testbed.sharing.experiment import about
from elastio_testbed.sharing.slo import CONTROLS, Commits, bars

# The latency target of the first application. Beside the writer eight threads with small requests need 20 ms for each.
TARGET_MS, TARGET_BESIDE_WRITER_MS = BOUNDS_MS[0], 20.0
SECOND_S = 1.0


def slo_result(asked: Asked, keep: Callable[[Mapping[str, Any]], None], say: Say) -> dict[str, Any]:
    """Run it; `keep` gets the document after each course. Raises HypervisorError, ImageError."""
    runs: list[Run] = []
    waited: list[Commits] = []
    found: dict[str, Any] = {}

    def noted(both: Applications, conditions: Mapping[str, Any]) -> None:
        nonlocal found
        found = {
            **about("slo", asked, conditions, both, CONTROLS),
            "period_s": period_s(asked.scale),
            "capacity_mb_s": round(both.slow_mb_s, 2),
            "bars": [bar.to_json() for bar in bars(runs, waited, both.slow_mb_s)],
            "runs": [each.to_json() for each in runs],
            "commits": [each.to_json() for each in waited],
        }
        keep(found)

    with applications(build_guest_image(suite=asked.suite), asked.bandwidth, asked.seed) as both:
        conditions = asdict(observe(both.guest.check(["uname", "-r"])))
        for run in _runs(both, asked.scale, say):
            runs.append(run)
            noted(both, conditions)
        for control in (NONE, SHARES):
            say(f"slo: writes that wait beside tar, {control}")
            waited.append(commits(both, control))
            noted(both, conditions)
    return found


def _runs(both: Applications, scale: float, say: Say) -> Iterator[Run]:
    for control in CONTROLS:
        if control not in both.absent(CONTROLS):
            for course, steps in courses(scale).items():
                say(f"slo: {course}, {control}")
                yield _run(both, control, course, steps)


def _run(both: Applications, control: str, course: str, steps: Sequence[Step]) -> Run:
    target_ms = TARGET_BESIDE_WRITER_MS if course == BESIDE_WRITER else TARGET_MS
    both.share(both.with_target(target_ms) if control == SHARES else {"enabled": "false"})
    first, second = ([_work(both, step.seconds, step.wishes[n], control) for step in steps] for n in (0, 1))
    with both.scheduled("bfq") if control == BFQ else nullcontext():
        seen = both.run((first, second), are_weighed=control in (WEIGHTS, BFQ, SHARES), every_s=SECOND_S)
    both.require_phase("idle")
    return run_of_intervals(control, course, steps, seen.intervals, seen.in_flight)


def _work(both: Applications, seconds: float, wish: Wish, control: str) -> Work:
    limits = partition(both.slow_mb_s, wish.reads) if control == STRICT else None
    rate_mb_s = 0.0 if wish.share is None else wish.share * both.slow_mb_s
    jobs = 0 if wish.share == 0 else wish.jobs
    return Work(seconds, wish.sizes, wish.is_random, wish.reads, rate_mb_s, limits, jobs)
