"""The report as one page: the tables of `report_render`, and pictures of the month and of the last boosts. Pure.

One file without network and script. Its size is bounded: MOST_PICTURES boosts are drawn, MOST_ROWS have a row; what is
earlier is counted. Colours are those of the reader's choice, light or dark, and light on paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, tzinfo
from xml.etree.ElementTree import Element

from elastio.accounting.burst_accounts import wait_table
from elastio.accounting.group_costs import cost_table
from elastio.accounting.report import BoostLine, Report
from elastio.accounting.report_render import (
    NO_COSTS,
    ahead_table,
    amount,
    boost_table,
    day_table,
    notes,
    saved,
    step_table,
)
from elastio.accounting.tables import Table
from elastio.units import GB, GIB, format_duration, format_size
from elastio_adviser.page import boost_picture, cost_picture
from elastio_adviser.page.boost_picture import Course
from elastio_adviser.page.markup import tag, written
from elastio_adviser.page.page_style import STYLE

MOST_PICTURES = 12
MOST_ROWS = 2000
MOST_STEPS = 50
MOST_DAYS = 400
MOST_CGROUPS = 50
# A browser loads and runs nothing, whatever a text of the ledger contains.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
PHASES = ("attaching", "boosting", "flushing", "detaching")


def to_html(report: Report, courses: Mapping[str, Course], machine: str, credits: str = "") -> str:
    """The page. `courses` are those of `pictured` by token; `credits`: a sentence, or empty."""
    title = f"elastio on {machine}" if machine else "elastio"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", STYLE),
    )
    body = tag("body", tag("h1", title), tag("p", _period(report), class_="note"))
    body.extend(_content(report, courses) if report.days else [tag("p", NO_COSTS)])
    if credits:
        body.append(tag("p", credits, class_="note"))
    return written(tag("html", head, body, lang="en"))


def pictured(report: Report) -> tuple[BoostLine, ...]:
    """The boosts that are drawn: the last ones for which something was bought."""
    return tuple(b for b in report.boosts if b.row.opened_wall is not None)[-MOST_PICTURES:]


def _period(report: Report) -> str:
    if not report.days:
        return f"until {_stamp(report.until, report.tz)}"
    first = report.days[0].day.isoformat() if report.since <= 0 else _stamp(report.since, report.tz)
    return f"From {first} to {_stamp(report.until, report.tz)}. Times are in {_zones(report)}."


def _zones(report: Report) -> str:
    """Name and distance from UTC of the machine's local time; two where it was changed to summer time or back."""
    zones = dict[str, None]()
    for wall in (*(b.row.started_wall for b in report.boosts), report.until):
        at = datetime.fromtimestamp(wall, report.tz)
        zones["UTC" if at.tzname() == "UTC" else f"{at:%Z} (UTC{at:%z})"] = None
    return " and ".join(zones)


def _stamp(wall: float, tz: tzinfo) -> str:
    return datetime.fromtimestamp(wall, tz).strftime("%Y-%m-%d %H:%M:%S")


def _content(report: Report, courses: Mapping[str, Course]) -> list[Element]:
    made = [_sums(report), *(_prose(line, class_="note") for line in notes(report)), _month(report)]
    drawn = [courses[b.row.token] for b in reversed(pictured(report)) if b.row.token in courses]
    if drawn:
        lines = {b.row.token: b for b in report.boosts}
        made += [tag("h2", "Boosts"), _legend("band", {name: name for name in PHASES})]
        made += [_boost(course, lines[course.row.token], report.tz) for course in drawn]
    made += [_section("All boosts", _all_boosts(report)), _section("Days", day_table(report, MOST_DAYS))]
    for title, table in (
        ("Steps of boosts, in seconds", step_table(report, MOST_STEPS)),
        ("Bought ahead of bursts", ahead_table(report)),
        ("Where the time of bursts went", wait_table(report.waits, MOST_CGROUPS)),
        ("Whom the boosts were for", cost_table(report.groups, report.vm.currency, MOST_CGROUPS)),
    ):
        if table.rows:
            made.append(_section(title, table))
    return made


def _sums(report: Report) -> Element:
    """The main figures, and the sentence of `elastio report`."""
    cost, boosts = report.vm, sum(d.boosts for d in report.days)
    figures = [("boosts", str(boosts)), ("time observed", format_duration(cost.seconds))]
    for name, value in (("paid", cost.paid), ("always fast", cost.static_fast), ("saved", cost.saved)):
        if value is not None:
            figures.append((name, f"{'-' * (value < 0)}{amount(abs(value))} {cost.currency}"))
    listed = tag("dl", class_="sums")
    for name, text in figures:
        listed.append(tag("div", tag("dt", name), tag("dd", text)))
    return tag("section", listed, _prose(saved(report)))


def _prose(text: str, **attributes: str) -> Element:
    """A paragraph; what stands between backquotes is a command."""
    parts = text.split("`")
    commands = len(parts) // 2 if len(parts) % 2 else 0
    if not commands:
        return tag("p", text, **attributes)
    return tag("p", *(tag("code", part) if n % 2 else part for n, part in enumerate(parts)), **attributes)


def _month(report: Report) -> Element:
    _, unit = cost_picture.bars(report.days)
    more = max(0, len(report.days) - cost_picture.MOST_DAYS)
    said = f"The last {cost_picture.MOST_DAYS} of {len(report.days)} days. " if more else ""
    said += f"In {unit}; an outline is what a volume that is always fast would have cost in the same time."
    known = [d.cost.saved for d in report.days if d.cost.saved is not None and d.cost.currency == unit]
    if report.vm.saved is None and known:
        said += f" On the {len(known)} days whose prices are known, {amount(sum(known))} {unit} was saved."
    return tag(
        "figure",
        tag("h2", "Cost of each day"),
        _legend("bar", {"backing": "backing volume", "cache": "caches", "fast": "always fast"}),
        tag("div", cost_picture.picture(report.days), class_="wide"),
        tag("figcaption", said, class_="note"),
    )


def _legend(what: str, names: Mapping[str, str]) -> Element:
    """The colours of bars or bands, by their classes, with their names."""
    listed = tag("ul", class_="legend")
    for kind, name in names.items():
        swatch = tag("rect", x=1, y=1, width=12, height=12, class_=f"{what} {kind}")
        listed.append(tag("li", tag("svg", swatch, viewBox="0 0 14 14", class_="key"), name))
    return listed


def _boost(course: Course, boost: BoostLine, tz: tzinfo) -> Element:
    row = course.row
    end = "still open" if row.is_open else f"billed for {format_duration(boost.billed_s)}"
    cost = "" if boost.cost.cost is None else f", {boost.cost.cost:.4f} {boost.cost.currency}"
    attached = "" if row.steps.boost_s is None else f", attached after {format_duration(row.steps.boost_s)}"
    through = f", {row.written_through_bytes / GB:.2f} GB written through" if row.written_through_bytes else ""
    said = (
        f"{row.volume_id or 'no volume'}, {row.provisioned_size_bytes / GIB:.1f} GiB at {row.bandwidth_mb_s:.0f} MB/s"
        f"{attached}, {end}{cost}, at most {format_size(row.peak_dirty_bytes)} dirty{through}. Begun by {row.trigger}."
    )
    return tag(
        "figure",
        tag("h3", _stamp(row.started_wall, tz)),
        tag("div", boost_picture.picture(course, tz), class_="wide"),
        tag("figcaption", said, class_="note"),
        tag("p", row.failure, class_="failure") if row.failure else None,
    )


def _all_boosts(report: Report) -> Table:
    """As in the text, with the year, and failures in full."""
    shown = boost_table(report, MOST_ROWS)
    lines = report.boosts[len(report.boosts) - len(shown.rows) :]
    rows = (
        (_stamp(b.row.started_wall, report.tz), *cells[1:-1], b.row.failure or ("open" if b.row.is_open else ""))
        for b, cells in zip(lines, shown.rows, strict=True)
    )
    return Table(shown.heads, tuple(rows), shown.left_out)


def _section(title: str, table: Table) -> Element:
    heads = tag("tr", *(tag("th", head, scope="col", class_=_side(table, n)) for n, head in enumerate(table.heads)))
    body = tag("tbody")
    for row in table.rows:
        first, *cells = row
        numbers = (tag("td", cell, class_=_side(table, n)) for n, cell in enumerate(cells, 1))
        body.append(tag("tr", tag("th", first, scope="row"), *numbers))
    earlier = tag("p", f"{table.left_out} earlier ones are left out.", class_="note") if table.left_out else None
    scrolled = tag("div", tag("table", tag("thead", heads), body), class_="wide")
    return tag("section", tag("h2", title), earlier, scrolled)


def _side(table: Table, column: int) -> str | None:
    """Text is at the left, numbers are at the right."""
    return "text" if column == 0 or table.heads[column] == "note" else None
