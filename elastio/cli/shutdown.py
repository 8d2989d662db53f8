"""`elastio shutdown`: what elastio-shutdown.service asks before the machine goes down."""

from __future__ import annotations

import click

from elastio.cli.app import App

SLACK_S = 5.0


def _limit_s(app: App) -> float:
    return app.config().shutdown.flush_limit_s + SLACK_S


@click.command()
@click.pass_obj
def shutdown(app: App) -> None:
    """Do with an attached cache what `shutdown.on_shutdown` says, and wait for it. No boost begins any more.

    A cache that could not be flushed in time stays attached and is there after the boot (code 6).
    """
    click.echo(app.client().ask("shutdown")["text"])
    for seen in app.watch(_limit_s(app), lambda _: "the cache is not flushed"):
        if seen.hold is None or not seen.hold.flush or seen.fault or seen.phase == "idle":
            return
