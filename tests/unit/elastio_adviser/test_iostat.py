"""Reports of iostat: how long each is about, and what is refused because this is not known."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from elastio_adviser.iostat import parse
from elastio_adviser.rates import Trace, TraceError
from tests.fixtures.errors import refused

BANNER = "Linux 6.1.0-28-amd64 (db1) \t11/21/26 \t_x86_64_\t(2 CPU)\n\n"
HEAD = "Device            r/s     rkB/s     w/s     wkB/s  %util\n"


def report(kib: float, *, stamp: str = "", point: str = ".", device: str = "sda") -> str:
    row = f"{device} 0.00 0.00 1.00 {kib:.2f} 1.00\n".replace(".", point)
    return f"{stamp}\n{HEAD}{row}\n" if stamp else f"{HEAD}{row}\n"


def run(stamps: Sequence[str], point: str = ".") -> str:
    return BANNER + "".join(report(1000.0 * n, stamp=stamp, point=point) for n, stamp in enumerate(stamps))


def lengths(text: str, interval_s: float | None = None) -> list[float]:
    return [r.seconds for r in parse(text, "sda", interval_s, "t").rates]


def moved(trace: Trace) -> list[float]:
    return [round(r.write_mb_s, 3) for r in trace.rates]


@pytest.mark.parametrize(
    "stamps",
    [
        ("11/21/26 08:00:00 AM", "11/21/26 08:00:10 AM", "11/21/26 08:00:20 AM"),
        ("11/21/2026 11:59:50 AM", "11/21/2026 12:00:00 PM", "11/21/2026 12:00:10 PM"),
        ("11/21/2026 11:59:50 PM", "11/22/2026 12:00:00 AM", "11/22/2026 12:00:10 AM"),
        ("21.11.2026 23:59:45", "21.11.2026 23:59:55", "22.11.2026 00:00:05"),
        ("21/11/26 20:00:00", "21/11/26 20:00:10", "21/11/26 20:00:20"),
        ("2026-11-21T08:00:00+0100", "2026-11-21T08:00:10+0100", "2026-11-21T08:00:20+0100"),
        ("2026-10-25T02:59:50+0200", "2026-10-25T02:00:00+0100", "2026-10-25T02:00:10+0100"),
        ("2026-12-31T23:59:55Z", "2027-01-01T00:00:05Z", "2027-01-01T00:00:15Z"),
        ("2026年11月21日 08時00分00秒", "2026年11月21日 08時00分10秒", "2026年11月21日 08時00分20秒"),
        ("21/11/2026 08.00.00", "21/11/2026 08.00.10", "21/11/2026 08.00.20"),
        ("21/11/26 08:00:00 p. m.", "21/11/26 08:00:10 p. m.", "21/11/26 08:00:20 p. m."),
        ("Time: 23:59:50", "Time: 00:00:00", "Time: 00:00:10"),
    ],
)
def test_the_interval_is_that_of_the_times(stamps: tuple[str, ...]) -> None:
    assert lengths(run(stamps)) == [10, 10]
    assert lengths(run(stamps, point=",").replace("\n", "\r\n"), 10.0) == [10, 10]
    assert parse(run(stamps), "sda", None, "t").said == ()


def test_without_times_an_interval_is_assumed_and_said_or_given() -> None:
    text = run(("", "", ""))
    assert (lengths(text), len(parse(text, "sda", None, "t").said)) == ([1, 1], 1)
    assert (lengths(text, 5.0), parse(text, "sda", 5.0, "t").said) == ([5, 5], ())


def test_a_report_after_a_pause_is_the_mean_since_the_one_before() -> None:
    assert lengths(run(("1/2/26 08:00:00", "1/2/26 08:00:10", "1/2/26 08:07:00", "1/2/26 08:07:10"))) == [10, 410, 10]


def test_whole_seconds_of_times_are_shared() -> None:
    stamps = [f"1/2/26 08:00:{second:02}" for second in (0, 1, 1, 3, 4)]
    assert lengths(run(stamps)) == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("stamps", "interval_s", "code"),
    [
        (("1/2/26 08:00:00", "1/2/26 08:00:10", "1/2/26 08:00:20"), 1.0, "interval"),
        (("1/2/26 08:00:00", "1/2/26 08:00:01", "1/2/26 08:00:02"), 10.0, "interval"),
        (("1/2/26 08:00:00", "1/2/26 07:00:10", "1/2/26 07:00:20"), None, "clock"),
        (("1/2/26 08:00:00", "2/2/26 08:00:10", "2/2/26 08:00:20"), None, "clock"),
        (("1/2/26 01:59:40", "1/2/26 01:59:50", "1/2/26 03:00:00"), None, "clock"),
        (("1/2/26 08:00:00", "1/2/26 08:00:00", "1/2/26 08:00:00"), None, "clock"),
        (("Time: 08:00:00", "Time: 07:00:10", "Time: 07:00:20"), None, "clock"),
        (("1/2/26 08:00:00", "", "1/2/26 08:00:20"), None, "times"),
    ],
)
def test_times_that_do_not_tell_the_interval_are_refused(
    stamps: tuple[str, ...], interval_s: float | None, code: str
) -> None:
    with refused(TraceError, code):
        parse(run(stamps), "sda", interval_s, "t")


def test_the_first_report_of_each_run_is_left_out_and_the_time_between_two_runs_is_said() -> None:
    first, second = (run([f"1/2/26 08:{minute}:{s:02}" for s in (0, 10, 20)]) for minute in ("00", "10"))
    found = parse(first + second, "sda", None, "t")
    assert [r.seconds for r in found.rates] == [10, 10, 580, 10, 10]
    assert moved(found) == [1.024, 2.048, 0, 1.024, 2.048]
    assert len(found.said) == 1
    with refused(TraceError, "runs"):
        parse(run(("", "", "")) * 2, "sda", 1.0, "t")


def test_a_report_without_the_device_shows_that_it_was_quiet() -> None:
    text = run(("", "")) + report(7, device="sdb") + report(5)
    assert moved(parse(text, "sda", 1.0, "t")) == [1.024, 0, 0.005]


def test_reports_of_the_processors_are_passed_over() -> None:
    cpu = "avg-cpu:  %user   %nice %system %iowait  %steal   %idle\n  1.00    0.00    0.75    0.13    0.00   98.12\n\n"
    stamps = [f"1/2/26 08:00:{s}0" for s in range(3)]
    text = BANNER + "".join(f"{stamp}\n{cpu}{report(1000.0)}" for stamp in stamps)
    assert lengths(text) == [10, 10]


@pytest.mark.parametrize("line", ["sda 0.00 0.00 1.00\n", "sda 0.00 0.00 1.00 9.00 1.00\n", "rubbish\n"])
def test_a_line_that_is_cut_or_there_twice_is_refused(line: str) -> None:
    with refused(TraceError, "line"):
        parse(run(("", "", "")).rstrip() + "\n" + line, "sda", 1.0, "t")


def test_json_of_iostat_has_the_same_reports() -> None:
    rows = [{"disk_device": "sda", "rkB/s": 0.0, "wkB/s": 1000.0 * n} for n in range(3)]
    entries = [{"timestamp": f"11/21/26 08:00:{n}0 AM", "disk": [row]} for n, row in enumerate(rows)]
    text = json.dumps({"sysstat": {"hosts": [{"nodename": "db1", "statistics": entries}]}})
    stamps = [f"11/21/26 08:00:{n}0 AM" for n in range(3)]
    assert parse(text, "sda", None, "t") == parse(run(stamps), "sda", None, "t")
    with refused(TraceError, "structure"):
        parse("{", "sda", None, "t")
