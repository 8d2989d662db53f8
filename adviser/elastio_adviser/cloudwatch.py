"""Reads the answers of CloudWatch. Pure.

- `aws cloudwatch get-metric-data`: MetricDataResults with Id, Label, Timestamps, Values, StatusCode. A value is the sum
  of a period that begins at its timestamp. The AWS CLI follows NextToken and joins the pages: an Id is there once for
  each page, and its last status counts. A SEARCH has one Id for many results, which differ in their labels.
  (CloudWatch API Reference, GetMetricData)
- `aws cloudwatch get-metric-statistics`: one Label, Datapoints in any order, each with Timestamp, Sum and Unit.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from elastio.units import MB
from elastio_adviser.metric_names import direction, volume
from elastio_adviser.metric_values import number, time
from elastio_adviser.rates import TraceError
from elastio_adviser.series import Series, interval_s

# Metrics of AWS/EBS that are no bytes of a volume, and those of AWS/EC2 that are of an instance.
_OTHERS = re.compile(
    r"(?i)(?<![a-z])(volume((read|write|consumedreadwrite)ops|total(read|write)time|idletime|queuelength"
    r"|throughputpercentage|avg(read|write)latency|stalledio(check)?|(iops|throughput)exceeded(check)?)|burstbalance"
    r"|(ebs|disk)(read|write)(bytes|ops)|ebs(io|byte)balance%?)(?![a-z])"
)
_BYTES = re.compile(r"(?i)volume(read|write)bytes")
# Words of labels of one's own for them.
_QUANTITIES = re.compile(r"(?i)(?<![a-z])(i?ops|operations|latency|idle|queue|balance)(?![a-z])")
# Of a sum, CloudWatch says nothing or Sum in a label.
_STATISTICS = re.compile(r"(?i)(?<![a-z])(average|avg|maximum|minimum|samplecount|p\d\d(\.\d+)?)(?![a-z])")
ADVICE = "put VolumeReadBytes or VolumeWriteBytes into its label"
Times = list[tuple[float, float]]


def metric_data(document: Mapping[str, Any], stem: str, name: str) -> Iterator[Series | str]:
    """The series, and sentences about what is left out."""
    results: dict[tuple[str, str], Times] = defaultdict(list)
    status: dict[tuple[str, str], list[str]] = defaultdict(list)
    left_out: dict[str, None] = {}
    yield from _messages(document, name)
    for result in document["MetricDataResults"]:
        ident, label = str(result["Id"]), str(result.get("Label", ""))
        yield from _messages(result, name)
        if _is_other(label, ident):
            left_out[f"{ident} ({label})"] = None
            continue
        if _STATISTICS.search(label):
            raise TraceError(f"{name}: {ident} ({label}) is not a sum: get Stat Sum", code="statistic")
        status[ident, label].append(str(result.get("StatusCode", "Complete")))
        results[ident, label] += [
            (time(at), number(v, name)) for at, v in zip(result["Timestamps"], result["Values"], strict=True)
        ]
    for (ident, _), pages in status.items():
        if pages[-1] != "Complete" or set(pages) - {"Complete", "PartialData"} or document.get("NextToken"):
            raise TraceError(f"{name} is not complete ({ident}: {pages[-1]}): get all pages", code="partial")
    if left_out:
        yield f"{name}: left out, because they are no bytes of a volume: {', '.join(left_out)}."
    yield from _sums({key: found for key, found in results.items() if found}, stem, name)


def _sums(results: Mapping[tuple[str, str], Times], stem: str, name: str) -> Iterator[Series]:
    named = {
        (ident, label): (
            volume(f"{ident} ({label})", name, (label, ident), stem),
            direction(f"{ident} ({label})", name, (label, ident), stem, ADVICE),
        )
        for ident, label in results
    }
    if not results:
        return
    period = interval_s([[at for at, _ in found] for found in results.values()], name)
    for key, found in results.items():
        yield Series(*named[key], tuple((at, period, moved / period / MB) for at, moved in found), name)


def _messages(part: Mapping[str, Any], name: str) -> Iterator[str]:
    for message in part.get("Messages") or ():
        yield f"{name}: CloudWatch says {message.get('Code', '')}: {message.get('Value', '')}"


def _is_other(*texts: str) -> bool:
    if any(_OTHERS.search(text) for text in texts):
        return True
    is_named = any(_BYTES.search(text) for text in texts)  # a volume may be called "ops"
    return not is_named and any(_QUANTITIES.search(text) for text in texts)


def metric_statistics(document: Mapping[str, Any], stem: str, name: str) -> Iterator[Series | str]:
    """One series."""
    label = str(document["Label"])
    if _is_other(label):
        raise TraceError(f"{name} is about {label}: get VolumeReadBytes and VolumeWriteBytes", code="metric")
    found: Times = []
    for point in document["Datapoints"]:
        if "Sum" not in point or point.get("Unit", "Bytes") != "Bytes":
            raise TraceError(f"{name} has no sums in bytes: get them with --statistics Sum", code="statistic")
        found.append((time(point["Timestamp"]), number(point["Sum"], name)))
    if found:
        yield from _sums({("its label", label): found}, stem, name)
