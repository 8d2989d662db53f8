"""The steps of `elastio setup`, carried out. Each returns one clause that says what it did."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from elastio.cli.app import App, describe
from elastio.cli.busy import ProgressLine, busy
from elastio.config.text import write
from elastio.control.exit_codes import TimedOutError
from elastio.control.protocol import UnreachableError
from elastio.control.status import Status
from elastio.core.state import Phase
from elastio.errors import ElastioError, HostError
from elastio.setup import filesystem, fstab
from elastio.setup.candidates import Candidate
from elastio.setup.filesystem import Filesystem
from elastio.setup.first_config import FirstConfig
from elastio.setup.format_backing import format_backing, verify
from elastio.setup.plan import Facts, StepName, Wanted, described
from elastio.setup.survey import FSTAB
from elastio.units import format_duration

START_S = 150.0  # more than the unit's own TimeoutStartSec
SYSTEMCTL_S = 30.0


@dataclass(slots=True)
class Work:
    """What the steps need, and what they learn on the way: a later step uses what an earlier one made."""

    app: App
    wanted: Wanted
    facts: Facts
    config: FirstConfig | None
    idle_s: float
    backing: Candidate | None = None
    made: Filesystem | None = None

    def __post_init__(self) -> None:
        self.backing, self.made = self.facts.backing, self.facts.filesystem

    @property
    def device(self) -> Candidate:
        """The backing device. Before it is made that is an error of the program."""
        if self.backing is None:
            raise AssertionError("there is no backing device yet")
        return self.backing

    @property
    def adaptive(self) -> str:
        return self.device.adaptive or ""

    @property
    def filesystem(self) -> Filesystem:
        if self.made is None:
            raise AssertionError("there is no filesystem yet")
        return self.made


def carry_out(name: StepName, work: Work) -> str:
    """Carry out one step. Raises ElastioError."""
    return STEPS[name](work)


def _device(work: Work) -> str:
    """The volume is checked once more: the question may have waited for an hour. It was answered for what was seen."""
    app, wanted = work.app, work.wanted
    sysfs = app.sysfs()
    verified = verify(wanted.device, sysfs, app.run, is_forced=not work.facts.is_blank)
    created = format_backing(verified, sysfs, app.run, sleep=app.sleep)
    work.backing = Candidate(verified.name, created.uuid, verified.size_bytes, created.adaptive)
    return f"{wanted.device} is the backing device {created.uuid}: use /dev/{created.adaptive}, never {wanted.device}"


def _filesystem(work: Work) -> str:
    is_new = work.facts.backing is None
    kind = work.facts.kind
    with busy(f"making {kind}"):
        is_forced = not work.facts.is_blank
        work.made = filesystem.make(
            work.adaptive, kind, work.app.sysfs(), work.app.run, is_new=is_new, is_forced=is_forced
        )
    return f"made {kind} with the UUID {work.made.uuid} on /dev/{work.adaptive}"


def _fstab(work: Work) -> str:
    """Read again: somebody may have added the line meanwhile."""
    path, place = work.app.sysfs().path(FSTAB), work.wanted.place
    text = fstab.read(path)
    line = fstab.line_for(work.filesystem.uuid, place, work.filesystem.kind)
    if not fstab.has_line(text, work.filesystem.uuid, work.adaptive, place):
        fstab.write(path, fstab.with_line(text, line))
    return f"added to /etc/fstab: {line}"


def _mount(work: Work) -> str:
    filesystem.mount(work.wanted.place, work.app.run)
    if not filesystem.is_mounted(work.adaptive, work.wanted.place, work.app.sysfs()):
        text = f"mount reported success, and /dev/{work.adaptive} is not mounted at {work.wanted.place}"
        raise HostError(text, code="mount.missing")
    return f"mounted /dev/{work.adaptive} at {work.wanted.place}"


def _configuration(work: Work) -> str:
    if work.config is None:
        raise AssertionError("there is a configuration already")
    work.config.parsed(work.device.uuid)
    write(work.app.config_path, work.config.text(work.device), replace=False)
    return f"wrote {work.app.config_path}: {described(work.config)}"


def _agent(work: Work) -> str:
    unit = work.wanted.unit
    with busy(f"starting {unit}"):
        work.app.run(["systemctl", "enable", "--now", unit], timeout_s=START_S)
    try:
        work.app.run(["systemctl", "is-active", "--quiet", unit], timeout_s=SYSTEMCTL_S)
    except HostError as error:
        text = f"{unit} does not run: see `journalctl -u {unit}`"
        raise HostError(text, code="setup.not_running") from error
    return f"enabled and started {unit}"


def _idle(work: Work) -> str:
    """Wait until the agent has seen kernel and cloud and has nothing to do."""
    app, deadline = work.app, time.monotonic() + work.idle_s
    line = ProgressLine()
    try:
        while True:
            seen = _status(app, deadline)
            line.clear()
            if seen is not None:
                _require_sound(seen, work.device.uuid)
                if is_ready(seen):
                    return f"the agent is idle and has {len(seen.owned or ())} volumes"
            doing = "the agent does not answer yet" if seen is None else waiting_for(seen)
            if time.monotonic() >= deadline:
                raise TimedOutError(f"not idle after {format_duration(work.idle_s)}: {doing}", code="setup.not_idle")
            line.show(doing)
            app.sleep(app.poll_s)
    finally:
        line.clear()


def _status(app: App, deadline: float) -> Status | None:
    """None while no agent answers, before the deadline."""
    try:
        return app.client().status()
    except UnreachableError as error:
        if error.code != "socket.closed" or time.monotonic() >= deadline:
            raise
        return None


def _require_sound(seen: Status, uuid: str) -> None:
    if seen.fault:
        raise ElastioError(describe(seen), code="setup.faulted")
    if seen.device_uuid and seen.device_uuid != uuid:
        text = f"the agent that answers has the backing device {seen.device_uuid}, not {uuid}"
        raise ElastioError(text, code="setup.other_agent")


def is_ready(seen: Status) -> bool:
    """Whether a boost could begin: kernel and cloud are known, and nothing is under way."""
    return seen.recovered and seen.phase == Phase.IDLE and seen.owned is not None


def waiting_for(seen: Status) -> str:
    """What is missing, as the end of a sentence."""
    return f"the cloud does not answer the agent: {seen.cloud_error}" if seen.cloud_error else describe(seen)


STEPS: Mapping[StepName, Callable[[Work], str]] = {
    StepName.DEVICE: _device,
    StepName.FILESYSTEM: _filesystem,
    StepName.FSTAB: _fstab,
    StepName.MOUNT: _mount,
    StepName.CONFIGURATION: _configuration,
    StepName.AGENT: _agent,
    StepName.IDLE: _idle,
}
