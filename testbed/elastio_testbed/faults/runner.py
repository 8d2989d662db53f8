"""Carries out planned runs one after the other, on one guest as long as it is in order."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from elastio_testbed.console import Say
from elastio_testbed.ec2 import Quota
from elastio_testbed.faults import acks
from elastio_testbed.faults.evidence import folder_of, keep
from elastio_testbed.faults.fault_actions import FAULT_ACTIONS, PREPARATIONS, nothing, recover_cache
from elastio_testbed.faults.kinds import KINDS, PULLS, TRANSPARENT, FaultAction
from elastio_testbed.faults.lab import Lab
from elastio_testbed.faults.plan import PlannedRun
from elastio_testbed.faults.run_result import RunResult
from elastio_testbed.faults.tears import Tear, tear, torn
from elastio_testbed.hypervisor import GuestError, HypervisorError
from elastio_testbed.image import GuestImage
from elastio_testbed.machine import CONFIG
from elastio_testbed.polling import until
from elastio_testbed.scratch import scratch_folder

# A sample a second, and what is still on its way from the last load.
QUIET_S = 60.0
# Timeout of the trigger; the fault strikes afterwards in any case.
TRIGGER_S = 240.0
# Timeout of the writer's error once its cache is removed: a clean device continues, a hung kernel never responds.
EVIDENCE_S = 15.0
# Attempts to boot a guest before the campaign is given up.
BOOTS = 3
# Errors of a guest, its cloud and its files: the run is given up, the campaign continues.
FAILURES = (HypervisorError, TimeoutError, OSError, ValueError, KeyError)


@dataclass(slots=True)
class Writers:
    """The writers of one run: a fault that removes the device stops one, and the next has another name."""

    run: PlannedRun
    names: list[str] = field(default_factory=list)
    tears: list[Tear] = field(default_factory=list)

    def start(self, lab: Lab) -> None:
        self.names.append(f"run{self.run.number}-{len(self.names)}")
        lab.start_writer(self.names[-1], self.run.seed)


class Runner:
    """A context manager that ends with guest and cloud. Evidence of failed runs is stored in `evidence`.

    `devices` 2: a second device boosts in the guest, and what it loses or leaves counts as well.
    """

    def __init__(self, image: GuestImage, seed: int, evidence: Path, say: Say, **lab: Any) -> None:
        self._image, self._seed, self.evidence, self._say = image, seed, evidence, say
        self._options = lab
        self._scratch = scratch_folder("elastio-faults-")
        self._folder = Path(self._scratch.name)
        self._lab: Lab | None = None
        self._made = 0

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._discard()
        self._scratch.cleanup()

    def carry_out(self, runs: Sequence[PlannedRun]) -> Iterator[RunResult]:
        """Yield the result of each run as soon as it is known. Raises HypervisorError if no guest can be started."""
        for run in runs:
            self._say(str(run))
            result = self._result(run, self._fit_lab())
            self._say(f"run {run.number}: {_line(result)}")
            if not result.is_sound:
                self._discard()
            yield result

    def _fit_lab(self) -> Lab:
        for left in reversed(range(BOOTS)):
            if self._lab is not None:
                return self._lab
            try:
                self._lab = self._booted()
            except HypervisorError as error:
                self._say(f"no guest: {error}")
                if not left:
                    raise
        assert self._lab is not None
        return self._lab

    def _booted(self) -> Lab:
        self._made += 1
        self._say(f"booting guest {self._made}")
        lab = Lab(self._image, self._folder / f"lab{self._made}", self._seed, **self._options)
        with ExitStack() as undo:
            undo.enter_context(lab)
            lab.prepare()
            undo.pop_all()
        return lab

    def _discard(self) -> None:
        lab, self._lab = self._lab, None
        if lab is not None:
            lab.__exit__(None, None, None)
            shutil.rmtree(lab.folder, ignore_errors=True)

    # --- one run -------------------------------------------------------------------------------------------------

    def _result(self, run: PlannedRun, lab: Lab) -> RunResult:
        writers = Writers(run)
        result = RunResult(run)
        try:
            result = strike(run, lab, writers)
            result = replace(result, leaked_volumes=lab.leaked(), kernel=lab.guest.check(["uname", "-r"]))
            result = with_verification(result, lab, writers)
        except FAILURES as error:
            result = self._with_evidence(
                replace(result, stuck=f"{type(error).__name__}: {error}", tears=tuple(writers.tears)), lab
            )
            return verify_after_reboot(result, lab, writers)
        # Kept, too: the evidence that the kernel lost a record, and why the trigger of a fault never came.
        is_ordinary = result.is_sound and not (result.lost_records or result.missed)
        return result if is_ordinary else self._with_evidence(result, lab)

    def _with_evidence(self, result: RunResult, lab: Lab) -> RunResult:
        name = folder_of(result, self._seed)
        keep(self.evidence / name, lab, result)
        return replace(result, evidence=name)


def strike(run: PlannedRun, lab: Lab, writers: Writers) -> RunResult:
    """From the first record until the agent is idle after the fault."""
    seen = set_up(run, lab, writers)
    missed = not lab.wait_for_trigger(seen, TRIGGER_S)
    if not missed:
        time.sleep(run.delay_s)
    is_left = not is_done(run, missed=missed)
    if is_left:
        PREPARATIONS.get(run.action, nothing)(lab)
    has_writer = is_left and run.action in PULLS and lab.writer_runs()
    began_s = lab.uptime_s() if has_writer else 0.0
    at = time.monotonic()
    if is_left:
        FAULT_ACTIONS[run.action](lab)
    if has_writer:
        writers.tears.append(observed_tear(lab, writers.names[-1], began_s))
    is_reset = is_left and run.action in PULLS and recover_cache(lab)
    rebooted = recover(lab) or is_reset
    recovered_s = time.monotonic() - at
    interrupted = run.action in TRANSPARENT and (rebooted or not lab.writers_run())
    if not lab.writer_runs():
        writers.start(lab)
    lab.wait_for_rest()
    rest_s = time.monotonic() - at
    missed = missed or (run.action is FaultAction.NOTHING and not has_struck(lab.cloud.faults.pending(), run))
    clear_faults(lab)
    return RunResult(
        run,
        recovery_s=round(recovered_s, 1),
        rest_s=round(rest_s, 1),
        missed=missed,
        rebooted=rebooted,
        interrupted=interrupted,
    )


def observed_tear(lab: Lab, name: str, began_s: float) -> Tear:
    """Read the evidence of port and kernel log before the recovery: a reboot would delete it."""
    until(lambda: name in acks.failures(acks.text_of(lab.records)), EVIDENCE_S, 0.2)
    return tear(name, began_s, acks.text_of(lab.records), lab.kernel_log())


def is_done(run: PlannedRun, *, missed: bool) -> bool:
    """Whether nothing is left to be done: the guest killed the daemon itself, or the trigger was missed."""
    if run.action is FaultAction.KILL_DAEMON:
        return not run.delay_s and not missed
    return missed and run.action in (*PULLS, FaultAction.KILL_THROTTLING)


def recover(lab: Lab) -> bool:
    """Wait until agent and device work again. Returns whether that took a power cycle."""
    lab.wait_for_agent()
    if lab.takes_writes():
        return False
    lab.guest.vm.kill()
    lab.boot()
    lab.wait_for_agent()
    if not lab.takes_writes():
        raise GuestError(f"the device takes no writes after a reboot\n{lab.guest.vm.console_tail()}")
    return True


def set_up(run: PlannedRun, lab: Lab, writers: Writers) -> int:
    """Start watching, the faults of the cloud, the writer and the load, in this order: no trigger may be missed.

    To read the records of the run before is a load as well: if boosts were allowed while the agent still sees it, one
    would begin before anybody watches for it, and this run's load would find its cache.
    """
    lab.guest.wait_for(is_unloaded, QUIET_S, "the last load to be over")
    lab.guest.check(lab.guest.elastio("resume"), timeout_s=90)
    lab.forget_records()
    throttling = run.action is FaultAction.KILL_THROTTLING
    kill = run.action is FaultAction.KILL_DAEMON and not run.delay_s
    seen = lab.arm(run.trigger, kill=kill, corrupt=CONFIG if throttling else "")
    for each in run.cloud:
        fault = KINDS[each.kind].cloud_fault(each.call)
        if fault is not None:
            lab.cloud.faults.add(fault)
    if run.action is FaultAction.FORBID:
        lab.cloud.quota = Quota(max_volumes=0)
    writers.start(lab)
    if lab.neighbour is not None:
        lab.neighbour.start(f"run{run.number}-b", run.seed)
    if run.action is FaultAction.PULL_CLEAN:
        # Without writer and burst nothing is dirty when the cache is removed.
        lab.stop_writer()
        lab.guest.check(["sync"], timeout_s=120)
        lab.guest.check(lab.guest.elastio("boost"), timeout_s=90)
    else:
        lab.burst()
    return seen


def is_unloaded(status: Mapping[str, Any]) -> bool:
    """The last sample shows no load that could begin a boost."""
    return status["load"] is not None and float(status["load"]["utilization"]) < status["load"]["threshold"] / 2


def has_struck(pending: Sequence[Mapping[str, object]], run: PlannedRun) -> bool:
    """Whether each fault of the cloud has hit a call: active faults then have fewer hits left than planned."""
    planned = [KINDS[each.kind].cloud_fault(each.call) for each in run.cloud]
    return not any(fault is not None and asdict(fault) in pending for fault in planned)


def clear_faults(lab: Lab) -> None:
    """Remove the faults of the cloud, once the agent is idle: one of DeleteVolume strikes at the end of the cycle."""
    lab.cloud.faults.clear()
    lab.cloud.quota = Quota()


def with_verification(result: RunResult, lab: Lab, writers: Writers) -> RunResult:
    """Read back every record of every writer that the host knows to be acknowledged."""
    lab.stop_writer()
    lab.guest.check(lab.guest.elastio("pause"), timeout_s=90)
    known = acks.read(lab.records)
    found = {name: lab.verify(name, result.planned.seed, known.get(name, 0)) for name in writers.names}
    beside = () if lab.neighbour is None else lab.neighbour.verify(result.planned.seed)
    every = (*found.values(), *beside)
    return replace(
        result,
        acknowledged_records=sum(each["checked"] for each in every),
        lost_records=sum(each["lost"] for each in every),
        torn_records=sum(torn(found[each.name], each) for each in writers.tears),
        tears=tuple(writers.tears),
        examples=tuple(example for each in every for example in each["examples"])[:20],
    )


def verify_after_reboot(result: RunResult, lab: Lab, writers: Writers) -> RunResult:
    """Read the acknowledged records of a stuck run after a reboot, as the last attempt."""
    known = acks.read(lab.records)
    count = sum(known.get(name, 0) for name in writers.names)
    try:
        lab.guest.vm.kill()
        lab.boot()
        return with_verification(result, lab, writers)
    except FAILURES as error:
        stuck = f"{result.stuck}; and after a reboot: {type(error).__name__}: {error}"
        return replace(result, stuck=stuck, acknowledged_records=count, unverified_records=count)


def _line(result: RunResult) -> str:
    if result.stuck:
        return f"STUCK: {result.stuck.splitlines()[0]}"
    lost = f"{result.lost_records} of {result.acknowledged_records} records lost"
    if result.torn_records:
        lost = f"{lost} ({result.torn_records} provably by the kernel)"
    leaked = f"{len(result.leaked_volumes)} volumes leaked"
    late = ", trigger missed" if result.missed else ""
    return f"{lost}, {leaked}, recovered after {result.recovery_s} s, idle after {result.rest_s} s{late}"
