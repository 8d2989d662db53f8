"""The ledger file, as commands open it. The agent need not run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import click

from elastio.accounting.ledger import Ledger
from elastio.config.files import read_merged
from elastio.config.paths import LEDGER, name_of, state_dir_of
from elastio.errors import ConfigError, ElastioError
from elastio_cli.app import App
from elastio_cli.which_device import all_devices

AGO = re.compile(r"(\d{1,6})([mhdw])")
UNITS_S = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


class Since(click.DateTime):
    """A local date, with a time or without, or how long ago: `7d` is seven times 24 hours."""

    name = "since"

    def __init__(self) -> None:
        super().__init__(formats=["%Y-%m-%d", "%Y-%m-%d %H:%M"])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A datetime, or a timedelta before now."""
        ago = AGO.fullmatch(value) if isinstance(value, str) else None
        if ago is not None:
            return timedelta(seconds=int(ago[1]) * UNITS_S[ago[2]])
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            text = f"{value!r} is neither a date (2026-11-20, '2026-11-20 08:00') nor a time ago (90m, 12h, 7d, 4w)"
            self.fail(text, param, ctx)


since_option = click.option(
    "--since",
    metavar="DATE|AGO",
    type=Since(),
    help="Start of the report: a local date, or 90m, 12h, 7d, 4w for that long ago  [default: the first record]",
)


def begin_of(since: datetime | timedelta | None, zone: tzinfo, now: float) -> float:
    """Seconds since the epoch at the local time of `--since`, or that long before `now`; 0 without it."""
    if isinstance(since, timedelta):
        return max(0.0, now - since.total_seconds())
    return 0.0 if since is None else since.replace(tzinfo=zone).timestamp()


@contextmanager
def open_ledger(app: App) -> Iterator[Ledger]:
    """The ledger, read-only. Raises ElastioError that says what to do if it is missing or unreadable.

    A simulated machine keeps none.
    """
    if app.is_simulated:
        raise ElastioError("a simulated machine keeps no ledger", code="ledger.missing")
    path = state_dir(app) / LEDGER
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


@contextmanager
def open_ledgers(app: App) -> Iterator[tuple[Ledger, ...]]:
    """The ledgers of all devices that are meant, read-only. A device without a ledger has no boosts, beside others.

    Raises ElastioError if none has a ledger, or one cannot be read.
    """
    with ExitStack() as stack:
        found, missing = [], ElastioError()
        for each in all_devices(app):
            try:
                found.append(stack.enter_context(open_ledger(each)))
            except ElastioError as error:
                if error.code != "ledger.missing":
                    raise
                missing = error
        if not found:
            raise missing
        yield tuple(found)


def state_dir(app: App) -> Path:
    """Where the agent keeps its state; the default one if no configuration says it.

    One that is invalid for another reason still says it: the agent that runs was started with an earlier one.
    """
    try:
        return app.config().agent.state_dir
    except ConfigError:
        return _written(app.config_path) or state_dir_of(name_of(app.config_path))


def _written(path: Path) -> Path | None:
    """The directory that stands in a configuration which is not valid as a whole."""
    try:
        agent = read_merged(path).get("agent")
    except ConfigError:
        return None
    given = agent.get("state_dir") if isinstance(agent, Mapping) else None
    return Path(given) if isinstance(given, str) and given.startswith("/") else None
