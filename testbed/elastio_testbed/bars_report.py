"""The result of an experiment with bars of its own, for a terminal and as Markdown. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elastio_testbed.markdown import to_markdown
from elastio_testbed.montage.report import bandwidths
from elastio_testbed.sharing.pgbench import transactions
from elastio_testbed.sharing.report import throughputs
from elastio_testbed.sharing.slo_report import latencies
from elastio_testbed.tables import Table

Document = Mapping[str, Any]
DASH = "-"
TABLES = {"two-to-one": throughputs, "slo": latencies, "pgbench": transactions, "montage": bandwidths}


def has_bars(document: Document) -> bool:
    """Whether it is the result of such an experiment."""
    return "bars" in document


def to_text(document: Document) -> str:
    """The conditions, every bar, and which of them are missed."""
    rows = [f"{'met' if bar['is_met'] else 'MISSED':<8}{_bar_text(bar)}" for bar in document["bars"]]
    missed = sum(not bar["is_met"] for bar in document["bars"])
    absent = [f"absent: {each['control']}: {each['reason']}" for each in document["absent"]]
    return "\n".join([_under(document), *rows, *absent, f"{missed} of {len(rows)} bars missed"])


def _under(document: Document) -> str:
    return (
        f"{document['experiment']}: scale {document['scale']:g}, bandwidth {document['bandwidth']:g}, "
        f"{document['hypervisor']} ({document['accelerator']}), kernel {document['kernel']}, {document['date']}"
    )


def _bar_text(bar: Mapping[str, Any]) -> str:
    return f"{bar['name']}: {_figure(bar['measured'])} ({_range(bar)}; published {_figure(bar['published'])})"


def _range(bar: Mapping[str, Any]) -> str:
    ends = [
        f"{word} {bar[key]:g}" for word, key in (("at least", "least"), ("at most", "most")) if bar[key] is not None
    ]
    return ", ".join(ends)


def _figure(value: float | None) -> str:
    return DASH if value is None else f"{value:.2f}"


def section(document: Document) -> str:
    """All of it as Markdown."""
    heading = f"### `{document['experiment']}` at scale {document['scale']:g}"
    parts = [f"{_under(document)}, {document['machine']}, code {document['code'] or 'not recorded'}."]
    parts += [f"Not compared with {each['control']}: {each['reason']}." for each in document["absent"]]
    return "\n\n".join(
        [heading, *parts, *map(to_markdown, (bars(document), *TABLES[document["experiment"]](document)))]
    )


def sections(documents: Sequence[Document]) -> dict[str, str]:
    """For each experiment the sections of its results, in the order given."""
    found: dict[str, list[str]] = {}
    for document in documents:
        found.setdefault(document["experiment"], []).append(section(document))
    return {experiment: "\n\n".join(texts) for experiment, texts in found.items()}


def bars(document: Document) -> Table:
    rows = tuple(
        (
            bar["name"],
            _range(bar),
            _figure(bar["measured"]),
            _figure(bar["published"]),
            "yes" if bar["is_met"] else "no",
        )
        for bar in document["bars"]
    )
    return Table("Bars", ("bar", "has to be", "measured", "published", "met"), rows)
