"""Reads traces of throughput: CSV, `iostat -x`, bandwidth logs of fio, blkparse, btt.

Pure except for reading files. Every format becomes a list of `Rate`. A reader rejects a line that it cannot read, and
names it, instead of skipping it.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from elastio.codec import text_of
from elastio.errors import ElastioError
from elastio.units import KIB, MB, MIB, SECTOR

MOST_BYTES = 256 * MIB
T = TypeVar("T")
COLUMNS = ("seconds", "read_mb_s", "write_mb_s")


class TraceError(ElastioError):
    """A trace cannot be read, or is too long to be replayed. `code` names what is wrong with it."""


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
    return parse_csv(read_text(path), device, 1.0, str(path))


def parse_csv(text: str, device: str, _interval_s: float, name: str) -> tuple[Rate, ...]:
    """Two forms, distinguished by the header. Raises TraceError.

    Written by hand: `seconds,read_mb_s,write_mb_s`, where `seconds` is when the rates of the line begin; the last line
    lasts as long as the one before it. Exported by the agent: `begun_wall` is the beginning and `seconds` the length;
    time between two lines counts as quiet.
    """
    try:
        return _csv(csv.DictReader(io.StringIO(text)), device, name)
    except csv.Error as error:
        raise TraceError(f"{name} is not CSV: {error}", code="csv") from error


def _csv(reader: csv.DictReader[str], device: str, name: str) -> tuple[Rate, ...]:
    heads = reader.fieldnames or ()
    missing = [c for c in COLUMNS if c not in heads]
    if missing:
        raise TraceError(
            f"{name} is not a trace: the header must be {','.join(COLUMNS)}, {missing[0]} is missing", code="head"
        )
    is_export = "begun_wall" in heads
    columns = ("begun_wall", *COLUMNS) if is_export else COLUMNS
    found: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    for row in reader:
        if None in row or None in row.values():
            raise TraceError(
                f"{name}, line {reader.line_num} does not have the {len(heads)} columns of the header", code="columns"
            )
        found[row.get("device_uuid", "")].append(tuple(_number(row[c], name, reader.line_num) for c in columns))
    values = _of_device(found, device, name) if found else []
    return _exported(values, name) if is_export else _rates([(at, read, write) for at, read, write in values], name)


def _of_device(found: Mapping[str, T], device: str, name: str) -> T:
    """The part of this device, or of the only device if none was named. `found` is not empty."""
    if device in found:
        return found[device]
    if "" in found:
        raise TraceError(f"{name} names no devices: leave --device out", code="device.unnamed")
    if not device and len(found) == 1:
        return next(iter(found.values()))
    count = f"{len(found)} device{'s' if len(found) > 1 else ''}"
    raise TraceError(f"{name} holds {count}: name one with --device ({', '.join(sorted(found))})", code="device.choice")


def _exported(values: Sequence[tuple[float, ...]], name: str) -> tuple[Rate, ...]:
    """From the agent's own samples; gaps are filled with quiet."""
    if not values:
        raise TraceError(f"{name} holds no samples", code="samples")
    first, rates, end = values[0][0], [], values[0][0]
    for begun, seconds, read, write in values:
        if seconds <= 0 or begun < end - 1e-3:
            raise TraceError(f"{name}: rows must follow each other, the one at {begun:.3f} does not", code="order")
        if begun > end + 1e-3:
            rates.append(Rate(end - first, begun - end, 0.0, 0.0))
        rates.append(Rate(begun - first, seconds, read, write))
        end = begun + seconds
    return tuple(rates)


def _number(text: str, name: str, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        raise TraceError(f"{name}, line {line}: {text!r} is not a number", code="number") from None
    if not 0 <= value < 1e12:
        raise TraceError(
            f"{name}, line {line}: {text} is out of range: times and rates are from 0 to 1e12", code="range"
        )
    return value


def _rates(points: Sequence[tuple[float, float, float]], name: str) -> tuple[Rate, ...]:
    """From instants to segments."""
    if len(points) < 2:
        raise TraceError(
            f"{name} holds {len(points)} sample{'s' if len(points) != 1 else ''}: at least 2 are needed", code="samples"
        )
    first = points[0][0]
    lengths = [after[0] - before[0] for before, after in pairwise(points)]
    if min(lengths) <= 0:
        at = points[lengths.index(min(lengths)) + 1][0]
        raise TraceError(f"{name}: times must increase, {at:g} s does not", code="order")
    lengths.append(lengths[-1])
    return tuple(
        Rate(at - first, seconds, read, write) for (at, read, write), seconds in zip(points, lengths, strict=True)
    )


# --- iostat ------------------------------------------------------------------------------------------------

# Column -> bytes. sysstat prints kB = 1024 bytes; with -m MB = 1024^2.
_IOSTAT_READ = {"rkB/s": KIB, "rMB/s": MIB, "rsec/s": SECTOR, "kB_read/s": KIB, "MB_read/s": MIB}
_IOSTAT_WRITE = {"wkB/s": KIB, "wMB/s": MIB, "wsec/s": SECTOR, "kB_wrtn/s": KIB, "MB_wrtn/s": MIB}


def parse_iostat(text: str, device: str, interval_s: float, name: str) -> tuple[Rate, ...]:
    """`iostat -x INTERVAL` (or `-d`, with `-m` or without). The first report is the mean since boot and is left out.

    In a report without the device it was quiet (`iostat -z`). Raises TraceError if there are fewer than 3 reports.
    """
    heads: list[str] = []
    reports: list[tuple[float, float]] = []
    seen: set[str] = set()
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if words and words[0].rstrip(":") == "Device":
            heads = words
            reports.append((0.0, 0.0))
        elif heads and words and len(words) == len(heads):
            seen.add(words[0])
            if words[0] == device:
                reports[-1] = _iostat_line(dict(zip(heads, words, strict=True)), name, number)
    if len(reports) < 3 or device not in seen:
        known = ", ".join(sorted(seen)) or "none"
        raise TraceError(
            f"{name} holds {len(reports) if device in seen else 0} reports of {device}: at least 3 are needed "
            f"(devices in it: {known}); name another with --device",
            code="samples",
        )
    return tuple(Rate(n * interval_s, interval_s, read, write) for n, (read, write) in enumerate(reports[1:]))


def _iostat_line(row: Mapping[str, str], name: str, line: int) -> tuple[float, float]:
    found = []
    for columns in (_IOSTAT_READ, _IOSTAT_WRITE):
        column = next((c for c in columns if c in row), None)
        if column is None:
            raise TraceError(f"{name} has no column of throughput: use `iostat -x` or `iostat -d`", code="columns")
        found.append(_number(row[column].replace(",", "."), name, line) * columns[column] / MB)
    return found[0], found[1]


# --- fio ---------------------------------------------------------------------------------------------------


def parse_fio(text: str, name: str) -> tuple[Rate, ...]:
    """A log of `--write_bw_log` with `--log_avg_msec`: `ms, KiB/s, direction (0 read, 1 write), ...` per line.

    fio writes a line at the end of each window, one for each direction; its fourth column, the size of a request, is 0
    there. Raises TraceError.
    """
    windows: dict[float, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for number, line in enumerate(text.splitlines(), 1):
        cells = [c.strip() for c in line.split(",")]
        if len(cells) < 3 or cells[2] not in ("0", "1", "2"):
            raise TraceError(f"{name}, line {number} is not a line of a fio bandwidth log: {line[:60]!r}", code="line")
        if len(cells) > 3 and cells[3] != "0":
            raise TraceError(
                f"{name}, line {number} is about a single request: run fio with --log_avg_msec=1000", code="average"
            )
        if cells[2] != "2":  # trims move no data
            ended_s = _number(cells[0], name, number) / 1000
            windows[ended_s][int(cells[2])] += _number(cells[1], name, number) * KIB / MB
    ends = sorted(windows)
    if len(ends) < 2:
        raise TraceError(
            f"{name} holds {len(ends)} windows: at least 2 are needed; run fio with --log_avg_msec=1000", code="samples"
        )
    begins = [0.0, *ends[:-1]]
    return tuple(
        Rate(begin, end - begin, *windows[end]) for begin, end in zip(begins, ends, strict=True) if end > begin
    )


# --- blktrace ----------------------------------------------------------------------------------------------

# device cpu sequence time pid action rwbs sector + blocks [process]
_BLKPARSE = re.compile(
    r"^\s*(?P<device>\d+,\d+)\s+\d+\s+\d+\s+(?P<at>\d+\.\d+)\s+\d+\s+C\s+(?P<rwbs>\S+)\s+\d+\s+\+\s+(?P<blocks>\d+)"
)
_BTT = re.compile(r"^\s*(?P<at>\d+)\s+(?P<mib>\d+\.\d+)\s*$")


def parse_blkparse(text: str, device: str, name: str) -> tuple[Rate, ...]:
    """The text of `blkparse`: completed requests (action C), summed up per second. Raises TraceError.

    Devices are named like `8,0`. A device that is stacked on another is traced as well: their sum counts bytes twice.
    """
    moved: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    for number, line in enumerate(text.splitlines(), 1):
        match = _BLKPARSE.match(line)
        if match is None or "D" in match["rwbs"]:  # a discard moves no data
            continue
        second, is_write = int(_number(match["at"], name, number)), "W" in match["rwbs"]
        moved[match["device"]][second][is_write] += _number(match["blocks"], name, number) * SECTOR / MB
    if not moved:
        raise TraceError(f"{name} holds no completed request: give the text that `blkparse` prints", code="samples")
    return _seconds((n, read, write) for n, (read, write) in sorted(_of_device(moved, device, name).items()))


def parse_btt(text: str, name: str) -> tuple[Rate, ...]:
    """A file `*_mbps_fp.dat` of btt: a line for each second with I/O, with its MiB. Raises TraceError.

    It does not distinguish reads from writes: everything counts as written.
    """
    found: dict[int, float] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = _BTT.match(line)
        if match is None:
            raise TraceError(f"{name}, line {number} is not a line of *_mbps_fp.dat: {line[:60]!r}", code="line")
        found[int(_number(match["at"], name, number))] = _number(match["mib"], name, number) * MIB / MB
    return _seconds((n, 0.0, mb) for n, mb in sorted(found.items()))


def _seconds(moved: Iterable[tuple[int, float, float]]) -> tuple[Rate, ...]:
    """From seconds in which data was moved, with MB read and written. The time between them was quiet."""
    rates: list[Rate] = []
    end = 0
    for at, read, write in moved:
        if at > end:
            rates.append(Rate(end, at - end, 0.0, 0.0))
        rates.append(Rate(at, 1.0, read, write))
        end = at + 1
    return tuple(rates)


# --- any of them -------------------------------------------------------------------------------------------

READERS: Mapping[str, Callable[[str, str, float, str], tuple[Rate, ...]]] = {
    "csv": parse_csv,
    "iostat": parse_iostat,
    "fio": lambda text, device, interval_s, name: parse_fio(text, name),
    "blkparse": lambda text, device, interval_s, name: parse_blkparse(text, device, name),
    "btt": lambda text, device, interval_s, name: parse_btt(text, name),
}
WITHOUT_DEVICES = {"fio", "btt"}


def read(path: Path, form: str = "auto", device: str = "", interval_s: float | None = None) -> tuple[Rate, ...]:
    """A trace in one of READERS' formats. `interval_s` is for iostat; None: 1 s. Raises TraceError."""
    text = read_text(path)
    form = guess(text) if form == "auto" else form
    if form == "iostat" and not device:
        raise TraceError(f"{path} is output of iostat: name the device with --device", code="device.choice")
    if form in WITHOUT_DEVICES and device:
        raise TraceError(f"{path} has format {form} and names no devices: leave --device out", code="device.unnamed")
    if form != "iostat" and interval_s is not None:
        raise TraceError(f"{path} has format {form} with its own times: leave --interval out", code="interval")
    rates = READERS[form](text, device, 1.0 if interval_s is None else interval_s, str(path))
    if not any(r.total_mb_s > 0 for r in rates):
        raise TraceError(f"{path} shows no throughput at all", code="quiet")
    return rates


def guess(text: str) -> str:
    """The format, by the beginning of the text."""
    head = text[:4000]
    first = head.partition("\n")[0]
    if "Device" in head and "/s" in head:
        return "iostat"
    if "write_mb_s" in first:
        return "csv"
    if any(_BLKPARSE.match(line) for line in head.splitlines()):
        return "blkparse"
    if _BTT.match(first):
        return "btt"
    return "fio" if re.match(r"^\s*\d+\s*,\s*\d+\s*,\s*[012]\s*,", head) else "csv"


def read_text(path: Path) -> str:
    """The text of a file in UTF-8, UTF-16 or UTF-32, compressed by gzip or not. Raises TraceError."""
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
            if raw.startswith(b"\x1f\x8b"):
                file.seek(0)
                raw = gzip.GzipFile(fileobj=file).read(MOST_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"{path} is not a whole gzip file: {error}", code="gzip") from error
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror or error}", code="file") from error
    if len(raw) > MOST_BYTES:
        raise TraceError(f"{path} is larger than {MOST_BYTES // MIB} MiB: take a part, or fewer samples", code="size")
    try:
        return text_of(raw)
    except UnicodeDecodeError as error:
        text = f"{path} is neither UTF-8 nor UTF-16 text (byte {error.start}): save it as UTF-8"
        raise TraceError(text, code="encoding") from error
