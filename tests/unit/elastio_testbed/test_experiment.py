from __future__ import annotations

import pytest

from elastio_testbed.catalogue import EXPERIMENTS
from elastio_testbed.experiment import Scaled

CM1 = EXPERIMENTS["cm1"]


@pytest.mark.parametrize(("time", "bandwidth"), [(1.0, 1.0), (0.25, 0.5), (0.1, 0.5), (1.0, 0.25)])
def test_scaling_preserves_the_ratio_of_dump_and_compute_time(time: float, bandwidth: float) -> None:
    scaled = Scaled(CM1, time, bandwidth)
    dump_s = scaled.dumps_bytes[1] / scaled.backing_bytes_s
    published = CM1.dumps_gb[1] * 1e9 / (CM1.backing_mb_s * 1e6) / (CM1.compute_s / 3)
    assert dump_s / scaled.compute_each_s == pytest.approx(published, rel=0.01)


def test_the_published_size_is_scale_one() -> None:
    scaled = Scaled(CM1, 1.0, 1.0)
    assert scaled.dumps_bytes[0] == pytest.approx(5e9, rel=0.001)
    assert scaled.backing_bytes_s == 33_000_000
    assert scaled.cache_bytes_s == 128_000_000
    assert scaled.compute_each_s * 3 == pytest.approx(1100)
    assert scaled.inactivity_delay_s == 30


def test_bandwidth_scales_data_but_not_time() -> None:
    whole, half = Scaled(CM1, 1.0, 1.0), Scaled(CM1, 1.0, 0.5)
    assert half.dumps_bytes[1] == pytest.approx(whole.dumps_bytes[1] / 2, rel=0.001)
    assert half.cache_bytes_s == whole.cache_bytes_s / 2
    assert half.compute_each_s == whole.compute_each_s


def test_the_initial_cache_is_a_whole_number_of_the_scaled_clouds_units() -> None:
    scaled = Scaled(CM1, 0.25, 0.5)
    initial_bytes = scaled.initial_cache_gib * 2**30
    assert initial_bytes % scaled.unit_bytes == 0
    assert initial_bytes == pytest.approx(1.25e9, rel=0.03)


@pytest.mark.parametrize(("time", "interval_s"), [(1.0, 1.0), (2.0, 2.0), (0.25, 0.25), (0.06, 0.2)])
def test_the_sampling_interval_is_scaled_down_to_its_minimum(time: float, interval_s: float) -> None:
    assert Scaled(CM1, time, 0.5).sample_interval_s == interval_s
