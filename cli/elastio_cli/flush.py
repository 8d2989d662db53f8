"""`elastio flush` writes dirty data back and releases the cache; `shutdown` prepares it for that of the machine.

`shutdown` is run by elastio-shutdown.service.
"""

from __future__ import annotations

import sys

import click

from elastio.control.status import Status
from elastio.errors import ConfigError, ElastioError, HostError
from elastio.units import format_size
from elastio_cli.app import App, describe
from elastio_cli.options import wait_options
from elastio_cli.terminal import only_waiting

WAIT_S = 3600.0
STEPS = 1000


@click.command()
@wait_options(WAIT_S)
@click.pass_obj
def flush(app: App, wait_s: float | None) -> None:
    """Flush the cache and delete its volume, even during a load."""
    click.echo(app.client().ask("flush")["text"])
    if wait_s is not None:
        wait_for_release(app, wait_s)
        click.echo("no cache is attached and its volume is deleted")


@only_waiting("the agent goes on flushing, and deletes the volume then; `elastio status` shows how far it is")
def wait_for_release(app: App, wait_s: float) -> None:
    """Return when the volume is deleted, which is after all data is on the backing device."""
    most = 0
    with click.progressbar(length=STEPS, label="flushing", item_show_func=_left, file=sys.stderr) as bar:
        for seen in app.watch(wait_s, _unfinished, shows_progress=False):
            if seen.phase == "idle":
                bar.update(STEPS - bar.pos, 0)
                return
            if seen.phase == "faulted":
                raise ElastioError(describe(seen))
            left = seen.dirty_bytes
            most = max(most, left)
            done = STEPS if most == 0 else STEPS - STEPS * left // most
            bar.update(max(0, done - bar.pos), left)


def _left(dirty: int | None) -> str:
    return "" if dirty is None else f"{format_size(dirty)} dirty"


def _unfinished(seen: Status) -> str:
    return f"{format_size(seen.dirty_bytes)} are still dirty" if seen.dirty_bytes else "the volume is not released"


SLACK_S = 5.0
JOBS_S = 5.0
# If systemd starts one of these targets, the machine boots again (systemd.special(7)).
REBOOT_TARGETS = frozenset({"reboot.target", "kexec.target", "soft-reboot.target"})


def _limit_s(app: App) -> float:
    """Seconds to wait for the flush; without a valid configuration as long as the agent says that it lasts."""
    try:
        return app.config().shutdown.flush_limit_s + SLACK_S
    except ConfigError:
        hold = app.client().status().hold
        return SLACK_S + (hold.left_s if hold is not None else 0.0)


def _reboots(app: App) -> bool:
    """True if systemd reboots the machine; False for a power-off, and if systemd does not answer."""
    try:
        jobs = app.run(["systemctl", "list-jobs", "--no-legend", "--no-pager", "--full"], timeout_s=JOBS_S)
    except HostError:
        return False
    # JOB UNIT TYPE STATE, and more columns in some releases.
    return any(not REBOOT_TARGETS.isdisjoint(line.split()) and "start" in line.split() for line in jobs.splitlines())


@click.command(short_help="Flush or leave the cache before the machine goes down.")
@click.option("--cancel", is_flag=True, help="The machine stays up: end the hold of an earlier `elastio shutdown`.")
@click.pass_obj
def shutdown(app: App, cancel: bool) -> None:
    """Flush an attached cache or leave it, as `shutdown.on_shutdown` says, and inhibit boosts.

    systemd is asked whether the machine reboots. A cache that could not be flushed in time stays attached and is used
    again after the boot; the exit code is then 6. With --cancel boosts may begin again; a flush that has begun goes
    on. If there is no such hold, nothing is changed and the exit code is 5.
    """
    if cancel:
        click.echo(app.client().ask("shutdown", cancels=1)["text"])
        return
    reboots = {"reboots": 1} if _reboots(app) else {}
    click.echo(app.client().ask("shutdown", **reboots)["text"])
    _wait_for_hold(app)


@only_waiting("the agent goes on flushing, and begins no boost; `elastio shutdown --cancel` ends that")
def _wait_for_hold(app: App) -> None:
    for seen in app.watch(_limit_s(app), lambda _: "the cache is not flushed"):
        if seen.hold is None or not seen.hold.flush or seen.fault or seen.phase == "idle":
            return
