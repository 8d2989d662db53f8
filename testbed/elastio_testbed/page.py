"""One self-contained HTML page of a result: no network, no script. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from elastio_testbed.evaluation import disturbance
from elastio_testbed.published import SOURCE, published
from elastio_testbed.series import from_json
from elastio_testbed.svg import picture
from elastio_testbed.tables import NONE, Table, all_tables, caches, conditions, number, own_s, signed, spread_percent

Document = Mapping[str, Any]
ROLES = ("application", "backing volume", "cache volume")
PHASES = ("attaching", "boosting", "flushing", "detaching")


def page(document: Document) -> str:
    """The whole page of a result's JSON document."""
    style = resources.files("elastio_testbed").joinpath("page.css").read_text()
    title = f"{document['experiment']}, scale {document['scale']:g}"
    body = [
        f"<header><p class='kind'>elastio &middot; evaluation</p><h1>{escape(title)}</h1>{_lead(document)}</header>",
        _warning(document),
        _cards(document),
        _picture(document),
        _boosts(document),
        *(_table(table) for table in all_tables(document)),
        _repetitions(document),
        _table(conditions(document), "conditions"),
    ]
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<meta name='color-scheme' content='light dark'>"
        f"<title>{escape(title)}</title><style>{style}</style></head><body><main>{''.join(body)}</main></body></html>\n"
    )


def _lead(document: Document) -> str:
    order = "side by side" if document["side_by_side"] else "one after the other"
    done = len(document["repetitions"])
    times = "once" if done == 1 else f"{done} times"
    said = (
        f"{len(document['setups'])} storage set-ups, {document['vms']} VM each, run {order}, {times}, on real bcache "
        f"in guests ({document['accelerator']}, Linux {document['kernel']}), {document['date'][:10]}. "
        f"Published: {SOURCE}, at its own scale."
    )
    return f"<p class='lead'>{escape(said)}</p>"


def _warning(document: Document) -> str:
    said = disturbance(document["disturbed"])
    return f"<p class='warning' role='note'>{escape(said)}</p>" if said else ""


# --- the figures on top ----------------------------------------------------------------------------------


def _cards(document: Document) -> str:
    summary = document["summary"]
    ratios, known = summary["ratios"].get("adaptive"), published(document["experiment"])
    if ratios is None:
        return ""
    times = {row[0]: row[-1] for row in caches(document).rows}
    cards = [
        (
            "completion against static-fast",
            ratios["overhead_vs_fast_pct"],
            _published(signed(known.overhead_vs_fast_pct.get("adaptive"))),
        ),
        ("cost against static-fast", ratios["agbs_vs_fast_pct"], _published(known.cost_vs_fast)),
        ("cost against static-slow", ratios["agbs_vs_slow_pct"], _published(known.cost_vs_slow)),
    ]
    shown = [_card(label, signed(found and found["median"]), found, note) for label, found, note in cards]
    every, later = times.get("adaptive, all", NONE), times.get("adaptive, after the first", NONE)
    after = "" if later == NONE else f"times; after the first phase {later}"
    shown.append(_card("caches against their lower bound", every, None, after))
    return f"<section class='cards' aria-label='Adaptive set-up, medians'>{''.join(shown)}</section>"


def _published(text: str) -> str:
    return f"published: {text}" if text not in {"", "-"} else "not published"


def _card(label: str, value: str, found: Mapping[str, float] | None, note: str) -> str:
    text = spread_percent(found)
    _, bracket, between = text.partition(" (")
    between = f"<span>{escape(between.removesuffix(')'))}</span>" if bracket else ""
    return (
        f"<div class='card'><h2>{escape(label)}</h2><p class='value'>{escape(value)}</p>"
        f"<p class='note'>{between}{escape(note)}</p></div>"
    )


# --- pictures --------------------------------------------------------------------------------------------


def _picture(document: Document) -> str:
    runs = [from_json(row) for row in document.get("picture", [])]
    if not runs:
        return ""
    roles = "".join(f"<li class='line {role.split()[0]}'>{role}</li>" for role in ROLES)
    phases = "".join(f"<li class='band {phase}'>{phase}</li>" for phase in PHASES)
    which = f"repetition {document['shown'] + 1} of {len(document['repetitions'])}"
    caption = f"Throughput, reads and writes, and cache volume over time; {which}."
    return (
        f"<figure><ul class='legend'>{roles}{phases}</ul>{picture(runs)}"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _boosts(document: Document) -> str:
    """One bar per boost, its steps side by side, on one scale."""
    phases = [phase for figures in document["setups"].values() for phase in figures["phases"]]
    longest = max((phase["attach_s"] or 0.0 for phase in phases), default=0.0)
    if not longest:
        return ""
    names = list(dict.fromkeys(name for phase in phases for name in phase["steps_s"]))
    keys = "".join(f"<li class='step s{n}'>{escape(name.replace('_', ' '))}</li>" for n, name in enumerate(names))
    rows = [_bar(n, phase, names, longest, document["vms"] > 1) for n, phase in enumerate(phases, 1)]
    return (
        f"<section><h2>From the decision to writeback mode</h2><ul class='legend'>{keys}</ul>"
        f"<div class='bars'>{''.join(rows)}</div></section>"
    )


def _bar(n: int, phase: Mapping[str, Any], names: Sequence[str], longest: float, many: bool) -> str:
    pieces = []
    for at, name in enumerate(names):
        seconds = phase["steps_s"].get(name) or 0.0
        text = f"{name.replace('_', ' ')} {seconds:.2f} s"
        pieces.append(
            f"<span class='s{at}' style='width:{seconds / longest * 100:.2f}%' title='{escape(text)}'></span>"
        )
    label = f"{phase['vm']} " if many else ""
    own = own_s(phase)
    said = number(phase["attach_s"], 2, " s") + (f", own {number(own, 2, ' s')}" if own is not None else "")
    return f"<p><b>{escape(label)}boost {n}</b><span class='bar'>{''.join(pieces)}</span><i>{said}</i></p>"


# --- tables ----------------------------------------------------------------------------------------------


def _table(table: Table, kind: str = "") -> str:
    head = "".join(f"<th scope='col'>{escape(text)}</th>" for text in table.heads) if any(table.heads) else ""
    rows = "".join(
        f"<tr><th scope='row'>{escape(row[0])}</th>{''.join(f'<td>{_cell(cell)}</td>' for cell in row[1:])}</tr>"
        for row in table.rows
    )
    note = f"<p class='note'>{escape(table.note)}</p>" if table.note else ""
    thead = f"<thead><tr>{head}</tr></thead>" if head else ""
    return (
        f"<section class='{kind}'><h2>{escape(table.title)}</h2><div class='wide'><table>{thead}<tbody>{rows}</tbody>"
        f"</table></div>{note}</section>"
    )


def _cell(text: str) -> str:
    """What stands in brackets goes below: the range of several repetitions would make tables too wide."""
    value, bracket, between = text.partition(" (")
    return f"{escape(value)}<small>{escape(between.removesuffix(')'))}</small>" if bracket else escape(text)


def _repetitions(document: Document) -> str:
    """Every repetition's own figures."""
    rows = tuple(
        (
            f"{n}" if at == 0 else "",
            setup,
            number(figures["completion_s"]),
            " ".join(f"{seconds:.1f}" for seconds in figures["dumps_s"]),
            number(figures["agbs"], 0),
            signed(repetition["ratios"][setup]["overhead_vs_fast_pct"]),
            "right" if figures["checksums_ok"] else "WRONG",
            str(figures["volumes_left"]),
        )
        for n, repetition in enumerate(document["repetitions"], 1)
        for at, (setup, figures) in enumerate(repetition["setups"].items())
    )
    heads = ("#", "set-up", "completion s", "dumps s", "AGBs", "against fast", "data", "volumes left")
    return _table(Table("Every repetition", heads, rows), "repetitions")
