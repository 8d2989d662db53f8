"""The processes of the laboratory's OpenStack, identified by pid and start time, never by name."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from elastio_testbed.errors import LabError
from elastio_testbed.image.tools import CLEAN_ENV

_POLL_S = 0.1
_STOP_S = 10.0
_LOG_TAIL_LINES = 5


@dataclass(frozen=True, slots=True)
class Daemon:
    """One service: its command inside the root, and its loopback port, if it has one."""

    name: str
    argv: tuple[str, ...]
    port: int | None = None
    ready_s: float = 120.0


class Daemons:
    """Starts and stops the daemons of one root. Pids are in /run/lab of the root, logs in /var/log/lab."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def start(self, daemon: Daemon) -> bool:
        """Start a daemon; False when it runs already. Raises LabError when another program uses its port."""
        if self.process(daemon.name) is not None:
            return False
        if daemon.port is not None and is_open(daemon.port):
            raise LabError(f"port {daemon.port} of this machine, needed by {daemon.name}, is in use by another program")
        with self.log(daemon.name).open("ab") as log:
            pid = _spawn(["chroot", str(self._root), *CLEAN_ENV, *daemon.argv], log.fileno())
        record = {"pid": pid, "began": psutil.Process(pid).create_time()}
        self._record(daemon.name).write_text(json.dumps(record))
        return True

    def wait_ready(self, daemon: Daemon) -> None:
        """Wait until its port answers. Raises LabError when it ends or takes too long."""
        if daemon.port is None:
            return
        deadline = time.monotonic() + daemon.ready_s
        while not is_open(daemon.port):
            if self.process(daemon.name) is None:
                raise LabError(f"{daemon.name} ended while it was starting: {self._tail(daemon.name)}")
            if time.monotonic() > deadline:
                raise LabError(
                    f"{daemon.name} does not answer after {daemon.ready_s:.0f} s; see {self.log(daemon.name)}"
                )
            time.sleep(_POLL_S)

    def stop(self, names: Iterable[str]) -> None:
        """Stop these daemons and their children together: with SIGTERM, after ten seconds with SIGKILL."""
        running = {name: process for name in names if (process := self.process(name)) is not None}
        families = {name: [process, *_children(process)] for name, process in running.items()}
        for name, process in running.items():
            # mariadbd and libvirtd end their children themselves; the others expect the signal in every process.
            _signal(process, signal.SIGTERM, whole_group=name not in ("mariadb", "libvirtd"))
        everyone = [process for family in families.values() for process in family]
        _, alive = psutil.wait_procs(everyone, timeout=_STOP_S)
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(alive, timeout=_STOP_S)
        for name in running:
            self._record(name).unlink(missing_ok=True)

    def kill(self, name: str) -> None:
        """Kill one daemon and its children, as in a crash."""
        family = self._family(name)
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        psutil.wait_procs(family, timeout=_STOP_S)
        self._record(name).unlink(missing_ok=True)

    def suspend(self, name: str) -> None:
        """Stop scheduling a daemon and its children, as on a machine that hangs. Raises LabError if it does not run."""
        for member in self.family(name):
            member.suspend()

    def resume(self, name: str) -> None:
        """End `suspend`. Raises LabError if the daemon does not run."""
        for member in self.family(name):
            with contextlib.suppress(psutil.NoSuchProcess):
                member.resume()

    def process(self, name: str) -> psutil.Process | None:
        """The running process of a daemon, or None. A reused pid does not count."""
        try:
            record = json.loads(self._record(name).read_text())
            process = psutil.Process(record["pid"])
            same = abs(process.create_time() - record["began"]) < 0.01
            alive = process.status() != psutil.STATUS_ZOMBIE
        except (FileNotFoundError, psutil.NoSuchProcess):
            return None
        return process if same and alive else None

    def family(self, name: str) -> list[psutil.Process]:
        """A daemon's process and its children. Raises LabError if it does not run."""
        found = self._family(name)
        if not found:
            raise LabError(f"{name} does not run")
        return found

    def memory_bytes(self, name: str) -> int:
        """The resident memory of a daemon and its children; shared pages are counted for each process."""
        total = 0
        for member in self._family(name):
            with contextlib.suppress(psutil.NoSuchProcess):
                total += member.memory_info().rss
        return total

    def _family(self, name: str) -> list[psutil.Process]:
        process = self.process(name)
        return [process, *_children(process)] if process else []

    def log(self, name: str) -> Path:
        return self._root / "var/log/lab" / f"{name}.log"

    def _record(self, name: str) -> Path:
        return self._root / "run/lab" / f"{name}.json"

    def _tail(self, name: str) -> str:
        lines = self.log(name).read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        return "\n".join(lines) or "its log is empty"


def is_open(port: int) -> bool:
    """Whether anything listens on this loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _spawn(argv: list[str], log: int) -> int:
    """Start a program that outlives this one, in a session of its own; returns its pid."""
    with open(os.devnull, "rb") as nothing:
        actions = [
            (os.POSIX_SPAWN_DUP2, nothing.fileno(), 0),
            (os.POSIX_SPAWN_DUP2, log, 1),
            (os.POSIX_SPAWN_DUP2, log, 2),
        ]
        return os.posix_spawnp(argv[0], argv, os.environ, file_actions=actions, setsid=True)


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        found: list[psutil.Process] = process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return found


def _signal(process: psutil.Process, number: signal.Signals, *, whole_group: bool) -> None:
    with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
        if whole_group:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
