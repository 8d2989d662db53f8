"""Files of monitoring systems: each format is read, and what is not one is rejected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elastio.sim.metric_files import UNNAMED, Recording, combine, parse, read_all
from elastio.sim.traces import Rate, TraceError
from elastio.units import KIB, MB

METRICS = Path(__file__).parents[3] / "fixtures" / "metrics"
VOLUME = "vol-0a1b2c3d4e5f60718"


def recordings(*names: str) -> dict[str, Recording]:
    return {each.volume: each for each in read_all([METRICS / name for name in names])}


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
    assert refused.value.code == "overlap"


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
