"""`elastio report`: what the boosts cost, from the ledger. The agent need not run."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import click

from elastio.accounting.burst_accounts import burst_accounts
from elastio.accounting.database import local_zone
from elastio.accounting.history_store import read_accounts, read_loads, read_moved
from elastio.accounting.ledger import Ledger
from elastio.accounting.report import Report, build
from elastio.accounting.report_render import to_csv, to_dict, to_text
from elastio.accounting.rows import CycleRow
from elastio.codec import encode
from elastio.control.status import CreditsPart
from elastio.errors import ElastioError
from elastio.units import format_size
from elastio_cli.app import App
from elastio_cli.ledger import begin_of, open_ledgers, since_option
from elastio_cli.status import credits_text
from elastio_cli.terminal import busy


@click.command(short_help="Show what was saved, and what boosts, days and the VM cost.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON document.")
@click.option("--csv", "as_csv", is_flag=True, help="Print the report as a CSV table.")
@click.option(
    "--html",
    "html_path",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the report with pictures to FILE, one page that needs no network.",
)
@since_option
@click.pass_obj
def report(app: App, as_json: bool, as_csv: bool, html_path: Path | None, since: datetime | timedelta | None) -> None:
    """Show what was saved, and the cost of boosts, days and the VM, beside volumes always slow or always fast.

    Of all devices together, unless one is named.
    """
    if as_json + as_csv + (html_path is not None) > 1:
        raise click.UsageError("give one of --json, --csv and --html")
    end = time.time()
    zone = local_zone()
    with busy("reading the ledger"), open_ledgers(app) as ledgers:
        made = _report(ledgers, begin_of(since, zone, end), end, zone)
        page = None if html_path is None else _page(app, ledgers, made)
    if html_path is not None and page is not None:
        write(html_path, page)
        return
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
        click.echo(f"\n{_sentence(credits)}")


def _report(ledgers: Sequence[Ledger], begin: float, end: float, zone: tzinfo) -> Report:
    rows = [row for ledger in ledgers for row in _rows(ledger, begin, end)]
    spans = sorted((s for ledger in ledgers for s in ledger.spans(begin, end)), key=lambda s: s.first_wall)
    first = min((row.started_wall for row in rows), default=begin)
    loads = {token: load for ledger in ledgers for token, load in read_loads(ledger.file, first).items()}
    moved = {token: each for ledger in ledgers for token, each in read_moved(ledger.file, first).items()}
    waits = burst_accounts(row for ledger in ledgers for row in read_accounts(ledger.file, begin, end))
    return replace(build(tuple(rows), tuple(spans), begin, end, zone, loads, moved), waits=waits)


def _rows(ledger: Ledger, begin: float, end: float) -> tuple[CycleRow, ...]:
    """The cycles of one ledger. That of a rejected cycle, which has no volume, is the only device of its ledger."""
    rows, devices = ledger.cycles(begin, end), {span.device_uuid for span in ledger.spans(begin, end)}
    return tuple(replace(row, device_uuid=next(iter(devices))) for row in rows) if len(devices) == 1 else rows


def _page(app: App, ledgers: Sequence[Ledger], made: Report) -> str:
    from elastio import registry  # noqa: PLC0415  the other forms need no pictures

    entry = registry.installed(registry.PLOTS).get("report")
    if entry is None:
        raise ElastioError("no distribution is installed that makes the page: install elastio again", code="html.none")
    credits = _credits(app)
    page: str = registry.load(entry)(ledgers, made, socket.gethostname(), _sentence(credits) if credits else "")
    return page


def write(path: Path, page: str) -> None:
    """Write the page. Raises ElastioError if it cannot be written."""
    try:
        path.write_text(page, encoding="utf-8", errors="replace")
    except OSError as error:
        raise ElastioError(f"{path} cannot be written: {error.strerror or error}", code="out.unwritable") from error
    click.echo(f"{path} is written, {format_size(len(page.encode()))}")


def _sentence(credits: CreditsPart) -> str:
    return f"Credits of the backing volume now: {credits_text(credits)}."


def _credits(app: App) -> CreditsPart | None:
    """The credits of the backing volume now; None: it has none, or no agent answers, which a report does not need."""
    if app.several:
        return None  # each device has its own: `elastio status` shows them
    try:
        return app.client().status().credits
    except ElastioError:
        return None
