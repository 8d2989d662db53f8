"""The processes of one boot of user-mode Linux."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import select
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elastio_testbed.guest.uml_agent import READY
from elastio_testbed.hypervisor.channel import call_in_background
from elastio_testbed.hypervisor.errors import HypervisorError
from elastio_testbed.hypervisor.uml.kernel import Kernel
from elastio_testbed.hypervisor.uml.processor import Processor
from elastio_testbed.hypervisor.vhost.server import socket_name

# A slot that the guest saw break is not used again while it runs, so there are plenty.
SLOTS = tuple(range(48))
DRIVER = "/sys/bus/platform/drivers/virtio-uml"
_LAUNCH_S, _REAP_S, _HALT_S, _POLL_S = 30.0, 30.0, 2.0, 0.02
_KERNEL = (
    "root=/dev/ubda rw con=null ssl=null quiet audit=0 selinux=0 apparmor=0 fsck.mode=skip net.ifnames=0"
    " cloud-init=disabled transparent_hugepage=never"
)
# Ends the machine when the kernel is killed, and kills the kernel when it ends. The kernel is not the first process of
# its namespace, which SIGABRT would not end: after a panic it would spin. Started again for a reboot, the kernel looks
# for itself by the name it has here, and ends: the next start makes a new one.
_NAMESPACE = ("unshare", "--fork", "--pid", "--kill-child=SIGKILL")
_SHELL = '(export LD_PRELOAD="$1"; shift; exec -a /no-reboot "$@"); exit $?'
_HALTED = re.compile(rb"reboot: (System halted|Power down)")
# A BUG of the kernel is a panic here, which ends the machine.
_MARKS = ("kernel BUG at", "BUG: ", "Kernel panic - not syncing")


@dataclass(frozen=True, slots=True)
class Wiring:
    """The files of one machine. `ports`: files to which the guest's ports are appended, by name."""

    directory: Path
    root: Path
    ports: Mapping[str, Path]

    @property
    def console(self) -> Path:
        return self.directory / "console.log"

    @property
    def share(self) -> Path:
        """The folder that the guest mounts."""
        return self.directory / "share"


class Uml:
    """A running machine. It ends with `kill`, and with this process."""

    def __init__(self, kernel: Kernel, wiring: Wiring, memory_mib: int) -> None:
        """Start it; the sockets of its disks must be there. Raises OSError."""
        self._wiring = wiring
        self._console_from = wiring.console.stat().st_size if wiring.console.exists() else 0
        self._processor = Processor()
        self.line, theirs = socket.socketpair()
        self._held, holder = os.pipe()  # ends when the last process of the guest does
        with contextlib.ExitStack() as ours:
            ours.callback(os.close, holder)
            outputs = [ours.enter_context(path.open("ab")) for path in (wiring.console, *wiring.ports.values())]
            log = ours.enter_context((wiring.directory / "uml.log").open("ab"))
            ours.enter_context(theirs)
            fds = [theirs.fileno(), *(output.fileno() for output in outputs)]
            inherited = (*fds, holder)
            spawn = functools.partial(
                subprocess.Popen,
                self._argv(kernel, memory_mib, fds),
                cwd=wiring.directory,
                pass_fds=inherited,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            # As for QEMU: from a thread that does not end before this process.
            self._process = call_in_background(spawn, _LAUNCH_S)

    def _argv(self, kernel: Kernel, memory_mib: int, fds: Sequence[int]) -> list[str]:
        line, console, *ports = fds
        overlay = "root.cow"
        if not (self._wiring.directory / overlay).exists():
            overlay += f",{self._wiring.root}"
        return [
            *("setpriv", "--pdeathsig", "KILL", "--", "taskset", "--cpu-list", str(self._processor.number)),
            *(*_NAMESPACE, "bash", "-c", _SHELL, "bash", ":".join(map(str, kernel.preload)), str(kernel.linux)),
            *(f"mem={memory_mib}M", f"ubda={overlay}", *_KERNEL.split()),
            *(f"con0=null,fd:{console}", f"ssl1=fd:{line}"),
            *(f"ssl{number}=null,fd:{fd}" for number, fd in enumerate(ports, start=2)),
            f"eth0=slirp,,{kernel.slirp}",
            *(f"virtio_uml.device={socket_name(slot)}:2:{slot}" for slot in SLOTS),
            f"elastio.share={self._wiring.share.resolve()}",
            *([f"elastio.ports={','.join(self._wiring.ports)}"] if ports else []),
        ]

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def console(self) -> str:
        """The console's output since the start."""
        with self._wiring.console.open("rb") as file:
            file.seek(self._console_from)
            return file.read().decode(errors="replace")

    def panic(self) -> str:
        """How the kernel ended itself; empty if it did not."""
        return panic_in(self.console())

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end; False after `timeout_s`. A kernel that has halted and does not exit is ended."""
        deadline, halted_at = time.monotonic() + timeout_s, None
        while self.alive:
            now = time.monotonic()
            if halted_at is None and _HALTED.search(self.console().encode()):
                halted_at = now
            if now > deadline:
                return False
            if halted_at is not None and now > halted_at + _HALT_S:
                self._process.kill()
                self._process.wait(_REAP_S)
            time.sleep(_POLL_S)
        return True

    def kill(self) -> None:
        """End all its processes at once, and wait for the last. Raises HypervisorError if it does not end."""
        self._process.kill()
        self._process.wait(_REAP_S)
        # The kernel ends the others of the namespace after the one that was waited for.
        has_ended = bool(select.select([self._held], [], [], _REAP_S)[0])
        os.close(self._held)
        self._processor.release()
        self.line.close()
        if not has_ended:
            raise HypervisorError(f"a process of the guest in {self._wiring.directory} does not end")

    def await_agent(self, deadline: float) -> None:
        """Wait until the agent has its line. Raises TimeoutError, or EOFError if the guest ended."""
        seen = b""
        while not seen.endswith(READY):
            self.line.settimeout(max(_POLL_S, deadline - time.monotonic()))
            got = self.line.recv(1)
            if not got:
                raise EOFError
            seen += got
        self.line.settimeout(None)


def panic_in(console: str) -> str:
    """What a kernel printed from its first complaint on, line by line; empty if it had none."""
    lines = console.splitlines()
    first = next((at for at, line in enumerate(lines) if any(mark in line for mark in _MARKS)), None)
    return "" if first is None else "\n".join(lines[first:])
