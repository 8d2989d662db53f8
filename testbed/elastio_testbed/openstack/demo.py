"""The laboratory's experiments with Nova doing the attach and Cinder selling the volumes.

Cinder sells whole GiB and a volume type's own bandwidth, so only time and data of an experiment are scaled: the
sizes bought are larger than in the scaled EC2, and so are the costs.
"""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from elastio.units import GIB
from elastio_testbed.ec2 import Scale
from elastio_testbed.experiment import Scaled, Setup
from elastio_testbed.hypervisor.agent import GuestAgent
from elastio_testbed.image import GuestImage
from elastio_testbed.image.tools import chroot, run
from elastio_testbed.machine import HOST_IN_GUEST, Guest
from elastio_testbed.openstack import content
from elastio_testbed.openstack.cassette import Cassette
from elastio_testbed.openstack.errors import LabError
from elastio_testbed.openstack.front import Front
from elastio_testbed.openstack.hands import TYPES, Tenant, clouds_text
from elastio_testbed.openstack.lab import Lab, open_lab
from elastio_testbed.openstack.server import Server, boot
from elastio_testbed.result import SetupResult
from elastio_testbed.run import Evidence, Plan, drive

CLOUDS = "/etc/openstack/clouds.yaml"
_VIRSH = ("virsh", "-c", "qemu:///system")
_VIRSH_S = 60.0
_VOLUME_S = 120.0
_MIB_S = 2**20


@dataclass(frozen=True, slots=True)
class Row:
    """A volume's life as Cinder's database has it; `deleted_at` None while it lives."""

    id: str
    serial: str
    size_gib: int
    throughput_mib_s: float
    created_at: float
    deleted_at: float | None


class NovaMachine:
    """What an experiment asks of a machine, by Nova, Cinder and libvirt."""

    def __init__(self, lab: Lab, image: GuestImage, name: str) -> None:
        self.server: Server = boot(lab, image, name, content.DEMO_PROJECT)
        self.tenant = Tenant(lab, self.server.id, content.DEMO_PROJECT)
        self.tenant.clear()  # of what an interrupted experiment left
        self._lab = lab

    @property
    def agent(self) -> GuestAgent:
        return self.server.agent

    def __enter__(self) -> NovaMachine:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.server.delete()
        finally:
            self.tenant.clear()

    def start(self, timeout_s: float) -> None:
        """Nova has started it; wait for the guest."""
        self.agent.wait_ready(timeout_s)

    def attach_new(self, size_gib: int, kind: str) -> str:
        """Buy a volume and attach it; returns its id when both services say so."""
        body = {"volume": {"size": size_gib, "volume_type": kind, "name": "backing"}}
        cloud = self.tenant.cloud
        volume_id: str = cloud.block_storage.post("/volumes", json=body).json()["volume"]["id"]
        self.tenant.settle()
        wanted = {"volumeAttachment": {"volumeId": volume_id}}
        answer = cloud.compute.post(f"/servers/{self.server.id}/os-volume_attachments", json=wanted)
        if answer.status_code >= 300:
            raise LabError(f"Nova does not attach the backing volume: {answer.status_code} {answer.text}")
        self.tenant.settle()
        return volume_id

    def set_limit(self, serial: str, bytes_per_second: int | None) -> None:
        """Lift the type's QoS for the check at the end; Nova itself never changes it while attached."""
        if bytes_per_second is not None:
            return
        domain = self.server.domain
        text = self._virsh("dumpxml", domain)
        disks = [d for d in re.findall(r"<disk .*?</disk>", text, re.DOTALL) if f"<serial>{serial}" in d]
        target = re.search(r"<target dev='(\w+)'", disks[0]) if disks else None
        if target is None:
            raise LabError(f"{domain} has no disk {serial}")
        limits = ("--total-bytes-sec", "0", "--total-iops-sec", "0", "--live")
        self._virsh("blkdeviotune", domain, target.group(1), *limits)

    def disks(self) -> tuple[str, ...]:
        """Volumes attached, as Nova shows them."""
        path = f"/servers/{self.server.id}/os-volume_attachments"
        shown = self.tenant.cloud.compute.get(path).json()["volumeAttachments"]
        return tuple(row["volumeId"] for row in shown)

    def _virsh(self, *argv: str) -> str:
        return chroot(self._lab.root, [*_VIRSH, *argv], timeout_s=_VIRSH_S)


class CinderBooks:
    """What was bought, for costs and for what is left over; stands where the EC2 endpoint stands elsewhere."""

    scale = Scale(gib_bytes=GIB, mib_s_bytes=_MIB_S)

    def __init__(self, lab: Lab, tenant: Tenant, since: float) -> None:
        self._lab, self._tenant, self._since = lab, tenant, since

    def volumes(self) -> list[Row]:
        """Every cache volume of this experiment, deleted ones too. The API shows those no more, the database does."""
        names = "v.id, v.size, t.name, v.created_at, v.deleted_at"
        question = (
            f"SELECT {names} FROM volumes v JOIN volume_types t ON v.volume_type_id = t.id "
            f"WHERE v.display_name LIKE 'elastio-%' AND v.created_at >= FROM_UNIXTIME({int(self._since)})"
        )
        argv = ["chroot", str(self._lab.root), "mysql", "--batch", "--skip-column-names", "cinder"]
        text = run(argv, timeout_s=_VIRSH_S, stdin=f"SET time_zone = '+00:00'; {question};")
        return [_row(line.split("\t")) for line in text.splitlines()]

    def live_volumes(self) -> list[str]:
        """Cache volumes Cinder still has."""
        return [row["id"] for row in self._tenant.volumes() if row["name"].startswith("elastio-")]

    def settle(self, seconds: float) -> None:
        """Let deletions finish. `seconds` is what the caller allows; the tenant's own bound is 90."""
        self._tenant.settle()


class NovaGuest(Guest):
    """A guest of an experiment that Nova booted. Its agent knows the cloud by clouds.yaml and its config drive."""

    def __init__(self, machine: NovaMachine, front: Front, setup: Setup, scaled: Scaled) -> None:
        self.name, self.setup, self.scaled = "vm0", setup, scaled
        self.machine, self._front = machine, front
        self.vm = machine  # type: ignore[assignment]  # what an experiment asks of a machine, it answers
        self.serial = self.backing_uuid = ""
        self.instance_id = machine.server.id

    def prepare(self, endpoint: Any, *, boot_s: float = 240.0) -> None:
        """As for EC2, with the backing volume bought from Cinder first."""
        self.vm.start(boot_s)
        kind = "fast" if self.setup is Setup.STATIC_FAST else "slow"
        size_gib = -(-self.scaled.backing_bytes // GIB)
        self.serial = self.machine.attach_new(size_gib, kind)[:20]
        self._await_disk()
        super().prepare(endpoint, boot_s=boot_s)

    def _await_disk(self) -> None:
        deadline = time.monotonic() + _VOLUME_S
        link = f"/dev/disk/by-id/virtio-{self.serial}"
        while self.vm.agent.run(["test", "-e", link], timeout_s=30).returncode:
            if time.monotonic() > deadline:
                raise LabError(f"the guest does not show the disk {self.serial}")
            time.sleep(0.5)

    def _start_agent(self, endpoint: Any) -> None:
        credential = self.machine.tenant.credential
        self.vm.agent.write_file(CLOUDS, _clouds(self._front, credential), 0o600)
        self.write_config(endpoint)
        self.check(["systemctl", "start", "elastiod"], timeout_s=90)
        self.wait_for(lambda status: status["owned"] is not None, 240, "the cloud to be asked")

    def write_config(self, endpoint: Any, **overrides: str) -> None:
        """The agent's configuration: sizes in whole GiB, the rest as in every experiment."""
        scaled = self.scaled
        lines = {
            "[device]": "",
            "backing_uuid": f'"{self.backing_uuid}"',
            "bandwidth_mb_s": f"{content.TYPES[0].bytes_s / 1e6}",
            "[cache]": "",
            "bandwidth_mb_s ": f"{content.TYPES[1].bytes_s / 1e6}",
            "initial_size_gib": "1",
            "min_size_gib": "1",
            "max_size_gib": "4",
            "size_step_gib": "1",
            "[policy]": "",
            "inactivity_delay_s": f"{scaled.inactivity_delay_s}",
            "cool_down_s": "1",
            "[provider]": "",
            "name": '"openstack"',
            "[provider.openstack]": "",
            "cloud": '"lab"',
            "clouds_file": f'"{CLOUDS}"',
        }
        for kind, table in TYPES.items():
            lines[f"[provider.openstack.types.{kind}]"] = ""
            # a space more for each, because keys of a dictionary are unique and TOML does not mind
            pad = " " * len(lines)
            lines.update({f"{key}{pad}": str(value) for key, value in dict(table).items()})  # type: ignore[call-overload]
        lines.update(overrides)
        text = "\n".join(key if key.startswith("[") else f"{key} = {value}" for key, value in lines.items())
        self.vm.agent.write_file("/etc/elastio/elastio.toml", text.encode() + b"\n", 0o640)


def _require_sold(scaled: Scaled) -> None:
    """Raises LabError where the experiment's bandwidths are not those the volume types carry."""
    wanted = (scaled.backing_bytes_s, scaled.cache_bytes_s)
    sold = tuple(kind.bytes_s for kind in content.TYPES)
    if wanted != sold:
        raise LabError(f"the volume types carry {sold} bytes/s and the experiment wants {wanted}: use --bandwidth 0.5")


def run_setup(plan: Plan, setup: Setup, image: GuestImage, say: Callable[[str], None]) -> tuple[SetupResult, Evidence]:
    """One set-up on a fresh guest that Nova boots. Raises LabError, too."""
    if plan.vms != 1:
        raise LabError("the laboratory's OpenStack runs one guest; --vms is for EC2")
    scaled = plan.scaled()
    _require_sold(scaled)
    lab = open_lab(say)
    lab.up(say)
    with Front(Cassette(), live=True) as front, NovaMachine(lab, image, f"{plan.experiment}-{setup}") as machine:
        guest = NovaGuest(machine, front, setup, scaled)
        books = CinderBooks(lab, machine.tenant, time.time() - 1)
        return drive(plan, setup, [guest], books, say)  # type: ignore[arg-type]  # books answer what is asked of an endpoint


def _row(columns: list[str]) -> Row:
    volume_id, size, kind, created, deleted = columns
    speed = next(k.bytes_s for k in content.TYPES if k.name == kind)
    ended = None if deleted == "NULL" else _wall(deleted)
    return Row(volume_id, volume_id[:20], int(size), speed / _MIB_S, _wall(created), ended)


def _wall(text: str) -> float:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC).timestamp()


def _clouds(front: Front, credential: Any) -> bytes:
    return clouds_text(front.auth_url(HOST_IN_GUEST), credential.id, credential.secret).encode()
