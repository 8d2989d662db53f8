"""The laboratory's end of a disk server."""

from __future__ import annotations

import functools
import json
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from elastio_testbed.hypervisor.channel import call_in_background
from elastio_testbed.hypervisor.disk import Disk
from elastio_testbed.hypervisor.errors import HypervisorError

_LAUNCH_S, _REAP_S = 30.0, 30.0
# The server waits for a disk behind NBD: longer than for an answer of that (see `store`).
_CALL_S = 340.0


class DiskServer:
    """A running disk server of the machine in `directory`. It ends with `kill`, and with this process.

    Every call raises HypervisorError when the server refuses it or has ended. Calls may come from several threads.
    """

    def __init__(self, directory: Path) -> None:
        """Start the process. Its log is `disks.log` in the folder."""
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair()
        argv = ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-m", "elastio_testbed.hypervisor.vhost"]
        with theirs, (directory / "disks.log").open("ab") as log:
            spawn = functools.partial(
                subprocess.Popen,
                [*argv, str(theirs.fileno())],
                cwd=directory,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            # As for QEMU: from a thread that does not end before this process.
            self._process = call_in_background(spawn, _LAUNCH_S)
        ours.settimeout(_CALL_S)
        self._socket, self._stream = ours, ours.makefile("rwb", buffering=0)

    def add(self, slot: int, disk: Disk) -> None:
        """Serve a disk in a free slot."""
        nbd = str(disk.socket) if disk.socket else None
        self._call("add", slot, serial=disk.serial, path=str(disk.path.resolve()), nbd=nbd, **_limits(disk))

    def remove(self, slot: int) -> None:
        """Stop serving a slot, and close the file."""
        self._call("remove", slot)

    def limit(self, slot: int, disk: Disk) -> None:
        """Apply the limits of `disk` to the disk in a slot."""
        self._call("limit", slot, **_limits(disk))

    def break_down(self, slot: int) -> None:
        """Fail all requests to a disk from now on, waiting ones included."""
        self._call("break", slot)

    def moved_bytes(self, slot: int) -> int:
        """Bytes read from and written to the disk since it was added."""
        return int(self._call("moved", slot)["moved_bytes"])

    def kill(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait(_REAP_S)
        self._stream.close()
        self._socket.close()

    def _call(self, name: str, slot: int, **arguments: object) -> dict[str, Any]:
        command = {"do": name, "slot": slot, **arguments}
        try:
            with self._lock:
                self._stream.write(json.dumps(command).encode() + b"\n")
                line = self._stream.readline()
        except (OSError, ValueError) as error:
            raise HypervisorError(f"the disk server does not answer: {error}") from error
        if not line:
            raise HypervisorError("the disk server has ended; its log is disks.log")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise HypervisorError(f"{name} of slot {slot}: {answer['error']}")
        return answer


def _limits(disk: Disk) -> dict[str, int | None]:
    return {"bytes_per_second": disk.bytes_per_second, "iops": disk.iops}
