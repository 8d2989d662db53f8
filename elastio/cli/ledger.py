"""The ledger file, as commands open it. The agent need not run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, tzinfo
from pathlib import Path

import click

from elastio.accounting.ledger import Ledger
from elastio.cli.app import App
from elastio.config.paths import LEDGER
from elastio.config.schema import DEFAULT_STATE_DIR
from elastio.errors import ConfigError, ElastioError

since_option = click.option(
    "--since",
    type=click.DateTime(formats=["%Y-%m-%d", "%Y-%m-%d %H:%M"]),
    help="Start of the report, in local time  [default: the first record]",
)


def begin_of(since: datetime | None, zone: tzinfo) -> float:
    """Seconds since the epoch at the local time of `--since`; 0 without it."""
    return 0.0 if since is None else since.replace(tzinfo=zone).timestamp()


@contextmanager
def open_ledger(app: App) -> Iterator[Ledger]:
    """The ledger, read-only. Raises ElastioError that says what to do if it is missing or unreadable."""
    path = _state_dir(app) / LEDGER
    try:
        path.open("rb").close()
    except FileNotFoundError:
        raise ElastioError(
            f"there is no ledger at {path}: start the agent, or give its configuration with --config",
            code="ledger.missing",
        ) from None
    except OSError as error:
        raise ElastioError(f"{path} cannot be read ({error.strerror}): use sudo", code="ledger.unreadable") from error
    with Ledger(path, read_only=True) as ledger:
        yield ledger


def _state_dir(app: App) -> Path:
    try:
        return app.config().agent.state_dir
    except ConfigError:
        return DEFAULT_STATE_DIR
