"""Every metric, declared once: name, type, labels, source and meaning; and their values as text. Pure.

Names follow the conventions of Prometheus (prometheus.io/docs/practices/naming): base units (seconds, bytes, ratios
from 0 to 1) as a suffix, `_total` for counters. A state is one series for each value, 1 for the one that holds and 0
for the others. The reference page, the rules and the dashboard are compared with this table by tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

# On every series: the UUID of the backing device.
DEVICE = "device"


class MetricKind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"


class Source(StrEnum):
    """What a metric is made from. Those of the agent are missing while it does not answer."""

    ALWAYS = "always"
    AGENT = "agent"
    LEDGER = "ledger"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `labels` are those besides `device`; `help` is one sentence."""

    name: str
    kind: MetricKind
    source: Source
    help: str
    labels: tuple[str, ...] = ()


def _maker(kind: MetricKind, source: Source) -> Callable[..., Metric]:
    """Makes metrics of this kind and source from a name, a sentence and labels."""
    suffix = "_total" if kind is MetricKind.COUNTER else ""
    return lambda name, help, *labels: Metric(f"elastio_{name}{suffix}", kind, source, help, labels)


_always, _gauge, _billed = (_maker(MetricKind.GAUGE, each) for each in (Source.ALWAYS, Source.AGENT, Source.LEDGER))
_counter, _counted = (_maker(MetricKind.COUNTER, each) for each in (Source.AGENT, Source.LEDGER))


METRICS = (
    # --- these metrics and the agent
    _always("up", "1 if the agent answers on its control socket, 0 if not."),
    _always("metrics_timestamp_seconds", "When these metrics were made, in seconds since the epoch."),
    _always("ledger_readable", "1 if the ledger could be read, 0 if not."),
    _always("build_info", "1, with the version of the agent, or of the command while no agent answers.", "version"),
    _gauge("agent_start_time_seconds", "When the agent started, in seconds since the epoch."),
    _gauge("last_sample_timestamp_seconds", "When the agent last measured throughput, in seconds since the epoch."),
    _gauge("kernel_responsive", "1 if the kernel answers the agent in time, 0 if not."),
    _gauge("cloud_error", "1 if the last call to the cloud failed, 0 if not."),
    # --- phase
    _gauge("phase_known", "1 once the phase has been read from the kernel after a start of the agent."),
    _gauge("phase", "1 for the phase that the agent is in, 0 for the others.", "phase"),
    _gauge("fault", "1 for the kind of the fault that an operator must resolve, 0 for the others.", "kind"),
    _gauge("paused", "1 while no boost begins by itself until an operator resumes."),
    _gauge("inhibited", "1 for the reason why no boost may begin, 0 for the others.", "reason"),
    _gauge("capped", "1 while no boost begins because a cap has ended one."),
    _gauge("restrained", "1 while past boosts delay or stop new ones."),
    _gauge("purchases_stopped", "1 after eight volumes in a row never became a cache, until an operator resumes."),
    _gauge("boost_failures", "Boosts in a row that failed before their cache was attached."),
    _gauge("expected_bursts", "Bursts that were announced and have not begun."),
    _counter("boosts_capped", "How often a cap forbade a boost since the agent started; asked again each minute."),
    _counter("boosts_declined", "Boosts since the agent started that would not have been worth their price."),
    # --- load
    _gauge("utilization_ratio", "Throughput of the adaptive device over the bandwidth of the backing volume."),
    _gauge("utilization_threshold_ratio", "The utilization at which a boost begins."),
    _gauge(
        "throughput_bytes_per_second",
        "Throughput of the last sample; that of backing and cache is part of the adaptive device's, or flushing.",
        "of",
        "direction",
    ),
    _gauge(
        "bandwidth_bytes_per_second",
        "The most that the backing volume can sustain, and that the cache volume is sold with.",
        "of",
    ),
    _gauge(
        "capacity_bytes_per_second",
        "What applications can have of the adaptive device now, reads and writes together; only while it is known.",
    ),
    _gauge(
        "shared_bytes_per_second",
        "The capacity that the agent shares among cgroups by limits; 0 while it limits nobody.",
    ),
    _gauge("credits_ratio", "The balance of the backing volume's credits over a full bucket, by the agent's model."),
    # --- data
    _gauge("backing_size_bytes", "Size of the backing device."),
    _gauge("backing_running", "1 while the adaptive device can be used, 0 while it waits for its cache."),
    _gauge("dirty_bytes", "Data that only the cache has."),
    _gauge("dirty_peak_bytes", "The most dirty data of this boost; 0 without a boost."),
    _gauge("cache_size_bytes", "Size of the cache volume, as provisioned; 0 without one."),
    _gauge("flush_progress_ratio", "The flushed share of what was dirty when the flush began; only during a flush."),
    _gauge(
        "flush_left_seconds",
        "The least time until the flush is complete, at all of the backing volume's bandwidth; only during a flush.",
    ),
    # --- volumes, as the cloud last listed them
    _gauge("volumes", "Volumes of this agent that exist, and the one of the boost."),
    _gauge("volumes_kept", "Volumes that only an operator may release, because they may hold data."),
    _gauge("volumes_listed_timestamp_seconds", "When the cloud last listed the volumes of this agent."),
    # --- the ledger
    _billed("bills_open", "Cache volumes that are paid for now."),
    _billed("last_boost_timestamp_seconds", "When the last boost began, in seconds since the epoch."),
    _billed("learned_size_bytes", "Size that the next cache will have."),
    _counted("boosts", "Boosts, by what began them; also those that failed.", "trigger"),
    _counted("boosts_failed", "Boosts that failed before their cache was attached.", "kind"),
    _counted("boosts_withdrawn", "Boosts that were no longer wanted before their cache was attached."),
    _counted("cost", "What cache volumes have cost, a minute behind; `currency` is that of the price.", "currency"),
    _counted("agbs", "AGBs of all cache volumes, a minute behind."),
    _billed("period_cost", "What cache volumes have cost since local midnight or in the month.", "period", "currency"),
    _billed("period_agbs", "AGBs of cache volumes since local midnight or in the month.", "period"),
    _billed("period_boosts", "Boosts that began since local midnight or in the month.", "period"),
    _billed("period_unpriced_boosts", "Of these, those without a price, which are not in any cost.", "period"),
    _billed("cap", "The cap, by its key in [caps] of the configuration: boosts, AGBs, or an amount of money.", "cap"),
    _billed("cap_used_ratio", "What was spent in the day or month, by all that share the cap, over the cap.", "cap"),
    _counted("computing_seconds", "Time that a cgroup computed in bursts that are over.", "cgroup"),
    _counted("wait_seconds", "Time in the other parts of the account, in bursts that are over.", "cgroup", "part"),
    _counted(
        "cgroup_cost", "Part of a cgroup in what caches have cost, in boosts that are over.", "cgroup", "currency"
    ),
    _counted("cgroup_agbs", "Part of a cgroup in the AGBs of caches, in boosts that are over.", "cgroup"),
    _counted("cgroup_bytes", "Bytes that a cgroup moved in boosts that are over.", "cgroup", "direction"),
    _billed("ahead_purchases", "Caches bought ahead of bursts in the last 30 days, by result.", "burst", "result"),
    _billed("ahead_hit_ratio", "Share of these that a load found, of those that are decided.", "burst"),
)

BY_NAME = {metric.name: metric for metric in METRICS}


@dataclass(frozen=True, slots=True)
class Value:
    """The value of one series, in base units; `labels` in the order of the metric's own."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


def render(devices: Iterable[tuple[str, Iterable[Value]]]) -> str:
    """The values of devices in Prometheus' text format, version 0.0.4: those of one metric stand together.

    Source: prometheus.io/docs/instrumenting/exposition_formats. The order is that of the table. Each has the label
    `device`. Raises KeyError for a metric that is not in the table, ValueError for labels that are not the metric's.
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
