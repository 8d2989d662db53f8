"""A real `elastiod --sim` in a process of its own, and a search path on which `elastio` asks it.

The simulation is PACE times as fast as the clock, and its application is quiet, so that what a test asks for is all
that happens. Only programs that change disks or the machine are replaced: `stand_in` records how they were called.

A cache is kept for minutes of the simulation, and a hold of 400 s lasts for 26: on a slow machine a command may take
seconds.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from elastio.control.client import ControlClient
from elastio.control.status import Status

ROOT = Path(__file__).parents[1]
SOURCES = os.pathsep.join(
    str(ROOT / name) for name in ("", "cli", "providers", "simulator", "adviser", "calibration", "testbed")
)
PACE = 15
START_S = 30
CONFIG = """\
[device]
backing_uuid = "{uuid}"
bandwidth_mb_s = 33.0
[cache]
bandwidth_mb_s = 128.0
initial_size_gib = 4.0
[policy]
inactivity_delay_s = 600.0
[agent]
socket = "{folder}/elastio-sim.sock"
socket_group = ""
state_dir = "{folder}/state"
[provider]
name = "sim"
[provider.sim]
pace = {pace}
burst_mb_s = 2.0
"""
PROGRAM = '#!/bin/sh\nexec {python} -c "from {module} import main; main(prog_name=\'{name}\')" --config {config} "$@"\n'


@dataclass(frozen=True)
class SimAgent:
    """`folder` has the programs, the configuration, and the calls of stand-ins."""

    folder: Path

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            "PATH": f"{self.folder}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONPATH": SOURCES,
            "XDG_RUNTIME_DIR": str(self.folder),
            "ELASTIO": f"{self.folder}/bin/elastio",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
        }

    def run(self, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env={**self.environment, **variables},
            cwd=self.folder,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )

    @property
    def client(self) -> ControlClient:
        return ControlClient(self.folder / "elastio-sim.sock")

    def status(self) -> Status:
        return self.client.status()

    def wait_until_listed(self) -> None:
        """Until the agent has read the kernel and listed its volumes, a simulated second or two after its start."""
        for _ in range(40):
            if self.run("elastio", "gc", "--dry-run").returncode == 0:
                return
        raise AssertionError(self.run("elastio", "gc", "--dry-run").stderr)

    def settle(self) -> None:
        """Idle, without a hold, a pause or an announced burst."""
        status = self.status()
        if status.hold is not None:
            self.client.ask("unquiesce")
        if status.paused:
            self.client.ask("resume")
        if status.phase != "idle":
            assert self.run("elastio", "flush", "--wait").returncode == 0
        if status.expected:
            assert self.run("elastio", "expect", "--cancel").returncode == 0
        self.calls()

    def stand_in(self, name: str, body: str = "exit 0") -> None:
        """A program that notes its arguments in `calls` and then does `body`."""
        write_program(self.folder / "bin" / name, f'#!/bin/sh\necho {name} "$@" >>{self.folder}/calls\n{body}\n')

    def calls(self) -> list[str]:
        """How stand-ins were called since the last time this was asked."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines


def write_program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def programs(folder: Path) -> SimAgent:
    """The programs and their configuration; no agent runs yet."""
    (folder / "state").mkdir()
    config = folder / "elastio.toml"
    config.write_text(CONFIG.format(uuid="5a11c0de-0000-4000-8000-00000000b4c1", folder=folder, pace=PACE))
    for name, module in (("elastio", "elastio_cli.main"), ("elastiod", "elastio.agent.elastiod")):
        text = PROGRAM.format(python=shlex.quote(sys.executable), module=module, name=name, config=config)
        write_program(folder / "bin" / name, text)
    return SimAgent(folder)


@contextmanager
def sim_agent(folder: Path) -> Iterator[SimAgent]:
    """Runs until the block ends."""
    agent = programs(folder)
    command = ["elastiod", "--sim"]
    with subprocess.Popen(command, env=agent.environment, stderr=subprocess.PIPE, text=True) as daemon:
        try:
            assert daemon.stderr is not None
            assert "a simulated machine" in daemon.stderr.readline()
            agent.wait_until_listed()
            yield agent
        finally:
            daemon.terminate()
            daemon.communicate(timeout=START_S)
