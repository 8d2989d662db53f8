"""One load in every format, cut, merged, shuffled, repeated and resampled: the same samples or a refusal."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastio.units import KIB, MB
from elastio_adviser import iostat, traces
from elastio_adviser.counters import Counter, means
from elastio_adviser.metric_files import Found, parse, reading
from elastio_adviser.rates import Rate, TraceError
from elastio_adviser.series import Series

VOLUME = "vol-0a1b2c3d4e5f60718"
START = datetime(2026, 11, 6, 23, 50, tzinfo=UTC)
Load = list[tuple[float, float]]
"""MB/s read and written in each period."""
# Of a load that is never quite idle, as of a disk with a journal.
MB_S = st.floats(min_value=0.01, max_value=500.0).map(lambda mb_s: round(mb_s, 3))
LOADS = st.lists(st.tuples(MB_S, MB_S), min_size=4, max_size=40)
PERIODS = st.sampled_from([1, 10, 60, 300])


def moment(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


# --- the formats -------------------------------------------------------------------------------------------------


def results(load: Load, period: int, first: int = 0) -> list[dict[str, Any]]:
    """Of get-metric-data, for the periods from `first` on."""
    return [
        {
            "Id": f"m{way}",
            "Label": f"{VOLUME} {metric}",
            "StatusCode": "Complete",
            "Timestamps": [moment((first + n) * period).isoformat() for n in range(len(load))],
            "Values": [each[way] * period * MB for each in load],
        }
        for way, metric in enumerate(("VolumeReadBytes", "VolumeWriteBytes"))
    ]


def document(found: Sequence[dict[str, Any]]) -> list[Found]:
    return parse(json.dumps({"MetricDataResults": found}), "x", "x.json")


def metric_data(load: Load, period: int) -> list[Rate]:
    return only(document(results(load, period)))


def metric_statistics(load: Load, period: int) -> list[Rate]:
    found: list[Found] = []
    for result in results(load, period):
        rows = zip(result["Timestamps"], result["Values"], strict=True)
        points = [{"Timestamp": at, "Sum": value, "Unit": "Bytes"} for at, value in rows]
        text = json.dumps({"Label": result["Label"], "Datapoints": points[::-1]})
        found += parse(text, VOLUME, "x.json")
    return only(found)


def sysstat(load: Load, period: int) -> list[Rate]:
    def entry(n: int, read: float, written: float) -> dict[str, Any]:
        end = moment((n + 1) * period)
        stamp = {"date": f"{end:%Y-%m-%d}", "time": f"{end:%H:%M:%S}", "utc": 1, "interval": period}
        return {"timestamp": stamp, "disk": [{"disk-device": "vdb", "rkB": read * MB / KIB, "wkB": written * MB / KIB}]}

    entries = [entry(n, *each) for n, each in enumerate(load)]
    return only(parse(json.dumps({"sysstat": {"hosts": [{"nodename": "vm", "statistics": entries}]}}), "x", "x.json"))


def matrix(*found: tuple[dict[str, str], list[list[Any]]]) -> list[Found]:
    result = [{"metric": labels, "values": values} for labels, values in found]
    return parse(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}), "x", "x.json")


def counters(load: Load, period: int) -> list[Rate]:
    found = []
    for way, metric in enumerate(("read", "written")):
        total, values = 7e9, [[START.timestamp(), "7e9"]]
        for n, each in enumerate(load, 1):
            total += each[way] * period * MB
            values.append([START.timestamp() + n * period, repr(total)])
        found.append(({"__name__": f"node_disk_{metric}_bytes_total", "instance": "vm", "device": "vdb"}, values))
    return only(matrix(*found))


def rates(load: Load, period: int) -> list[Rate]:
    times = [START.timestamp() + (n + 1) * period for n in range(len(load))]
    return only(
        matrix(*(
            ({"device": "vdb", "op": op}, [[at, repr(each[way] * MB)] for at, each in zip(times, load, strict=True)])
            for way, op in enumerate(("read", "write"))
        ))
    )  # fmt: skip


def iostat_text(load: Load, period: int) -> list[Rate]:
    lines = ["Linux 6.1.0 (vm) \t11/06/26 \t_x86_64_\t(2 CPU)"]
    for n, (read, written) in enumerate([(9e5, 9e5), *load]):
        row = f"vdb {read * MB / KIB:.9f} {written * MB / KIB:.9f}".replace(".", ",")
        lines += ["", f"{moment(n * period):%m/%d/%Y %I:%M:%S %p}", "Device rkB/s wkB/s", row]
    return list(iostat.parse("\r\n".join(lines), "vdb", None, "t").rates)


def exported(load: Load, period: int) -> list[Rate]:
    rows = [f"{n * period},{period},{read},{written}" for n, (read, written) in enumerate(load)]
    return list(traces.parse_csv("\n".join(["begun_wall,seconds,read_mb_s,write_mb_s", *rows]), "", "t"))


def only(found: Sequence[Found]) -> list[Rate]:
    (recording,) = reading(found).recordings
    assert recording.missing_s == 0
    return list(recording.rates)


FORMATS = (metric_data, metric_statistics, sysstat, counters, rates, iostat_text, exported)


def shown(found: Sequence[Rate]) -> list[Any]:
    return [pytest.approx((r.at_s, r.seconds, r.read_mb_s, r.write_mb_s), rel=1e-4, abs=1e-4) for r in found]


def of(load: Load, period: int) -> list[Any]:
    return [(n * period, period, read, written) for n, (read, written) in enumerate(load)]


def or_refused(call: Callable[[], list[Rate]]) -> list[Rate] | None:
    try:
        return call()
    except TraceError:
        return None


# --- the properties ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMATS)
@given(load=LOADS, period=PERIODS)
def test_every_format_tells_the_same_load(form: Callable[[Load, int], list[Rate]], load: Load, period: int) -> None:
    found = or_refused(lambda: form(load, period))
    assert found is not None or form is counters  # a load may look like one that was resampled
    assert found is None or of(load, period) == shown(found)


@given(load=LOADS, period=PERIODS, data=st.data())
def test_pages_that_are_joined_are_the_whole(load: Load, period: int, data: st.DataObject) -> None:
    borders = sorted({0, len(load), *data.draw(st.lists(st.integers(0, len(load)), max_size=4))})
    pages = [results(load[first:last], period, first) for first, last in pairwise(borders)]
    for page in pages[:-1]:
        for result in page:
            result["StatusCode"] = "PartialData"
    for result in (result for page in pages for result in page):
        order = data.draw(st.permutations(range(len(result["Values"]))))
        result["Timestamps"], result["Values"] = ([result[key][n] for n in order] for key in ("Timestamps", "Values"))
    assert of(load, period) == shown(only(document([result for page in pages for result in page])))


@given(load=LOADS, period=PERIODS, data=st.data())
def test_files_that_overlap_are_the_whole_and_a_value_that_differs_is_refused(
    load: Load, period: int, data: st.DataObject
) -> None:
    last = data.draw(st.integers(2, len(load)))
    first = data.draw(st.integers(0, min(last, len(load) - 2)))
    later = [*load[first:]]
    files = data.draw(st.permutations([results(load[:last], period), results(later, period, first)]))
    assert of(load, period) == shown(only([part for each in files for part in document(each)]))
    if first < last:
        later[data.draw(st.integers(0, last - first - 1))] = (501.0, 501.0)
        changed = [*document(results(load[:last], period)), *document(results(later, period, first))]
        assert or_refused(lambda: only(changed)) is None


@given(load=LOADS, period=PERIODS, data=st.data())
def test_samples_that_are_missing_are_quiet_and_make_no_peak(load: Load, period: int, data: st.DataObject) -> None:
    kept = sorted(data.draw(st.sets(st.integers(0, len(load) - 1), min_size=2)))
    found = results(load, period)
    for result in found:
        for key in ("Timestamps", "Values"):
            result[key] = [result[key][n] for n in kept]
    try:
        (recording,) = reading(document(found)).recordings
    except TraceError:
        return
    step = min(after - before for before, after in pairwise(kept))
    if step == 1:
        moved = sum(r.seconds * r.write_mb_s for r in recording.rates)
        assert moved == pytest.approx(sum(load[n][1] for n in kept) * period, rel=1e-6)
    assert max(r.write_mb_s for r in recording.rates) <= max(load[n][1] for n in kept) * 1.000001


@given(
    load=st.lists(st.floats(min_value=0, max_value=400).map(round), min_size=6, max_size=60),
    scrape=st.sampled_from([10, 15, 30, 60]),
    step=st.sampled_from([5, 10, 15, 20, 30, 45, 60, 120, 180]),
    phase=st.integers(0, 59),
)
def test_a_counter_that_is_asked_at_any_step_has_no_peak_that_never_was(
    load: list[int], scrape: int, step: int, phase: int
) -> None:
    if step > scrape and step % scrape:
        return  # what is scraped more often than asked, out of step, cannot be seen in a load that is not steady
    totals = [0.0]
    for mb_s in load:
        totals.append(totals[-1] + mb_s * scrape * MB)
    first = scrape + phase
    times = range(first, len(load) * scrape, step)
    values = tuple((float(t), totals[(t - phase % scrape) // scrape]) for t in times)
    try:
        (found,) = (part for part in means([Counter("sda", "read", values, "x", "t")]) if isinstance(part, Series))
    except TraceError:
        return
    peak, moved = max((p[2] for p in found.points), default=0), sum(p[1] * p[2] for p in found.points)
    assert peak <= max(load) * (1.12 if scrape % step else 1.000001)
    assert moved * MB == pytest.approx(values[-1][1] - values[0][1] if values else 0, abs=1)
