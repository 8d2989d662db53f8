"""`elastio pause` and `elastio resume`: whether boosts start by themselves."""

from __future__ import annotations

import click

from elastio.cli.app import App


@click.command()
@click.pass_obj
def pause(app: App) -> None:
    """Start no boost until `elastio resume`; a cache that is attached is flushed and released."""
    click.echo(app.client().ask("pause")["text"])


@click.command()
@click.pass_obj
def resume(app: App) -> None:
    """Let boosts start by themselves again."""
    click.echo(app.client().ask("resume")["text"])
