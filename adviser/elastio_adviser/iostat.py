"""Reads the reports of `iostat -x INTERVAL` (or `-d`; with `-m`, `-t`, `-z`, `-o JSON` or without). Pure.

The first report of a run is the mean since boot, and shows only when the second began. With `-t` each report has the
time of its end, in whole seconds, in the form of the locale or of ISO 8601. A report is the mean since the one before
it, however long ago that was.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

from elastio.units import KIB, MB, MIB, SECTOR, format_duration
from elastio_adviser.rates import Rate, Trace, TraceError, number

# Column -> bytes. sysstat prints kB = 1024 bytes; with -m MB = 1024^2.
_READ = {"rkB/s": KIB, "rMB/s": MIB, "rsec/s": SECTOR, "kB_read/s": KIB, "MB_read/s": MIB}
_WRITE = {"wkB/s": KIB, "wMB/s": MIB, "wsec/s": SECTOR, "kB_wrtn/s": KIB, "MB_wrtn/s": MIB}
# `11/21/26 08:00:00 PM`, `21.11.2026 20:00:00`, `2026年11月21日 20時00分00秒`, `Time: 20:00:00`
_STAMP = re.compile(
    r"\s*(?P<date>\S*\d\S*|Time:)\s+(?P<hour>\d{1,2})[:.h時](?P<minute>\d\d)[:.m分](?P<second>\d\d)s?秒?\s*"
    r"(?P<half>[ap]\.?\s?m\.?)?\s*(?P<zone>[A-Z]{2,5})?\s*",
    re.IGNORECASE,
)
DAY_S, HOUR_S = 86400.0, 3600.0
ASSUMED_S = 1.0
# Times are printed in whole seconds.
RESOLUTION_S = 1.0


@dataclass
class _Report:
    """One report. `stamp`: its date (or the zone of a whole time) and its seconds. `is_first`: the mean since boot."""

    stamp: tuple[str, float] | None
    is_first: bool
    rates: dict[str, tuple[float, float]] = field(default_factory=dict)


def parse(text: str, device: str, interval_s: float | None, name: str) -> Trace:
    """The throughput of one device. In a report without it, it was quiet (`iostat -z`).

    Raises TraceError if there are fewer than 3 reports, or if their times do not increase or contradict `interval_s`.
    """
    is_json = text.lstrip().startswith("{")
    reports = list(_json_reports(text, name) if is_json else _text_reports(text, name))
    seen = sorted({known for report in reports for known in report.rates})
    if len(reports) < 3 or device not in seen:
        raise TraceError(
            f"{name} holds {len(reports) if device in seen else 0} reports of {device}: at least 3 are needed "
            f"(devices in it: {', '.join(seen) or 'none'}); name another with --device",
            code="samples",
        )
    lengths, said = _lengths(reports, interval_s, name)
    rates, at_s, missing_s = [], 0.0, 0.0
    for report, seconds in zip(reports[1:], lengths, strict=True):
        read, written = (0.0, 0.0) if report.is_first else report.rates.get(device, (0.0, 0.0))
        missing_s += seconds if report.is_first else 0.0
        rates.append(Rate(at_s, seconds, read, written))
        at_s += seconds
    if missing_s:
        said += (f"{name}: iostat did not run for {format_duration(missing_s)}, which counts as quiet.",)
    return Trace(tuple(rates), said)


# --- times -------------------------------------------------------------------------------------------------------


def _lengths(reports: Sequence[_Report], interval_s: float | None, name: str) -> tuple[list[float], tuple[str, ...]]:
    """Of each report but the first, and what is assumed."""
    stamps = [report.stamp for report in reports]
    known = [stamp for stamp in stamps if stamp is not None]
    if not known:
        if any(report.is_first for report in reports[1:]):
            raise TraceError(f"{name} has several runs of iostat and no times: use `iostat -t`", code="runs")
        assumed = f"{name}: the reports have no times, an interval of {ASSUMED_S:g} s is assumed: give --interval."
        seconds = ASSUMED_S if interval_s is None else interval_s
        return [seconds] * (len(reports) - 1), (assumed,) if interval_s is None else ()
    if len(known) < len(stamps):
        raise TraceError(f"{name} has reports with a time and without: use `iostat -t`", code="times")
    found = _smoothed([_between(before, after, name) for before, after in pairwise(known)])
    usual = statistics.median_low(found)
    if usual <= 0:
        raise TraceError(f"{name}: the times of the reports do not increase", code="clock")
    if interval_s is not None and abs(interval_s - usual) >= RESOLUTION_S:
        text = f"{name}: the reports are {usual:g} s apart, not {interval_s:g} s: leave --interval out"
        raise TraceError(text, code="interval")
    is_local = all(stamp[0] != "" for stamp in known)
    if is_local and any(abs(seconds - usual - HOUR_S) <= 2 * RESOLUTION_S for seconds in found):
        raise TraceError(
            f"{name}: the clock moves by an hour between two reports: record with S_TIME_FORMAT=ISO", code="clock"
        )
    return found, ()


def _between(before: tuple[str, float], after: tuple[str, float], name: str) -> float:
    """The seconds between two times. On another date it is a later time of the next day."""
    (date, begin), (other, end) = before, after
    if date == other and end >= begin:
        return end - begin
    if date != other and "" not in (date, other) and end < begin:
        return end - begin + DAY_S
    if date == other == "time:" and end < begin - DAY_S / 2:
        return end - begin + DAY_S
    raise TraceError(
        f"{name}: the clock was set back, or a day is missing, between two reports: take those before it or after it",
        code="clock",
    )


def _smoothed(lengths: list[float]) -> list[float]:
    """Two reports in the same whole second share the time until the next one."""
    found = list(lengths)
    for n in range(len(found) - 1):
        if found[n] == 0 and found[n + 1] > 0:
            found[n] = found[n + 1] = found[n + 1] / 2
    return found


def _stamp(line: str) -> tuple[str, float] | None:
    """The date as it is written, and the seconds since midnight; of a time with a zone, the seconds since the epoch."""
    try:
        at = datetime.fromisoformat(line.strip())
    except ValueError:
        pass
    else:
        return ("", at.timestamp()) if at.tzinfo else (f"{at:%Y-%m-%d}", _of_day(at.hour, at.minute, at.second))
    match = _STAMP.fullmatch(line)
    if match is None:
        return None
    hour, half = int(match["hour"]), (match["half"] or "").lower()
    hour = hour % 12 + 12 * half.startswith("p") if half else hour
    return match["date"].lower(), _of_day(hour, int(match["minute"]), int(match["second"]))


def _of_day(hour: int, minute: int, second: int) -> float:
    return hour * HOUR_S + minute * 60.0 + second


# --- reports -----------------------------------------------------------------------------------------------------


def _text_reports(text: str, name: str) -> Iterator[_Report]:
    heads: list[str] = []
    report: _Report | None = None
    stamp, is_first = None, True
    for line_number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words:
            continue
        if words[0] == "Linux" and "(" in line:  # the banner of a run
            is_first, heads = True, []
        elif words[0].rstrip(":") == "Device":
            if report is not None:
                yield report
            report, heads = _Report(stamp, is_first), words
            stamp, is_first = None, False
        elif words[0] == "avg-cpu:":
            heads = []
        elif (found := _stamp(line)) is not None:
            stamp, heads = found, []
        elif heads and report is not None:
            _add(report, heads, words, f"{name}", line_number)
    if report is not None:
        yield report


def _add(report: _Report, heads: Sequence[str], words: Sequence[str], name: str, line: int) -> None:
    if len(words) != len(heads):
        raise TraceError(f"{name}, line {line} does not have the {len(heads)} columns of its report", code="line")
    if words[0] in report.rates:
        raise TraceError(f"{name}, line {line}: {words[0]} is twice in a report", code="line")
    report.rates[words[0]] = _row(dict(zip(heads, words, strict=True)), name, line)


def _json_reports(text: str, name: str) -> Iterator[_Report]:
    try:
        for host in json.loads(text)["sysstat"]["hosts"]:
            for n, entry in enumerate(host["statistics"]):
                report = _Report(_stamp(str(entry.get("timestamp", ""))), n == 0)
                for row in entry.get("disk", ()):
                    _add(report, [*row], [str(value) for value in row.values()], name, n + 1)
                yield report
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise TraceError(f"{name} is not the JSON of `iostat -o JSON`: {error!r}", code="structure") from error


def _row(row: Mapping[str, Any], name: str, line: int) -> tuple[float, float]:
    found = []
    for columns in (_READ, _WRITE):
        column = next((c for c in columns if c in row), None)
        if column is None:
            raise TraceError(f"{name} has no column of throughput: use `iostat -x` or `iostat -d`", code="columns")
        found.append(number(row[column].replace(",", "."), name, line) * columns[column] / MB)
    return found[0], found[1]
