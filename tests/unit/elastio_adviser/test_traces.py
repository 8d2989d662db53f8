"""Traces of other tools: every format is read, and what is not a trace is rejected."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from elastio_adviser import traces
from elastio_adviser.rates import Rate, TraceError
from elastio_adviser.traces import (
    guess,
    parse_blkparse,
    parse_csv,
    read,
    read_text,
)
from tests.fixtures.errors import refused

CSV = "seconds,read_mb_s,write_mb_s\n0,0,1\n2,10,20\n5,0,0\n"
EXPORTED = """device_uuid,begun,begun_wall,seconds,read_mb_s,write_mb_s
u-1,2026-11-20T08:00:00+00:00,1000.0,60.0,0.0,1.0
u-1,2026-11-20T08:01:00+00:00,1060.0,1.0,5.0,90.0
u-1,2026-11-20T08:02:01+00:00,1121.0,1.0,0.0,80.0
"""
IOSTAT = """Linux 6.1.0-32-amd64 (vm) \t11/20/26 \t_x86_64_\t(2 CPU)

Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s   wrqm/s  %util
bcache0          0.10      9.00     0.00   0.00    1.00    40.00    0.20     99.00     0.00   0.10
vdb              0.10      9.00     0.00   0.00    1.00    40.00    0.20     99.00     0.00   0.10

Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s   wrqm/s  %util
bcache0          0.00      0.00     0.00   0.00    0.00     0.00   90.00  97656.25     0.00 100.00
vdb              0.00      0.00     0.00   0.00    0.00     0.00    1.00      1.00     0.00   1.00

Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s   wrqm/s  %util
bcache0          5.00   1000.00     0.00   0.00    0.00     0.00    0.00      0.00     0.00   1.00
vdb              0.00      0.00     0.00   0.00    0.00     0.00    0.00      0.00     0.00   0.00
"""
FIO = "1000, 97656, 1, 0, 0\n1000, 1000, 0, 0, 0\n2000, 48828, 1, 0, 0\n"
BTT = "0 95.367432\n1 0.953674\n4 9.536743\n"
BLKPARSE = """  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
  8,0    3        2     0.100000000     0  C   W 223490 + 2048 [0]
  8,0    1        3     0.900000000     0  C  RA 223490 + 1024 [0]
  8,0    1        4     2.500000000     0  C  WS 223490 + 4096 [0]
  8,0    1        5     2.600000000     0  C   D 223490 + 4096 [0]
CPU3 (sda):
 Reads Queued:           0,        0KiB  Writes Queued:         2,    8KiB
"""


@pytest.mark.parametrize(
    ("text", "form", "device", "rates"),
    [
        (CSV, "csv", "", [(0, 2, 0, 1), (2, 3, 10, 20), (5, 3, 0, 0)]),  # a line lasts until the next one
        (EXPORTED, "csv", "", [(0, 60, 0, 1), (60, 1, 5, 90), (61, 60, 0, 0), (121, 1, 0, 80)]),  # a gap is quiet
        (IOSTAT, "iostat", "bcache0", [(0, 1, 0, 100), (1, 1, 1.024, 0)]),  # not the first report
        (FIO, "fio", "", [(0, 1, 1.024, 100), (1, 1, 0, 50)]),
        (BLKPARSE, "blkparse", "", [(0, 1, 0.524288, 1.048576), (1, 1, 0, 0), (2, 1, 0, 2.097152)]),  # what completed
        (BTT, "btt", "", [(0, 1, 0, 100), (1, 1, 0, 1), (2, 2, 0, 0), (4, 1, 0, 10)]),  # the seconds with data
    ],
)
def test_every_format_is_found_out_and_read(
    text: str, form: str, device: str, rates: list[tuple[float, ...]], tmp_path: Path
) -> None:
    (tmp_path / "t").write_text(text)
    found = [(r.at_s, r.seconds, r.read_mb_s, r.write_mb_s) for r in read(tmp_path / "t", device=device).rates]
    assert found == [pytest.approx(rate, rel=1e-4) for rate in rates]
    assert guess(text) == form


@pytest.mark.parametrize("order", ["u-1,u-2", "u-2,u-1"])
def test_a_device_that_is_the_last_column_is_recognized(order: str) -> None:
    first, second = order.split(",")
    text = f"begun_wall,seconds,read_mb_s,write_mb_s,device_uuid\n0,1,0,5,{first}\n0,1,0,7,{second}\n"
    assert parse_csv(text, "u-2", "t") == (Rate(0, 1, 0, 7 if second == "u-2" else 5),)


def test_the_only_device_may_be_named_or_not() -> None:
    assert parse_csv(EXPORTED, "u-1", "t") == parse_csv(EXPORTED, "", "t")
    assert parse_blkparse(BLKPARSE, "8,0", "t") == parse_blkparse(BLKPARSE, "", "t")


def test_a_byte_order_mark_and_other_line_ends_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbf" + CSV.replace("\n", "\r\n").encode())
    assert read(tmp_path / "t.csv").rates == parse_csv(CSV, "", "t")


ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32")


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_file_is_read_in_each_encoding_of_unicode_and_compressed(encoding: str, tmp_path: Path) -> None:
    raw = "größe µ\r\n".encode(encoding)
    (tmp_path / "t").write_bytes(raw)
    (tmp_path / "t.gz").write_bytes(gzip.compress(raw))
    assert read_text(tmp_path / "t") == read_text(tmp_path / "t.gz") == "größe µ\r\n"


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        ("größe".encode("latin-1"), "encoding"),
        (b"\xff\xfe\x00", "encoding"),
        (gzip.compress(b"whole", mtime=0)[:-3], "gzip"),
        (b"\x1f\x8brubbish", "gzip"),
    ],
)
def test_what_is_no_text_is_refused(raw: bytes, code: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(raw)
    with pytest.raises(TraceError) as refused:
        read_text(tmp_path / "t")
    assert refused.value.code == code


def test_blkparse_counts_the_device_that_is_named() -> None:
    mapped = BLKPARSE + BLKPARSE.replace("  8,0 ", "253,0 ").replace("+ 2048", "+ 1024")
    assert [r.write_mb_s for r in parse_blkparse(mapped, "253,0", "t")] == pytest.approx([0.524288, 0, 2.097152])


def test_a_long_pause_in_blkparse_is_one_segment() -> None:
    late = BLKPARSE + "  8,0 1 6 99999999999.5 0 C WS 223490 + 4096 [0]\n"
    found = parse_blkparse(late, "", "t")
    assert [(r.at_s, r.seconds) for r in found] == [(0, 1), (1, 1), (2, 1), (3, 99999999996), (99999999999, 1)]


HEAD = "seconds,read_mb_s,write_mb_s\n"


@pytest.mark.parametrize(
    ("text", "form", "device", "code"),
    [
        ("a,b\n1,2\n", "csv", "", "head"),
        (HEAD + "0,0,1\n", "csv", "", "samples"),
        (HEAD + "0,0,1\n0,0,1\n", "csv", "", "order"),
        (HEAD + "0,0,x\n1,0,1\n", "csv", "", "number"),
        (HEAD + "0,0,-1\n1,0,1\n", "csv", "", "range"),
        (HEAD + "0,0\n1,0,1\n", "csv", "", "columns"),
        (HEAD + "0,0,1\n1,0,0,5\n", "csv", "", "columns"),
        (HEAD + '0,0,"' + "1" * 150_000, "csv", "", "csv"),
        (HEAD + "0,0,0\n1,0,0\n", "csv", "", "quiet"),
        (CSV, "csv", "sda", "device.unnamed"),
        (EXPORTED + "u-1,x,1121.5,1,0,1\n", "csv", "", "order"),
        (EXPORTED + "u-2,x,1\n", "csv", "", "columns"),
        (EXPORTED, "csv", "sda", "device.choice"),
        (EXPORTED + "u-2,x,1200.0,1.0,0.0,7.0\n", "csv", "", "device.choice"),
        (IOSTAT, "iostat", "sdz", "samples"),
        (IOSTAT, "iostat", "", "device.choice"),
        (IOSTAT.replace("97656.25", "nan"), "iostat", "bcache0", "range"),
        (IOSTAT.replace("97656.25", "-1"), "iostat", "bcache0", "range"),
        (IOSTAT.replace("97656.25", "1e300"), "iostat", "bcache0", "range"),
        ("Device tps\nsda 1\nsda 1\nsda 1\n", "iostat", "sda", "columns"),
        ("1000, 5, 7, 1\n", "fio", "", "line"),
        ("1000, 5, 1, 0\n", "fio", "", "samples"),
        (FIO + "2001, 5, 1, 4096, 0\n", "fio", "", "average"),
        (FIO, "auto", "sda", "device.unnamed"),
        ("0 1.5\nx\n", "btt", "", "line"),
        (BTT, "auto", "8,0", "device.unnamed"),
        (BLKPARSE, "blkparse", "8,1", "device.choice"),
        (BLKPARSE + BLKPARSE.replace("8,0", "253,0"), "blkparse", "", "device.choice"),
        (BLKPARSE + f"8,0 1 6 {'9' * 400}.5 0 C W 1 + 8 [0]\n", "blkparse", "", "range"),
        ("nothing\n", "blkparse", "", "samples"),
    ],
)
def test_rejects_what_is_not_a_trace(text: str, form: str, device: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_text(text)
    with refused(TraceError, code):
        read(tmp_path / "t", form, device)


@pytest.mark.parametrize(("path", "code"), [("/dev/zero", "size"), ("/nowhere/t", "file")])
def test_rejects_a_file_that_never_ends_or_is_missing(path: str, code: str) -> None:
    with refused(TraceError, code):
        read(Path(path))


def test_the_interval_is_for_iostat_only(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(CSV)
    with refused(TraceError, "interval"):
        read(tmp_path / "t.csv", interval_s=5.0)


def test_the_first_window_of_fio_is_as_long_as_the_others_however_late_it_ends() -> None:
    late = "61000, 97656, 1, 0, 0\n62000, 48828, 1, 0, 0\n"
    assert [(r.at_s, r.seconds) for r in traces.parse_fio(late, "t")] == [(0, 1), (1, 1)]


def test_both_directions_of_a_window_of_fio_may_end_some_milliseconds_apart() -> None:
    apart = "1001, 1000, 0, 0, 0\n1000, 97656, 1, 0, 0\n2000, 48828, 1, 0, 0\n"
    assert [(r.at_s, r.seconds, r.read_mb_s > 0) for r in traces.parse_fio(apart, "t")] == [(0, 1, True), (1, 1, False)]


@pytest.mark.parametrize(
    ("text", "form"),
    [(FIO + "2001, 48828, 1, 0, 0\n", "fio"), (FIO + FIO, "fio"), (BTT + "4 9.536743\n", "btt")],
)
def test_a_sample_that_is_there_twice_is_refused(text: str, form: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_text(text)
    with refused(TraceError, "order"):
        read(tmp_path / "t", form)
