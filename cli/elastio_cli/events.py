"""`elastio events`: what the agent decided and did, from its journal. The agent need not run."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from elastio.accounting.database import local_zone
from elastio.agent.event_reader import JournalFollower, Narrator
from elastio.agent.log_events import EventKind, LogEvent, to_dict
from elastio.config.paths import JOURNAL
from elastio.errors import ElastioError
from elastio.units import GIB, format_duration, format_size
from elastio_cli.app import App
from elastio_cli.ledger import begin_of, since_option, state_dir

Show = Callable[[LogEvent], str]
# Who asks, where it is not a uid.
REQUESTERS = {"agent": "the service manager", "operator": "an operator"}


@click.command(short_help="Show what was decided, bought, flushed and deleted.")
@click.option("--follow", "-f", is_flag=True, help="Go on with new events until Ctrl-C.")
@since_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line, with all that is known.")
@click.pass_obj
def events(app: App, follow: bool, since: datetime | timedelta | None, as_json: bool) -> None:
    """Show what was decided, bought, flushed and deleted, and what failed, oldest first. Times are in UTC.

    They are read from the agent's journal, as far back as it reaches.
    """
    path = state_dir(app) / JOURNAL
    begin = begin_of(since, local_zone(), app.clock.wall())
    show = (lambda event: json.dumps(to_dict(event))) if as_json else _for(sys.stdout.isatty())
    with ExitStack() as stack:
        # Before the first read: what is written meanwhile is not missed.
        watch = stack.enter_context(app.watch_directory(path.parent)) if follow else None
        journal, narrator = stack.enter_context(JournalFollower(path)), Narrator()
        records = [*journal.older(), *journal.added()]
        if not records and not follow and not path.exists():
            text = f"there is no journal at {path}: start the agent, or give its configuration with --config"
            raise ElastioError(text, code="journal.missing")
        _print(_events(narrator, records, begin), show)
        while watch is not None:
            try:
                watch.wait()
            except KeyboardInterrupt:
                return
            _print(_events(narrator, journal.added(), begin), show)


def _events(narrator: Narrator, records: Iterable[Mapping[str, Any]], begin: float) -> Iterator[LogEvent]:
    for record in records:
        yield from (event for event in narrator.take(record) if event.wall >= begin)


def _print(found: Iterable[LogEvent], show: Show) -> None:
    for event in found:
        click.echo(show(event))


def _for(is_terminal: bool) -> Show:
    """Lines that are cut at the width of a terminal, and nowhere else."""
    if not is_terminal:
        return line
    return lambda event: line(event, shutil.get_terminal_size().columns)


# --- one line ------------------------------------------------------------------------------------------------


def line(event: LogEvent, width: int | None = None) -> str:
    """The event on one line of at most `width` columns; the figures come before the sentence."""
    at = datetime.fromtimestamp(event.wall, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    text = f"{at} {event.kind.label:<15} {' '.join(brief(event).split())}".rstrip()
    return text if width is None or len(text) <= width else f"{text[: width - 1]}…"


def brief(event: LogEvent) -> str:
    """What matters most of this kind, first."""
    after = "" if event.after_s is None else f"after {format_duration(event.after_s)}"
    match event.kind:
        case EventKind.BOOST_WANTED:
            return _joined(_size(event), event.reason)
        case EventKind.VOLUME_CREATED:
            return _joined(_size(event), _price(event), event.volume)
        case EventKind.VOLUME_ATTACHED | EventKind.CACHE_ATTACHED:
            return _joined(after, _size(event), event.volume)
        case EventKind.FLUSH_BEGUN if event.dirty_gib is not None:
            return f"{format_size(event.dirty_gib * GIB)} dirty, {event.reason}"
        case EventKind.VOLUME_DETACHED | EventKind.VOLUME_DELETED:
            return event.volume or ""
        case EventKind.FLUSH_OVER:
            return event.message
        case EventKind.BOOST_OVER:
            cost = "" if event.cost is None else f"{event.cost:.4f} {event.currency}"
            billed = "" if event.billed_s is None else format_duration(event.billed_s)
            return _joined(cost, billed, _size(event), event.volume, event.reason)
        case EventKind.ORDER:
            who = REQUESTERS.get(event.asked_by or "", f"uid {event.asked_by}")
            return f"{event.order} by {who}: {event.reason}"
        case _:
            return event.reason or event.message


def _size(event: LogEvent) -> str:
    return "" if event.gib is None or event.mb_s is None else f"{event.gib:.1f} GiB {event.mb_s:.0f} MB/s"


def _price(event: LogEvent) -> str:
    return "" if event.price_per_hour is None else f"{event.price_per_hour:.4f} {event.currency}/h"


def _joined(*parts: str | None) -> str:
    return ", ".join(part for part in parts if part)
