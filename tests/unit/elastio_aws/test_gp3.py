from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastio.core.model import VolumeSpec
from elastio.errors import RefusedError
from elastio.units import GIB, MIB
from elastio_aws.gp3 import Parameters, parameters_for
from elastio_aws.settings import Scale
from tests.fixtures.errors import refused

REAL = Scale()
SCALES = st.builds(Scale, st.integers(4096, 2**40), st.integers(1, 2**30))


@pytest.mark.parametrize(
    ("spec", "iops", "bought"),
    [
        pytest.param(VolumeSpec(10 * 10**9, 200.0), None, Parameters(10, 3000, 191), id="rounded up"),
        pytest.param(VolumeSpec(10 * GIB + 1, 200.0), None, Parameters(11, 3000, 191), id="rounded up to a GiB"),
        pytest.param(VolumeSpec(1, 1.0), None, Parameters(1, 3000, 125), id="at least what is free"),
        pytest.param(VolumeSpec(GIB, 750 * MIB / 1e6), None, Parameters(1, 3000, 750), id="most for 3000 IOPS"),
        pytest.param(VolumeSpec(GIB, 751 * MIB / 1e6), None, Parameters(7, 3004, 751), id="throughput sets the IOPS"),
        pytest.param(VolumeSpec(GIB, 2000 * MIB / 1e6), None, Parameters(16, 8000, 2000), id="IOPS set the size"),
        pytest.param(VolumeSpec(100 * GIB, 130.0), 5000, Parameters(100, 5000, 125), id="configured IOPS"),
        pytest.param(VolumeSpec(100 * GIB, 130.0, iops=4000), 5000, Parameters(100, 4000, 125), id="IOPS of the spec"),
    ],
)
def test_spec_determines_what_is_bought(spec: VolumeSpec, iops: int | None, bought: Parameters) -> None:
    assert parameters_for(spec, REAL, iops) == bought


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
    with refused(RefusedError, code):
        parameters_for(spec, REAL)


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
