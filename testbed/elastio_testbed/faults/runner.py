"""Carries planned runs out, one after the other, on one guest for as long as it is fit for the next."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from elastio_testbed.ec2 import Quota
from elastio_testbed.faults import acks
from elastio_testbed.faults.evidence import folder_of, keep
from elastio_testbed.faults.fault_actions import FAULT_ACTIONS, PRECONDITIONS, bring_cache_back, nothing
from elastio_testbed.faults.kinds import KINDS, PULLS, TRANSPARENT, FaultAction
from elastio_testbed.faults.lab import Lab
from elastio_testbed.faults.plan import PlannedRun
from elastio_testbed.faults.run_result import RunResult
from elastio_testbed.faults.tears import Tear, tear, torn
from elastio_testbed.hypervisor import GuestError, HypervisorError
from elastio_testbed.image import GuestImage
from elastio_testbed.machine import CONFIG
from elastio_testbed.scratch import scratch_folder

# For a moment of the cycle to come; after that the fault strikes where the run stands.
TRIGGER_S = 240.0
# For the writer's error after a tear: a device with nothing dirty goes on, and a kernel that hangs never answers.
WITNESS_S = 15.0
# Tries to have a guest ready, before the campaign is given up.
BOOTS = 3
# What can go wrong with a guest, its cloud and its files: the run is given up, the campaign is not.
FAILURES = (HypervisorError, TimeoutError, OSError, ValueError, KeyError)

Say = Callable[[str], None]


@dataclass(slots=True)
class Writers:
    """The lives of the writer in one run: a fault that takes the device ends one, and the next has a new name."""

    run: PlannedRun
    names: list[str] = field(default_factory=list)
    tears: list[Tear] = field(default_factory=list)

    def start(self, lab: Lab) -> None:
        self.names.append(f"run{self.run.number}-{len(self.names)}")
        lab.start_writer(self.names[-1], self.run.seed)


class Runner:
    """Use as a context manager: guest and cloud end with it. Evidence of what went wrong is kept in `evidence`."""

    def __init__(self, image: GuestImage, seed: int, evidence: Path, say: Say) -> None:
        self._image, self._seed, self.evidence, self._say = image, seed, evidence, say
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
        """The result of each run as soon as it is known. Raises HypervisorError when no guest can be made at all."""
        for run in runs:
            self._say(str(run))
            result = self._result(run, self._fit_lab())
            self._say(f"run {run.number}:{_told(result)}")
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
        lab = Lab(self._image, self._folder / f"lab{self._made}", self._seed)
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
            result = with_records(result, lab, writers)
        except FAILURES as error:
            result = self._kept(
                replace(result, stuck=f"{type(error).__name__}: {error}", tears=tuple(writers.tears)), lab
            )
            return salvage(result, lab, writers)
        # One that the kernel lost is excused, and kept as well: nothing else can show that it was the kernel.
        return result if result.is_sound and not result.lost_records else self._kept(result, lab)

    def _kept(self, result: RunResult, lab: Lab) -> RunResult:
        name = folder_of(result, self._seed)
        keep(self.evidence / name, lab, result)
        return replace(result, evidence=name)


def strike(run: PlannedRun, lab: Lab, writers: Writers) -> RunResult:
    """From the first record to the rest after the fault."""
    seen = before(run, lab, writers)
    missed = not lab.wait_for_trigger(seen, TRIGGER_S)
    if not missed:
        time.sleep(run.delay_s)
    is_left = not is_done(run, missed=missed)
    if is_left:
        PRECONDITIONS.get(run.action, nothing)(lab)
    has_writer = is_left and run.action in PULLS and lab.writer_runs()
    began_s = lab.uptime_s() if has_writer else 0.0
    at = time.monotonic()
    if is_left:
        FAULT_ACTIONS[run.action](lab)
    if has_writer:
        writers.tears.append(witnessed(lab, writers.names[-1], began_s))
    is_reset = is_left and run.action in PULLS and bring_cache_back(lab)
    rebooted = bring_back(lab) or is_reset
    recovered_s = time.monotonic() - at
    interrupted = run.action in TRANSPARENT and (rebooted or not lab.writer_runs())
    if not lab.writer_runs():
        writers.start(lab)
    lab.wait_for_rest()
    rest_s = time.monotonic() - at
    missed = missed or (run.action is FaultAction.NOTHING and not has_struck(lab.cloud.faults.pending(), run))
    make_whole(lab)
    return RunResult(
        run,
        recovery_s=round(recovered_s, 1),
        rest_s=round(rest_s, 1),
        missed=missed,
        rebooted=rebooted,
        interrupted=interrupted,
    )


def witnessed(lab: Lab, name: str, began_s: float) -> Tear:
    """Asked before anything is done to bring the cache back: a new boot would forget it."""
    end = time.monotonic() + WITNESS_S
    while name not in acks.failures(acks.text_of(lab.records)) and time.monotonic() < end:
        time.sleep(0.2)
    return tear(name, began_s, acks.text_of(lab.records), lab.kernel_log())


def is_done(run: PlannedRun, *, missed: bool) -> bool:
    """The guest's own watch has killed the daemon; or there is no cache to be pulled, or nobody to be freed."""
    if run.action is FaultAction.KILL_DAEMON:
        return not run.delay_s and not missed
    return missed and run.action in (*PULLS, FaultAction.KILL_HOLDING)


def bring_back(lab: Lab) -> bool:
    """Wait until agent and device are of use again; whether that took a power cycle."""
    lab.wait_for_agent()
    if lab.takes_writes():
        return False
    lab.guest.vm.kill()
    lab.boot()
    lab.wait_for_agent()
    if not lab.takes_writes():
        raise GuestError(f"the device takes no writes after a new boot\n{lab.guest.vm.console_tail()}")
    return True


def before(run: PlannedRun, lab: Lab, writers: Writers) -> int:
    """Writer, watch, the cloud's faults, load: in this order, or the moment may come before anybody looks."""
    lab.guest.check(["elastio", "resume"], timeout_s=90)
    lab.forget_records()
    holding = run.action is FaultAction.KILL_HOLDING
    kill = run.action is FaultAction.KILL_DAEMON and not run.delay_s
    seen = lab.arm(run.trigger, kill=kill, corrupt=CONFIG if holding else "")
    for each in run.cloud:
        fault = KINDS[each.kind].cloud_fault(each.call)
        if fault is not None:
            lab.cloud.faults.add(fault)
    if run.action is FaultAction.FORBID:
        lab.cloud.quota = Quota(max_volumes=0)
    writers.start(lab)
    if run.action is FaultAction.PULL_CLEAN:
        # No writer and no burst: nothing is dirty when the cache goes.
        lab.stop_writer()
        lab.guest.check(["sync"], timeout_s=120)
        lab.guest.check(["elastio", "boost"], timeout_s=90)
    else:
        lab.burst()
    return seen


def has_struck(pending: Sequence[Mapping[str, object]], run: PlannedRun) -> bool:
    """Whether each of the cloud's faults has hit a call: those in force have fewer hits left than they came with."""
    planned = [KINDS[each.kind].cloud_fault(each.call) for each in run.cloud]
    return not any(fault is not None and asdict(fault) in pending for fault in planned)


def make_whole(lab: Lab) -> None:
    """Nothing goes wrong any more. Not before the rest: a fault of DeleteVolume waits for the end of the cycle."""
    lab.cloud.faults.clear()
    lab.cloud.quota = Quota()


def with_records(result: RunResult, lab: Lab, writers: Writers) -> RunResult:
    """Read back every record that the host knows to be acknowledged, whichever life of the writer it was of."""
    lab.stop_writer()
    lab.guest.check(["elastio", "pause"], timeout_s=90)
    known = acks.read(lab.records)
    found = {name: lab.verify(name, result.planned.seed, known.get(name, 0)) for name in writers.names}
    return replace(
        result,
        acknowledged_records=sum(each["checked"] for each in found.values()),
        lost_records=sum(each["lost"] for each in found.values()),
        torn_records=sum(torn(found[each.name], each) for each in writers.tears),
        tears=tuple(writers.tears),
        examples=tuple(example for each in found.values() for example in each["examples"])[:20],
    )


def salvage(result: RunResult, lab: Lab, writers: Writers) -> RunResult:
    """A run that is stuck has acknowledged records all the same: a new boot is the last try to read them."""
    known = acks.read(lab.records)
    count = sum(known.get(name, 0) for name in writers.names)
    try:
        lab.guest.vm.kill()
        lab.boot()
        return with_records(result, lab, writers)
    except FAILURES as error:
        stuck = f"{result.stuck}; and after a new boot: {type(error).__name__}: {error}"
        return replace(result, stuck=stuck, acknowledged_records=count, unverified_records=count)


def _told(result: RunResult) -> str:
    if result.stuck:
        return f" STUCK: {result.stuck.splitlines()[0]}"
    lost = f"{result.lost_records} of {result.acknowledged_records} records lost"
    if result.torn_records:
        lost = f"{lost} ({result.torn_records} of them by the kernel, with witnesses)"
    leaked = f"{len(result.leaked_volumes)} volumes leaked"
    late = ", moment missed" if result.missed else ""
    return f" {lost}, {leaked}, back after {result.recovery_s} s, at rest after {result.rest_s} s{late}"
