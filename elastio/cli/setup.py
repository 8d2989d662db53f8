"""`elastio setup`: from a blank volume to a running agent, in steps that are each recognised as done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from elastio import registry
from elastio.cli.app import App
from elastio.cli.busy import busy
from elastio.cli.init import MB_S
from elastio.cli.setup_steps import Work, carry_out
from elastio.cli.waiting import seconds_option
from elastio.config.files import read_drop_ins
from elastio.config.paths import name_of
from elastio.errors import ConfigError, ElastioError
from elastio.setup.check_result import Machine
from elastio.setup.filesystem import MAKERS
from elastio.setup.first_config import (
    UNKNOWN_UUID,
    Cloud,
    FirstConfig,
    default_cache_mb_s,
    find_bandwidth,
    open_cloud,
    require_sold,
)
from elastio.setup.plan import Facts, Step, Wanted, plan, question
from elastio.setup.survey import require_ready, survey

IDLE_S = 180.0
COST = click.FloatRange(min=0)


@click.command()
@click.argument("device", metavar="DEVICE", type=click.Path(path_type=Path))
@click.argument("mountpoint", metavar="MOUNTPOINT", type=click.Path(path_type=Path))
@click.option("--max-cost-per-day", metavar="PRICE", type=COST, help="Cap on what caches cost a day  [default: none]")
@click.option("--filesystem", type=click.Choice(sorted(MAKERS)), help="Filesystem to make  [default: ext4]")
@click.option("--bandwidth", metavar="MB/S", type=MB_S, help="Bandwidth of the volume  [default: as the cloud tells]")
@click.option("--cache-bandwidth", metavar="MB/S", type=MB_S, help="Bandwidth of a cache  [default: 4 times as much]")
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
        click.confirm(asked, abort=True)
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
