"""The guest of the fault runs on OpenStack: Nova's server, Cinder's volumes, and services that can be taken away."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from elastio_testbed.experiment import Setup
from elastio_testbed.faults.subject import CALL_S, DEADLINE_S, MOMENTS_PORT, RECORDS_PORT, Subject
from elastio_testbed.image import GuestImage
from elastio_testbed.openstack import content
from elastio_testbed.openstack.cassette import Cassette
from elastio_testbed.openstack.demo import NovaGuest, NovaMachine, Say
from elastio_testbed.openstack.front import Front
from elastio_testbed.openstack.lab import Lab
from elastio_testbed.trial import JOURNAL, OPENSTACK, Plan

# Nova takes an emulated guest ten seconds and more to a boost: the load has to outlast that, and the fault.
BURST_MIB = 600
BOOT_S = 300.0
DOCTOR_S = 180.0
# What the guest agent passes on in one answer, and what is written between two questions.
MOST_RECORDS, RECENT, POLL_S = 2000, 40, 2.0
# The packaged bounds only make a run longer: 600 s until a volume that was still being deleted is looked for again.
CONFIG: Mapping[str, Mapping[str, object]] = {
    "policy": {"attach_timeout_s": DEADLINE_S, "reconcile_interval_s": 60},
    "agent": {"sample_interval_s": 1.0},
    "provider.openstack": {"detach_deadline_s": 60.0},
}


class NovaSubject(Subject):
    """One guest of the laboratory's OpenStack; ends with `booted`."""

    guest: NovaGuest

    def __init__(self, lab: Lab, machine: NovaMachine, front: Front) -> None:
        self.lab, self.machine = lab, machine
        scaled = Plan("demo", (Setup.ADAPTIVE,), scale=0.12, bandwidth=0.5, cloud=OPENSTACK).scaled()
        guest = NovaGuest(machine, front, Setup.ADAPTIVE, scaled, CONFIG)
        super().__init__(guest, machine.port(RECORDS_PORT), machine.port(MOMENTS_PORT), burst_mib=BURST_MIB)

    def prepare(self) -> None:
        """Wait for the guest, and put device, agent, programs and noise in place."""
        self.guest.prepare(None, boot_s=BOOT_S)
        self.install()
        self.guest.check(["sync"], timeout_s=CALL_S)

    def settle(self, seconds: float) -> None:
        """See `Subject`. Raises LabError."""
        self.machine.tenant.settle(seconds)

    def leaked(self) -> tuple[str, ...]:
        """See `Subject`; in every state that Cinder knows."""
        volumes = {row["id"] for row in self._caches()}
        disks = {disk for disk in self.machine.disks() if not disk.startswith(self.guest.serial)}
        return tuple(sorted(volumes | disks))

    def shown(self) -> tuple[str, ...]:
        """What Cinder shows of the cache volumes."""
        return tuple(str(row["status"]) for row in self._caches())

    def _caches(self) -> list[dict[str, Any]]:
        return [row for row in self.machine.tenant.volumes() if not row["id"].startswith(self.guest.serial)]

    # --- what goes wrong, and is put right --------------------------------------------------------------------

    def end_service(self, name: str) -> None:
        """One daemon of the cloud ends at once, with whatever it was doing."""
        self.lab.daemons.kill(name)

    def start_service(self, name: str) -> None:
        """Start it again, and wait until it answers where it has a port. Raises LabError."""
        self.lab.start(name)

    def freeze(self, name: str) -> None:
        """One daemon stands still until `thaw`, as on a machine that hangs. Raises LabError where it does not run."""
        for member in self.lab.daemons.family(name):
            member.suspend()

    def thaw(self, name: str) -> None:
        """It goes on. Raises LabError where it does not run."""
        for member in self.lab.daemons.family(name):
            member.resume()

    def revoke(self) -> None:
        """The application credential is deleted."""
        tenant = self.machine.tenant
        tenant.cloud.identity.delete_application_credential(tenant.cloud.current_user_id, tenant.credential)

    def renew(self) -> None:
        """What an operator does then: a new credential, put into the guest's clouds.yaml; nothing is restarted."""
        self.machine.tenant.credential = self.machine.tenant.new_credential()
        self.guest.write_clouds()

    def limit(self, **quota: int) -> None:
        """The project's quota from now on."""
        content.set_quota(self.machine.tenant.admin, quota, content.DEMO_PROJECT)

    # --- what the agent says of it ----------------------------------------------------------------------------

    def journal(self, records: int = MOST_RECORDS) -> list[dict[str, Any]]:
        """The last records of the agent's journal."""
        text = self.guest.check(["tail", "-n", str(records), JOURNAL], timeout_s=CALL_S)
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def last_record(self) -> int:
        """The number of the journal's last record; 0 while there is none."""
        return max((int(record["seq"]) for record in self.journal(1)), default=0)

    def wait_for_trouble(self, said: str, since: int, seconds: float) -> bool:
        """Whether the agent's status, or its journal after the record `since`, comes to say this in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            recent = [record for record in self.journal(RECENT) if record["seq"] > since]
            if any(said in error for error in (self.guest.status()["cloud_error"], *errors_in(recent))):
                return True
            time.sleep(POLL_S)
        return False

    @contextmanager
    def configured(self, changes: Mapping[str, Mapping[str, object]]) -> Iterator[None]:
        """The configuration file with these changes for a while; the agent goes on with what it has read."""
        self.guest.configure(changes)
        try:
            yield
        finally:
            self.guest.configure({})

    def failed_checks(self) -> dict[str, str]:
        """What `elastio doctor` finds wrong with the cloud: name and sentence of each."""
        done = self.guest.vm.agent.run(["elastio", "doctor", "--json"], timeout_s=DOCTOR_S)
        rows = json.loads(done.text)
        return {
            row["name"]: row["sentence"]
            for row in rows
            if row["verdict"] == "fail" and row["name"].startswith("OpenStack")
        }


def open_intents(journal: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Actions that were begun and never came to an outcome, in their order."""
    begun: list[str] = []
    for record in journal:
        if record["kind"] == "intent":
            begun.append(str(record["action"]))
        elif record["kind"] == "outcome" and record["action"] in begun:
            begun.remove(record["action"])
    return tuple(begun)


def errors_in(journal: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """What went wrong, each sentence once."""
    failed = (str(r["error"]) for r in journal if r["kind"] == "outcome" and r.get("error"))
    return tuple(dict.fromkeys(failed))


@contextmanager
def booted(lab: Lab, image: GuestImage, say: Say) -> Iterator[NovaSubject]:
    """A guest with its agent at rest. Raises LabError or HypervisorError; server and volumes end with it."""
    say("booting a guest with Nova")
    with Front(Cassette(), live=True) as front, NovaMachine(lab, image, "faults") as machine:
        subject = NovaSubject(lab, machine, front)
        subject.prepare()
        yield subject
