"""A guest that Nova boots from the laboratory's image, and its guest agent."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

from openstack.connection import Connection
from openstack.exceptions import SDKException

from elastio_testbed.errors import LabError
from elastio_testbed.hypervisor.channel import Channel
from elastio_testbed.hypervisor.qemu.agent import GuestAgent
from elastio_testbed.hypervisor.qemu.command import kernel_command_line
from elastio_testbed.image import GuestImage
from elastio_testbed.image.tools import chroot, run
from elastio_testbed.openstack import bootstrap
from elastio_testbed.openstack.lab import Lab
from elastio_testbed.polling import until

# Increment this when the properties below change and the guest image does not.
_RECIPE = 4
_CONVERT_S = 300.0
_ACTIVE_S = 180.0
_GONE_S = 120.0
_VIRSH_S = 60.0
_CONSOLE_LINES = 40
_ASK_AGAIN_S = 1.0


class Server:
    """One running server; `id` is Nova's, `agent` the guest agent inside."""

    def __init__(self, lab: Lab, cloud: Connection, server_id: str, domain: str) -> None:
        self.id, self.domain = server_id, domain
        self._lab, self._cloud = lab, cloud
        self._channel: Channel | None = None
        self._agent: GuestAgent | None = None

    @property
    def agent(self) -> GuestAgent:
        """The guest agent; connected on first use, which needs a running guest."""
        if self._agent is None:
            self._channel = Channel(f"agent of {self.domain}", self._connected(), greeting=False)
            self._agent = GuestAgent(self._channel, self._port_is_open, self.console_tail)
        return self._agent

    def console_tail(self) -> str:
        """The last lines on the serial console."""
        path = self._lab.root / "var/lib/nova/instances" / self.id / "console.log"
        if not path.exists():
            return ""
        return "\n".join(path.read_text(errors="replace").splitlines()[-_CONSOLE_LINES:])

    def close(self) -> None:
        """Close the connection to the guest agent; the server continues to run."""
        if self._channel is not None:
            self._channel.close()
        self._channel = self._agent = None

    def delete(self) -> None:
        """Delete the server; its volumes become available. Raises LabError after two minutes."""
        self.close()
        compute = self._cloud.compute
        compute.delete_server(self.id, ignore_missing=True)
        if not until(lambda: self.id not in {server.id for server in compute.servers(details=False)}, _GONE_S):
            raise LabError(f"Nova has not deleted the server {self.id} after {_GONE_S:.0f} s")

    def _connected(self) -> socket.socket:
        # A socket's path has at most 107 characters, and the root's can be longer: connect through its directory.
        folder = os.open(self._lab.root / "run/lab", os.O_PATH | os.O_DIRECTORY)
        found = socket.socket(socket.AF_UNIX)
        try:
            found.connect(f"/proc/self/fd/{folder}/{self.domain}.agent")
        except OSError as error:
            found.close()
            raise LabError(f"{self.domain} has no guest agent port: {error}") from error
        finally:
            os.close(folder)
        return found

    def _port_is_open(self) -> bool:
        question = '{"execute": "query-chardev"}'
        argv = ["virsh", "-c", "qemu:///system", "qemu-monitor-command", self.domain, question]
        words = chroot(self._lab.root, argv, timeout_s=_VIRSH_S).split('"label":"labagent"')
        shown = words[0].rsplit("{", 1)[-1] + words[-1].split("}", 1)[0]
        if '"frontend-open":true' in shown:
            return True
        time.sleep(_ASK_AGAIN_S)  # each query starts a program, and a booting guest needs the processor
        return False


def boot(lab: Lab, image: GuestImage, name: str = "guest", project: str = bootstrap.PROJECT) -> Server:
    """Boot a server as the tenant, and wait until it is active. Raises LabError."""
    admin = bootstrap.connect(lab.password)
    tenant = bootstrap.connect(lab.password, bootstrap.USER, project)
    try:
        image_id = _upload(admin, image)
        flavor = admin.compute.find_flavor(bootstrap.FLAVOR)
        server = tenant.compute.create_server(
            name=name, image_id=image_id, flavor_id=flavor.id, networks="none", config_drive=True
        )
        try:
            shown = _await_active(admin, server.id)
        except LabError:
            tenant.compute.delete_server(server.id)
            raise
    except SDKException as error:
        raise LabError(f"Nova does not boot the guest: {error}") from error
    return Server(lab, tenant, server.id, shown["OS-EXT-SRV-ATTR:instance_name"])


def _upload(admin: Connection, image: GuestImage) -> str:
    """Upload kernel, initramfs and root of the guest image, once for each digest; returns the image's id."""
    name = f"elastio-{image.digest}-{_RECIPE}"
    known = admin.image.find_image(name)
    if known is not None and known.status == "active":
        return str(known.id)
    with tempfile.TemporaryDirectory(prefix="elastio-upload-", dir="/var/tmp") as work:
        qcow2 = Path(work) / "root.qcow2"
        run(["qemu-img", "convert", "-O", "qcow2", str(image.root), str(qcow2)], timeout_s=_CONVERT_S)
        kernel = _image(admin, f"{name}-kernel", image.kernel, "aki", "aki")
        initrd = _image(admin, f"{name}-initrd", image.initrd, "ari", "ari")
        properties = {
            "kernel_id": kernel,
            "ramdisk_id": initrd,
            "hw_disk_bus": "virtio",
            "hw_rng_model": "virtio",
            "hw_machine_type": "pc",
            "os_command_line": kernel_command_line(),
        }
        return _image(admin, name, qcow2, "qcow2", "bare", **properties)


def _image(admin: Connection, name: str, path: Path, disk: str, container: str, **properties: str) -> str:
    with path.open("rb") as data:  # given a file name, the SDK does not close the file
        made: Any = admin.create_image(
            name,
            data=data,
            disk_format=disk,
            container_format=container,
            wait=True,
            visibility="public",
            validate_checksum=False,
            **properties,
        )
    return str(made.id)


def _await_active(admin: Connection, server_id: str) -> dict[str, Any]:
    deadline = time.monotonic() + _ACTIVE_S
    while True:
        shown: dict[str, Any] = admin.compute.get(f"/servers/{server_id}").json()["server"]
        if shown["status"] == "ACTIVE":
            return shown
        if shown["status"] == "ERROR":
            raise LabError(f"Nova cannot boot the guest: {shown.get('fault', {}).get('message')}")
        if time.monotonic() > deadline:
            raise LabError(
                f"the server {server_id} is {shown['status']} after {_ACTIVE_S:.0f} s; see nova-compute's log"
            )
        time.sleep(0.5)
