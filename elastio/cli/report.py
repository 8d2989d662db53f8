"""`elastio report`: what the boosts cost, from the ledger file; the agent need not run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

import click

from elastio.cli.app import App
from elastio.config import DEFAULT_STATE_DIR
from elastio.errors import ConfigError, ElastioError
from elastio.ledger import Ledger
from elastio.report import build, to_csv, to_dict, to_text

LEDGER = "ledger.sqlite"


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--csv", "as_csv", is_flag=True, help="Print one CSV table.")
@click.option(
    "--since", type=click.DateTime(formats=["%Y-%m-%d", "%Y-%m-%d %H:%M"]), help="Local time  [default: everything]"
)
@click.pass_obj
def report(app: App, as_json: bool, as_csv: bool, since: datetime | None) -> None:
    """Show what each phase, each day and the VM cost, against volumes that are slow or fast all the time."""
    if as_json and as_csv:
        raise click.UsageError("--json or --csv, not both")
    zone = local_zone()
    begin = 0.0 if since is None else since.replace(tzinfo=zone).timestamp()
    end = time.time()
    with _ledger(_state_dir(app) / LEDGER) as ledger:
        made = build(ledger.cycles(begin, end), ledger.spans(begin, end), begin, end, zone)
    if as_json:
        click.echo(json.dumps(to_dict(made), indent=2))
    else:
        click.echo(to_csv(made) if as_csv else to_text(made), nl=False)


def _state_dir(app: App) -> Path:
    try:
        return app.config().agent.state_dir
    except ConfigError:
        return DEFAULT_STATE_DIR


@contextmanager
def _ledger(path: Path) -> Iterator[Ledger]:
    try:
        path.open("rb").close()
    except FileNotFoundError:
        raise ElastioError(
            f"there is no ledger at {path}: the agent has not run yet, or keeps its state elsewhere"
        ) from None
    except OSError as error:
        raise ElastioError(f"{path} cannot be read ({error.strerror}): is it for root only? Use sudo") from error
    with Ledger(path, read_only=True) as ledger:
        yield ledger


def local_zone(localtime: Path = Path("/etc/localtime")) -> tzinfo:
    """The machine's time zone with its rules for summer time; UTC where it names none."""
    try:
        with localtime.open("rb") as file:
            return ZoneInfo.from_file(file, key=str(localtime))
    except (OSError, ValueError):
        return UTC
