"""Reads traces of throughput: CSV, `iostat -x`, bandwidth logs of fio, blkparse, btt.

Pure except for reading files. Every format becomes a list of `Rate`. A reader rejects a line that it cannot read, and
names it, instead of skipping it.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import statistics
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from elastio.codec import text_of
from elastio.units import KIB, MB, MIB, SECTOR
from elastio_adviser import iostat
from elastio_adviser.rates import Rate, Trace, TraceError, number

MOST_BYTES = 256 * MIB
T = TypeVar("T")
COLUMNS = ("seconds", "read_mb_s", "write_mb_s")


def read_csv(path: Path, device: str = "") -> tuple[Rate, ...]:
    """See `parse_csv`."""
    return parse_csv(read_text(path), device, str(path))


def parse_csv(text: str, device: str, name: str) -> tuple[Rate, ...]:
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
        found[row.get("device_uuid", "")].append(tuple(number(row[c], name, reader.line_num) for c in columns))
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


# --- fio ---------------------------------------------------------------------------------------------------


def parse_fio(text: str, name: str) -> tuple[Rate, ...]:
    """A log of `--write_bw_log` with `--log_avg_msec`: `ms, KiB/s, direction (0 read, 1 write), ...` per line.

    fio writes a line at the end of each window, one for each direction; its fourth column, the size of a request, is 0
    there. Raises TraceError.
    """
    found: list[tuple[float, bool, float]] = []
    for line_number, line in enumerate(text.splitlines(), 1):
        cells = [c.strip() for c in line.split(",")]
        if len(cells) < 3 or cells[2] not in ("0", "1", "2"):
            raise TraceError(
                f"{name}, line {line_number} is not a line of a fio bandwidth log: {line[:60]!r}", code="line"
            )
        if len(cells) > 3 and cells[3] != "0":
            raise TraceError(
                f"{name}, line {line_number} is about a single request: run fio with --log_avg_msec=1000",
                code="average",
            )
        if cells[2] != "2":  # trims move no data
            ended_s, rate = number(cells[0], name, line_number) / 1000, number(cells[1], name, line_number)
            found.append((ended_s, cells[2] == "1", rate * KIB / MB))
    return _fio_windows(sorted(found), name)


def _fio_windows(lines: Sequence[tuple[float, bool, float]], name: str) -> tuple[Rate, ...]:
    """The lines of both directions that end a window together: some milliseconds may be between them."""
    ends = ([at for at, is_write, _ in lines if is_write == way] for way in (False, True))
    apart = [after - before for each in ends for before, after in pairwise(each) if after > before]
    if not apart:
        raise TraceError(
            f"{name} holds {len(lines)} windows: at least 2 are needed; run fio with --log_avg_msec=1000",
            code="samples",
        )
    usual, windows, last = statistics.median(apart), [(0.0, [0.0, 0.0])], -math.inf
    windows[0] = (max(0.0, lines[0][0] - usual), [0.0, 0.0])  # a job may have begun to write late
    for at, is_write, rate in lines:
        if not windows[1:] or at - last >= usual / 2:
            windows.append((at, [0.0, 0.0]))
            written, last = set[bool](), at
        if is_write in written:
            raise TraceError(f"{name}: two windows end at {at:g} s: give the log of one job", code="order")
        written.add(is_write)
        windows[-1][1][is_write] = rate
    return tuple(
        Rate(begin - windows[0][0], end - begin, *rates)
        for (begin, _), (end, rates) in pairwise(windows)
        if end > begin
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
    for line_number, line in enumerate(text.splitlines(), 1):
        match = _BLKPARSE.match(line)
        if match is None or "D" in match["rwbs"]:  # a discard moves no data
            continue
        second, is_write = int(number(match["at"], name, line_number)), "W" in match["rwbs"]
        moved[match["device"]][second][is_write] += number(match["blocks"], name, line_number) * SECTOR / MB
    if not moved:
        raise TraceError(f"{name} holds no completed request: give the text that `blkparse` prints", code="samples")
    return _seconds((n, read, write) for n, (read, write) in sorted(_of_device(moved, device, name).items()))


def parse_btt(text: str, name: str) -> tuple[Rate, ...]:
    """A file `*_mbps_fp.dat` of btt: a line for each second with I/O, with its MiB. Raises TraceError.

    It does not distinguish reads from writes: everything counts as written.
    """
    found: dict[int, float] = {}
    for line_number, line in enumerate(text.splitlines(), 1):
        match = _BTT.match(line)
        if match is None:
            raise TraceError(f"{name}, line {line_number} is not a line of *_mbps_fp.dat: {line[:60]!r}", code="line")
        second = int(number(match["at"], name, line_number))
        if second in found:
            raise TraceError(f"{name}, line {line_number}: second {second} is there twice", code="order")
        found[second] = number(match["mib"], name, line_number) * MIB / MB
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

READERS: Mapping[str, Callable[[str, str, str], tuple[Rate, ...]]] = {
    "csv": parse_csv,
    "fio": lambda text, device, name: parse_fio(text, name),
    "blkparse": parse_blkparse,
    "btt": lambda text, device, name: parse_btt(text, name),
}
FORMATS = ("iostat", *READERS)
WITHOUT_DEVICES = {"fio", "btt"}


def read(path: Path, form: str = "auto", device: str = "", interval_s: float | None = None) -> Trace:
    """A trace in one of FORMATS. `interval_s` is for iostat; None: as its times say, else 1 s. Raises TraceError."""
    text = read_text(path)
    form = guess(text) if form == "auto" else form
    if form == "iostat" and not device:
        raise TraceError(f"{path} is output of iostat: name the device with --device", code="device.choice")
    if form in WITHOUT_DEVICES and device:
        raise TraceError(f"{path} has format {form} and names no devices: leave --device out", code="device.unnamed")
    if form != "iostat" and interval_s is not None:
        raise TraceError(f"{path} has format {form} with its own times: leave --interval out", code="interval")
    if form == "iostat":
        found = iostat.parse(text, device, interval_s, str(path))
    else:
        found = Trace(READERS[form](text, device, str(path)))
    if not any(r.total_mb_s > 0 for r in found.rates):
        raise TraceError(f"{path} shows no throughput at all", code="quiet")
    return found


def guess(text: str) -> str:
    """The format, by the beginning of the text."""
    head = text[:4000]
    first = head.partition("\n")[0]
    if "/s" in head and ("Device" in head or '"disk_device"' in head):
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
