"""Files of monitoring systems: each format is read, and what is not one is rejected."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from elastio.units import KIB, MB
from elastio_adviser.metric_files import Found, parse, read_all, reading
from elastio_adviser.rates import Rate, TraceError
from elastio_adviser.series import UNNAMED, Recording

METRICS = Path(__file__).parents[2] / "fixtures" / "metrics"
VOLUME = "vol-0a1b2c3d4e5f60718"


def recordings(*names: str) -> dict[str, Recording]:
    return {each.volume: each for each in read_all([METRICS / name for name in names]).recordings}


def combine(found: Sequence[Found]) -> tuple[Recording, ...]:
    return reading(found).recordings


def dumps(seconds: float, mb_s: float, quiet: float, every: int, read: float) -> list[Rate]:
    return [Rate(n * seconds, seconds, read, quiet if n % every else mb_s) for n in range(12)]


def approx(rates: tuple[Rate, ...]) -> list[Any]:
    return [pytest.approx((r.at_s, r.seconds, r.read_mb_s, r.write_mb_s)) for r in rates]


def values(rates: list[Rate]) -> list[tuple[float, float, float, float]]:
    return [(r.at_s, r.seconds, r.read_mb_s, r.write_mb_s) for r in rates]


# 4 GB in the first of three periods of 5 minutes, 1.2 MB in the others; 0.4096 MB read in each.
CLOUDWATCH = dumps(300.0, 4e9 / 300 / MB, 1.2e6 / 300 / MB, 3, 409600 / 300 / MB)


def test_metric_data_names_volumes_by_label_or_by_id_and_has_other_metrics() -> None:
    found = recordings("get-metric-data.json")
    assert set(found) == {VOLUME, "vol-0fedcba9876543210"}
    assert values(CLOUDWATCH) == approx(found[VOLUME].rates)
    assert found["vol-0fedcba9876543210"].rates[0].total_mb_s == pytest.approx(3.0)


def test_metric_statistics_are_two_files_of_one_volume_in_any_order() -> None:
    found = recordings(f"{VOLUME}-written.json", f"{VOLUME}-read.json")
    assert set(found) == {VOLUME}
    assert values(CLOUDWATCH) == approx(found[VOLUME].rates)
    assert (found[VOLUME].has_read, found[VOLUME].has_written) == (True, True)


def test_a_period_without_a_value_is_quiet() -> None:
    times = [f"2026-11-20T08:{minute:02}:00Z" for minute in (0, 1, 5)]
    result = {"Id": "write", "Timestamps": times, "Values": [6e6, 6e6, 12e6], "StatusCode": "Complete"}
    (found,) = combine(parse(json.dumps({"MetricDataResults": [result]}), "vol-0123456789", "x.json"))
    assert found.volume == "vol-0123456789"
    assert [(r.seconds, r.write_mb_s) for r in found.rates] == [(60, 0.1), (60, 0.1), (180, 0), (60, 0.2)]


def test_one_direction_alone_leaves_the_other_unknown() -> None:
    found = recordings(f"{VOLUME}-written.json")[VOLUME]
    assert (found.has_read, found.has_written) == (False, True)
    assert {r.read_mb_s for r in found.rates} == {0.0}


def test_sysstat_has_the_end_of_each_interval_and_kib() -> None:
    found = recordings("sadf.json")["db1 nvme1n1"].rates
    assert [(r.at_s, r.seconds) for r in found] == [(n, 1) for n in range(len(found))]
    assert found[0].write_mb_s == pytest.approx(305268 * KIB / MB)
    assert found[0].read_mb_s == pytest.approx(244 * KIB / MB)


def test_old_sysstat_has_sectors_and_times_since_the_epoch_and_unknown_intervals() -> None:
    disk = {"disk-device": "dev8-0", "tps": 1.0, "rd_sec": 2000.0, "wr_sec": 4000.0}
    stamps = [(100, 184467440737095516), (700, 600), (1300, 600)]
    entries = [{"timestamp": {"date": "", "time": str(t), "utc": 1, "interval": i}, "disk": [disk]} for t, i in stamps]
    host = {"nodename": "rasp01", "statistics": entries}
    (found,) = combine(parse(json.dumps({"sysstat": {"hosts": [host]}}), "x", "x.json"))
    assert found.volume == "rasp01 dev8-0"
    assert values([Rate(0, 600, 1.024, 2.048), Rate(600, 600, 1.024, 2.048)]) == approx(found.rates)


def test_days_of_sysstat_follow_each_other_with_the_night_between_them_quiet() -> None:
    series = []
    for day in (20, 21):
        disk = {"disk-device": "vdb", "rkB": 0.0, "wkB": 1000.0}
        stamp = {"date": f"2026-11-{day}", "time": "08:00:00", "tz": "UTC", "interval": 600}
        host = {"nodename": "vm", "statistics": [{"timestamp": stamp, "disk": [disk]}]}
        series += parse(json.dumps({"sysstat": {"hosts": [host]}}), f"sa{day}", f"sa{day}.json")
    (found,) = combine(series)
    assert [(r.seconds, r.write_mb_s) for r in found.rates] == [(600, 1.024), (85800, 0), (600, 1.024)]


@pytest.mark.parametrize("names", [("rate_read.json", "rate_written.json"), ("counters.json",)])
def test_prometheus_has_rates_by_file_name_or_counters_by_metric(names: tuple[str, ...]) -> None:
    found = recordings(*names)
    # 4 GB in the first of four steps of 15 s; the counters begin again from 0 at a reboot.
    assert values(dumps(15.0, 4e9 / 15 / MB, 4096 / MB, 4, 20480 / 15 / MB)) == approx(found["db1:9100 nvme1n1"].rates)


def test_a_direction_may_be_a_label_of_ones_own_and_gaps_are_quiet() -> None:
    values = [[100, "1e6"], [115, "NaN"], [130, "2e6"], [145, "3e6"]]
    result = [{"metric": {"device": "sda", "op": "written"}, "values": values}]
    document = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    (found,) = combine(parse(json.dumps(document), "x", "x.json"))
    assert [(r.at_s, r.seconds, r.write_mb_s) for r in found.rates] == [
        (0, 15, 1),
        (15, 15, 0),
        (30, 15, 2),
        (45, 15, 3),
    ]


def test_a_volume_without_a_name_has_a_common_one_and_two_of_them_are_refused() -> None:
    text = (METRICS / f"{VOLUME}-read.json").read_text()
    first, second = parse(text, "a", "a.json"), parse(text, "b", "b.json")
    assert combine(first)[0].volume == UNNAMED
    with pytest.raises(TraceError) as refused:
        combine([*first, *second])
    assert refused.value.code == "volume"


def series(direction: str = "written", **labels: str) -> dict[str, Any]:
    return {"metric": {"device": "sda", **labels}, "values": [[0, "1"], [15, "1"]]}


def matrix(kind: str, *results: dict[str, Any]) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": kind, "result": list(results)}}


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ("{", "json"),
        ([], "format"),
        ({"Metrics": []}, "format"),
        ({"MetricDataResults": []}, "samples"),
        ({"MetricDataResults": [{"Label": "x"}]}, "structure"),
        (
            {"MetricDataResults": [{"Id": "m_read", "Timestamps": [], "Values": [], "StatusCode": "PartialData"}]},
            "partial",
        ),
        (
            {"MetricDataResults": [{"Id": "read", "Timestamps": ["2026-11-20T08:00:00Z"], "Values": [1, 2]}]},
            "structure",
        ),
        ({"MetricDataResults": [{"Id": "read", "Timestamps": ["2026-11-20T08:00:00Z"], "Values": [1]}]}, "samples"),
        (
            {"MetricDataResults": [{"Id": "read", "Timestamps": ["2026-11-20", "2026-11-21"], "Values": [1, -1]}]},
            "range",
        ),
        ({"Label": "VolumeQueueLength", "Datapoints": []}, "metric"),
        (
            {"Label": "VolumeReadBytes", "Datapoints": [{"Timestamp": "2026-11-20T08:00:00Z", "Average": 1}]},
            "statistic",
        ),
        ({"sysstat": {"hosts": [{"nodename": "vm", "statistics": []}]}}, "disks"),
        ({"sysstat": {}}, "structure"),
        ({"status": "error", "error": "no", "data": {}}, "failed"),
        (matrix("vector"), "instant"),
        (matrix("matrix", series()), "direction"),
        (matrix("matrix", series(__name__="node_disk_io_time_seconds_total")), "direction"),
    ],
)
def test_what_cannot_be_read_is_rejected(document: Any, code: str) -> None:
    text = document if isinstance(document, str) else json.dumps(document)
    with pytest.raises(TraceError) as refused:
        combine(parse(text, "file", "file.json"))
    assert refused.value.code == code


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError) as refused:
        read_all([tmp_path / "nope.json"])
    assert refused.value.code == "file"


# --- what must not become another number --------------------------------------------------------------------------


def minutes(first: int, count: int, mb_s: float = 1.0, *, step: int = 1, **fields: Any) -> dict[str, Any]:
    """A result of get-metric-data, newest first, as CloudWatch sorts them."""
    times = [f"2026-11-06T{n // 60:02}:{n % 60:02}:00+00:00" for n in range(first, first + count * step, step)]
    values = [mb_s * 60 * step * MB] * count
    found = {"Id": "w1", "Label": f"{VOLUME} VolumeWriteBytes", "StatusCode": "Complete", **fields}
    return {**found, "Timestamps": times[::-1], "Values": values}


def cloudwatch(*results: dict[str, Any], stem: str = "x", **fields: Any) -> list[Found]:
    return parse(json.dumps({"MetricDataResults": results, **fields}), stem, f"{stem}.json")


def code(*found: list[Found]) -> str:
    try:
        reading([part for parts in found for part in parts])
    except TraceError as error:
        return error.code
    return ""


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(TraceError) as refused:
        call()
    return refused.value.code


def peak(recording: Recording) -> float:
    return max(r.total_mb_s for r in recording.rates)


@pytest.mark.parametrize("border", [1, 20, 39])
def test_pages_that_the_cli_has_joined_are_one_series(border: int) -> None:
    whole = reading(cloudwatch(minutes(0, 40))).recordings
    late, early = minutes(border, 40 - border, StatusCode="PartialData"), minutes(0, border)
    assert reading(cloudwatch(late, early)).recordings == whole


@pytest.mark.parametrize(
    ("statuses", "fields"),
    [
        (("Complete", "PartialData"), {}),
        (("InternalError", "Complete"), {}),
        (("Forbidden",), {}),
        ((None,), {}),
        (("Complete",), {"NextToken": "x"}),
    ],
)
def test_a_document_without_its_last_page_is_refused(statuses: tuple[str, ...], fields: dict[str, Any]) -> None:
    pages = [minutes(20 * n, 20, StatusCode=status) for n, status in enumerate(statuses)]
    assert refusal(lambda: cloudwatch(*pages, **fields)) == "partial"


def test_labels_of_ones_own_are_read_and_other_metrics_are_named_as_left_out() -> None:
    own = minutes(0, 9, Id="w2", Label="Volume db2 (vol-0eeeeffff00001111) Burst written")
    others = [
        minutes(0, 9, Id=f"o{n}", Label=label)
        for n, label in enumerate(("x VolumeReadOps", "db1 queue", "BurstBalance"))
    ]
    found = reading(cloudwatch(minutes(0, 9), own, *others))
    assert [each.volume for each in found.recordings] == [VOLUME, "vol-0eeeeffff00001111"]
    assert [name in said for said in found.said for name in ("o0", "o1", "o2")] == [True] * 3


@pytest.mark.parametrize("name", ["ops-db", "queue 2", "balance"])
def test_a_volume_may_be_called_as_a_quantity_is(name: str) -> None:
    label = f"{name} vol-0eeeeffff00001111 VolumeWriteBytes"
    found = reading(cloudwatch(minutes(0, 9, Id="w2", Label=label)))
    assert [each.volume for each in found.recordings] == ["vol-0eeeeffff00001111"]
    assert not any("left out" in said for said in found.said)


def test_a_message_of_the_server_is_passed_on() -> None:
    messages = [{"Code": "MaxMetricsExceeded", "Value": "as many as possible"}]
    assert "MaxMetricsExceeded" in reading(cloudwatch(minutes(0, 9), Messages=messages)).said[0]
    document = matrix("matrix", {**series(__name__="node_disk_read_bytes_total")})
    document["warnings"] = ["partial response"]
    assert "partial response" in reading(parse(json.dumps(document), "x", "x.json")).said[0]


def test_results_whose_direction_nothing_says_are_refused() -> None:
    assert refusal(lambda: cloudwatch(minutes(0, 9), minutes(0, 9, Id="e1", Label=VOLUME))) == "direction"
    assert refusal(lambda: cloudwatch(minutes(0, 9, Id="spread1", Label=f"{VOLUME} bytes out"))) == "direction"
    assert refusal(lambda: cloudwatch(minutes(0, 9, Id="read1"))) == "direction"
    assert code(cloudwatch(minutes(0, 9, Id="e1", Label=VOLUME), stem="all-written")) == ""


@pytest.mark.parametrize("label", ["VolumeWriteBytes Average", "VolumeWriteBytes p99", "written, avg"])
def test_a_label_of_another_statistic_is_refused(label: str) -> None:
    assert refusal(lambda: cloudwatch(minutes(0, 9, Label=f"{VOLUME} {label}"))) == "statistic"


def test_labels_of_a_search_have_one_id_and_are_several_volumes() -> None:
    names = ("vol-0aaaabbbbccccdddd", "vol-0eeeeffff00001111")
    results = [minutes(0, 9, mb_s, Id="e1", Label=f"{name} VolumeReadBytes") for mb_s, name in enumerate(names, 1)]
    found = {each.volume: peak(each) for each in reading(cloudwatch(*results)).recordings}
    assert found == pytest.approx(dict(zip(names, (1, 2), strict=True)))


def test_equal_samples_count_once_and_different_ones_are_refused() -> None:
    whole = cloudwatch(minutes(0, 60))
    assert reading([*cloudwatch(minutes(0, 40)), *cloudwatch(minutes(30, 30))]).recordings == reading(whole).recordings
    assert reading([*whole, *whole]).recordings == reading(whole).recordings
    assert code(cloudwatch(minutes(0, 40)), cloudwatch(minutes(39, 21, 2.0))) == "overlap"
    assert code(whole, cloudwatch(minutes(0, 12, step=5))) == "overlap"
    assert code(cloudwatch(minutes(0, 9), minutes(8, 9, 2.0))) == "overlap"
    assert code(cloudwatch(minutes(0, 60)), cloudwatch(minutes(60, 12, step=5))) == ""


def test_volumes_without_a_name_are_not_joined() -> None:
    first, second = (cloudwatch(minutes(30 * n, 30, Label=f"Volume db{n} written")) for n in (1, 2))
    assert (code(first), code(first, second)) == ("", "volume")


@pytest.mark.parametrize("minute", [(0, 2, 5, 9), (0, 5, 11, 17, 23)])
def test_times_that_several_periods_explain_are_refused(minute: tuple[int, ...]) -> None:
    times = [f"2026-11-06T00:{n:02}:00Z" for n in minute]
    result = {**minutes(0, 1), "Timestamps": times, "Values": [1.0] * len(times)}
    assert refusal(lambda: cloudwatch(result)) == "period"


def test_a_sparse_result_beside_a_full_one_is_refused_unless_it_shows_the_same_period() -> None:
    other: dict[str, Any] = {"Id": "r1", "Label": f"{VOLUME} VolumeReadBytes"}
    assert refusal(lambda: cloudwatch(minutes(0, 60), minutes(0, 6, step=10, **other))) == "period"
    assert code(cloudwatch(minutes(0, 60), minutes(7, 1, **other))) == ""


def test_time_without_samples_is_told() -> None:
    (whole,), (cut,) = (reading(cloudwatch(minutes(0, n), minutes(30, 30))).recordings for n in (30, 10))
    assert (whole.missing_s, cut.missing_s) == (0, 1200)
    reads = minutes(0, 20, Id="r1", Label=f"{VOLUME} VolumeReadBytes")
    assert reading(cloudwatch(minutes(0, 60), reads)).recordings[0].missing_s == 2400


def day(number: int, *rows: tuple[str, int, float], device: str = "vdb") -> list[Found]:
    entries = [
        {"timestamp": {"date": f"2026-11-{number}", "time": at, "utc": 1, "interval": seconds},
         "disk": [{"disk-device": device, "rkB": 0.0, "wkB": kib}]}
        for at, seconds, kib in rows
    ]  # fmt: skip
    return parse(json.dumps({"sysstat": {"hosts": [{"nodename": "vm", "statistics": entries}]}}), "sa", f"sa{number}")


def test_an_overlap_below_the_resolution_of_sysstat_is_cut_and_a_longer_one_is_refused() -> None:
    before = day(21, ("23:50:01", 600, 10.0), ("23:59:59", 599, 10.0))
    after = day(22, ("00:10:00", 602, 10.0))
    (found,) = reading([*after, *before]).recordings
    assert [round(r.seconds) for r in found.rates] == [600, 598, 601]
    assert code(before, day(22, ("00:10:00", 640, 10.0))) == "overlap"
    assert code(day(22, ("01:50:00", 600, 1.0), ("01:00:00", 600, 1.0), ("01:05:00", 600, 9.0))) == "overlap"
    assert code(day(22, ("01:00:00", 1, 1.0), ("01:00:00", 1, 9.0))) == "overlap"


def rate(stem: str = "x", **labels: str) -> list[Found]:
    return parse(json.dumps(matrix("matrix", series(**labels))), stem, f"{stem}.json")


def test_labels_that_describe_the_host_say_no_direction() -> None:
    host = {"role": "read-replica", "cluster": "read", "mode": "readonly", "env": "write"}
    (found,) = reading(rate("db-written", **host)).recordings
    assert (found.has_read, found.has_written) == (False, True)
    assert refusal(lambda: rate("db", **host)) == "direction"
    assert refusal(lambda: rate("db-written", op="read")) == "direction"
    assert refusal(lambda: rate("db", __name__="instance:node_disk_written_bytes:rate5m")) == "direction"


def test_two_servers_that_scrape_one_host_are_refused_unless_they_agree() -> None:
    names = {"__name__": "node_disk_read_bytes_total", "instance": "db1"}
    first, second = series(**names, job="a"), series(**names, job="b")
    assert code(parse(json.dumps(matrix("matrix", first, second)), "x", "x.json")) == ""
    second["values"] = [[0, "1"], [15, "5"]]
    assert code(parse(json.dumps(matrix("matrix", first, second)), "x", "x.json")) == "overlap"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("<html><body>502 Bad Gateway</body></html>", "html"),
        ('{"sysstat": {}}\n{"sysstat": {}}\n', "documents"),
        ('{"status": "error", "errorType": "bad_data", "error": "exceeded maximum resolution"}', "failed"),
        ('{"status": "success", "data": null}', "structure"),
        ('{"MetricDataResults": [{"Id": "read", "Timestamps": [1, 2], "Values": [NaN, 1]}]}', "range"),
        ('{"MetricDataResults": [{"Id": "read", "Timestamps": [1, 2], "Values": [null, 1]}]}', "structure"),
        ('{"MetricDataResults": [{"Id": "read", "Timestamps": [NaN, 2], "Values": [1, 1]}]}', "structure"),
        ('{"MetricDataResults": [{"Id": "read", "Timestamps": [1, 2], "Values": [true, 1]}]}', "structure"),
        (
            '{"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}, "histograms": []}]}}',
            "histogram",
        ),
    ],
)
def test_what_is_written_instead_of_samples_is_named(text: str, code: str) -> None:
    assert refusal(lambda: parse(text, "file", "file.json")) == code
