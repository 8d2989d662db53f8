"""`elastio state`: says whether the state directory is still needed. Run by the package before it is removed."""

from __future__ import annotations

import click

from elastio.cli.app import App
from elastio.cli.ledger import state_dir
from elastio.control.exit_codes import Exit
from elastio.setup.state_directory import why_needed


@click.command()
@click.pass_context
def state(ctx: click.Context) -> None:
    """Show whether the agent and its state directory may be removed from this machine.

    They may not while a cycle is open: the exit code is then 5. Needs no running agent, and changes nothing.
    """
    app: App = ctx.obj
    folder = state_dir(app)
    needed = why_needed(folder)
    if needed is None:
        click.echo(f"no cycle is open: {folder} is not needed any more")
        return
    remedy = "run `elastio pause` and `elastio flush --wait`"
    click.echo(f"elastio: {needed}; {remedy}, and keep {folder} until then", err=True)
    ctx.exit(Exit.REFUSED)
