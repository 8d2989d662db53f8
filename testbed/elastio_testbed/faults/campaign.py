"""A campaign: planned runs, distributed over guests that have a cloud of their own each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

from elastio_testbed.adopted import PACKAGES
from elastio_testbed.console import Say
from elastio_testbed.faults.plan import PlannedRun
from elastio_testbed.faults.run_result import RunResult
from elastio_testbed.faults.runner import Runner
from elastio_testbed.hypervisor import chosen_hypervisor
from elastio_testbed.image import build_guest_image


def carry_out(
    wanted: Sequence[PlannedRun],
    seed: int,
    evidence: Path,
    say: Say,
    *,
    guests: int = 1,
    keep: Callable[[Sequence[RunResult]], None] = lambda _: None,
    suite: str | None = None,
    **lab: Any,
) -> Sequence[RunResult]:
    """The results of all runs in the order of their numbers; `keep` gets those known so far after each run.

    Runs are dealt to the guests in turn. `lab`: options of the `Lab`. Raises HypervisorError if no guest can be
    started, and ImageError if there is no image to boot.
    """
    results: list[RunResult] = []
    extra = PACKAGES if lab.get("adopted") else ()
    image, adding = build_guest_image(extra=extra, suite=suite), Lock()
    say(f"guests on {chosen_hypervisor()}")

    def take(runs: Sequence[PlannedRun]) -> None:
        with Runner(image, seed, evidence, say, **lab) as runner:
            for result in runner.carry_out(runs):
                with adding:
                    results.append(result)
                    results.sort(key=lambda each: each.planned.number)
                    keep(tuple(results))

    with ThreadPoolExecutor(guests) as pool:
        for taken in [pool.submit(take, wanted[first::guests]) for first in range(guests)]:
            taken.result()
    return tuple(results)
