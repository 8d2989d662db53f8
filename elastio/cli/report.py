"""`elastio report`: what the boosts cost, from the ledger. The agent need not run."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta

import click

from elastio.accounting.history_store import read_loads
from elastio.accounting.report import build
from elastio.accounting.report_render import to_csv, to_dict, to_text
from elastio.accounting.zone import local_zone
from elastio.cli.app import App
from elastio.cli.ledger import begin_of, open_ledger, since_option


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON document.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the report as a CSV table.")
@since_option
@click.pass_obj
def report(app: App, as_json: bool, as_csv: bool, since: datetime | timedelta | None) -> None:
    """Show what was saved, and the cost of boosts, days and the VM, beside volumes always slow or always fast."""
    if as_json and as_csv:
        raise click.UsageError("give --json or --csv, not both")
    zone = local_zone()
    end = time.time()
    begin = begin_of(since, zone, end)
    with open_ledger(app) as ledger:
        loads = read_loads(ledger.file, begin)
        made = build(ledger.cycles(begin, end), ledger.spans(begin, end), begin, end, zone, loads)
    if as_json:
        click.echo(json.dumps(to_dict(made), indent=2))
    else:
        click.echo(to_csv(made) if as_csv else to_text(made), nl=False)
