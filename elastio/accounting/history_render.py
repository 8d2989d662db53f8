"""The history as text for one screen, as JSON and as CSV. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, tzinfo
from typing import Any

from elastio.accounting.history import History, PastBoost, SampleRun
from elastio.accounting.tables import begun, iso, note, table
from elastio.units import GB, GIB, format_duration

SHOWN_BOOSTS = 20
_HEADS = ("load begun", "asked by", "load", "period", "gap", "GiB", "MB/s", "read GB", "written GB", "note")
_SAMPLE_HEADS = ("device_uuid", "begun", "begun_wall", "seconds", "read_mb_s", "write_mb_s")


def to_dict(history: History, tz: tzinfo) -> dict[str, Any]:
    """The history as JSON values. Keys are stable: `phases` (the boosts) and `samples`."""
    return {
        "phases": [{**asdict(b), "begun": iso(b.begun_wall, tz)} for b in history.boosts],
        "samples": [dict(zip(_SAMPLE_HEADS, row, strict=True)) for row in _sample_rows(history, tz)],
    }


def to_csv(history: History, tz: tzinfo) -> str:
    """The samples as one table with a header. A row lasts `seconds`; between rows nothing was observed."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_SAMPLE_HEADS)
    writer.writerows(_sample_rows(history, tz))
    return out.getvalue()


def to_text(history: History, tz: tzinfo) -> str:
    """The last boosts as a table, and one line about the samples of each device."""
    shown = history.boosts[-SHOWN_BOOSTS:]
    if not shown and not history.samples:
        return "No history yet: the agent has not sampled a device in this period.\n"
    lines = table(_HEADS, [_cells(b, tz) for b in shown], len(history.boosts) - len(shown)) if shown else []
    lines += [_summary(uuid, runs, tz) for uuid, runs in history.samples.items()]
    return "\n".join(lines).rstrip() + "\n"


def _sample_rows(history: History, tz: tzinfo) -> Iterator[tuple[Any, ...]]:
    for uuid, runs in history.samples.items():
        for r in runs:
            yield uuid, iso(r.begun_wall, tz), r.begun_wall, r.seconds, r.read_mb_s, r.write_mb_s


def _cells(boost: PastBoost, tz: tzinfo) -> tuple[str, ...]:
    times = (boost.load_s, boost.period_s, boost.gap_s)
    moved = (boost.read_bytes, boost.written_bytes)
    return (
        begun(boost.begun_wall, tz),
        boost.trigger,
        *("-" if t is None else format_duration(t) for t in times),
        f"{boost.bought_bytes / GIB:.1f}" if boost.bought_bytes else "-",
        f"{boost.bandwidth_mb_s:.0f}",
        *("-" if b is None else f"{b / GB:.2f}" for b in moved),
        note(boost.failure),
    )


def _summary(uuid: str, runs: tuple[SampleRun, ...], tz: tzinfo) -> str:
    first, last = (
        datetime.fromtimestamp(w, tz).strftime("%Y-%m-%d %H:%M") for w in (runs[0].begun_wall, runs[-1].ended_wall)
    )
    observed = format_duration(sum(r.seconds for r in runs))
    read, written = (sum(b) / GB for b in zip(*((r.read_bytes, r.written_bytes) for r in runs), strict=True))
    return (
        f"{uuid}: {len(runs):,} rows from {first} to {last}, {observed} observed, "
        f"{read:.2f} GB read, {written:.2f} GB written"
    )
