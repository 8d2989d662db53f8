"""The laboratory's OpenStack: up, down, status. Idempotent; on loopback only; in a root directory of its own."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from keystoneauth1.exceptions import ClientException
from openstack.exceptions import SDKException

from elastio.host.locks import try_lock
from elastio_testbed.console import Say
from elastio_testbed.errors import LabError
from elastio_testbed.image import ImageError
from elastio_testbed.image.cache import cache_directory
from elastio_testbed.image.tools import chroot
from elastio_testbed.openstack import bootstrap, services
from elastio_testbed.openstack.configure import configure, password
from elastio_testbed.openstack.daemons import Daemon, Daemons
from elastio_testbed.openstack.databases import create_databases
from elastio_testbed.openstack.mounts import mount_all, mounts_below, unmount_all
from elastio_testbed.openstack.packages import existing_root, packages_root

_INITIALISED = "var/lib/lab/initialised"
_LIBVIRT_S = 120


@dataclass(frozen=True, slots=True)
class Status:
    """One daemon; `memory_bytes` counts shared pages for each of its processes."""

    name: str
    pid: int | None
    memory_bytes: int


class Lab:
    """The OpenStack in one root directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.daemons = Daemons(root)

    @property
    def password(self) -> str:
        """The password of all users of this cloud."""
        return password(self.root)

    def up(self, say: Say) -> None:
        """Start all services and create missing resources. Raises LabError; started services keep running."""
        with self._locked():
            self._up(say)

    def down(self) -> None:
        """Stop guests and daemons and unmount file systems. Databases, images and volumes are kept."""
        with self._locked():
            self._end_guests()
            self.daemons.stop(daemon.name for daemon in reversed(services.CLOUD + services.IDENTITY))
            self.daemons.stop(daemon.name for daemon in reversed(services.INFRASTRUCTURE))
            left = unmount_all(self.root)
        if left:
            raise LabError(f"{len(left)} file systems below {self.root} cannot be unmounted, the first is {left[0]}")

    def status(self) -> list[Status]:
        """Every daemon, running or not."""
        found = []
        for daemon in services.ALL:
            process = self.daemons.process(daemon.name)
            pid = process.pid if process else None
            found.append(Status(daemon.name, pid, self.daemons.memory_bytes(daemon.name)))
        return found

    def start(self, *names: str) -> None:
        """Start single daemons again, for instance after a test has killed them."""
        for daemon in services.ALL:
            if daemon.name in names:
                self.daemons.start(daemon)
                self.daemons.wait_ready(daemon)

    # --- inside ------------------------------------------------------------------------------------------

    def _up(self, say: Say) -> None:
        began = time.monotonic()

        def done(what: str) -> None:
            say(f"[{time.monotonic() - began:6.1f} s] {what}")

        try:
            configure(self.root)
            mount_all(self.root)
            self._start(services.INFRASTRUCTURE)
            done("database, message broker and libvirt are running")
            stamp = self.root / _INITIALISED
            if not stamp.exists():
                create_databases(self.root)
                stamp.touch()
                done("databases created")
            self._start(services.IDENTITY)
            bootstrap.create_identity(bootstrap.connect(self.password), self.password)
            done("Keystone and Placement answer")
            # The first request to a new libvirt takes seconds; nova-compute would time out.
            chroot(self.root, ["virsh", "-c", "qemu:///system", "version"], timeout_s=_LIBVIRT_S)
            self._start(services.CLOUD)
            done("Glance, Neutron, Nova and Cinder answer")
            bootstrap.create_cloud(bootstrap.connect(self.password))
            done("volume types, quota and hypervisor are ready")
        except (ImageError, SDKException, ClientException) as error:
            raise LabError(f"the laboratory's OpenStack cannot be started: {error}") from error

    def _start(self, daemons: tuple[Daemon, ...]) -> None:
        for daemon in daemons:
            if daemon is services.LIBVIRT:
                (self.root / "run/libvirt").mkdir(exist_ok=True)
            if daemon is services.MARIADB:
                chroot(self.root, ["chown", "mysql:mysql", "/run/mysqld"], timeout_s=30)
            self.daemons.start(daemon)
        for daemon in daemons:
            self.daemons.wait_ready(daemon)

    def _end_guests(self) -> None:
        """End the guests through libvirt first: QEMU outlives libvirt."""
        if self.daemons.process(services.LIBVIRT.name) is None:
            return
        virsh = ["virsh", "-c", "qemu:///system"]
        for name in chroot(self.root, [*virsh, "list", "--name"], timeout_s=60).split():
            chroot(self.root, [*virsh, "destroy", name], timeout_s=60)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One `up` or `down` at a time."""
        with (self.root.parent / "lab.lock").open("w") as lock:
            if not try_lock(lock.fileno()):
                raise LabError("another `elastio-testbed cloud openstack` is running; wait for its end")
            yield


def open_lab(say: Say) -> Lab:
    """The laboratory's cloud, installed if it is missing. Raises LabError."""
    if os.geteuid() != 0:
        raise LabError("the laboratory's OpenStack needs root, for chroot, mounts and QEMU")
    cache = cache_directory()
    if existing_root(cache) is None:
        say("installing the packages of OpenStack (once, 2 to 5 minutes)")
    try:
        return Lab(packages_root(cache))
    except ImageError as error:
        raise LabError(str(error)) from error


def find_lab() -> Lab | None:
    """The laboratory's cloud, or None if it is not installed. Nothing is started."""
    root = existing_root(cache_directory())
    return Lab(root) if root is not None else None


def remove_lab() -> None:
    """Stop everything and delete the root with its databases and volumes. Raises LabError."""
    lab = find_lab()
    if lab is None:
        return
    lab.down()
    if mounts_below(lab.root):
        raise LabError(f"{lab.root} was not removed: a file system is mounted below it")
    subprocess.run(["rm", "-rf", "--one-file-system", str(lab.root.parent)], check=True, timeout=600)
