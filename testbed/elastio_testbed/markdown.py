"""Tables as Markdown, and the placeholders of a page that they are written into. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from elastio_testbed.errors import PlaceholderError
from elastio_testbed.evaluation import disturbance
from elastio_testbed.faults.coverage import campaigns, steps
from elastio_testbed.tables import (
    NONE,
    OPTIONS,
    Table,
    all_tables,
    conditions,
    every_boost,
    hypervisor_of,
    own_s,
    spread,
    spread_over,
    spread_percent,
)


def to_markdown(table: Table) -> str:
    """A table with title and note; all columns but the first are right-aligned."""
    lines = [_line(table.heads), _line(["---", *["---:"] * (len(table.heads) - 1)]), *map(_line, table.rows)]
    note = f"\n\n{table.note}" if table.note else ""
    return f"#### {table.title}\n\n" + "\n".join(lines) + note


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def section(document: Mapping[str, Any]) -> str:
    """All tables of one result, after a sentence with its conditions."""
    under = ", ".join(f"{name} {text}" for name, text in conditions(document).rows)
    heading = f"### `{document['experiment']}` at scale {document['scale']:g}\n\n{under[0].upper()}{under[1:]}."
    warning = disturbance(document["disturbed"])
    quoted = [f"> {warning}"] if warning else []
    return "\n\n".join([heading, *quoted, *map(to_markdown, all_tables(document))])


def sections(documents: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """For each experiment the sections of its results, in the order given, after what hypervisors have in common."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for document in documents:
        found.setdefault(document["experiment"], []).append(document)
    return {
        experiment: "\n\n".join([*_at_each_scale(results), *map(section, results)])
        for experiment, results in found.items()
    }


def side_by_side(documents: Sequence[Mapping[str, Any]]) -> Table:
    """Results of one experiment at one scale; no rows unless they differ in hypervisor or OPTIONS."""
    known = {(hypervisor_of(document), *map(document.get, OPTIONS.values())) for document in documents}
    told = {name: key for name, key in OPTIONS.items() if any(document.get(key) for document in documents)}
    rows = tuple(_in_short(document, told.values()) for document in documents) if len(known) > 1 else ()
    heads = (
        "hypervisor",
        *told,
        "date",
        "repetitions",
        "adaptive",
        "AGBs",
        "static-fast MB/s",
        "adaptive MB/s",
        "own share s",
    )
    note = "Completion and AGBs of adaptive against static-fast; the own share of all boosts."
    return Table("Side by side", heads, rows, note)


def _in_short(document: Mapping[str, Any], options: Iterable[str]) -> tuple[str, ...]:
    setups, ratios = document["summary"]["setups"], document["summary"]["ratios"]["adaptive"]
    return (
        hypervisor_of(document),
        *(document.get(key) or NONE for key in options),
        document["date"].partition("T")[0],
        str(len(document["repetitions"])),
        *(spread_percent(ratios[name]) for name in ("overhead_vs_fast_pct", "agbs_vs_fast_pct")),
        *(spread(setups[setup]["app_write_mb_s"]) for setup in ("static-fast", "adaptive")),
        spread_over(map(own_s, every_boost(document)), 2),
    )


def _at_each_scale(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    same: dict[tuple[float, float], list[Mapping[str, Any]]] = {}
    for document in documents:
        same.setdefault((document["scale"], document["bandwidth"]), []).append(document)
    return [to_markdown(table) for results in same.values() if (table := side_by_side(results)).rows]


def fault_section(documents: Sequence[Mapping[str, Any]]) -> str:
    """The results and the coverage of fault campaigns, those of each hypervisor in tables of their own."""
    on: dict[str, list[Mapping[str, Any]]] = {}
    for document in documents:
        on.setdefault(hypervisor_of(document), []).append(document)
    tables = (table for each in on.values() for table in (campaigns(each), steps(each)))
    return "\n\n".join(map(to_markdown, tables))


def rewritten(page: str, parts: Mapping[str, str]) -> str:
    """The page with each part between `<!-- results: NAME -->` and `<!-- end: NAME -->` replaced.

    Raises PlaceholderError if one of a part's two placeholders is missing or they are in the wrong order.
    """
    for name, text in parts.items():
        begin, end = f"<!-- results: {name} -->", f"<!-- end: {name} -->"
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise PlaceholderError(f"the page has no part between `{begin}` and `{end}`")
        page = f"{before}{begin}\n{text}\n{end}{after}"
    return page
