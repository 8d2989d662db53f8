"""`elastio why`: shows the agent's last decisions and their reasons, from its journal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from elastio.control.protocol import MAX_DECISIONS
from elastio_cli.app import App


@click.command(short_help="Show the agent's last decisions and their reasons.")
@click.option(
    "-n", "count", type=click.IntRange(1, MAX_DECISIONS), default=10, show_default=True, help="Number of decisions."
)
@click.option("--json", "as_json", is_flag=True, help="Print the decisions as a JSON list.")
@click.pass_obj
def why(app: App, count: int, as_json: bool) -> None:
    """Show the agent's last decisions and their reasons, oldest first. Times are in UTC."""
    decisions = app.client().ask("why", count=count).get("decisions") or []
    if as_json:
        click.echo(json.dumps(decisions, indent=2))
        return
    for decision in decisions:
        click.echo(line(decision))
    if not decisions:
        click.echo("no decisions yet")


def line(decision: Mapping[str, Any]) -> str:
    """One decision on one line."""
    at = datetime.fromtimestamp(float(decision.get("wall", 0)), UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    before, after = decision.get("from", "?"), decision.get("to", "?")
    phases = str(after) if before == after else f"{before} -> {after}"
    action = f" [{decision['action']}]" if decision.get("action") else ""
    return f"{at}  {phases}: {decision.get('reason', '')}{action}"
