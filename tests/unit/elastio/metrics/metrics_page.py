"""docs/reference/metrics.md, made from the table. Run this file to write the page again."""

from __future__ import annotations

from pathlib import Path

from elastio.accounting.ahead_lines import KINDS
from elastio.accounting.burst_accounts import MOST_SUMS, OTHERS
from elastio.core.cycle import FailureKind, Trigger
from elastio.core.state import FaultKind, InhibitionReason, Phase
from elastio.metrics.catalogue import METRICS, Metric, Source
from elastio.metrics.ledger_values import NO_FAILURES
from elastio.strategy.account import COMPUTING, PARTS

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "metrics.md"

HEAD = """\
# Metrics

`elastio metrics` prints these metrics in Prometheus' text format. [Monitor](../how-to/monitor.md) says how they get
into Prometheus. Every series has the label `device`, the UUID of the backing device. Sizes are in bytes, times in
seconds, ratios go from 0 to 1; a time of day is in seconds since the epoch. A state is one series for each of its
values: 1 for the one that holds, 0 for the others. Money is at list price.
"""

TITLES = {
    Source.ALWAYS: ("Always", "Present whatever runs."),
    Source.AGENT: (
        "From the agent",
        "Absent while the agent does not answer. Counters begin at 0 when it starts.",
    ),
    Source.LEDGER: (
        "From the ledger",
        "Present while the ledger can be read, whether the agent runs or not. Counters cover the whole ledger.",
    ),
}

LABELS = {
    "version": ("a release, such as `0.1.0`",),
    "phase": tuple(Phase),
    "kind": (*FaultKind, *(f"{kind} (of a failed boost)" for kind in FailureKind if kind not in NO_FAILURES)),
    "reason": tuple(InhibitionReason),
    "of": ("adaptive", "backing", "cache"),
    "direction": ("read", "write"),
    "trigger": tuple(trigger for trigger in Trigger if trigger is not Trigger.ORPHAN),
    "currency": ("that of the price, such as `USD`",),
    "period": ("day", "month"),
    "cap": tuple(f"max_{what}_per_{period}" for period in ("day", "month") for what in ("boosts", "agbs", "cost")),
    "burst": tuple(KINDS),
    "result": ("right", "wrong"),
    "cgroup": (
        "the path of a cgroup below `/sys/fs/cgroup`",
        f"{OTHERS} (all but the {MOST_SUMS} seen first; of boosts, also what no cgroup is known for)",
    ),
    "part": tuple(part for part in PARTS if part != COMPUTING),
}


def table(head: tuple[str, ...], *rows: tuple[str, ...]) -> str:
    first, *body = (f"| {' | '.join(row)} |" for row in (head, *rows))
    return "\n".join([first, "|" + " --- |" * len(head), *body, ""])


def row(metric: Metric) -> tuple[str, ...]:
    return f"`{metric.name}`", metric.kind, ", ".join(f"`{label}`" for label in metric.labels) or "-", metric.help


def values(label: str) -> str:
    return ", ".join(text if "`" in text else f"`{text}`" for text in LABELS[label])


def page() -> str:
    parts = [HEAD]
    for source, (title, text) in TITLES.items():
        rows = (row(metric) for metric in METRICS if metric.source is source)
        parts += [f"## {title}\n\n{text}\n", table(("metric", "type", "labels", "meaning"), *rows)]
    labels = ((f"`{label}`", values(label)) for label in LABELS)
    parts += ["## Labels\n", table(("label", "values"), *labels)]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
