from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastio.core.model import VolumeSpec
from elastio.errors import RefusedError
from elastio.units import GIB, MIB
from elastio_aws.gp3 import Purchase, plan
from elastio_aws.settings import Scale

REAL = Scale()
SCALES = st.builds(Scale, st.integers(4096, 2**40), st.integers(1, 2**30))


def test_rounds_size_and_throughput_up() -> None:
    assert plan(VolumeSpec(10 * 10**9, 200.0), REAL) == Purchase(10, 3000, 191)
    assert plan(VolumeSpec(10 * GIB + 1, 200.0), REAL).size_gib == 11


def test_buys_at_least_the_free_throughput_and_iops() -> None:
    assert plan(VolumeSpec(1, 1.0), REAL) == Purchase(1, 3000, 125)


def test_iops_carry_the_throughput_and_size_carries_the_iops() -> None:
    assert plan(VolumeSpec(GIB, 2000 * MIB / 1e6), REAL) == Purchase(16, 8000, 2000)
    assert plan(VolumeSpec(GIB, 750 * MIB / 1e6), REAL) == Purchase(1, 3000, 750)
    assert plan(VolumeSpec(GIB, 751 * MIB / 1e6), REAL) == Purchase(7, 3004, 751)


def test_iops_of_the_spec_win_over_the_setting() -> None:
    assert plan(VolumeSpec(100 * GIB, 130.0, iops=4000), REAL, iops=5000).iops == 4000
    assert plan(VolumeSpec(100 * GIB, 130.0), REAL, iops=5000).iops == 5000


@pytest.mark.parametrize(
    ("spec", "limit"),
    [
        (VolumeSpec(GIB, 2098.0), "2097 MB/s"),
        (VolumeSpec(65537 * GIB, 130.0), "65536 GiB"),
        (VolumeSpec(GIB, 130.0, iops=80001), "80000"),
        (VolumeSpec(GIB, 2000.0, iops=3000), "at least 7632"),
        (VolumeSpec(0, 130.0), "above 0"),
        (VolumeSpec(GIB, 0.0), "above 0"),
        (VolumeSpec(GIB, float("nan")), "above 0"),
        (VolumeSpec(GIB, float("inf")), "above 0"),
    ],
)
def test_beyond_a_limit_is_refused_with_the_limit(spec: VolumeSpec, limit: str) -> None:
    with pytest.raises(RefusedError, match=limit):
        plan(spec, REAL)


@given(size_gib=st.floats(0.001, 65536), mib_s=st.floats(0.001, 2000), scale=SCALES)
def test_what_is_bought_carries_what_was_asked_and_is_stable(size_gib: float, mib_s: float, scale: Scale) -> None:
    size_bytes = max(1, int(size_gib * scale.gib_bytes))
    asked = VolumeSpec(size_bytes, scale.mb_s(mib_s))
    bought = plan(asked, scale)
    spec = bought.spec(scale)
    assert spec.size_bytes >= asked.size_bytes
    assert spec.bandwidth_mb_s >= asked.bandwidth_mb_s * (1 - 1e-9)
    assert bought.iops >= 4 * bought.throughput_mib_s
    assert bought.iops <= max(3000, 500 * bought.size_gib)
    assert plan(spec, scale) == bought
