"""Fault injection into a real OpenStack while a guest boosts: one fault in each run.

As in the campaign on EC2, a record of the writer counts as acknowledged when the host has received its number, and
all acknowledged records are read back after the run. A fault lasts until the agent has noticed it. Then it is repaired
as an operator would do it, and the agent has to return to idle without help.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any

from keystoneauth1.exceptions import ClientException
from openstack.exceptions import SDKException

from elastio_testbed.console import Say
from elastio_testbed.errors import LabError
from elastio_testbed.faults import acks
from elastio_testbed.faults.kinds import Trigger
from elastio_testbed.hypervisor import HypervisorError
from elastio_testbed.image import GuestImage, ImageError
from elastio_testbed.openstack import bootstrap, services
from elastio_testbed.openstack.daemons import Daemon
from elastio_testbed.openstack.fault_target import NovaTarget, boot_target, errors_in, open_intents
from elastio_testbed.openstack.lab import Lab

TRIGGER_S = 240.0
# Until the agent notices the fault: services cache a token for some seconds, and a burst has to end first.
NOTICE_S = 300.0
DETACHING_S = 120.0
# The backing volume is the only one of the project, so this quota forbids a cache volume.
NO_MORE_VOLUMES = {"volumes": 1}
FAILURES = (HypervisorError, LabError, ImageError, SDKException, ClientException, OSError, ValueError, KeyError)

Action = Callable[[NovaTarget], None]


@dataclass(frozen=True, slots=True)
class ServiceFault:
    """One row of the table: `inject` at `trigger`, and `repair` at least `least_s` later.

    `is_before_load`: injected before the load starts, for faults that take effect too late otherwise. `error`: a word
    of an error that the agent has to report before the repair ("": any error, None: no error needed). `late_error`: a
    word of an error that it has to report before the end of the run. `statuses`: the possible statuses of the cache
    volume just before the repair; empty: any. `doctor_check`: the check of `elastio doctor` that has to fail before
    the repair, `doctor_advice` a word of its text.
    """

    name: str
    trigger: Trigger
    inject: Action
    repair: Action
    error: str | None = None
    late_error: str = ""
    statuses: tuple[str, ...] = ()
    least_s: float = 20.0
    is_before_load: bool = False
    doctor_check: str = ""
    doctor_advice: str = ""

    def is_reported(self, doctor: str, shown: Sequence[str]) -> bool:
        """Whether doctor and Cinder have shown the fault."""
        as_shown = any(status in self.statuses for status in shown) or not self.statuses
        return self.doctor_advice in doctor and as_shown


def _stopped(daemon: Daemon, when: str, trigger: Trigger, **more: Any) -> ServiceFault:
    """One service of the cloud is killed, and started again."""

    def kill(target: NovaTarget) -> None:
        target.lab.daemons.kill(daemon.name)

    return ServiceFault(f"{daemon.name}-stopped-{when}", trigger, kill, _starting(daemon), **more)


def _starting(daemon: Daemon) -> Action:
    """Start the service, and wait until its port answers, if it has one."""
    return lambda target: target.lab.start(daemon.name)


def _interrupt_detach(target: NovaTarget) -> None:
    """Stop Cinder between Nova's acceptance of a detach and its execution: the volume stays in `detaching`."""
    daemons = target.lab.daemons
    daemons.suspend(services.NOVA_COMPUTE.name)
    try:
        target.wait_until(lambda: "detaching" in target.cache_statuses(), DETACHING_S, "the volume to be detaching")
        daemons.kill(services.CINDER_API.name)
    finally:
        daemons.resume(services.NOVA_COMPUTE.name)


ANY_ERROR = ""
KINDS: Mapping[str, ServiceFault] = {
    kind.name: kind
    for kind in (
        _stopped(services.CINDER_API, "at-purchase", Trigger("intent", "CreateVolume"), error=ANY_ERROR),
        _stopped(services.NOVA_API, "at-attach", Trigger("outcome", "CreateVolume"), error=ANY_ERROR),
        _stopped(
            services.CINDER_VOLUME,
            "at-attach",
            Trigger("intent", "AttachVolume"),
            statuses=("reserved", "attaching"),
            least_s=30.0,
        ),
        _stopped(services.NOVA_API, "at-detach", Trigger("outcome", "DetachCacheSet"), error=ANY_ERROR),
        _stopped(services.CINDER_API, "at-detach", Trigger("intent", "DetachVolume"), error=ANY_ERROR),
        ServiceFault(
            "cinder-api-stopped-during-detach",
            Trigger("outcome", "DetachCacheSet"),
            _interrupt_detach,
            _starting(services.CINDER_API),
            ANY_ERROR,
            late_error="detaching",
        ),
        _stopped(services.CINDER_API, "at-deletion", Trigger("intent", "DeleteVolume"), error=ANY_ERROR),
        _stopped(services.CINDER_VOLUME, "at-deletion", Trigger("intent", "DeleteVolume"), statuses=("deleting",)),
        ServiceFault(
            "credential-revoked",
            Trigger("decision", "boosting"),
            lambda target: target.machine.tenant.revoke_credential(),
            NovaTarget.renew_credential,
            "application credential",
            doctor_check="OpenStack credential",
            doctor_advice="clouds.yaml",
        ),
        ServiceFault(
            "quota-reached",
            Trigger("intent", "CreateVolume"),
            lambda target: target.set_quota(**NO_MORE_VOLUMES),
            lambda target: target.set_quota(**bootstrap.QUOTA),
            "quota",
            is_before_load=True,
            doctor_check="OpenStack quota",
            doctor_advice="operator",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class ServiceFaultResult:
    """One run.

    `came`: the trigger occurred. `met`: agent, doctor and cloud reported the fault as expected. `doctor`: the text of
    the failed check. `shown`: statuses of the cache volume before the repair, where expected. `felt`: the fault
    stopped the writer, although applications should not notice it. `rest_s`: from the repair until the cycle had
    ended and its volume was deleted. `open_intents`: actions without an outcome in the journal. `stuck`: the reason
    why the run was aborted.
    """

    kind: str
    acknowledged_records: int = 0
    lost_records: int = 0
    left_volumes: tuple[str, ...] = ()
    open_intents: tuple[str, ...] = ()
    came: bool = False
    met: bool = False
    doctor: str = ""
    shown: tuple[str, ...] = ()
    felt: bool = False
    fault_s: float | None = None
    rest_s: float | None = None
    stuck: str = ""
    errors: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        failed = self.lost_records or self.left_volumes or self.open_intents or self.felt or self.stuck
        return bool(self.came and self.met and self.acknowledged_records) and not failed

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "sound": self.is_sound}


class Runner:
    """Use as a context manager. One guest serves all runs; after a failed run it is replaced."""

    def __init__(self, lab: Lab, image: GuestImage, seed: int, say: Say) -> None:
        self._lab, self._image, self._seed, self._say = lab, image, seed, say
        self._stack = ExitStack()
        self._target: NovaTarget | None = None

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._discard()

    def target(self) -> NovaTarget:
        """The guest of the next run, booted if there is none. Raises LabError or HypervisorError."""
        if self._target is None:
            self._target = self._stack.enter_context(boot_target(self._lab, self._image, self._say))
        return self._target

    def carry_out(self, kinds: Sequence[ServiceFault]) -> Iterator[ServiceFaultResult]:
        """The result of each run after its end. Raises LabError or HypervisorError when no guest can be booted."""
        for kind in kinds:
            self._say(kind.name)
            result = self._run(kind, self.target())
            self._say(_summary_line(result))
            if not result.is_sound:
                self._discard()
            yield result

    def _discard(self) -> None:
        """Start every service, restore the quota and delete the guest."""
        self._lab.start(*(daemon.name for daemon in services.ALL))
        if self._target is not None:
            self._target.set_quota(**bootstrap.QUOTA)
        self._target = None
        self._stack.close()

    def _run(self, kind: ServiceFault, target: NovaTarget) -> ServiceFaultResult:
        name, began = f"{kind.name}-{time.time():.0f}", ServiceFaultResult(kind.name)
        try:
            since = target.last_record()
            result = run_fault(kind, target, began, name, self._seed, since)
            journal = [record for record in target.journal() if record["seq"] > since]
            result = replace(
                result,
                met=result.met and kind.late_error in " ".join(errors_in(journal)),
                left_volumes=target.leaked(),
                open_intents=open_intents(journal),
                errors=errors_in(journal),
            )
            return with_verification(result, target, name, self._seed)
        except FAILURES as error:
            return replace(began, stuck=f"{type(error).__name__}: {error}")


def run_fault(
    kind: ServiceFault, target: NovaTarget, result: ServiceFaultResult, name: str, seed: int, since: int
) -> ServiceFaultResult:
    """Run from the first record until the agent is idle again; the journal's records after `since` are this run's."""
    target.guest.check(["elastio", "resume"], timeout_s=90)
    target.forget_records()
    target.start_writer(name, seed)
    seen = target.arm(kind.trigger, kill=False)
    if kind.is_before_load:
        kind.inject(target)
    target.burst()
    came = target.wait_for_trigger(seen, TRIGGER_S)
    at = time.monotonic()
    if not kind.is_before_load:
        kind.inject(target)
    met = kind.error is None or target.wait_for_error(kind.error, since, NOTICE_S)
    doctor = target.failed_checks().get(kind.doctor_check, "") if kind.doctor_check else ""
    time.sleep(max(0.0, kind.least_s - (time.monotonic() - at)))
    shown = target.cache_statuses() if kind.statuses else ()
    kind.repair(target)
    repaired = time.monotonic()
    target.wait_for_agent()
    target.wait_for_rest()
    return replace(
        result,
        came=came,
        met=met and kind.is_reported(doctor, shown),
        doctor=doctor,
        shown=shown,
        felt=not target.writer_runs(),
        fault_s=round(repaired - at, 1),
        rest_s=round(time.monotonic() - repaired, 1),
    )


def with_verification(result: ServiceFaultResult, target: NovaTarget, name: str, seed: int) -> ServiceFaultResult:
    """Read back every acknowledged record."""
    target.stop_writer()
    target.guest.check(["elastio", "pause"], timeout_s=90)
    found = target.verify(name, seed, acks.read(target.records).get(name, 0))
    return replace(result, acknowledged_records=found["checked"], lost_records=found["lost"])


def summary(results: Sequence[ServiceFaultResult]) -> dict[str, Any]:
    """The document of all runs."""
    return {
        "runs": len(results),
        "acknowledged_records": sum(result.acknowledged_records for result in results),
        "lost_records": sum(result.lost_records for result in results),
        "left_volumes": sum(len(result.left_volumes) for result in results),
        "stuck_runs": sum(bool(result.stuck) for result in results),
        "worst_rest_s": max((s.rest_s for s in results if s.rest_s is not None), default=None),
        "sound": bool(results) and all(result.is_sound for result in results),
        "stories": [result.as_dict() for result in results],
    }


def _summary_line(result: ServiceFaultResult) -> str:
    if result.stuck:
        return f"  STUCK: {result.stuck.splitlines()[0]}"
    lost = f"{result.lost_records} of {result.acknowledged_records} records lost"
    left = f"{len(result.left_volumes)} volumes left, {len(result.open_intents)} open intents"
    unexpected = "" if result.came and result.met else ", NOT REPORTED as expected"
    return f"  {lost}, {left}, fault of {result.fault_s} s, idle {result.rest_s} s after the repair{unexpected}"
