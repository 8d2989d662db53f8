"""`elastio history`: past loads and the throughput of the device, from the ledger. The agent need not run."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta

import click

from elastio.accounting.database import local_zone
from elastio.accounting.history import History, past_boosts
from elastio.accounting.history_render import to_csv, to_dict, to_text
from elastio.accounting.history_store import read_loads, read_samples
from elastio_cli.app import App
from elastio_cli.ledger import begin_of, open_ledger, since_option


@click.command(short_help="Show when loads began, how long and how large they were.")
@click.option("--json", "as_json", is_flag=True, help="Print boosts and samples as one JSON document.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the samples as a CSV table.")
@since_option
@click.pass_obj
def history(app: App, as_json: bool, as_csv: bool, since: datetime | timedelta | None) -> None:
    """Show when loads began, how long and how large they were, and export the throughput samples."""
    if as_json and as_csv:
        raise click.UsageError("give --json or --csv, not both")
    zone = local_zone()
    end = time.time()
    begin = begin_of(since, zone, end)
    with open_ledger(app) as ledger:
        # All cycles: the first boost shown has a gap to the one before it.
        past = past_boosts(ledger.cycles(0.0, end), read_loads(ledger.file))
        runs = read_samples(ledger.file, begin, end)
    made = History(tuple(p for p in past if p.begun_wall >= begin), runs)
    if as_json:
        click.echo(json.dumps(to_dict(made, zone), indent=2))
    else:
        click.echo(to_csv(made, zone) if as_csv else to_text(made, zone), nl=False)
