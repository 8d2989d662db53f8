"""Runs an experiment: every set-up on fresh guests, one after the other or side by side, in repetitions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from elastio_testbed.catalogue import EXPERIMENTS
from elastio_testbed.conditions import observe
from elastio_testbed.console import Say
from elastio_testbed.errors import PlanError
from elastio_testbed.evaluation import Evaluation
from elastio_testbed.experiment import Setup
from elastio_testbed.hypervisor import QEMU, HypervisorError
from elastio_testbed.image import GuestImage, build_guest_image
from elastio_testbed.operation_timings import timings_of
from elastio_testbed.parallel import Job, run_in_parallel
from elastio_testbed.result import Result, SetupResult
from elastio_testbed.simulated import simulate
from elastio_testbed.start_schedule import overlap_s, starts
from elastio_testbed.trial import EC2, Evidence, Plan, Trial

# The longest call into a guest, which a set-up has to finish after another one failed.
CALL_S = 180.0

Concluded = tuple[SetupResult, Evidence]


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a run after a repetition: all results so far, and the raw records of every repetition."""

    evaluation: Evaluation
    evidence: tuple[dict[Setup, Evidence], ...]


def run(plan: Plan, say: Say) -> Iterator[Progress]:
    """Yield the results so far after each repetition, so that they survive a later failure.

    Raises HypervisorError, ImageError, LabError or PlanError; guests and volumes are removed in that case, too.
    """
    check(plan)
    kind = trials_of(plan)
    image = build_guest_image(extra=plan.packages, suite=plan.suite)
    # The servers of OpenStack are on QEMU.
    conditions = observe("", None if plan.cloud == EC2 else QEMU)
    say(f"guests on {conditions.hypervisor}")
    results: tuple[Result, ...] = ()
    records: tuple[dict[Setup, Evidence], ...] = ()
    for n in range(plan.repeat):
        if plan.repeat > 1:
            say(f"{plan.experiment}: repetition {n + 1} of {plan.repeat}")
        done, kernel = _side_by_side(plan, image, say) if plan.side_by_side else _in_turn(plan, kind, image, say)
        conditions = replace(conditions, kernel=kernel)
        results = (*results, Result(tuple(result for result, _ in done)))
        records = (*records, {result.setup: evidence for result, evidence in done})
        journal = [line for record in records for evidence in record.values() for line in evidence.journal]
        # The simulator's cloud has scaled sizes like the EC2 endpoint; another cloud has its own. Its agent waits for
        # the load.
        is_modelled = plan.cloud == EC2 and plan.ahead is None
        models = simulate(plan.scaled(), plan.setups, plan.vms, timings_of(journal)) if is_modelled else {}
        yield Progress(Evaluation(plan, conditions, results, models), records)


def check(plan: Plan) -> None:
    """Raises PlanError for a plan that no cloud of the laboratory can run, before anything is started."""
    published = EXPERIMENTS[plan.experiment]
    if plan.ahead is not None and not published.workload.is_checkpointing:
        raise PlanError(
            f"{plan.experiment} has no bursts at known times; use --ahead with an application that computes and dumps",
            code="workload",
        )
    if plan.adopted and Setup.ADAPTIVE not in plan.setups:
        raise PlanError("only the adaptive set-up has an adaptive device; leave out --adopted", code="setup")
    if plan.disturb is not None and published.cold is not None:
        raise PlanError(
            f"the disk of {plan.experiment} follows its credits and cannot be disturbed; leave out --disturb",
            code="workload",
        )


def trials_of(plan: Plan) -> type[Trial]:
    """The class that runs a set-up in the plan's cloud. Raises LabError for a plan that this cloud cannot run."""
    if plan.cloud == EC2:
        return Trial
    from elastio_testbed.openstack import demo  # noqa: PLC0415  the SDK takes a second to load

    demo.check(plan)
    return demo.OpenstackTrial


def _in_turn(plan: Plan, kind: type[Trial], image: GuestImage, say: Say) -> tuple[list[Concluded], str]:
    done = [run_alone(kind(plan, setup, image, say)) for setup in plan.setups]
    return [concluded for concluded, _ in done], done[-1][1]


def run_alone(trial: Trial) -> tuple[Concluded, str]:
    """Run one set-up from start to end. Returns also the kernel's release in its guest."""
    with trial:
        trial.prepare()
        _run_workload(trial, threading.Event())
        kernel = trial.kernel()
        return trial.conclude(), kernel


def _side_by_side(plan: Plan, image: GuestImage, say: Say) -> tuple[list[Concluded], str]:
    """All guests boot before the first starts, and none is verified before all have ended: both are loads."""
    starts_s = starts(plan.scaled(), plan.setups)
    both_s = overlap_s(plan.scaled(), starts_s)
    say(f"{plan.experiment}: starts at " + ", ".join(f"{s} {at:.0f} s" for s, at in starts_s.items()))
    if both_s:
        say(f"{plan.experiment}: dumps of two set-ups may overlap for {both_s:.0f} s in total")
    with ExitStack() as stack:
        trials = [stack.enter_context(Trial(plan, setup, image, say)) for setup in plan.setups]
        for trial in trials:
            trial.prepare()
        jobs = [Job(starts_s[trial.setup], partial(_run_workload, trial)) for trial in trials]
        try:
            run_in_parallel(jobs, max(starts_s.values()) + max(trial.limit_s() for trial in trials), CALL_S)
        except TimeoutError as error:
            raise HypervisorError(f"side by side: {error}") from error
        return [trial.conclude() for trial in trials], trials[0].kernel()


def _run_workload(trial: Trial, cancelled: threading.Event) -> None:
    trial.start()
    trial.finish(cancelled)
