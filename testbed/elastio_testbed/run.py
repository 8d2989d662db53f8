"""Runs an experiment: every set-up on fresh guests, one after the other or side by side."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from functools import partial

from elastio_testbed.experiment import Setup
from elastio_testbed.hypervisor import HypervisorError
from elastio_testbed.hypervisor.accel import accelerator
from elastio_testbed.image import GuestImage, build_guest_image
from elastio_testbed.result import Result, SetupResult
from elastio_testbed.stagger import overlap_s, starts
from elastio_testbed.together import Job, run_together
from elastio_testbed.trial import Evidence, Plan, Say, Trial, open_endpoint

__all__ = ["Evidence", "Plan", "open_endpoint", "run"]

# The longest call into a guest that a set-up may be in when another one fails.
CALL_S = 180.0

Concluded = tuple[SetupResult, Evidence]


def run(plan: Plan, say: Say) -> tuple[Result, dict[Setup, Evidence]]:
    """Every set-up of the plan. Raises HypervisorError or ImageError; guests and volumes are gone then, too."""
    image = build_guest_image()
    done = _side_by_side(plan, image, say) if plan.side_by_side else _in_turn(plan, image, say)
    results = tuple(result for result, _ in done)
    outcome = Result(plan.experiment, plan.scale, plan.bandwidth, plan.vms, accelerator(), results, plan.side_by_side)
    return outcome, {result.setup: evidence for result, evidence in done}


def _in_turn(plan: Plan, image: GuestImage, say: Say) -> list[Concluded]:
    done = []
    for setup in plan.setups:
        with Trial(plan, setup, image, say) as trial:
            trial.prepare()
            _live(trial, threading.Event())
            done.append(trial.conclude())
    return done


def _side_by_side(plan: Plan, image: GuestImage, say: Say) -> list[Concluded]:
    """Boots and conclusions are a load: all guests boot before the first starts, none is verified before all ended."""
    starts_s = starts(plan.scaled(), plan.setups)
    both_s = overlap_s(plan.scaled(), starts_s)
    say(f"{plan.experiment}: starts at " + ", ".join(f"{s} {at:.0f} s" for s, at in starts_s.items()))
    if both_s:
        say(f"{plan.experiment}: dumps of two set-ups may fall together for {both_s:.0f} s in all")
    with ExitStack() as stack:
        trials = [stack.enter_context(Trial(plan, setup, image, say)) for setup in plan.setups]
        for trial in trials:
            trial.prepare()
        jobs = [Job(starts_s[trial.setup], partial(_live, trial)) for trial in trials]
        try:
            run_together(jobs, max(starts_s.values()) + max(trial.limit_s() for trial in trials), CALL_S)
        except TimeoutError as error:
            raise HypervisorError(f"side by side: {error}") from error
        return [trial.conclude() for trial in trials]


def _live(trial: Trial, cancelled: threading.Event) -> None:
    trial.start()
    trial.finish(cancelled)
