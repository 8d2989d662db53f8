"""Prometheus' text format, version 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elastio.metrics.catalogue import BY_NAME, DEVICE, METRICS, Metric


@dataclass(frozen=True, slots=True)
class Value:
    """The value of one series, in base units; `labels` in the order of the metric's own."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


def render(devices: Iterable[tuple[str, Iterable[Value]]]) -> str:
    """The values of devices as text, in the order of the table: those of one metric stand together.

    Each has the label `device`. Raises KeyError for a metric that is not in the table, ValueError for labels that are
    not the metric's.
    """
    found: dict[str, list[str]] = {}
    for device, values in devices:
        for value in values:
            found.setdefault(value.name, []).append(_line(BY_NAME[value.name], value, device))
    blocks = ("".join([_head(metric), *found[metric.name]]) for metric in METRICS if metric.name in found)
    return "".join(blocks)


def _head(metric: Metric) -> str:
    meaning = metric.help.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {metric.name} {meaning}\n# TYPE {metric.name} {metric.kind}\n"


def _line(metric: Metric, value: Value, device: str) -> str:
    named = zip((DEVICE, *metric.labels), (device, *value.labels), strict=True)
    labels = ",".join(f'{name}="{_escaped(text)}"' for name, text in named)
    return f"{metric.name}{{{labels}}} {_number(value.value)}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    # All digits of a float: a timestamp of today has ten before the point.
    return str(int(value)) if value == int(value) else repr(float(value))
