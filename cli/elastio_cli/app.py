"""What every command gets: the configuration, the control socket, the kernel and the programs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from elastio.config.neighbours import Device
from elastio.config.paths import DEFAULT_PATH, NAME, name_of, socket_of
from elastio.config.schema import Config, load, load_alone
from elastio.control.client import ControlClient
from elastio.control.exit_codes import TimedOutError
from elastio.control.protocol import Message
from elastio.control.status import Status
from elastio.errors import ConfigError
from elastio.host import commands
from elastio.host.commands import Run, Start
from elastio.host.inotify import DirectoryWatch
from elastio.host.machine import SystemClock
from elastio.host.sysfs import Sysfs
from elastio.ports import Clock
from elastio.units import format_duration
from elastio_cli.terminal import ProgressLine, busy

POLL_S = 0.5


def _is_terminal() -> bool:
    return sys.stdin.isatty()


class PatientClient(ControlClient):
    """Shows on a terminal that an answer takes long: the agent reads the kernel and the cloud before some of them."""

    def ask(self, command: str, **fields: object) -> Message:
        with busy("waiting for the agent's answer"):
            return super().ask(command, **fields)


@dataclass(frozen=True, slots=True)
class App:
    """`socket` None: the one from the configuration. `root`: the directory with /sys and /proc. `clock` and `sleep` are
    those of the machine.

    `directory` has the configurations of all devices; None: `config_path` or `socket` was chosen. `wanted` is the
    device that `elastio --device` named. `several`: there are several devices, and none was named. `is_simulated`: the
    machine is that of `elastiod --sim`, which writes no files.
    """

    config_path: Path = DEFAULT_PATH
    socket: Path | None = None
    root: Path = Path("/")
    poll_s: float = POLL_S
    run: Run = commands.run
    start: Start = commands.start
    is_terminal: Callable[[], bool] = _is_terminal
    clock: Clock = field(default_factory=SystemClock)
    sleep: Callable[[float], None] = time.sleep
    watch_directory: Callable[[Path], DirectoryWatch] = DirectoryWatch
    directory: Path | None = None
    wanted: str | None = None
    several: tuple[Device, ...] = ()
    is_simulated: bool = False

    def config(self) -> Config:
        if self.is_simulated and self.config_path == DEFAULT_PATH:
            return config_of_simulator()
        return load(self.config_path)

    def client(self) -> ControlClient:
        """The client of the control socket. An invalid configuration means its default socket, not an error.

        Raises ConfigError where it is the socket that is invalid.
        """
        if self.socket is not None:
            return PatientClient(self.socket)
        try:
            return PatientClient(load_alone(self.config_path).agent.socket)  # it may run in spite of its neighbours
        except ConfigError as error:
            if error.code == "agent.socket":
                raise
            return PatientClient(socket_of(name_of(self.config_path)))

    def on(self, device: Device) -> App:
        """The same for this device alone."""
        return replace(self, config_path=device.path, several=())

    def named(self, name: str | None) -> App:
        """The same for a device that is to be configured: NAME.toml, beside the file that is meant otherwise.

        Raises ConfigError `device.name` for what cannot be a name.
        """
        if name is None:
            return self
        if not NAME.fullmatch(name):
            text = f"{name!r} cannot be the name of a device: use letters, digits, _ and -, at most 64, and no - first"
            raise ConfigError(text, code="device.name")
        return replace(self, config_path=self.config_path.with_name(f"{name}{DEFAULT_PATH.suffix}"), several=())

    def sysfs(self) -> Sysfs:
        return Sysfs(self.root)

    def watch(
        self, timeout_s: float, unfinished: Callable[[Status], str], *, shows_progress: bool = True
    ) -> Iterator[Status]:
        """Poll the status. Raises TimedOutError after `timeout_s`; `unfinished` says what was not done by then.

        `shows_progress` False: the caller does, on a terminal.
        """
        client = self.client()
        deadline = time.monotonic() + timeout_s
        line = ProgressLine()
        try:
            while True:
                status = client.status()
                line.clear()
                yield status
                if time.monotonic() >= deadline:
                    raise TimedOutError(f"{unfinished(status)} after {format_duration(timeout_s)}: {describe(status)}")
                if shows_progress:
                    line.show(describe(status))
                time.sleep(min(self.poll_s, timeout_s))
        finally:
            line.clear()


def config_of_simulator() -> Config:
    """The configuration of `elastiod --sim` without a file. Raises ElastioError where there is no simulator."""
    from elastio import registry  # noqa: PLC0415  importlib.metadata costs a start a tenth of its time

    config: Config = registry.simulator("config")()
    return config


def describe(status: Status) -> str:
    """What the agent does now, as the end of a sentence."""
    if status.fault:
        return f"the agent is faulted: {status.fault}"
    waiting = f", waiting for {status.waiting_for}" if status.waiting_for else ""
    return f"the agent is {status.phase}{waiting}"
