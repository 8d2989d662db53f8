"""Reads the answers of Prometheus, and of servers with its HTTP API. Pure.

A range query gives a matrix. Either `rate(node_disk_read_bytes_total[...])`, whose result has lost its name, each value
the mean of the step before it; or the counters themselves, by name. (Prometheus HTTP API)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from elastio.units import MB, format_duration
from elastio_adviser.counters import Counter
from elastio_adviser.metric_names import direction, directions
from elastio_adviser.metric_values import number, time
from elastio_adviser.rates import TraceError
from elastio_adviser.series import READ, UNNAMED, WRITTEN, Series, interval_s

_COUNTERS = {"node_disk_read_bytes_total": READ, "node_disk_written_bytes_total": WRITTEN}
_HOSTS = ("instance", "node", "nodename", "host", "hostname")
# Labels that are made for a direction. All others describe the host.
_DIRECTIONS = ("direction", "op", "operation", "rw")
ADVICE = "query node_disk_read_bytes_total and node_disk_written_bytes_total by name, or put a label direction"


def matrix(document: Mapping[str, Any], stem: str, name: str) -> Iterator[Series | Counter | str]:
    """The series of a range query, and what the server said about it."""
    if document.get("status", "success") != "success":
        raise TraceError(
            f"{name} is an error of Prometheus: {document.get('error', 'unknown')}; where a range has too many points, "
            "ask with a larger step or for several windows",
            code="failed",
        )
    data = document["data"]
    if data["resultType"] != "matrix":
        raise TraceError(f"{name} is not a range query but a {data['resultType']}: use query_range", code="instant")
    for text in (*(document.get("warnings") or ()), *(document.get("infos") or ())):
        yield f"{name}: Prometheus says: {text}"
    if document.get("isPartial"):
        yield f"{name}: the server says that its answer is partial."
    found: list[tuple[str, str, list[tuple[float, float]]]] = []
    for result in data["result"]:
        labels: dict[str, str] = result["metric"]
        if "histograms" in result:
            raise TraceError(f"{name} has histograms: query counters or rates", code="histogram")
        metric, volume = labels.get("__name__", ""), _volume(labels)
        known = [(time(at), number(text, name)) for at, text in result["values"] if not math.isnan(float(text))]
        if not known:
            continue
        if metric in _COUNTERS:
            yield Counter(volume, _COUNTERS[metric], tuple(known), name, _target(labels))
        elif metric:
            raise TraceError(
                f"{name}: {metric} is not known to be a counter or a rate: {ADVICE}, or query rate(...)",
                code="direction",
            )
        else:
            said = [labels[key] for key in _DIRECTIONS if key in labels]
            texts = [*said, *([stem] if directions(stem) else [])]
            found.append((volume, direction(volume, name, texts, stem, ADVICE), known))
    yield from _rates(found, name)


def _rates(found: list[tuple[str, str, list[tuple[float, float]]]], name: str) -> Iterator[Series | str]:
    """From rates, each the mean of the step before it."""
    if not any(known for _, _, known in found):
        return
    step = interval_s([[at for at, _ in known] for _, _, known in found], name)
    yield f"{name}: each rate is taken as the mean of the step of {format_duration(step)}: its range has to be as long."
    for volume, which, known in found:
        yield Series(volume, which, tuple((at - step, step, rate / MB) for at, rate in known), name)


def _volume(labels: Mapping[str, str]) -> str:
    host = next((labels[key] for key in _HOSTS if labels.get(key)), "")
    return " ".join(part for part in (host, labels.get("device", UNNAMED)) if part)


def _target(labels: Mapping[str, str]) -> str:
    """What is scraped together: all labels but those of a device."""
    return repr(sorted((key, text) for key, text in labels.items() if key not in ("__name__", "device")))
