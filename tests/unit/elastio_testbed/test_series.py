from __future__ import annotations

import json

import pytest

from elastio_testbed.experiment import Setup
from elastio_testbed.lvmcache import MAPPED_NAME
from elastio_testbed.rates import role_of
from elastio_testbed.series import from_json, series_of, thinned

from .documents import evidence


def test_a_series_has_the_rates_volumes_and_phases_since_the_first_dump() -> None:
    found = series_of(Setup.ADAPTIVE, evidence(Setup.ADAPTIVE))
    assert [v for _, v in found.rates["application"]] == pytest.approx([8.0] * 10)
    assert set(found.rates) == {"application", "backing volume", "cache volume"}
    assert found.volumes == ((2.0, 9.0, 1.2),)
    assert found.phases == ((1.0, 3.0, "attaching"), (3.0, 9.0, "boosting"), (9.0, 12.0, "idle"))
    assert set(series_of(Setup.STATIC_SLOW, evidence(Setup.STATIC_SLOW)).rates) == {"application"}


def test_records_after_the_run_are_not_shown() -> None:
    records = evidence(Setup.STATIC_FAST)
    records.timeline += [{**records.timeline[-1], "t": 5000.0 + n} for n in range(3)]
    found = series_of(Setup.STATIC_FAST, records)
    assert found.end_s < 20
    assert max(t for t, _ in found.rates["application"]) <= found.end_s


def test_a_stored_series_is_read_back_unchanged() -> None:
    found = series_of(Setup.ADAPTIVE, evidence(Setup.ADAPTIVE))
    assert from_json(json.loads(json.dumps(found.to_json()))) == found


def test_thinning_keeps_the_mean() -> None:
    points = [(float(n), float(n % 7)) for n in range(1000)]
    few = thinned(points, 100)
    assert len(few) == 100
    assert sum(v for _, v in few) / 100 == pytest.approx(sum(v for _, v in points) / 1000)
    assert thinned([], 100) == []


@pytest.mark.parametrize(
    ("name", "serial", "is_static", "role"),
    [
        ("bcache0", "", False, "application"),
        ("dm-2", MAPPED_NAME, False, "application"),
        ("dm-1", "lab-data_wcorig", False, ""),
        ("vdb", "vm0backing", False, "backing volume"),
        ("vdb", "vm0backing", True, "application"),
        ("vdc", "vol123", False, "cache volume"),
        ("vda", "", False, ""),
    ],
)
def test_the_role_of_a_disk(name: str, serial: str, is_static: bool, role: str) -> None:
    assert role_of(name, serial, "vm0backing", is_static=is_static) == role
