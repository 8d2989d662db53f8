from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastio.core.model import VolumeSpec
from elastio.errors import RefusedError
from elastio.units import GIB, MIB
from elastio_aws.gp3 import Parameters, parameters_for
from elastio_aws.settings import Scale

REAL = Scale()
SCALES = st.builds(Scale, st.integers(4096, 2**40), st.integers(1, 2**30))


def test_rounds_size_and_throughput_up() -> None:
    assert parameters_for(VolumeSpec(10 * 10**9, 200.0), REAL) == Parameters(10, 3000, 191)
    assert parameters_for(VolumeSpec(10 * GIB + 1, 200.0), REAL).size_gib == 11


def test_buys_at_least_the_free_throughput_and_iops() -> None:
    assert parameters_for(VolumeSpec(1, 1.0), REAL) == Parameters(1, 3000, 125)


def test_throughput_sets_the_iops_and_iops_set_the_size() -> None:
    assert parameters_for(VolumeSpec(GIB, 2000 * MIB / 1e6), REAL) == Parameters(16, 8000, 2000)
    assert parameters_for(VolumeSpec(GIB, 750 * MIB / 1e6), REAL) == Parameters(1, 3000, 750)
    assert parameters_for(VolumeSpec(GIB, 751 * MIB / 1e6), REAL) == Parameters(7, 3004, 751)


def test_iops_of_the_spec_take_precedence_over_the_setting() -> None:
    assert parameters_for(VolumeSpec(100 * GIB, 130.0, iops=4000), REAL, iops=5000).iops == 4000
    assert parameters_for(VolumeSpec(100 * GIB, 130.0), REAL, iops=5000).iops == 5000


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (VolumeSpec(GIB, 2098.0), "gp3.throughput"),
        (VolumeSpec(65537 * GIB, 130.0), "gp3.size"),
        (VolumeSpec(GIB, 130.0, iops=80001), "gp3.iops"),
        (VolumeSpec(GIB, 2000.0, iops=3000), "gp3.iops-for-throughput"),
        (VolumeSpec(0, 130.0), "spec.not-positive"),
        (VolumeSpec(GIB, 0.0), "spec.not-positive"),
        (VolumeSpec(GIB, float("nan")), "spec.not-positive"),
        (VolumeSpec(GIB, float("inf")), "spec.not-positive"),
    ],
)
def test_beyond_a_limit_is_refused(spec: VolumeSpec, code: str) -> None:
    with pytest.raises(RefusedError) as caught:
        parameters_for(spec, REAL)
    assert caught.value.code == code


@given(size_gib=st.floats(0.001, 65536), mib_s=st.floats(0.001, 2000), scale=SCALES)
def test_parameters_provide_the_spec_and_are_stable(size_gib: float, mib_s: float, scale: Scale) -> None:
    size_bytes = max(1, int(size_gib * scale.gib_bytes))
    asked = VolumeSpec(size_bytes, scale.mb_s(mib_s))
    bought = parameters_for(asked, scale)
    spec = bought.spec(scale)
    assert spec.size_bytes >= asked.size_bytes
    assert spec.bandwidth_mb_s >= asked.bandwidth_mb_s * (1 - 1e-9)
    assert bought.iops >= 4 * bought.throughput_mib_s
    assert bought.iops <= max(3000, 500 * bought.size_gib)
    assert parameters_for(spec, scale) == bought
