"""Figures that are computed from the records of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elastio_testbed.bandwidth_use import BandwidthUse, bandwidth_use, mean, sampling_s
from elastio_testbed.conditions import processor_name
from elastio_testbed.lower_bound import DIRTY_SHARE, Bandwidths, dumped_by_boost, least_agbs, naive_agbs
from elastio_testbed.spread import Spread, nearest_to_median, spread_of
from elastio_testbed.steal_time import ProcessorTime
from elastio_testbed.tables import caches
from elastio_testbed.trial import cloud_s

REPOSITORY = Path(__file__).resolve().parents[3]

# --- the lower bound of a cache -------------------------------------------------------------------------------

SPEED = Bandwidths(33e6, 128e6)


def test_drain_bandwidth_lowers_the_naive_bound_of_a_published_cm1_dump_by_its_share() -> None:
    # 4 GB: 31.25 s into the cache at 128 MB/s, 121.2 s back at 33 MB/s, in a cache of 4 / 0.7 GB.
    assert naive_agbs(4e9, SPEED) == pytest.approx(128 * (4 / 0.7) * (4000 / 128 + 4000 / 33))
    # 1.03 of 4 GB have been written back when the burst ends; 161 MB/s are billed for 121.2 s in total.
    assert least_agbs(4e9, SPEED) == pytest.approx(161 * (4 * (1 - 33 / 128) / 0.7) * 4000 / 33)
    assert least_agbs(4e9, SPEED) == pytest.approx((1 - 33 / 128) * naive_agbs(4e9, SPEED))


@pytest.mark.parametrize("drain", [0.0, 5e6, 15e6, 30e6, 33e6])
def test_no_other_drain_bandwidth_costs_less(drain: float) -> None:
    dumped, share = 4e9, 0.7
    kept = dumped * (1 - drain / SPEED.cache)
    cost = (SPEED.cache + drain) / 1e6 * kept / share / 1e9 * (dumped / SPEED.cache + kept / SPEED.backing)
    assert least_agbs(dumped, SPEED, share) <= cost * 1.000001


@pytest.mark.parametrize("path", sorted((REPOSITORY / "docs/results").glob("*.json")), ids=lambda path: path.name)
def test_no_measured_cost_is_below_the_bound(path: Path) -> None:
    ratios = [row[-1] for row in caches(json.loads(path.read_text())).rows]
    assert ratios
    assert all(float(text.split()[0]) >= 1 for text in ratios)


def test_the_dirty_share_is_the_option_of_the_module() -> None:
    text = (REPOSITORY / "systemd/modprobe.d/elastio.conf").read_text()
    assert f"bch_cutoff_writeback={DIRTY_SHARE * 100:.0f} " in text


def test_a_dump_belongs_to_the_first_boost_that_it_overlaps() -> None:
    dumps = [
        {"began": 0.0, "ended": 8.0, "bytes": 1},  # the first boost is decided during it
        {"began": 20.0, "ended": 28.0, "bytes": 10},  # while the first cache is still attached
        {"began": 60.0, "ended": 68.0, "bytes": 100},
        {"began": 200.0, "ended": 230.0, "bytes": 1000},  # never boosted
    ]
    assert dumped_by_boost([(1.5, 40.0), (61.0, 90.0)], dumps) == [11, 100]


# --- bandwidth during a boost ---------------------------------------------------------------------------------

SECONDS = [float(t) for t in range(100)]
# A boost from 10 on, a dump that ends at 20, flushing from 30 on, clean at 50.
APPLICATION = [(t, 64.0 if 10 < t <= 20 else 4.0) for t in SECONDS]
BACKING = [(t, 15.0 if 20 < t <= 30 else 16.5 if 30 < t <= 50 else 1.0) for t in SECONDS]
INTERVALS = [(5.0, 10.0, "attaching"), (10.0, 30.0, "boosting"), (30.0, 50.0, "flushing"), (50.0, 52.0, "detaching")]
DUMPS = [{"began": 4.0, "ended": 20.0}]


def test_a_boost_is_measured_in_its_three_parts() -> None:
    found = bandwidth_use(APPLICATION, BACKING, INTERVALS, DUMPS, 16.5)
    assert found == {10.0: BandwidthUse(burst_mb_s=64.0, resting_share=round(15 / 16.5, 3), flushing_share=1.0)}
    without_a_dump = bandwidth_use(APPLICATION, BACKING, INTERVALS, [], 16.5)
    assert without_a_dump[10.0] == BandwidthUse(None, None, 1.0)


def test_too_few_samples_have_no_mean() -> None:
    assert mean(APPLICATION, 10.0, 12.0) == 64.0
    assert mean(APPLICATION, 10.0, 11.0) is None


# Samples that end at 1, 2, 3 ... s; the load begins within the one that ends at 12.
LOADED = [(t, 16.5 if t >= 12 else 0.4) for t in SECONDS]


def test_sampling_is_the_time_from_the_first_sample_of_this_load_to_the_decision() -> None:
    assert sampling_s(LOADED, 13.25, 16.5) == 2.25
    assert sampling_s(LOADED, 11.5, 16.5) == 0.5
    earlier = [(t, 16.5 if t <= 5 or t >= 12 else 0.4) for t in SECONDS]
    assert sampling_s(earlier, 13.25, 16.5) == 2.25
    found = bandwidth_use(LOADED, BACKING, [(13.25, 16.0, "attaching"), (16.0, 30.0, "boosting")], DUMPS, 16.5)
    assert found[16.0].sampling_s == 2.25


# --- repetitions ----------------------------------------------------------------------------------------------


def test_mean_median_and_extremes_of_repetitions() -> None:
    found = spread_of([1.0, 2.0, 9.0])
    assert found == Spread(n=3, mean=4.0, median=2.0, min=1.0, max=9.0, spread=8.0)
    assert spread_of([None, 3.0, None]) == Spread(1, 3.0, 3.0, 3.0, 3.0, 0.0)
    assert spread_of([None, None]) is None


@pytest.mark.parametrize(
    ("values", "place"), [([1.0, 9.0, 2.0], 2), ([None, 4.0], 1), ([], 0), ([None], 0), ([3.0, 5.0], 0)]
)
def test_the_shown_repetition_is_the_one_nearest_to_the_median(values: list[float | None], place: int) -> None:
    assert nearest_to_median(values) == place


# --- the machine ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "share"),
    [
        (ProcessorTime(40.0, 5.0), 0.0),
        (ProcessorTime(49.0, 6.0), 0.1),
        (ProcessorTime(40.0, 7.0), 1.0),
        (ProcessorTime(41.0, 5.0), 0.0),
    ],
)
def test_steal_time_is_a_share_of_the_wanted_time(after: ProcessorTime, share: float) -> None:
    assert after.steal_share_since(ProcessorTime(40.0, 5.0)) == pytest.approx(share)


def test_the_machine_is_named_by_its_first_processor() -> None:
    assert (
        processor_name("processor\t: 0\nmodel name\t: Some  CPU @ 2.0GHz\nmodel name\t: other\n") == "Some CPU @ 2.0GHz"
    )
    assert processor_name("processor : 0\n") == "unknown"


def test_the_clouds_share_of_a_boost_is_creating_and_attaching() -> None:
    history = (
        (10.0, "creating"),
        (11.5, "available"),
        (14.0, "in-use/attaching"),
        (16.0, "in-use/attached"),
        (90.0, "available"),
    )
    assert cloud_s(history) == 3.5
