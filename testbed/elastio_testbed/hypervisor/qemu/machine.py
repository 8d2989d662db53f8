"""A virtual machine: QEMU with hot-plug of throttled disks, and a guest agent."""

import contextlib
import dataclasses
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from elastio_testbed.hypervisor.channel import ChannelClosed, ChannelTimeout, CommandRefused
from elastio_testbed.hypervisor.disk import Disk, Driver, Power
from elastio_testbed.hypervisor.errors import GuestHoldsDisk, HypervisorError
from elastio_testbed.hypervisor.plugged import PluggedDisks
from elastio_testbed.hypervisor.qemu.accel import accelerator
from elastio_testbed.hypervisor.qemu.agent import GuestAgent
from elastio_testbed.hypervisor.qemu.command import NETWORK, PORTS, Hardware
from elastio_testbed.hypervisor.qemu.process import CONSOLE, OVERLAY, Qemu, last_lines, launch
from elastio_testbed.hypervisor.qemu.stored import Kind, StoredState, is_wanted, stored_state
from elastio_testbed.hypervisor.qemu.waking import await_disk
from elastio_testbed.image import GuestImage

_QMP_S = 20.0
# QEMU ignores a request while one is pending, and a booting guest loses it, so it is repeated.
_ASK_AGAIN_S = 3.0
_UNPLUG_EVENTS = {"DEVICE_DELETED", "DEVICE_UNPLUG_GUEST_ERROR"}


class VirtualMachine:
    """`Machine`, on QEMU: a writable overlay over the image's root."""

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
        resumes: bool | None = None,
    ) -> None:
        """Define a machine; nothing is started.

        `disks` are plugged at boot. Writes to /dev/virtio-ports/NAME of the guest are appended to the file that
        `ports` has for NAME. `directory` is for overlay, console and QEMU's log; without one they are temporary and
        deleted by `close`. `accel` as in `accelerator`. `power` serves all disks, if there is one. `resumes`: whether
        the first start resumes from a stored state instead of booting; None: as `stored.is_wanted` says.
        """
        self._image = image
        self._hardware = Hardware(accelerator(accel), cpus, memory_mib)
        self._ports = dict(ports or {})
        self._power = power
        self._resumes = is_wanted(resumes)
        self._temporary = directory is None
        self._directory = directory or Path(tempfile.mkdtemp(prefix="elastio-vm-"))
        self._plugged = PluggedDisks(PORTS)
        self._plugging = threading.Lock()
        self._starting = threading.Lock()  # from the choice of the disks to plug until QEMU has them
        self._qemu: Qemu | None = None
        self._agent: GuestAgent | None = None
        for disk in disks:
            self._plugged.add(self._served(disk), self._plugged.free_place())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        return self._qemu is not None and self._qemu.alive

    @property
    def is_starting(self) -> bool:
        return self._starting.locked()

    @property
    def agent(self) -> GuestAgent:
        if self._agent is None or not self.alive:
            raise HypervisorError(f"the machine is not running\n{self.console_tail()}")
        return self._agent

    @property
    def console(self) -> Path:
        return self._directory / CONSOLE

    def console_tail(self) -> str:
        return last_lines(self._directory)

    def disks(self) -> tuple[str, ...]:
        return self._plugged.serials()

    def files(self) -> dict[str, Path]:
        return {disk.serial: disk.path for disk, _ in self._plugged.entries()}

    def limits(self) -> dict[str, int | None]:
        return {disk.serial: disk.bytes_per_second for disk, _ in self._plugged.entries()}

    def forward(self, host_port: int, guest_port: int) -> None:
        rule = f"hostfwd_add {NETWORK} tcp:127.0.0.1:{host_port}-:{guest_port}"
        said = str(self._running().command("human-monitor-command", {"command-line": rule})).strip()
        if said:
            raise HypervisorError(f"port {host_port} is not forwarded: {said}")

    def moved_bytes(self, serial: str) -> int:
        device = f"/{self._plugged.entry(serial)[0].device_id}"
        for row in self._running().command("query-blockstats"):
            # The device's path, or that of its virtio part: /machine/peripheral/ID[/virtio-backend].
            if f"{device}/" in f"{row.get('qdev', '')}/":
                return int(row["stats"]["rd_bytes"]) + int(row["stats"]["wr_bytes"])
        raise HypervisorError(f"QEMU has no statistics of disk {serial}")

    def start(self, timeout_s: float) -> None:
        """Power on and wait until the guest agent answers and the guest shows its disks.

        The first start resumes from the stored state of such machines, if it may. If there is none, another guest boots
        before, for `timeout_s` at most. Raises HypervisorError when QEMU does not start, and GuestTimeout when the
        guest does not boot in time; it then continues to run, for inspection, until `kill` or `close`.
        """
        if self.alive:
            raise HypervisorError("the machine is already running")
        self._discard_qemu()
        state = self._stored_state(timeout_s)
        deadline = time.monotonic() + timeout_s
        with self._starting:
            disks = self._plugged.entries()
            resumed = None if state is None else state.resume(self._directory, self._ports)
            if resumed is not None:
                self._go_on(resumed, disks, deadline)
                return
            self._qemu = launch(self._image, self._hardware, self._directory, disks, self._ports)
        self._agent = self._agent_of(self._qemu)
        self._agent.wait_ready(deadline - time.monotonic())

    def _stored_state(self, timeout_s: float) -> StoredState | None:
        # A machine with a root of its own has been started before.
        if not self._resumes or (self._directory / OVERLAY).exists():
            return None
        return stored_state(Kind(self._image, self._hardware, tuple(self._ports)), timeout_s)

    def _go_on(self, qemu: Qemu, disks: Iterable[tuple[Disk, str]], deadline: float) -> None:
        """Plug the disks of the start into a machine that was resumed, one by one: their order names them."""
        agent = self._agent_of(qemu)
        try:
            for disk, port in disks:
                _add_disk(qemu, disk, port)
                await_disk(agent, disk.serial, deadline - time.monotonic())
        except CommandRefused:
            qemu.kill()
            raise
        finally:
            self._qemu, self._agent = qemu, agent

    def _agent_of(self, qemu: Qemu) -> GuestAgent:
        return GuestAgent(qemu.agent, lambda: self._running().agent_port_is_open(), self.console_tail)

    def shutdown(self, timeout_s: float) -> bool:
        qemu = self._running()
        with contextlib.suppress(ChannelClosed):  # the guest is off already
            qemu.monitor.execute("system_powerdown", timeout_s=_QMP_S)
        return self.await_off(timeout_s)

    def await_off(self, timeout_s: float) -> bool:
        ended = self._qemu is None or self._qemu.wait(timeout_s)
        self._discard_qemu()
        return ended

    def kill(self) -> None:
        self._discard_qemu()

    def close(self) -> None:
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
        qemu, disk = self._running(), Disk(serial, path, bytes_per_second, iops, driver)
        with self._plugging:
            if self._plugged.is_plugged(disk):
                return
            port = self._plugged.free_place()
            disk = self._served(disk)
            with contextlib.ExitStack() as undo:
                undo.callback(self._stop_serving, disk)
                _add_disk(qemu, disk, port)
                undo.pop_all()
            self._plugged.add(disk, port)

    def unplug(self, serial: str, timeout_s: float) -> None:
        if self._plugged.take_pulled(serial):
            return
        disk, _ = self._plugged.entry(serial)
        while True:
            qemu = self._qemu
            if qemu is not None and qemu.alive:
                self._remove_device(qemu, disk, timeout_s)
                self._remove_backend(qemu, disk)
            with self._starting:
                if self._qemu in (qemu, None):
                    self._plugged.remove(serial)
                    break
            # Power went and came back meanwhile, and the machine booted with the disk.
        self._stop_serving(disk)

    def pull(self, serial: str, timeout_s: float = 20.0) -> None:
        # QEMU cannot remove a device without the guest's cooperation.
        disk, _ = self._plugged.entry(serial)
        if not self._plugged.is_dead(serial):
            qemu = self._running()
            qemu.command("blockdev-add", disk.dead_node(disk.path.stat().st_size))
            self._plugged.mark_dead(serial)
            qemu.command("blockdev-reopen", {"options": [{**disk.block_node(), "file": disk.dead_name}]})
        self.unplug(serial, timeout_s)

    def set_limit(self, serial: str, bytes_per_second: int | None, iops: int | None = None) -> None:
        disk, port = self._plugged.entry(serial)
        disk = dataclasses.replace(disk, bytes_per_second=bytes_per_second, iops=iops)
        if self.alive:
            change = {"path": f"/objects/{disk.group_id}", "property": "limits", "value": disk.limits()}
            self._running().command("qom-set", change)
        self._plugged.add(disk, port)

    def _remove_device(self, qemu: Qemu, disk: Disk, timeout_s: float) -> None:
        # Of this process only: after a power cycle the next one has the disk again, and is asked by the next `unplug`.
        deadline = time.monotonic() + timeout_s
        refusal: CommandRefused | None = None
        while True:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                raise GuestHoldsDisk(f"the guest has not released disk {disk.serial} in time") from refusal
            try:
                event = qemu.monitor.execute_and_await(
                    "device_del",
                    {"id": disk.device_id},
                    events=_UNPLUG_EVENTS,
                    timeout_s=min(remaining_s, _ASK_AGAIN_S),
                )
            except ChannelTimeout:
                continue
            except CommandRefused as error:
                if error.error_class == "DeviceNotFound":
                    return  # the guest released the disk after the last request had timed out
                # A request is pending: QEMU accepts the next one after some seconds.
                refusal = error
                time.sleep(0.2)
                continue
            if event["event"] == "DEVICE_DELETED":
                return
            raise GuestHoldsDisk(f"the guest refuses to release disk {disk.serial}")

    def _remove_backend(self, qemu: Qemu, disk: Disk) -> None:
        # This removes the file node, too, but not a node that has replaced it.
        qemu.command("blockdev-del", {"node-name": disk.node_name})
        if self._plugged.is_dead(disk.serial):
            qemu.command("blockdev-del", {"node-name": disk.dead_name})
            self._plugged.mark_alive(disk.serial)
        qemu.command("object-del", {"id": disk.group_id})

    def _running(self) -> Qemu:
        if self._qemu is None or not self._qemu.alive:
            raise HypervisorError(f"the machine is not running\n{self.console_tail()}")
        return self._qemu

    def _served(self, disk: Disk) -> Disk:
        return disk if self._power is None else dataclasses.replace(disk, socket=self._power.plug(disk.path))

    def _stop_serving(self, disk: Disk) -> None:
        if self._power is not None:
            self._power.unplug(disk.path)

    def _discard_qemu(self) -> None:
        qemu, self._qemu, self._agent = self._qemu, None, None
        if qemu is not None:
            qemu.kill()
        self._plugged.machine_ended()


def _add_disk(qemu: Qemu, disk: Disk, port: str) -> None:
    """Plug a disk into a running QEMU. Raises CommandRefused; then nothing was changed."""
    with contextlib.ExitStack() as undo:
        qemu.command("object-add", disk.throttle_group())
        undo.callback(qemu.command, "object-del", {"id": disk.group_id})
        qemu.command("blockdev-add", disk.block_node())
        undo.callback(qemu.command, "blockdev-del", {"node-name": disk.node_name})
        qemu.command("device_add", disk.device(port))
        undo.pop_all()
