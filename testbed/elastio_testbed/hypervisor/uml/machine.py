"""A machine on user-mode Linux, with the disk server's disks.

A disk is plugged by serving it on the socket of a slot, of which the kernel's command line has plenty, and by binding
the slot's driver in the guest. So plugging and unplugging need a guest that answers, unlike on a real machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from elastio_testbed.hypervisor.disk import Disk, Driver, Power
from elastio_testbed.hypervisor.errors import GuestError, GuestHoldsDisk, GuestTimeout, HypervisorError
from elastio_testbed.hypervisor.plugged import PluggedDisks
from elastio_testbed.hypervisor.uml.kernel import Kernel, uml_kernel
from elastio_testbed.hypervisor.uml.process import DRIVER, SLOTS, Uml, Wiring
from elastio_testbed.hypervisor.uml.programs import UmlPrograms
from elastio_testbed.hypervisor.uml.root import prepared_root
from elastio_testbed.hypervisor.vhost.storage import DiskServer
from elastio_testbed.image import GuestImage
from elastio_testbed.image.cache import cache_directory

_CONSOLE_TAIL_LINES = 30
# For a guest to boot that is asked to take a disk meanwhile, and to take it.
_PLUG_S = 90.0
_POWER_OFF_S = 20.0


@dataclasses.dataclass(frozen=True, slots=True)
class _Running:
    """What runs between power on and power off."""

    uml: Uml
    disks: DiskServer


class UmlMachine:
    """`Machine`, on user-mode Linux."""

    def __init__(
        self,
        image: GuestImage,
        *,
        disks: Iterable[Disk] = (),
        directory: Path | None = None,
        memory_mib: int = 1536,
        ports: Mapping[str, Path] | None = None,
        power: Power | None = None,
    ) -> None:
        """Define a machine; nothing is started. See `define_machine`. Raises ImageError."""
        self._image = image
        self._memory_mib = memory_mib
        self._power = power
        self._temporary = directory is None
        self._directory = directory or Path(tempfile.mkdtemp(prefix="elastio-vm-"))
        self._ports = dict(ports or {})
        self._plugged = PluggedDisks(SLOTS)
        self._plugging = threading.Lock()
        self._starting = threading.Lock()  # from the choice of the disks to plug until the machine has them
        self._has_booted = threading.Event()
        self._running: _Running | None = None
        self._agent: UmlPrograms | None = None
        for disk in disks:
            self._plugged.add(self._served(disk), self._plugged.free_place())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what is known -----------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        return self._running is not None and self._running.uml.alive

    @property
    def is_starting(self) -> bool:
        return self._starting.locked()

    @property
    def agent(self) -> UmlPrograms:
        self._now_running()
        if self._agent is None:
            raise HypervisorError(f"the machine has not booted\n{self.console_tail()}")
        return self._agent

    @property
    def console(self) -> Path:
        return self._directory / "console.log"

    def console_tail(self) -> str:
        if not self.console.exists():
            return ""
        lines = self.console.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_CONSOLE_TAIL_LINES:])

    def disks(self) -> tuple[str, ...]:
        return self._plugged.serials()

    def files(self) -> dict[str, Path]:
        return {disk.serial: disk.path for disk, _ in self._plugged.entries()}

    def limits(self) -> dict[str, int | None]:
        return {disk.serial: disk.bytes_per_second for disk, _ in self._plugged.entries()}

    def moved_bytes(self, serial: str) -> int:
        return self._now_running().disks.moved_bytes(self._plugged.entry(serial)[1])

    def forward(self, host_port: int, guest_port: int) -> None:
        raise HypervisorError(f"port {host_port} is not forwarded: user-mode Linux cannot do it, use QEMU")

    # --- power -------------------------------------------------------------------------------------------

    def start(self, timeout_s: float) -> None:
        if self.alive:
            raise HypervisorError("the machine is already running")
        deadline = time.monotonic() + timeout_s
        self._discard()
        self._directory.mkdir(parents=True, exist_ok=True)
        kernel = uml_kernel(cache_directory(), self._image.suite)
        wiring = Wiring(self._directory, prepared_root(self._image, kernel), self._ports)
        shutil.rmtree(wiring.share, ignore_errors=True)
        wiring.share.mkdir()
        with self._starting:
            self._running = self._launch(kernel, wiring)
        self._await_boot(self._running.uml, deadline)
        self._agent = UmlPrograms(self._running.uml.line, wiring.share, self.console_tail)
        self._has_booted.set()

    def _launch(self, kernel: Kernel, wiring: Wiring) -> _Running:
        for path in self._directory.glob("s[0-9]*"):
            path.unlink()  # of slots that a killed server left
        server = DiskServer(self._directory)
        try:
            for disk, slot in self._plugged.entries():
                server.add(slot, disk)
            return _Running(Uml(kernel, wiring, self._memory_mib), server)
        except OSError as error:
            server.kill()
            raise HypervisorError(f"user-mode Linux does not start: {error}") from error
        except HypervisorError:
            server.kill()
            raise

    def _await_boot(self, uml: Uml, deadline: float) -> None:
        try:
            uml.await_agent(deadline)
        except TimeoutError as error:
            raise GuestTimeout(f"the guest did not boot in time\n{self.console_tail()}") from error
        except (EOFError, OSError) as error:
            raise HypervisorError(self._obituary(uml)) from error

    def shutdown(self, timeout_s: float) -> bool:
        self._now_running()
        with contextlib.suppress(HypervisorError):  # the answer may not get out any more
            self.agent.run(["systemctl", "--no-block", "poweroff"], timeout_s=_POWER_OFF_S)
        return self.await_off(timeout_s)

    def await_off(self, timeout_s: float) -> bool:
        ended = self._running is None or self._running.uml.wait(timeout_s)
        self._discard()
        return ended

    def kill(self) -> None:
        self._discard()

    def close(self) -> None:
        self._discard()
        if self._temporary:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _discard(self) -> None:
        self._has_booted.clear()
        running, self._running, self._agent = self._running, None, None
        self._plugged.machine_ended()
        if running is not None:
            try:
                running.uml.kill()
            finally:
                running.disks.kill()

    # --- disks -------------------------------------------------------------------------------------------

    def plug(
        self,
        serial: str,
        path: Path,
        *,
        bytes_per_second: int,
        iops: int | None = None,
        driver: Driver = "virtio-blk",
    ) -> None:
        if driver != "virtio-blk":
            raise HypervisorError(f"user-mode Linux has no {driver}")
        disk = Disk(serial, path, bytes_per_second, iops)
        self._now_running()
        with self._plugging:
            if self._plugged.is_plugged(disk):
                return
            if not self._has_booted.wait(_PLUG_S):
                raise HypervisorError(f"disk {serial} is not plugged: the guest has not booted in time")
            with contextlib.ExitStack() as undo:
                served = self._served(disk)
                undo.callback(self._stop_serving, disk)
                running, slot = self._now_running(), self._plugged.free_place()
                running.disks.add(slot, served)
                undo.callback(self._withdraw, running, slot)
                # The machine has the disk from now on: it boots with it after a power cut that comes meanwhile.
                self._plugged.add(served, slot)
                self._bind(running, serial, slot)
                undo.pop_all()

    def _bind(self, running: _Running, serial: str, slot: int) -> None:
        try:
            self.agent.check(["sh", "-c", f"echo virtio-uml.{slot} > {DRIVER}/bind"], timeout_s=_PLUG_S)
        except HypervisorError:
            if running.uml.alive:
                self._plugged.remove(serial)
                raise

    def unplug(self, serial: str, timeout_s: float) -> None:
        if self._plugged.take_pulled(serial):
            return
        disk, slot = self._plugged.entry(serial)
        while True:
            running = self._running
            if running is not None and running.uml.alive:
                self._release(running, serial, slot, timeout_s)
                self._withdraw(running, slot)
            with self._starting:
                if self._running in (running, None):
                    self._plugged.remove(serial)
                    break
            # Power went and came back meanwhile, and the machine booted with the disk.
        self._stop_serving(disk)

    def _release(self, running: _Running, serial: str, slot: int, timeout_s: float) -> None:
        """Have the guest give a disk up. Raises GuestHoldsDisk; a machine that ends meanwhile has no disk any more."""
        deadline = time.monotonic() + timeout_s
        script = f"[ ! -e {DRIVER}/virtio-uml.{slot} ] || echo virtio-uml.{slot} > {DRIVER}/unbind"
        if not self._has_booted.wait(timeout_s):
            raise GuestHoldsDisk(f"the guest has not released disk {serial} in time")
        try:
            self.agent.check(["sh", "-c", script], timeout_s=max(1.0, deadline - time.monotonic()))
        except GuestTimeout as error:
            raise GuestHoldsDisk(f"the guest has not released disk {serial} in time") from error
        except GuestError as error:
            if running.uml.alive:
                raise GuestHoldsDisk(f"the guest refuses to release disk {serial}: {error}") from error
        except HypervisorError:
            if running.uml.alive:
                raise

    def pull(self, serial: str, timeout_s: float = 20.0) -> None:
        _, slot = self._plugged.entry(serial)
        if not self._plugged.is_dead(serial):
            running = self._now_running()
            self._plugged.mark_dead(serial)
            running.disks.break_down(slot)
        self.unplug(serial, timeout_s)

    def set_limit(self, serial: str, bytes_per_second: int | None, iops: int | None = None) -> None:
        disk, slot = self._plugged.entry(serial)
        disk = dataclasses.replace(disk, bytes_per_second=bytes_per_second, iops=iops)
        if self.alive:
            self._now_running().disks.limit(slot, disk)
        self._plugged.add(disk, slot)

    def _withdraw(self, running: _Running, slot: int) -> None:
        with contextlib.suppress(HypervisorError):  # the machine ended meanwhile
            running.disks.remove(slot)

    def _now_running(self) -> _Running:
        running = self._running
        if running is None:
            raise HypervisorError(f"the machine is not running\n{self.console_tail()}")
        if not running.uml.alive:
            raise HypervisorError(self._obituary(running.uml))
        return running

    def _obituary(self, uml: Uml) -> str:
        panic = uml.panic()
        if panic:
            return f"the guest's kernel ended itself:\n{panic}"
        return f"the machine has ended\n{self.console_tail()}"

    def _served(self, disk: Disk) -> Disk:
        return disk if self._power is None else dataclasses.replace(disk, socket=self._power.plug(disk.path))

    def _stop_serving(self, disk: Disk) -> None:
        if self._power is not None:
            self._power.unplug(disk.path)
