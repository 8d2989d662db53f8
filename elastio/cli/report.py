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
from elastio.cli.status import credits_text
from elastio.codec import encode
from elastio.control.status import CreditsPart
from elastio.errors import ElastioError


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
    if as_csv:
        click.echo(to_csv(made), nl=False)
        return
    credits = _credits(app)
    if as_json:
        balance = {} if credits is None else {"credits": {**encode(credits), "share": credits.share}}
        click.echo(json.dumps({**to_dict(made), **balance}, indent=2))
        return
    click.echo(to_text(made), nl=False)
    if credits is not None:
        click.echo(f"\nCredits of the backing volume now: {credits_text(credits)}.")


def _credits(app: App) -> CreditsPart | None:
    """The credits of the backing volume now; None: it has none, or no agent answers, which a report does not need."""
    try:
        return app.client().status().credits
    except ElastioError:
        return None
