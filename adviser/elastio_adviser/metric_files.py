"""Reads throughput per volume from files of monitoring systems: CloudWatch, Prometheus, sysstat.

Pure except for reading files. What a document does not say is taken from the file's name: the volume (`vol-0abc...`)
and the direction (`read`, `written`). Where nothing says the direction, the file is refused.

`sadf -j FILE -- -d` has per host and interval a timestamp, which is the interval's end, and per disk rkB and wkB (1024
bytes a second), before sysstat 12 rd_sec and wr_sec (sectors). Times and intervals are rounded to seconds.
(sysstat, json_stats.c)
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elastio.units import KIB, MB, SECTOR, counted
from elastio_adviser import cloudwatch, prometheus
from elastio_adviser.counters import Counter, means
from elastio_adviser.metric_values import number, time
from elastio_adviser.rates import TraceError
from elastio_adviser.series import READ, WRITTEN, Point, Recording, Series, combine
from elastio_adviser.traces import read_text

# sadc writes a huge interval where it does not know one.
MOST_INTERVAL_S = 2 * 86400.0
# Begin and end are each rounded.
SYSSTAT_RESOLUTION_S = 2.0
Found = Series | Counter | str
"""A part of a volume's throughput, or a sentence about the document."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What is in some files. `said`: sentences about what is left out, assumed or not complete."""

    recordings: tuple[Recording, ...]
    said: tuple[str, ...]


def read_all(paths: Sequence[Path]) -> Reading:
    """One recording for each volume in the files, by name. Raises TraceError."""
    return reading([part for path in paths for part in parse(read_text(path), path.stem, str(path))])


def reading(found: Sequence[Found]) -> Reading:
    """The recordings of these parts. Raises TraceError."""
    parts = [*found, *means([part for part in found if isinstance(part, Counter)])]
    said = dict.fromkeys(part for part in parts if isinstance(part, str))
    try:
        recordings = combine([part for part in parts if isinstance(part, Series)])
    except TraceError as error:
        if error.code != "samples" or not said:
            raise
        raise TraceError(f"{error} ({' '.join(said)})", code=error.code) from None
    return Reading(recordings, tuple(said))


# --- documents -----------------------------------------------------------------------------------------------


def parse(text: str, stem: str, name: str) -> list[Found]:
    """The parts of one document. `stem`: the file's name without its ending. Raises TraceError."""
    document = _document(text, name)
    readers: dict[str, tuple[str, Callable[[dict[str, Any], str, str], Iterator[Found]]]] = {
        "MetricDataResults": ("`aws cloudwatch get-metric-data`", cloudwatch.metric_data),
        "Datapoints": ("`aws cloudwatch get-metric-statistics`", cloudwatch.metric_statistics),
        "sysstat": ("`sadf -j`", _sysstat),
        "data": ("a Prometheus range query", prometheus.matrix),
        "errorType": ("a Prometheus range query", prometheus.matrix),
    }
    for key, (form, reader) in readers.items():
        if isinstance(document, dict) and key in document:
            try:
                return list(reader(document, stem, name))
            except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError) as error:
                raise TraceError(f"{name} is not the JSON of {form}: {error!r}", code="structure") from error
    forms = ", ".join(sorted({form for form, _ in readers.values()}))
    raise TraceError(f"{name} has no known format: give JSON of {forms}", code="format")


def _document(text: str, name: str) -> Any:
    """The one JSON document of a file. Raises TraceError."""
    if not text.strip():
        raise TraceError(f"{name} is empty: what wrote it has failed", code="empty")
    if text.lstrip().startswith("<"):
        raise TraceError(f"{name} is a page or XML, not JSON: a proxy or a server answered with an error", code="html")
    try:
        document, end = json.JSONDecoder().raw_decode(text := text.strip())
    except (ValueError, RecursionError) as error:
        shown = " ".join(text[:60].split())
        raise TraceError(f"{name} is not valid JSON: {error}; it begins with {shown!r}", code="json") from error
    if text[end:].lstrip().startswith(("{", "[")):
        raise TraceError(f"{name} holds several JSON documents: give each in a file of its own", code="documents")
    if end < len(text):
        raise TraceError(f"{name} is not valid JSON: text after its end, at character {end}", code="json")
    return document


# --- sysstat ---------------------------------------------------------------------------------------------------


def _sysstat(document: dict[str, Any], _stem: str, name: str) -> Iterator[Found]:
    for host in document["sysstat"]["hosts"]:
        points: dict[tuple[str, str], list[Point]] = defaultdict(list)
        unknown = 0
        for entry in host["statistics"]:
            stamp = entry["timestamp"]
            end = time(f"{stamp['date']}T{stamp['time']}") if stamp.get("date") else time(float(stamp["time"]))
            seconds = float(stamp["interval"])
            if not 0 < seconds <= MOST_INTERVAL_S:
                unknown += "disk" in entry
                continue
            for disk in entry.get("disk", ()):
                read, written = _sysstat_rates(disk, name)
                points[disk["disk-device"], READ].append((end - seconds, seconds, read))
                points[disk["disk-device"], WRITTEN].append((end - seconds, seconds, written))
        if not points:
            raise TraceError(f"{name} has no disks: print them with `sadf -j FILE -- -d`", code="disks")
        if unknown:
            yield f"{name}: left out, because sysstat does not know their interval: {counted(unknown, 'sample')}."
        for (device, direction), found in points.items():
            yield Series(f"{host['nodename']} {device}", direction, tuple(found), name, SYSSTAT_RESOLUTION_S)


def _sysstat_rates(disk: Mapping[str, Any], name: str) -> tuple[float, float]:
    unit, keys = (KIB, ("rkB", "wkB")) if "rkB" in disk else (SECTOR, ("rd_sec", "wr_sec"))
    read, written = (number(disk[key], name) * unit / MB for key in keys)
    return read, written
