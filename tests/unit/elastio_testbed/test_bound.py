from __future__ import annotations

from pathlib import Path

import pytest

from elastio_testbed.bound import DIRTY_SHARE, Bandwidths, dumped_by_phase, phase_bound_agbs, ratio

REPOSITORY = Path(__file__).resolve().parents[3]


def test_the_bound_of_a_published_cm1_dump() -> None:
    # 4 GB: 31.25 s into the cache at 128 MB/s, 121.2 s back at 33 MB/s, in a cache of 4 / 0.7 GB.
    bound = phase_bound_agbs(4e9, Bandwidths(33e6, 128e6))
    assert bound == pytest.approx(128 * (4 / 0.7) * (4000 / 128 + 4000 / 33))


def test_a_burst_twice_as_large_costs_four_times_as_much() -> None:
    speed = Bandwidths(33e6, 128e6)
    assert phase_bound_agbs(2e9, speed) == pytest.approx(4 * phase_bound_agbs(1e9, speed))


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
