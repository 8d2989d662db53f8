"""The guest of the fault runs on OpenStack: Nova's server, Cinder's volumes, and services that can be stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from elastio_testbed.console import Say
from elastio_testbed.experiment import Setup
from elastio_testbed.faults.fault_target import CALL_S, DEADLINE_S, RECORDS_PORT, TRIGGER_PORT, FaultTarget
from elastio_testbed.image import GuestImage
from elastio_testbed.machine import Tables
from elastio_testbed.openstack import bootstrap
from elastio_testbed.openstack.cassette import Cassette
from elastio_testbed.openstack.demo import NovaGuest, NovaMachine
from elastio_testbed.openstack.lab import Lab
from elastio_testbed.openstack.proxy import ApiProxy
from elastio_testbed.polling import until
from elastio_testbed.trial import JOURNAL, OPENSTACK, Plan

# On Nova, a boost of an emulated guest starts after ten seconds or more: the load has to outlast that, and the fault.
BURST_MIB = 600
BOOT_S = 300.0
DOCTOR_S = 180.0
# As many records as fit into one response of the guest agent, and as many as are written between two polls.
MOST_RECORDS, RECENT, POLL_S = 2000, 40, 2.0
# Shorter than the packaged values, which only make a run longer: 600 s until a volume in deletion is polled again.
CONFIG: Tables = {
    "policy": {"attach_timeout_s": DEADLINE_S, "reconcile_interval_s": 60},
    "agent": {"sample_interval_s": 1.0},
    "provider.openstack": {"detach_deadline_s": 60.0},
}


class NovaTarget(FaultTarget):
    """One guest of the laboratory's OpenStack, created by `boot_target`."""

    guest: NovaGuest

    def __init__(self, lab: Lab, machine: NovaMachine, proxy: ApiProxy) -> None:
        self.lab, self.machine = lab, machine
        scaled = Plan("demo", (Setup.ADAPTIVE,), scale=0.12, bandwidth=0.5, cloud=OPENSTACK).scaled()
        guest = NovaGuest(machine, proxy, Setup.ADAPTIVE, scaled, CONFIG)
        super().__init__(guest, machine.port(RECORDS_PORT), machine.port(TRIGGER_PORT), burst_mib=BURST_MIB)

    def prepare(self) -> None:
        """Wait for the guest; set up device, agent, programs and noise."""
        self.guest.prepare(None, boot_s=BOOT_S)
        self.install()
        self.guest.check(["sync"], timeout_s=CALL_S)

    def settle(self, seconds: float) -> None:
        """See `FaultTarget`. Raises LabError."""
        self.machine.tenant.settle(seconds)

    def leaked(self) -> tuple[str, ...]:
        """See `FaultTarget`; volumes in every state count."""
        volumes = {row["id"] for row in self._cache_volumes()}
        disks = {disk for disk in self.machine.disks() if not disk.startswith(self.guest.serial)}
        return tuple(sorted(volumes | disks))

    def cache_statuses(self) -> tuple[str, ...]:
        """The statuses of the cache volumes in Cinder."""
        return tuple(str(row["status"]) for row in self._cache_volumes())

    def _cache_volumes(self) -> list[dict[str, Any]]:
        return [row for row in self.machine.tenant.volumes() if not row["id"].startswith(self.guest.serial)]

    # --- faults and repairs -----------------------------------------------------------------------------------

    def renew_credential(self) -> None:
        """Write a new credential to the guest's clouds.yaml, as an operator would; the agent is not restarted."""
        self.machine.tenant.replace_credential()
        self.guest.write_clouds()

    def set_quota(self, **quota: int) -> None:
        """Set the project's quota."""
        bootstrap.set_quota(self.machine.tenant.admin, quota, bootstrap.DEMO_PROJECT)

    # --- the agent's reports ----------------------------------------------------------------------------------

    def journal(self, records: int = MOST_RECORDS) -> list[dict[str, Any]]:
        """The last records of the agent's journal."""
        text = self.guest.check(["tail", "-n", str(records), JOURNAL], timeout_s=CALL_S)
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def last_record(self) -> int:
        """The number of the journal's last record; 0 for an empty journal."""
        return max((int(record["seq"]) for record in self.journal(1)), default=0)

    def wait_for_error(self, expected: str, since: int, seconds: float) -> bool:
        """Whether an error with this word appears in time, in the agent's status or its journal after `since`."""

        def is_reported() -> bool:
            recent = [record for record in self.journal(RECENT) if record["seq"] > since]
            errors = (self.guest.status()["cloud_error"], *errors_in(recent))
            return any(error and expected in error for error in errors)

        return until(is_reported, seconds, POLL_S)

    @contextmanager
    def configured(self, changes: Tables) -> Iterator[None]:
        """Change the configuration file within the context; the agent does not read it again."""
        self.guest.write_config(None, changes)
        try:
            yield
        finally:
            self.guest.write_config(None)

    def failed_checks(self) -> dict[str, str]:
        """The failed cloud checks of `elastio doctor`: text by name."""
        done = self.guest.vm.agent.run(["elastio", "doctor", "--json"], timeout_s=DOCTOR_S)
        rows = json.loads(done.text)
        return {
            row["name"]: row["sentence"]
            for row in rows
            if row["verdict"] == "fail" and row["name"].startswith("OpenStack")
        }


def open_intents(journal: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Actions with an intent and no outcome, in their order."""
    begun: list[str] = []
    for record in journal:
        if record["kind"] == "intent":
            begun.append(str(record["action"]))
        elif record["kind"] == "outcome" and record["action"] in begun:
            begun.remove(record["action"])
    return tuple(begun)


def errors_in(journal: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The errors of all outcomes, without repetitions."""
    failed = (str(r["error"]) for r in journal if r["kind"] == "outcome" and r.get("error"))
    return tuple(dict.fromkeys(failed))


@contextmanager
def boot_target(lab: Lab, image: GuestImage, say: Say) -> Iterator[NovaTarget]:
    """Boot a guest; server and volumes are deleted at the end. Raises LabError or HypervisorError."""
    say("booting a guest with Nova")
    with ApiProxy(Cassette(), live=True) as proxy, NovaMachine(lab, image, "faults") as machine:
        target = NovaTarget(lab, machine, proxy)
        target.prepare()
        yield target
