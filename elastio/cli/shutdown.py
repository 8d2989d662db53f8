"""`elastio shutdown`: what elastio-shutdown.service asks before the machine goes down."""

from __future__ import annotations

import click

from elastio.cli.app import App
from elastio.errors import HostError

SLACK_S = 5.0
JOBS_S = 5.0
# Of systemd: while one of these is being started the machine comes back by itself (systemd.special(7)).
COMES_BACK = frozenset({"reboot.target", "kexec.target", "soft-reboot.target"})


def _limit_s(app: App) -> float:
    return app.config().shutdown.flush_limit_s + SLACK_S


def _reboots(app: App) -> bool:
    """What systemd is about to start. Where it cannot be asked, or knows of no end: a power-off."""
    try:
        jobs = app.run(["systemctl", "list-jobs", "--no-legend", "--no-pager", "--full"], timeout_s=JOBS_S)
    except HostError:
        return False
    # JOB UNIT TYPE STATE; the unit itself is found there whatever other columns a release prints.
    return any(not COMES_BACK.isdisjoint(line.split()) and "start" in line.split() for line in jobs.splitlines())


@click.command()
@click.pass_obj
def shutdown(app: App) -> None:
    """Do with an attached cache what `shutdown.on_shutdown` says, and wait for it. No boost begins any more.

    systemd is asked whether the machine reboots. A cache that could not be flushed in time stays attached and is there
    after the boot (code 6).
    """
    reboots = {"reboots": 1} if _reboots(app) else {}
    click.echo(app.client().ask("shutdown", **reboots)["text"])
    for seen in app.watch(_limit_s(app), lambda _: "the cache is not flushed"):
        if seen.hold is None or not seen.hold.flush or seen.fault or seen.phase == "idle":
            return
