"""One QEMU process, with the connections to its monitor and to the guest agent."""

import contextlib
import functools
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elastio_testbed.hypervisor.channel import Channel, call_in_background
from elastio_testbed.hypervisor.disk import Disk
from elastio_testbed.hypervisor.errors import HypervisorError
from elastio_testbed.hypervisor.qemu.command import AGENT_CHARDEV, Hardware, Wiring, qemu_argv
from elastio_testbed.image import GuestImage

_LAUNCH_S = 30.0
_COMMAND_S = 20.0
# After SIGKILL, for the kernel to free the guest's memory and to finish its writes.
_REAP_S = 30.0
# Files of a machine, in its directory.
OVERLAY, CONSOLE = "root.qcow2", "console.log"
_CONSOLE_TAIL_LINES = 30


class Qemu:
    """A running QEMU. It ends with `kill`, and with this process."""

    def __init__(self, process: subprocess.Popen[bytes], monitor: Channel, agent: Channel) -> None:
        self._process = process
        self.monitor = monitor
        self.agent = agent

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def command(self, name: str, arguments: Mapping[str, object] | None = None) -> Any:
        """Run one short monitor command and return its value. Raises CommandRefused."""
        return self.monitor.execute(name, arguments, timeout_s=_COMMAND_S)

    def agent_port_is_open(self) -> bool:
        """Whether the guest agent has opened its port."""
        chardevs = self.command("query-chardev")
        return any(device["frontend-open"] for device in chardevs if device["label"] == AGENT_CHARDEV)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of the process; False after `timeout_s`."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """Kill the process and close the connections."""
        _end(self._process)
        self.monitor.close()
        self.agent.close()


def launch(
    image: GuestImage,
    hardware: Hardware,
    directory: Path,
    disks: Sequence[tuple[Disk, str]],
    ports: Mapping[str, Path],
    *,
    is_incoming: bool = False,
) -> Qemu:
    """Start QEMU with its files in `directory`. Raises HypervisorError with QEMU's message.

    `is_incoming`: it does not boot, but waits for the command to load a state.
    """
    directory.mkdir(parents=True, exist_ok=True)
    overlay, log = directory / OVERLAY, directory / "qemu.log"
    if not overlay.exists():
        _create_overlay(image.root, overlay)
    with contextlib.ExitStack() as undo:
        monitor, monitor_end = _socket_pair(undo)
        agent, agent_end = _socket_pair(undo)
        with monitor_end, agent_end:
            fds = (monitor_end.fileno(), agent_end.fileno())
            argv = qemu_argv(image, hardware, Wiring(overlay, directory / CONSOLE, *fds, ports), disks)
            argv += ("-incoming", "defer") if is_incoming else ()
            process = call_in_background(functools.partial(_spawn, argv, fds, log), _LAUNCH_S)
        undo.callback(_end, process)
        try:
            monitor_channel = Channel("monitor", monitor, greeting=True)
            undo.callback(monitor_channel.close)
            qemu = Qemu(process, monitor_channel, Channel("agent", agent, greeting=False))
        except HypervisorError as error:
            _end(process)
            raise HypervisorError(f"QEMU did not start: {log.read_text(errors='replace').strip()}") from error
        undo.pop_all()
    return qemu


def last_lines(directory: Path) -> str:
    """The last lines on the console of the machine with its files in `directory`."""
    console = directory / CONSOLE
    if not console.exists():
        return ""
    return "\n".join(console.read_text(errors="replace").splitlines()[-_CONSOLE_TAIL_LINES:])


def _socket_pair(undo: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    """A socket pair; `undo` closes the first end."""
    ours, theirs = socket.socketpair()
    undo.callback(ours.close)
    return ours, theirs


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(_REAP_S)


def _spawn(argv: Sequence[str], fds: Sequence[int], log: Path) -> subprocess.Popen[bytes]:
    # The kernel sends the signal when the forking thread ends. The background thread ends with the process; the
    # caller's thread may end earlier.
    guarded = ["setpriv", "--pdeathsig", "KILL", "--", *argv]
    with log.open("wb") as output:
        return subprocess.Popen(guarded, pass_fds=fds, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


def _create_overlay(root: Path, overlay: Path) -> None:
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(root), str(overlay)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_LAUNCH_S, check=False)
    if done.returncode != 0:
        raise HypervisorError(f"qemu-img: {done.stderr.strip()}")
