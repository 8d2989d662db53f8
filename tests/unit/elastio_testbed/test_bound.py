from __future__ import annotations

import json
from pathlib import Path

import pytest

from elastio_testbed.bound import DIRTY_SHARE, Bandwidths, dumped_by_phase, least_agbs, naive_agbs, ratio
from elastio_testbed.tables import caches

REPOSITORY = Path(__file__).resolve().parents[3]


SPEED = Bandwidths(33e6, 128e6)


def test_the_naive_bound_of_a_published_cm1_dump() -> None:
    # 4 GB: 31.25 s into the cache at 128 MB/s, 121.2 s back at 33 MB/s, in a cache of 4 / 0.7 GB.
    assert naive_agbs(4e9, SPEED) == pytest.approx(128 * (4 / 0.7) * (4000 / 128 + 4000 / 33))


def test_bandwidth_that_is_bought_to_flush_with_lowers_the_bound_by_its_share() -> None:
    # Of 4 GB 1.03 have flowed back when the burst ends; 161 MB/s are paid for 121.2 s in all.
    assert least_agbs(4e9, SPEED) == pytest.approx(161 * (4 * (1 - 33 / 128) / 0.7) * 4000 / 33)
    assert least_agbs(4e9, SPEED) == pytest.approx((1 - 33 / 128) * naive_agbs(4e9, SPEED))


@pytest.mark.parametrize("drain", [0.0, 5e6, 15e6, 30e6, 33e6])
def test_no_other_bandwidth_to_flush_with_costs_less(drain: float) -> None:
    dumped, share = 4e9, 0.7
    kept = dumped * (1 - drain / SPEED.cache)
    cost = (SPEED.cache + drain) / 1e6 * kept / share / 1e9 * (dumped / SPEED.cache + kept / SPEED.backing)
    assert least_agbs(dumped, SPEED, share) <= cost * 1.000001


@pytest.mark.parametrize("path", sorted((REPOSITORY / "docs/results").glob("*.json")), ids=lambda path: path.name)
def test_nothing_that_was_measured_costs_less_than_the_bound(path: Path) -> None:
    ratios = [row[-1] for row in caches(json.loads(path.read_text())).rows]
    assert ratios
    assert all(float(text.split()[0]) >= 1 for text in ratios)


def test_a_burst_twice_as_large_costs_four_times_as_much() -> None:
    for bound in (least_agbs, naive_agbs):
        assert bound(2e9, SPEED) == pytest.approx(4 * bound(1e9, SPEED))


def test_the_share_that_may_be_dirty_is_what_the_module_is_loaded_with() -> None:
    text = (REPOSITORY / "systemd/modprobe.d/elastio.conf").read_text()
    assert f"bch_cutoff_writeback={DIRTY_SHARE * 100:.0f} " in text


def test_a_dump_belongs_to_the_first_phase_that_it_overlaps() -> None:
    dumps = [
        {"began": 0.0, "ended": 8.0, "bytes": 1},  # the first boost is decided during it
        {"began": 20.0, "ended": 28.0, "bytes": 10},  # while the first cache is still attached
        {"began": 60.0, "ended": 68.0, "bytes": 100},
        {"began": 200.0, "ended": 230.0, "bytes": 1000},  # never boosted
    ]
    assert dumped_by_phase([(1.5, 40.0), (61.0, 90.0)], dumps) == [11, 100]


def test_no_ratio_to_nothing() -> None:
    assert ratio(5.0, 0.0) is None
    assert ratio(5.0, 4.0) == 1.25
