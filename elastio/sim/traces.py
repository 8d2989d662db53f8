"""Traces of throughput from elsewhere: CSV, `iostat -x`, fio's bandwidth logs, blkparse. Pure but for reading files.

All become a list of `Rate`. Every reader refuses what it cannot read, naming the line, instead of leaving it out.
"""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from elastio.errors import ElastioError
from elastio.units import KIB, MB

SECTOR = 512
MOST_BYTES = 256 * 1024 * 1024
COLUMNS = ("seconds", "read_mb_s", "write_mb_s")


class TraceError(ElastioError):
    """A trace cannot be read."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Mean throughput of the device over `seconds` from `at_s` (since the first line)."""

    at_s: float
    seconds: float
    read_mb_s: float
    write_mb_s: float

    @property
    def total_mb_s(self) -> float:
        return self.read_mb_s + self.write_mb_s


def read_csv(path: Path, device: str = "") -> tuple[Rate, ...]:
    """See `parse_csv`."""
    return parse_csv(_text(path), device, 1.0, str(path))


def parse_csv(text: str, device: str, _interval_s: float, name: str) -> tuple[Rate, ...]:
    """Two forms, told apart by the head. Raises TraceError.

    Written by hand: `seconds,read_mb_s,write_mb_s`, where `seconds` is when the line's rates begin; the last line lasts
    as long as the one before. As the agent exports its samples: `begun_wall` is the beginning and `seconds` the length;
    what lies between two lines counts as quiet.
    """
    reader = csv.DictReader(io.StringIO(text))
    heads = reader.fieldnames or ()
    missing = [c for c in COLUMNS if c not in heads]
    if missing:
        raise TraceError(f"{name} is no trace: its head must be {','.join(COLUMNS)}, {missing[0]} is missing")
    rows = [(row, reader.line_num) for row in reader]
    devices = {row["device_uuid"] for row, _ in rows} if "device_uuid" in heads else set()
    if len(devices) > 1 and device not in devices:
        raise TraceError(f"{name} holds {len(devices)} devices: name one with --device ({', '.join(sorted(devices))})")
    rows = [(row, line) for row, line in rows if len(devices) < 2 or row["device_uuid"] == device]
    columns = ("begun_wall", *COLUMNS) if "begun_wall" in heads else COLUMNS
    values = [tuple(_number(row[c], name, line) for c in columns) for row, line in rows]
    if "begun_wall" in heads:
        return _exported(values, name)
    return _rates([(at, read, write) for at, read, write in values], name)


def _exported(values: Sequence[tuple[float, ...]], name: str) -> tuple[Rate, ...]:
    """From the agent's own samples; gaps are filled with quiet."""
    if not values:
        raise TraceError(f"{name} holds no samples")
    first, rates, end = values[0][0], [], values[0][0]
    for begun, seconds, read, write in values:
        if seconds <= 0 or begun < end - 1e-3:
            raise TraceError(f"{name}: its rows must follow each other, the one at {begun:.3f} does not")
        if begun > end + 1e-3:
            rates.append(Rate(end - first, begun - end, 0.0, 0.0))
        rates.append(Rate(begun - first, seconds, read, write))
        end = begun + seconds
    return tuple(rates)


def _number(text: str | None, name: str, line: int) -> float:
    try:
        value = float(text or "")
    except ValueError:
        raise TraceError(f"{name}, line {line}: {text!r} is no number") from None
    if not 0 <= value < 1e12:
        raise TraceError(f"{name}, line {line}: {text} is not allowed: times and rates are at least 0")
    return value


def _rates(points: Sequence[tuple[float, float, float]], name: str) -> tuple[Rate, ...]:
    """From instants to stretches."""
    if len(points) < 2:
        raise TraceError(f"{name} holds {len(points)} sample{'s' if len(points) != 1 else ''}: at least 2 are needed")
    first = points[0][0]
    lengths = [after[0] - before[0] for before, after in pairwise(points)]
    if min(lengths) <= 0:
        at = points[lengths.index(min(lengths)) + 1][0]
        raise TraceError(f"{name}: its times must rise, {at:g} s does not")
    lengths.append(lengths[-1])
    return tuple(
        Rate(at - first, seconds, read, write) for (at, read, write), seconds in zip(points, lengths, strict=True)
    )


# --- iostat ------------------------------------------------------------------------------------------------

# Column -> bytes. sysstat prints kB = 1024 bytes; with -m MB = 1024^2.
_IOSTAT_READ = {"rkB/s": KIB, "rMB/s": KIB**2, "rsec/s": SECTOR, "kB_read/s": KIB, "MB_read/s": KIB**2}
_IOSTAT_WRITE = {"wkB/s": KIB, "wMB/s": KIB**2, "wsec/s": SECTOR, "kB_wrtn/s": KIB, "MB_wrtn/s": KIB**2}


def parse_iostat(text: str, device: str, interval_s: float, name: str) -> tuple[Rate, ...]:
    """`iostat -x INTERVAL` (or `-d`, with `-m` or without). The first report is the mean since boot and is left out.

    Raises TraceError where the device does not occur twice.
    """
    heads: list[str] = []
    reports: list[tuple[float, float]] = []
    seen: set[str] = set()
    for line in text.splitlines():
        words = line.split()
        if words and words[0].rstrip(":") == "Device":
            heads = words
        elif heads and words and len(words) == len(heads):
            seen.add(words[0])
            if words[0] == device:
                reports.append(_iostat_line(dict(zip(heads, words, strict=True)), name))
    if len(reports) < 3:
        known = ", ".join(sorted(seen)) or "none"
        raise TraceError(
            f"{name} holds {len(reports)} reports of {device}: at least 3 are needed (devices in it: {known}); name "
            "another with --device"
        )
    return tuple(Rate(n * interval_s, interval_s, read, write) for n, (read, write) in enumerate(reports[1:]))


def _iostat_line(row: Mapping[str, str], name: str) -> tuple[float, float]:
    found = []
    for columns in (_IOSTAT_READ, _IOSTAT_WRITE):
        column = next((c for c in columns if c in row), None)
        if column is None:
            raise TraceError(f"{name} has no column of throughput: use `iostat -x` or `iostat -d`")
        try:
            found.append(float(row[column].replace(",", ".")) * columns[column] / MB)
        except ValueError:
            raise TraceError(f"{name}: {row[column]!r} is no number") from None
    return found[0], found[1]


# --- fio ---------------------------------------------------------------------------------------------------


def parse_fio(text: str, name: str) -> tuple[Rate, ...]:
    """A log of `--write_bw_log` with `--log_avg_msec`: `ms, KiB/s, direction (0 read, 1 write), ...` per line.

    fio writes a line at the end of each window, one for each direction. Raises TraceError.
    """
    windows: dict[float, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for number, line in enumerate(text.splitlines(), 1):
        cells = [c.strip() for c in line.split(",")]
        if len(cells) < 3 or cells[2] not in ("0", "1", "2"):
            raise TraceError(f"{name}, line {number} is no line of a fio bandwidth log: {line[:60]!r}")
        if cells[2] != "2":  # trims move no data
            ended_s = _number(cells[0], name, number) / 1000
            windows[ended_s][int(cells[2])] += _number(cells[1], name, number) * KIB / MB
    ends = sorted(windows)
    if len(ends) < 2:
        raise TraceError(f"{name} holds {len(ends)} windows: at least 2 are needed; run fio with --log_avg_msec=1000")
    begins = [0.0, *ends[:-1]]
    return tuple(
        Rate(begin, end - begin, *windows[end]) for begin, end in zip(begins, ends, strict=True) if end > begin
    )


# --- blktrace ----------------------------------------------------------------------------------------------

# device cpu sequence time pid action rwbs sector + blocks [process]
_BLKPARSE = re.compile(
    r"^\s*\d+,\d+\s+\d+\s+\d+\s+(?P<at>\d+\.\d+)\s+\d+\s+C\s+(?P<rwbs>\S+)\s+\d+\s+\+\s+(?P<blocks>\d+)"
)


def parse_blkparse(text: str, name: str, step_s: float = 1.0) -> tuple[Rate, ...]:
    """The text of `blkparse`: completed requests (action C), summed up per `step_s`. Raises TraceError."""
    moved: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for line in text.splitlines():
        match = _BLKPARSE.match(line)
        if match is None or "D" in match["rwbs"]:  # a discard moves no data
            continue
        is_write = "W" in match["rwbs"]
        moved[int(float(match["at"]) / step_s)][is_write] += int(match["blocks"]) * SECTOR
    if not moved:
        raise TraceError(f"{name} holds no completed request: give the text that `blkparse` prints")
    return tuple(Rate(n * step_s, step_s, *(b / MB / step_s for b in moved[n])) for n in range(max(moved) + 1))


# --- any of them -------------------------------------------------------------------------------------------

READERS: Mapping[str, Callable[[str, str, float, str], tuple[Rate, ...]]] = {
    "csv": parse_csv,
    "iostat": parse_iostat,
    "fio": lambda text, device, interval_s, name: parse_fio(text, name),
    "blkparse": lambda text, device, interval_s, name: parse_blkparse(text, name),
}


def read(path: Path, form: str = "auto", device: str = "", interval_s: float = 1.0) -> tuple[Rate, ...]:
    """A trace in one of READERS' formats. Raises TraceError."""
    text = _text(path)
    form = guess(text) if form == "auto" else form
    if form == "iostat" and not device:
        raise TraceError(f"{path} is of iostat: name the device with --device")
    rates = READERS[form](text, device, interval_s, str(path))
    if not any(r.total_mb_s > 0 for r in rates):
        raise TraceError(f"{path} shows no throughput at all")
    return rates


def guess(text: str) -> str:
    """The format by how the text begins."""
    head = text[:4000]
    if "Device" in head and "/s" in head:
        return "iostat"
    if "write_mb_s" in head.partition("\n")[0]:
        return "csv"
    if any(_BLKPARSE.match(line) for line in head.splitlines()):
        return "blkparse"
    return "fio" if re.match(r"^\s*\d+\s*,\s*\d+\s*,\s*[012]\s*,", head) else "csv"


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise TraceError(f"{path} is larger than {MOST_BYTES // 1024**2} MiB: cut it, or sample it more rarely")
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror or error}") from error
