"""A virtual machine: QEMU with hot-plug of throttled disks, and a guest agent."""

import contextlib
import dataclasses
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from elastio_testbed.hypervisor.accel import accelerator
from elastio_testbed.hypervisor.agent import GuestAgent
from elastio_testbed.hypervisor.channel import ChannelClosed, ChannelTimeout, CommandRefused
from elastio_testbed.hypervisor.command import AGENT_CHARDEV, PORTS, Hardware
from elastio_testbed.hypervisor.disk import Disk, Driver, Power
from elastio_testbed.hypervisor.errors import GuestHoldsDisk, HypervisorError
from elastio_testbed.hypervisor.process import Qemu, launch
from elastio_testbed.image import GuestImage

_QMP_S = 20.0
_CONSOLE_TAIL_LINES = 30
# QEMU ignores a request while one is pending, and a guest that is still booting loses it: ask again.
_ASK_AGAIN_S = 3.0
_UNPLUG_EVENTS = {"DEVICE_DELETED", "DEVICE_UNPLUG_GUEST_ERROR"}


class VirtualMachine:
    """One guest with its own writable overlay over the image's root.

    Disks stay plugged across `kill`, `shutdown` and `start`. Calls for different disks may come from
    different threads; those for one disk come one at a time. Used as a context manager it ends its QEMU,
    and QEMU also ends with the process that started it.
    """

    def __init__(
        self,
        image: GuestImage,
        *,
        disks: Iterable[Disk] = (),
        directory: Path | None = None,
        memory_mib: int = 1536,
        cpus: int = 2,
        accel: str | None = None,
        ports: Mapping[str, Path] | None = None,
        power: Power | None = None,
    ) -> None:
        """Describe a machine; nothing runs yet.

        `disks` are there at boot. What the guest writes to /dev/virtio-ports/NAME is appended to the file that
        `ports` has for NAME. `directory` keeps overlay, console and QEMU's log; without one they are
        temporary and go with `close`. `accel` is QEMU's name, else $ELASTIO_ACCEL, else the best that works.
        `power` serves all disks, if there is one.
        """
        self._image = image
        self._hardware = Hardware(accelerator(accel), cpus, memory_mib)
        self._ports = dict(ports or {})
        self._power = power
        self._temporary = directory is None
        self._directory = directory or Path(tempfile.mkdtemp(prefix="elastio-vm-"))
        self._plugged: dict[str, tuple[Disk, str]] = {}
        self._dead: set[str] = set()
        self._pulled: set[str] = set()  # dead when the machine ended, and not yet unplugged by whoever keeps the books
        self._lock = threading.Lock()
        self._starting = threading.Lock()  # from the choice of the disks to plug until QEMU has them
        self._qemu: Qemu | None = None
        self._agent: GuestAgent | None = None
        for disk in disks:
            self._plugged[disk.serial] = (self._served(disk), self._free_port())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether QEMU runs."""
        return self._qemu is not None and self._qemu.alive

    @property
    def is_starting(self) -> bool:
        """The disks of the next boot are chosen, and QEMU does not have them yet."""
        return self._starting.locked()

    @property
    def agent(self) -> GuestAgent:
        """The guest agent of the running machine."""
        if self._agent is None or not self.alive:
            raise HypervisorError(f"the machine is not running\n{self.console_tail()}")
        return self._agent

    @property
    def console(self) -> Path:
        """File with everything the guest has printed on its serial console, over all starts."""
        return self._directory / "console.log"

    def console_tail(self) -> str:
        """The console's last lines."""
        if not self.console.exists():
            return ""
        lines = self.console.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_CONSOLE_TAIL_LINES:])

    def disks(self) -> tuple[str, ...]:
        """Serials of the disks plugged, in order of plugging; known while the machine is off, too."""
        with self._lock:
            return tuple(self._plugged)

    def files(self) -> dict[str, Path]:
        """The files behind the disks plugged, by serial."""
        with self._lock:
            return {serial: disk.path for serial, (disk, _) in self._plugged.items()}

    def limits(self) -> dict[str, int | None]:
        """Bytes per second of the disks plugged, by serial; None where there is no cap."""
        with self._lock:
            return {serial: disk.bytes_per_second for serial, (disk, _) in self._plugged.items()}

    def start(self, timeout_s: float) -> None:
        """Power on and wait until the guest agent answers.

        Raises HypervisorError when QEMU does not start and GuestTimeout when the guest does not come up;
        it then keeps running, to be looked at, until `kill` or `close`.
        """
        if self.alive:
            raise HypervisorError("the machine is running already")
        deadline = time.monotonic() + timeout_s
        self._discard_qemu()
        with self._starting:
            with self._lock:
                boot_disks = list(self._plugged.values())
            self._qemu = launch(self._image, self._hardware, self._directory, boot_disks, self._ports)
        self._agent = GuestAgent(self._qemu.agent, self._agent_port_is_open, self.console_tail)
        self._agent.wait_ready(deadline - time.monotonic())

    def shutdown(self, timeout_s: float) -> bool:
        """Press the power button; False when the guest was still on after `timeout_s` and got killed."""
        qemu = self._running()
        with contextlib.suppress(ChannelClosed):
            # Gone already: that is what is asked for.
            qemu.monitor.execute("system_powerdown", timeout_s=_QMP_S)
        return self.await_off(timeout_s)

    def await_off(self, timeout_s: float) -> bool:
        """Wait until a guest that was told to reboot or to power off has ended; False when it got killed instead."""
        ended = self._qemu is None or self._qemu.wait(timeout_s)
        self._discard_qemu()
        return ended

    def kill(self) -> None:
        """Cut the power: what the guest has written is in the disks' files, the rest is lost."""
        self._discard_qemu()

    def close(self) -> None:
        """End QEMU and remove temporary files. The disks' files are the caller's."""
        self._discard_qemu()
        if self._temporary:
            shutil.rmtree(self._directory, ignore_errors=True)

    def plug(
        self,
        serial: str,
        path: Path,
        *,
        bytes_per_second: int,
        iops: int | None = None,
        driver: Driver = "virtio-blk",
    ) -> None:
        """Hot-plug the raw file `path` as a disk whose reads and writes together are capped.

        Nothing happens when that serial is plugged with that path. Raises HypervisorError when the serial
        is taken by another path, no port is free, or QEMU refuses; nothing is left behind then.
        """
        qemu = self._running()
        with self._lock:
            if serial in self._plugged:
                if self._plugged[serial][0].path != path:
                    raise HypervisorError(f"disk {serial} is plugged with {self._plugged[serial][0].path}")
                return
            port = self._free_port()
            with contextlib.ExitStack() as undo:
                disk = self._served(Disk(serial, path, bytes_per_second, iops, driver))
                undo.callback(self._serve_no_more, disk)
                qemu.command("object-add", disk.throttle_group())
                undo.callback(qemu.command, "object-del", {"id": disk.group_id})
                qemu.command("blockdev-add", disk.block_node())
                undo.callback(qemu.command, "blockdev-del", {"node-name": disk.node_name})
                qemu.command("device_add", disk.device(port))
                undo.pop_all()
            self._plugged[serial] = (disk, port)
            self._pulled.discard(serial)

    def unplug(self, serial: str, timeout_s: float) -> None:
        """Ask the guest to let go of a disk and take it away.

        Raises GuestHoldsDisk when it has not let go after `timeout_s`; the request stands, and a later
        `unplug` finishes what the guest may have done by then. HypervisorError when it is not plugged.
        """
        with self._lock:
            if serial in self._pulled:
                self._pulled.discard(serial)
                return
        disk = self._disk(serial)
        while True:
            qemu = self._qemu
            if self.alive:
                self._remove_device(disk, timeout_s)
                self._remove_backend(disk)
            with self._starting, self._lock:
                if self._qemu in (qemu, None):
                    del self._plugged[serial]
                    break
            # Power went and came back meanwhile, and the machine booted with the disk.
        self._serve_no_more(disk)

    def pull(self, serial: str, timeout_s: float = 20.0) -> None:
        """Take a disk away by surprise, as far as QEMU offers it.

        From one request to the next everything fails with EIO, throttled or not; then the device goes, as
        in `unplug`. QEMU cannot take a device without asking, so between the two the guest sees a dead disk
        for some milliseconds where a cloud's forced detach may show none. The file is free from the first
        step on. Raises GuestHoldsDisk when the guest keeps the dead device: `unplug` can be tried again. A dead disk
        does not come back with the next start.
        """
        disk = self._disk(serial)
        if serial not in self._dead:
            qemu = self._running()
            qemu.command("blockdev-add", disk.dead_node(disk.path.stat().st_size))
            self._dead.add(serial)
            qemu.command("blockdev-reopen", {"options": [{**disk.block_node(), "file": disk.dead_name}]})
        self.unplug(serial, timeout_s)

    def set_limit(self, serial: str, bytes_per_second: int | None, iops: int | None = None) -> None:
        """Replace both caps of a plugged disk, live; None lifts one. They hold over a restart."""
        disk = dataclasses.replace(self._disk(serial), bytes_per_second=bytes_per_second, iops=iops)
        if self.alive:
            change = {"path": f"/objects/{disk.group_id}", "property": "limits", "value": disk.limits()}
            self._running().command("qom-set", change)
        with self._lock:
            self._plugged[serial] = (disk, self._plugged[serial][1])

    def _remove_device(self, disk: Disk, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        refusal: CommandRefused | None = None
        while True:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                raise GuestHoldsDisk(f"the guest did not let go of disk {disk.serial} in time") from refusal
            try:
                event = self._running().monitor.execute_and_await(
                    "device_del",
                    {"id": disk.device_id},
                    events=_UNPLUG_EVENTS,
                    timeout_s=min(remaining_s, _ASK_AGAIN_S),
                )
            except ChannelTimeout:
                continue
            except CommandRefused as error:
                if error.error_class == "DeviceNotFound":
                    # The guest let go after the last request had been given up.
                    return
                # A request is pending: QEMU takes the next one after some seconds.
                refusal = error
                time.sleep(0.2)
                continue
            if event["event"] == "DEVICE_DELETED":
                return
            raise GuestHoldsDisk(f"the guest refuses to let go of disk {disk.serial}")

    def _remove_backend(self, disk: Disk) -> None:
        qemu = self._running()
        # Takes the file node along, but not a node that was put in its place.
        qemu.command("blockdev-del", {"node-name": disk.node_name})
        if disk.serial in self._dead:
            qemu.command("blockdev-del", {"node-name": disk.dead_name})
            self._dead.discard(disk.serial)
        qemu.command("object-del", {"id": disk.group_id})

    def _agent_port_is_open(self) -> bool:
        qemu = self._running()
        chardevs = qemu.command("query-chardev")
        return any(device["frontend-open"] for device in chardevs if device["label"] == AGENT_CHARDEV)

    def _running(self) -> Qemu:
        if self._qemu is None or not self._qemu.alive:
            raise HypervisorError(f"the machine is not running\n{self.console_tail()}")
        return self._qemu

    def _served(self, disk: Disk) -> Disk:
        return disk if self._power is None else dataclasses.replace(disk, socket=self._power.plug(disk.path))

    def _serve_no_more(self, disk: Disk) -> None:
        if self._power is not None:
            self._power.unplug(disk.path)

    def _disk(self, serial: str) -> Disk:
        with self._lock:
            if serial not in self._plugged:
                raise HypervisorError(f"disk {serial} is not plugged")
            return self._plugged[serial][0]

    def _free_port(self) -> str:
        taken = {port for _, port in self._plugged.values()}
        for port in PORTS:
            if port not in taken:
                return port
        raise HypervisorError(f"all {len(PORTS)} hot-plug ports are taken")

    def _discard_qemu(self) -> None:
        qemu, self._qemu, self._agent = self._qemu, None, None
        if qemu is not None:
            qemu.kill()
        with self._lock:
            self._pulled |= self._dead & set(self._plugged)
            for serial in self._dead:
                self._plugged.pop(serial, None)
            self._dead.clear()
