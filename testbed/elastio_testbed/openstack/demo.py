"""The laboratory's experiments on OpenStack: volumes from Cinder, attached by Nova.

Cinder has sizes in whole GiB and the bandwidth of the volume type, so only times and amounts of data of an experiment
are scaled. Volumes are larger than in the scaled EC2, and costs are higher.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from keystoneauth1.exceptions import ClientException
from openstack.exceptions import SDKException

from elastio.units import GIB
from elastio_testbed.errors import LabError
from elastio_testbed.experiment import Scaled, Setup
from elastio_testbed.hypervisor.qemu.agent import GuestAgent
from elastio_testbed.image import GuestImage
from elastio_testbed.image.tools import chroot
from elastio_testbed.machine import HOST_IN_GUEST, Guest, Tables
from elastio_testbed.openstack import bootstrap
from elastio_testbed.openstack.cassette import Cassette
from elastio_testbed.openstack.cinder_usage import CinderUsage
from elastio_testbed.openstack.cloud_fixture import TYPES, Tenant, clouds_text
from elastio_testbed.openstack.lab import Lab, open_lab
from elastio_testbed.openstack.proxy import ApiProxy
from elastio_testbed.openstack.server import Server, boot
from elastio_testbed.polling import until
from elastio_testbed.result import SetupResult
from elastio_testbed.trial import Evidence, Plan, Trial

CLOUDS = "/etc/openstack/clouds.yaml"
# Cinder's smallest volume, and the largest cache in units of the first one, as in every experiment.
LEAST_GIB, MOST_CACHES = 1, 4
_VIRSH = ("virsh", "-c", "qemu:///system")
_VIRSH_S = 60.0
_VOLUME_S = 120.0


def check(plan: Plan) -> None:
    """Raises LabError for a plan that this cloud cannot run, before anything is started."""
    if plan.vms != 1 or plan.side_by_side:
        raise LabError("the laboratory's OpenStack runs one guest at a time; --vms and --side-by-side are for EC2")
    if plan.disturb is not None:
        raise LabError("libvirt controls the bandwidth caps of the laboratory's OpenStack; --disturb is for EC2")
    if plan.ahead is not None or plan.scaled().bucket is not None:
        raise LabError("--ahead and the experiment cold are for EC2: the laboratory's OpenStack has neither")
    if plan.packages:
        raise LabError("the laboratory's OpenStack has no applications, lvmcache or adopted volumes; run demo or cm1")
    scaled = plan.scaled()
    wanted = (scaled.backing_bytes_s, scaled.cache_bytes_s)
    provided = tuple(kind.bytes_s for kind in bootstrap.TYPES)
    if wanted != provided:
        raise LabError(
            f"the volume types provide {provided} bytes/s, but the experiment needs {wanted}; use --bandwidth 0.5"
        )


class NovaMachine:
    """The virtual machine of an experiment, on Nova, Cinder and libvirt."""

    def __init__(self, lab: Lab, image: GuestImage, name: str) -> None:
        self._lab = lab
        self.server: Server = boot(lab, image, name, bootstrap.DEMO_PROJECT)
        try:
            self.tenant = Tenant(lab, self.server.id, bootstrap.DEMO_PROJECT)
            self.tenant.clear()  # an interrupted experiment may have left volumes
        except BaseException:
            self.server.delete()
            raise

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

    def console_tail(self) -> str:
        """The last lines on the serial console."""
        return self.server.console_tail()

    def port(self, name: str) -> Path:
        """The host's file for /dev/virtio-ports/NAME of the guest: see the emulator in the overlay."""
        return self._lab.root / "run/lab" / f"{self.server.domain}.{name}"

    def start(self, timeout_s: float) -> None:
        """Wait for the guest, which Nova has started already."""
        self.agent.wait_ready(timeout_s)

    def attach_new(self, size_gib: int, kind: str) -> str:
        """Create a volume and attach it; returns its id when both services have finished."""
        body = {"volume": {"size": size_gib, "volume_type": kind, "name": "backing"}}
        cloud = self.tenant.cloud
        volume = _checked(cloud.block_storage.post("/volumes", json=body), "create the backing volume")["volume"]
        self.tenant.settle()
        wanted = {"volumeAttachment": {"volumeId": volume["id"]}}
        path = f"/servers/{self.server.id}/os-volume_attachments"
        _checked(cloud.compute.post(path, json=wanted), "attach the backing volume")
        self.tenant.settle()
        return str(volume["id"])

    def set_limit(self, serial: str, bytes_per_second: int | None) -> None:
        """Lift the QoS of an attached volume, which Nova cannot change. Other values than None are ignored."""
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
        """The ids of attached volumes, as Nova shows them."""
        path = f"/servers/{self.server.id}/os-volume_attachments"
        shown = _checked(self.tenant.cloud.compute.get(path), "list the attached volumes")["volumeAttachments"]
        return tuple(row["volumeId"] for row in shown)

    def _virsh(self, *argv: str) -> str:
        return chroot(self._lab.root, [*_VIRSH, *argv], timeout_s=_VIRSH_S)


class NovaGuest(Guest):
    """A guest of an experiment, booted by Nova. Its agent uses clouds.yaml and the config drive."""

    def __init__(
        self,
        machine: NovaMachine,
        proxy: ApiProxy,
        setup: Setup,
        scaled: Scaled,
        config: Tables | None = None,
    ) -> None:
        """`config`: additional settings of the agent."""
        self.name, self.setup, self.scaled = "vm0", setup, scaled
        self.machine, self._proxy, self._config = machine, proxy, config or {}
        self.vm = machine  # type: ignore[assignment]  # it has the methods that experiments use
        self.serial = self.backing_uuid = ""
        self.instance_id = machine.server.id
        self.sample_interval_s = scaled.sample_interval_s
        self.fast_serial, self.kept = "", (self.serial,)

    @property
    def backing_gib(self) -> int:
        return -(-self.scaled.backing_bytes // GIB)

    @property
    def backing_bytes(self) -> int:
        """The size of the backing volume, in whole GiB."""
        return self.backing_gib * GIB

    def prepare(self, endpoint: Any, *, boot_s: float = 240.0) -> None:
        """As for EC2, after attaching a backing volume from Cinder."""
        self.vm.start(boot_s)
        kind = "fast" if self.setup is Setup.STATIC_FAST else "slow"
        self.serial = self.machine.attach_new(self.backing_gib, kind)[:20]
        self._await_disk()
        super().prepare(endpoint, boot_s=boot_s)

    def _await_disk(self) -> None:
        shown = ["test", "-e", f"/dev/disk/by-id/virtio-{self.serial}"]
        if not until(lambda: self.vm.agent.run(shown, timeout_s=30).returncode == 0, _VOLUME_S):
            raise LabError(f"the guest does not show the disk {self.serial}")

    def _start_agent(self, endpoint: Any) -> None:
        self.write_clouds()
        self.write_config(endpoint)
        self.check(["systemctl", "start", "elastiod"], timeout_s=90)
        self.wait_for(lambda status: status["owned"] is not None, 240, "the cloud to be asked")

    def write_clouds(self) -> None:
        """Write the tenant's present credential, readable by root only."""
        credential = self.machine.tenant.credential
        text = clouds_text(self._proxy.auth_url(HOST_IN_GUEST), credential.id, credential.secret)
        self.vm.agent.write_file(CLOUDS, text.encode(), 0o600)

    def write_config(self, endpoint: Any, *changes: Tables) -> None:
        """With the additional settings of this guest."""
        super().write_config(endpoint, self._config, *changes)

    def config_tables(self, endpoint: Any) -> Tables:
        """As for EC2."""
        return config_tables(self.backing_uuid, self.scaled)


class OpenstackTrial(Trial):
    """A set-up on a new guest of Nova. Its methods also raise LabError and ImageError."""

    def prepare(self) -> None:
        """Start missing services, boot the guest, and set up device, file system and agent."""
        with _sdk_errors_translated():
            lab = open_lab(self.say)
            lab.up(self.say)
            self.say("booting a guest with Nova")
            enter = self._stack.enter_context
            proxy = enter(ApiProxy(Cassette(), live=True))
            machine = enter(NovaMachine(lab, self._image, f"{self.plan.experiment}-{self.setup}"))
            self.endpoint = CinderUsage(lab, machine.tenant, time.time() - 1)
            guest = NovaGuest(machine, proxy, self.setup, self.scaled)
            self.guests.append(guest)
            guest.prepare(self.endpoint)

    def finish(self, cancelled: threading.Event) -> None:
        """See `Trial`."""
        with _sdk_errors_translated():
            super().finish(cancelled)

    def conclude(self) -> tuple[SetupResult, Evidence]:
        """See `Trial`."""
        with _sdk_errors_translated():
            return super().conclude()

    def __exit__(self, *_: object) -> None:
        with _sdk_errors_translated():
            super().__exit__()


def config_tables(backing_uuid: str, scaled: Scaled) -> Tables:
    """The agent's configuration: sizes in whole GiB, the rest as in every experiment.

    `drain_bandwidth_mb_s` is 0: the fast type, which static-fast uses too, is the fastest volume type.
    """
    slow, fast = bootstrap.TYPES
    first_gib = max(LEAST_GIB, -(-round(scaled.initial_cache_gib * GIB) // GIB))
    tables: dict[str, Mapping[str, object]] = {
        "device": {"backing_uuid": f'"{backing_uuid}"', "bandwidth_mb_s": slow.bytes_s / 1e6},
        "cache": {
            "bandwidth_mb_s": fast.bytes_s / 1e6,
            "drain_bandwidth_mb_s": 0,
            "initial_size_gib": first_gib,
            "min_size_gib": LEAST_GIB,
            "max_size_gib": MOST_CACHES * first_gib,
            "size_step_gib": 1,
        },
        "policy": {"inactivity_delay_s": scaled.inactivity_delay_s, "cool_down_s": 1},
        "agent": {"sample_interval_s": scaled.sample_interval_s},
        "provider": {"name": '"openstack"'},
        "provider.openstack": {"cloud": '"lab"', "clouds_file": f'"{CLOUDS}"'},
    }
    for kind, table in TYPES.items():
        tables[f"provider.openstack.types.{kind}"] = dict(table)  # type: ignore[call-overload]  # numbers only
    return tables


def _checked(answer: Any, what: str) -> Any:
    if answer.status_code >= 300:
        raise LabError(f"OpenStack refuses to {what}: {answer.status_code} {answer.text}")
    return answer.json()


@contextmanager
def _sdk_errors_translated() -> Iterator[None]:
    """Translate the SDK's errors to LabError."""
    try:
        yield
    except (SDKException, ClientException) as error:
        raise LabError(f"a request to the laboratory's OpenStack failed: {error}") from error
