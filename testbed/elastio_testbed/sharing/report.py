"""The result of an experiment with two applications, for a terminal and as Markdown. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elastio_testbed.markdown import to_markdown
from elastio_testbed.sharing.patterns import PUBLISHED
from elastio_testbed.sharing.turns import turn_of_json
from elastio_testbed.sharing.two_to_one import NONE, SHARES, SLOW, STRICT
from elastio_testbed.tables import Table

Document = Mapping[str, Any]
DASH = "-"


def is_sharing(document: Document) -> bool:
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
    return "\n\n".join([heading, *parts, to_markdown(bars(document)), *map(to_markdown, throughputs(document))])


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


def throughputs(document: Document) -> list[Table]:
    """For each state what both applications got by pattern and control, beside what was published."""
    turns = [turn_of_json(each) for each in document["turns"]]
    controls = tuple(dict.fromkeys(turn.control for turn in turns))
    found = []
    for state in dict.fromkeys(turn.state for turn in turns):
        names = [turn.pattern for turn in turns if turn.state == state and turn.control == controls[0]]
        by = {c: [_got(t.mb_s) for t in turns if t.state == state and t.control == c] for c in controls}
        rows = tuple(
            (name, *(by[c][n] if n < len(by[c]) else DASH for c in controls), *_published(name, state))
            for n, name in enumerate(names)
        )
        heads = ("pattern", *controls, *((f"published: {c}" for c in (NONE, STRICT, SHARES)) if state == SLOW else ()))
        note = "First and second application in MB/s, and their ratio; patterns in the order in which they ran."
        found.append(Table(f"Throughput, {state}", heads, rows, note))
    return found


def _published(name: str, state: str) -> Sequence[str]:
    if state != SLOW:
        return ()
    known = PUBLISHED[name]
    return tuple(map(_got, (known.none, known.strict, known.shares)))


def _got(mb_s: tuple[float, float]) -> str:
    first, second = mb_s
    return f"{first:.1f} + {second:.1f} ({first / second:.2f})" if second else f"{first:.1f} + {second:.1f}"
