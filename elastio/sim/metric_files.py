"""Reads throughput per volume from files of monitoring systems: CloudWatch, sysstat, Prometheus.

Pure except for reading files. A document becomes `Series`: one direction of one volume, as consecutive means. What it
does not say is taken from the file's name: the volume (`vol-0abc...`) and the direction (`read`, `writ`). Series of the
same volume and direction follow each other, as the daily files of sysstat do, and may not overlap.

Formats:
- `aws cloudwatch get-metric-data`: MetricDataResults with Id, Label, Timestamps, Values. A value is the sum of a
  period that begins at its timestamp. The period itself is not in the document; it is the least distance of two
  timestamps. (CloudWatch API Reference, MetricDataResult)
- `aws cloudwatch get-metric-statistics`: one Label, Datapoints in any order, each with Timestamp, Sum and Unit.
- `sadf -j FILE -- -d`: per host and interval a timestamp, which is the interval's end, and per disk rkB and wkB
  (1024 bytes a second), before sysstat 12 rd_sec and wr_sec (sectors). (sysstat, json_stats.c)
- Prometheus `query_range`: a matrix. Either `rate(node_disk_read_bytes_total[...])`, whose result has lost its name,
  each value the mean of the step before it; or the counters themselves, by name. (Prometheus HTTP API)
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from elastio.sim.traces import Rate, TraceError, read_text
from elastio.units import KIB, MB, SECTOR

READ, WRITTEN = "read", "written"
UNNAMED = "volume"
_VOLUME = re.compile(r"vol[-_]?([0-9a-f]{8,17})(?![0-9a-f])")
_BYTES = {"VolumeReadBytes": READ, "VolumeWriteBytes": WRITTEN}
_COUNTERS = {"node_disk_read_bytes_total": READ, "node_disk_written_bytes_total": WRITTEN}
# sadc writes a huge interval where it does not know one.
MOST_INTERVAL_S = 2 * 86400.0
Point = tuple[float, float, float]  # begin in seconds, length in seconds, MB/s


@dataclass(frozen=True, slots=True)
class Series:
    """Consecutive means of one direction of one volume. `source`: the file."""

    volume: str
    direction: str
    points: tuple[Point, ...]
    source: str


@dataclass(frozen=True, slots=True)
class Recording:
    """The throughput of one volume. `has_read`, `has_written`: whether the files had that direction."""

    volume: str
    rates: tuple[Rate, ...]
    has_read: bool
    has_written: bool


def read_all(paths: Sequence[Path]) -> tuple[Recording, ...]:
    """One recording for each volume in the files, by name. Raises TraceError."""
    return combine([series for path in paths for series in parse(read_text(path), path.stem, str(path))])


def combine(found: Sequence[Series]) -> tuple[Recording, ...]:
    """Puts the series of each volume together. Raises TraceError where two overlap."""
    parts: dict[tuple[str, str], list[Series]] = defaultdict(list)
    for series in found:
        if series.points:
            parts[series.volume, series.direction].append(series)
    volumes = sorted({volume for volume, _ in parts})
    if not volumes:
        raise TraceError("the files hold no samples of read or written bytes", code="samples")
    return tuple(
        Recording(
            volume,
            _merged(_joined(parts.get((volume, READ), [])), _joined(parts.get((volume, WRITTEN), []))),
            (volume, READ) in parts,
            (volume, WRITTEN) in parts,
        )
        for volume in volumes
    )


def _joined(parts: Sequence[Series]) -> list[Point]:
    ordered = sorted(parts, key=lambda series: series.points[0][0])
    for before, after in pairwise(ordered):
        begin, seconds, _ = before.points[-1]
        if after.points[0][0] < begin + seconds - 1e-3:
            raise TraceError(
                f"{before.source} and {after.source} have {after.direction} bytes of {after.volume} twice for the same "
                "time: if they are of two volumes, put the volume's ID into the label, the Id or the file's name",
                code="overlap",
            )
    return [point for series in ordered for point in series.points]


def _merged(read: Sequence[Point], written: Sequence[Point]) -> tuple[Rate, ...]:
    """Both directions on one time line that begins at 0. Time without a sample counts as quiet."""
    edges = sorted({round(at, 3) for begin, seconds, _ in (*read, *written) for at in (begin, begin + seconds)})
    reads, writes = _at(read), _at(written)
    return tuple(
        Rate(begin - edges[0], end - begin, reads(begin), writes(begin)) for begin, end in pairwise(edges)
    )  # fmt: skip


def _at(points: Sequence[Point]) -> Callable[[float], float]:
    """The MB/s at a time; called with ascending times."""
    index = 0

    def look_up(at: float) -> float:
        nonlocal index
        while index < len(points) and points[index][0] + points[index][1] <= at + 5e-4:
            index += 1
        return points[index][2] if index < len(points) and points[index][0] <= at + 5e-4 else 0.0

    return look_up


# --- documents -----------------------------------------------------------------------------------------------


def parse(text: str, stem: str, name: str) -> list[Series]:
    """The series of one document. `stem`: the file's name without its ending. Raises TraceError."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{name} is not valid JSON: {error}", code="json") from error
    readers: dict[str, Callable[[dict[str, Any], str, str], Iterator[Series]]] = {
        "MetricDataResults": _metric_data,
        "Datapoints": _metric_statistics,
        "sysstat": _sysstat,
        "data": _prometheus,
    }
    for key, reader in readers.items():
        if isinstance(document, dict) and key in document:
            try:
                return list(reader(document, stem, name))
            except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError) as error:
                raise TraceError(f"{name} is not the JSON of {_FORMATS[key]}: {error!r}", code="structure") from error
    raise TraceError(
        f"{name} has no known format: give JSON of {', '.join(sorted(set(_FORMATS.values())))}", code="format"
    )


_FORMATS = {
    "MetricDataResults": "`aws cloudwatch get-metric-data`",
    "Datapoints": "`aws cloudwatch get-metric-statistics`",
    "sysstat": "`sadf -j`",
    "data": "a Prometheus range query",
}


def _metric_data(document: dict[str, Any], stem: str, name: str) -> Iterator[Series]:
    for result in document["MetricDataResults"]:
        label, ident = str(result.get("Label", "")), str(result["Id"])
        direction = _direction_of(label, ident)
        if direction is None:
            continue
        status = result.get("StatusCode", "Complete")
        if status != "Complete" or document.get("NextToken"):
            raise TraceError(f"{name} is not complete ({ident}: {status}): get all pages", code="partial")
        values = {_time(at): _number(v, name) for at, v in zip(result["Timestamps"], result["Values"], strict=True)}
        yield Series(_volume(name, label, ident, stem), direction, _sums(values, name), name)


def _metric_statistics(document: dict[str, Any], stem: str, name: str) -> Iterator[Series]:
    label = str(document["Label"])
    direction = _direction_of(label, "")
    if direction is None:
        raise TraceError(f"{name} is about {label}: get VolumeReadBytes and VolumeWriteBytes", code="metric")
    values: dict[float, float] = {}
    for point in document["Datapoints"]:
        if "Sum" not in point or point.get("Unit", "Bytes") != "Bytes":
            raise TraceError(f"{name} has no sums in bytes: get them with --statistics Sum", code="statistic")
        values[_time(point["Timestamp"])] = _number(point["Sum"], name)
    yield Series(_volume(name, label, stem), direction, _sums(values, name), name)


def _direction_of(label: str, ident: str) -> str | None:
    """By the metric's name; where a label of one's own hides it, by the Id. None: another metric."""
    for metric, direction in _BYTES.items():
        if metric in label or metric.lower() in ident.lower():
            return direction
    if "Volume" in label or "Burst" in label:
        return None
    return _direction(ident) or _direction(label)


def _direction(text: str) -> str | None:
    text = text.lower()
    return READ if "read" in text else WRITTEN if "writ" in text else None


def _volume(name: str, *texts: str) -> str:
    found = next((match for text in texts if (match := _VOLUME.search(text))), None)
    return f"vol-{found[1]}" if found else UNNAMED


def _sums(values: Mapping[float, float], name: str) -> tuple[Point, ...]:
    """From sums of periods to means. The period is the least distance of two of them."""
    times = sorted(values)
    if len(times) == 1:
        raise TraceError(f"{name} holds 1 sample of a metric: at least 2 are needed", code="samples")
    period = min((after - before for before, after in pairwise(times)), default=0.0)
    return tuple((at, period, values[at] / period / MB) for at in times)


def _sysstat(document: dict[str, Any], _stem: str, name: str) -> Iterator[Series]:
    hosts = document["sysstat"]["hosts"]
    for host in hosts:
        points: dict[tuple[str, str], list[Point]] = defaultdict(list)
        last: float | None = None
        for entry in host["statistics"]:
            end, seconds = _sysstat_time(entry["timestamp"], last)
            last = end
            for disk in entry.get("disk", ()) if seconds > 0 else ():
                read, written = _sysstat_rates(disk, name)
                points[disk["disk-device"], READ].append((end - seconds, seconds, read))
                points[disk["disk-device"], WRITTEN].append((end - seconds, seconds, written))
        if not points:
            raise TraceError(f"{name} has no disks: print them with `sadf -j FILE -- -d`", code="disks")
        for (device, direction), found in points.items():
            yield Series(f"{host['nodename']} {device}", direction, tuple(found), name)


def _sysstat_time(stamp: Mapping[str, Any], last: float | None) -> tuple[float, float]:
    """The end of an interval, in seconds, and its length; 0: not known."""
    end = _time(f"{stamp['date']}T{stamp['time']}") if stamp.get("date") else float(stamp["time"])
    seconds = float(stamp["interval"])
    if not 0 < seconds <= MOST_INTERVAL_S:
        seconds = 0.0
    return end, min(seconds, end - last) if last is not None else seconds


def _sysstat_rates(disk: Mapping[str, Any], name: str) -> tuple[float, float]:
    unit, keys = (KIB, ("rkB", "wkB")) if "rkB" in disk else (SECTOR, ("rd_sec", "wr_sec"))
    read, written = (_number(disk[key], name) * unit / MB for key in keys)
    return read, written


def _prometheus(document: dict[str, Any], stem: str, name: str) -> Iterator[Series]:
    if document.get("status", "success") != "success":
        raise TraceError(f"{name} is an error of Prometheus: {document.get('error', 'unknown')}", code="failed")
    data = document["data"]
    if data["resultType"] != "matrix":
        raise TraceError(f"{name} is not a range query but a {data['resultType']}: use query_range", code="instant")
    for result in data["result"]:
        labels: dict[str, str] = result["metric"]
        metric = labels.get("__name__", "")
        values = [(float(at), float(text)) for at, text in result["values"]]
        known = [(at, value) for at, value in values if math.isfinite(value)]
        host = labels.get("instance", "")
        volume = " ".join(part for part in (host, labels.get("device", UNNAMED)) if part)
        if metric in _COUNTERS:
            yield Series(volume, _COUNTERS[metric], _increases(known), name)
            continue
        said = (_direction(text) for text in (metric, *(v for k, v in labels.items() if k not in _PLACES), stem))
        direction = next((text for text in said if text), None)
        if metric or direction is None:
            raise TraceError(
                f"{name} does not say whether {metric or volume} was read or written: put read or written into the "
                "file's name, or query node_disk_read_bytes_total and node_disk_written_bytes_total by name",
                code="direction",
            )
        yield Series(volume, direction, _means(known), name)


_PLACES = {"instance", "device", "job", "node", "host", "hostname"}


def _increases(values: Sequence[tuple[float, float]]) -> tuple[Point, ...]:
    """From a counter to means. A counter that decreased began again from 0."""
    return tuple(
        (before, at - before, (value - old if value >= old else value) / (at - before) / MB)
        for (before, old), (at, value) in pairwise(values)
    )


def _means(values: Sequence[tuple[float, float]]) -> tuple[Point, ...]:
    """From rates, each the mean of the step before it."""
    step = min((after - before for (before, _), (after, _) in pairwise(values)), default=0.0)
    return tuple((at - step, step, max(0.0, value) / MB) for at, value in values) if step > 0 else ()


def _time(text: str | float) -> float:
    """Seconds since the epoch; a time without a zone counts as UTC, since only differences matter."""
    if not isinstance(text, str):
        return float(text)
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _number(value: Any, name: str) -> float:
    number = float(value)
    if not 0 <= number < 1e18:
        raise TraceError(f"{name}: {value!r} is out of range: bytes are from 0 to 1e18", code="range")
    return number
