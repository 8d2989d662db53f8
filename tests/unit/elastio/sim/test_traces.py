"""Traces from elsewhere: each format is read, and what is no trace is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastio.sim.traces import Rate, TraceError, guess, parse_blkparse, parse_csv, parse_fio, parse_iostat, read

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
FIO = "1000, 97656, 1, 1048576, 0\n1000, 1000, 0, 1048576, 0\n2000, 48828, 1, 1048576, 0\n"
BLKPARSE = """  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
  8,0    3        2     0.100000000     0  C   W 223490 + 2048 [0]
  8,0    1        3     0.900000000     0  C  RA 223490 + 1024 [0]
  8,0    1        4     2.500000000     0  C  WS 223490 + 4096 [0]
  8,0    1        5     2.600000000     0  C   D 223490 + 4096 [0]
CPU3 (sda):
 Reads Queued:           0,        0KiB  Writes Queued:         2,    8KiB
"""


def test_csv_lines_last_until_the_next_one() -> None:
    assert parse_csv(CSV, "", 1.0, "t") == (Rate(0, 2, 0, 1), Rate(2, 3, 10, 20), Rate(5, 3, 0, 0))


def test_the_agents_own_samples_are_read_with_their_gaps_as_quiet() -> None:
    assert parse_csv(EXPORTED, "", 1.0, "t") == (
        Rate(0, 60, 0, 1),
        Rate(60, 1, 5, 90),
        Rate(61, 60, 0, 0),
        Rate(121, 1, 0, 80),
    )


def test_one_of_several_devices_has_to_be_named() -> None:
    two = EXPORTED + "u-2,x,1200.0,1.0,0.0,7.0\n"
    with pytest.raises(TraceError, match=r"holds 2 devices: name one with --device \(u-1, u-2\)"):
        parse_csv(two, "", 1.0, "t")
    assert parse_csv(two, "u-2", 1.0, "t") == (Rate(0, 1, 0, 7),)


def test_iostat_is_read_without_its_first_report() -> None:
    found = parse_iostat(IOSTAT, "bcache0", 2.0, "t")
    assert found == (Rate(0, 2, 0, 100.0), Rate(2, 2, 1.024, 0))


def test_fio_windows_hold_both_directions() -> None:
    found = parse_fio(FIO, "t")
    assert [(r.at_s, r.seconds) for r in found] == [(0, 1), (1, 1)]
    assert found[0].write_mb_s == pytest.approx(100, rel=1e-4)
    assert found[0].read_mb_s == pytest.approx(1.024)
    assert found[1].write_mb_s == pytest.approx(50, rel=1e-4)


def test_blkparse_sums_what_was_completed() -> None:
    found = parse_blkparse(BLKPARSE, "t")
    assert [r.write_mb_s for r in found] == pytest.approx([1.048576, 0, 2.097152])
    assert [r.read_mb_s for r in found] == pytest.approx([0.524288, 0, 0])


@pytest.mark.parametrize(
    ("text", "form"), [(CSV, "csv"), (EXPORTED, "csv"), (IOSTAT, "iostat"), (FIO, "fio"), (BLKPARSE, "blkparse")]
)
def test_the_format_is_found_out(text: str, form: str) -> None:
    assert guess(text) == form


@pytest.mark.parametrize(
    ("text", "form", "device", "sentence"),
    [
        ("a,b\n1,2\n", "csv", "", "its head must be seconds,read_mb_s,write_mb_s, seconds is missing"),
        ("seconds,read_mb_s,write_mb_s\n0,0,1\n", "csv", "", "holds 1 sample: at least 2 are needed"),
        ("seconds,read_mb_s,write_mb_s\n0,0,1\n0,0,1\n", "csv", "", "its times must rise, 0 s does not"),
        ("seconds,read_mb_s,write_mb_s\n0,0,x\n1,0,1\n", "csv", "", "line 2: 'x' is no number"),
        ("seconds,read_mb_s,write_mb_s\n0,0,-1\n1,0,1\n", "csv", "", "line 2: -1 is not allowed"),
        ("seconds,read_mb_s,write_mb_s\n0,0\n1,0,1\n", "csv", "", "line 2: None is no number"),
        (EXPORTED + "u-1,x,1121.5,1,0,1\n", "csv", "", "its rows must follow each other"),
        (IOSTAT, "iostat", "sdz", r"0 reports of sdz: at least 3 .*devices in it: bcache0, vdb"),
        (IOSTAT, "iostat", "", "name the device with --device"),
        ("Device tps\nsda 1\nsda 1\nsda 1\n", "iostat", "sda", "has no column of throughput"),
        ("1000, 5, 7, 1\n", "fio", "", "line 1 is no line of a fio bandwidth log"),
        ("1000, 5, 1, 1\n", "fio", "", "holds 1 windows"),
        ("nothing\n", "blkparse", "", "holds no completed request"),
        ("seconds,read_mb_s,write_mb_s\n0,0,0\n1,0,0\n", "csv", "", "shows no throughput at all"),
    ],
)
def test_refuses_what_is_no_trace(text: str, form: str, device: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_text(text)
    with pytest.raises(TraceError, match=sentence):
        read(tmp_path / "t", form, device)


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read"):
        read(tmp_path / "t")
