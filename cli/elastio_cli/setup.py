"""`elastio setup`: from a blank volume to a running agent, in steps that are each recognised as done."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from elastio import registry
from elastio.config.files import read_drop_ins
from elastio.config.paths import name_of
from elastio.config.text import write
from elastio.control.exit_codes import TimedOutError
from elastio.control.protocol import UnreachableError
from elastio.control.status import Status
from elastio.core.state import Phase
from elastio.errors import ConfigError, ElastioError, HostError
from elastio.units import counted, format_duration
from elastio_cli.app import App, describe
from elastio_cli.consent import confirm
from elastio_cli.options import ABOVE_0, AT_LEAST_0, seconds_option
from elastio_cli.terminal import ProgressLine, busy, only_waiting
from elastio_setup import filesystem, fstab
from elastio_setup.candidates import Candidate
from elastio_setup.check_result import Machine
from elastio_setup.filesystem import MAKERS, Filesystem
from elastio_setup.first_config import (
    UNKNOWN_UUID,
    Cloud,
    FirstConfig,
    default_cache_mb_s,
    find_bandwidth,
    open_cloud,
    require_sold,
)
from elastio_setup.format_backing import format_backing, verify
from elastio_setup.plan import Facts, Step, StepName, Wanted, described, plan, question
from elastio_setup.survey import FSTAB, require_ready, survey

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
    created = format_backing(verified, sysfs, app.run)
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


@only_waiting("the agent is started, and goes on")
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
                    return f"the agent is idle and has {counted(len(seen.owned or ()), 'volume')}"
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


IDLE_S = 180.0


@click.command(short_help="Make a blank volume adaptive, mount it and start the agent.")
@click.argument("device", metavar="DEVICE", type=click.Path(path_type=Path))
@click.argument("mountpoint", metavar="MOUNTPOINT", type=click.Path(path_type=Path))
@click.option(
    "--max-cost-per-day", metavar="PRICE", type=AT_LEAST_0, help="Cap on what caches cost a day  [default: none]"
)
@click.option("--filesystem", type=click.Choice(sorted(MAKERS)), help="Filesystem to make  [default: ext4]")
@click.option(
    "--bandwidth", metavar="MB/S", type=ABOVE_0, help="Bandwidth of the volume  [default: as the cloud tells]"
)
@click.option(
    "--cache-bandwidth", metavar="MB/S", type=ABOVE_0, help="Bandwidth of a cache  [default: 4 times as much]"
)
@click.option("--provider", metavar="NAME", help="Name of the cloud provider  [default: the detected one]")
@click.option("--name", metavar="NAME", help="Name of a further device of this VM: its file is NAME.toml.")
@seconds_option("--timeout", "idle_s", IDLE_S, "Time to wait until the agent is idle.")
@click.option("--yes", is_flag=True, help="Format without confirmation.")
@click.option("--force", is_flag=True, help="Format also what is not blank: the data on it is lost.")
@click.option("--dry-run", is_flag=True, help="Print the steps and change nothing.")
@click.pass_obj
def setup(
    app: App,
    /,
    device: Path,
    mountpoint: Path,
    idle_s: float,
    name: str | None,
    yes: bool,
    dry_run: bool,
    **options: object,
) -> None:
    """Make the blank volume DEVICE adaptive, mount it at MOUNTPOINT, configure the agent and start it.

    What is done already is left as it is: after a failure the same command goes on. A volume that is not blank is
    refused, and the exit code is 1: data is looked for, not only known signatures.
    """
    app = app.named(name)
    place = mountpoint.resolve() if mountpoint.is_absolute() else mountpoint
    wanted = _wanted(device, place, app, options)
    machine = Machine(app.sysfs(), app.run)
    for warning in require_ready(machine, wanted.unit):
        click.echo(f"elastio: {warning.sentence}: {warning.remedy}", err=True)
    facts = survey(wanted, machine.sysfs, app.run)
    config = None if facts.is_configured else _first_config(app, wanted, facts)
    steps = plan(wanted, facts, config)
    if dry_run:
        for step in steps:
            click.echo(str(step))
        click.echo("nothing was changed")
        return
    if not yes and (asked := question(wanted, facts)):
        confirm(asked)
    _carry_out(Work(app, wanted, facts, config, idle_s), steps)
    called = name or name_of(app.config_path)
    click.echo(f"next step:\n  elastio boost --drill{f' --device {called}' if called else ''}")


def _wanted(device: Path, place: Path, app: App, options: dict[str, object]) -> Wanted:
    names = {"bandwidth": "bandwidth_mb_s", "cache_bandwidth": "cache_mb_s"}
    asked = {names.get(name, name): value for name, value in options.items()}
    return replace(Wanted(device, place, app.config_path), **asked)  # type: ignore[arg-type]  # as click has checked


# --- what is to be written ---------------------------------------------------------------------------------


def _first_config(app: App, wanted: Wanted, facts: Facts) -> FirstConfig:
    """The configuration, after the cloud was asked if it sells that. Raises ElastioError."""
    uuid = facts.backing.uuid if facts.backing else UNKNOWN_UUID
    cloud = open_cloud(app.config_path, wanted.provider, uuid)
    with busy("asking the cloud"):
        identity = cloud.provider.identify()
        limit = identity.bandwidth_limit_mb_s
        backing_mb_s = wanted.bandwidth_mb_s or _told(app, wanted, cloud, limit)
        first = FirstConfig(
            bandwidth_mb_s=backing_mb_s,
            cache_mb_s=wanted.cache_mb_s or default_cache_mb_s(backing_mb_s, limit),
            provider=cloud.name,
            identity=identity,
            max_cost_per_day=wanted.max_cost_per_day,
            written_by="elastio setup",
            beneath=read_drop_ins(app.config_path),
        )
        checks = registry.run_checks(cloud.name, cloud.provider, require_sold(cloud.provider, first).spec)
    failed = next(((name, sentence) for name, passed, sentence in checks if not passed), None)
    if failed is not None:
        raise ElastioError(f"{failed[0]}: {failed[1]}", code="setup.cloud")
    return first


def _told(app: App, wanted: Wanted, cloud: Cloud, limit_mb_s: float | None) -> float:
    """The bandwidth of the volume, at most the instance's. Raises ConfigError if the cloud does not tell it."""
    found, why = find_bandwidth(cloud.provider, app.sysfs(), wanted.device.resolve().name)
    if found is None:
        text = f"the bandwidth of {wanted.device} is unknown ({why.rstrip('.')}): give --bandwidth"
        raise ConfigError(text, code="device.bandwidth_mb_s")
    return found if limit_mb_s is None else min(found, limit_mb_s)


def _carry_out(work: Work, steps: Sequence[Step]) -> None:
    """Raises the error of the step that failed, with what is left behind."""
    done: list[str] = []
    for step in steps:
        if step.is_done:
            click.echo(f"{step.name:<15}{step.text}")
            continue
        try:
            text = carry_out(step.name, work)
        except ElastioError as error:
            left = f"done before: {', '.join(done)}" if done else "no step was done before"
            text = f"{step.name}: {str(error).rstrip('.')}; {left}; the same command goes on from there"
            raise type(error)(text, code=error.code) from error
        done.append(step.name)
        click.echo(f"{step.name:<15}{text}")
