"""Which volume type is bought: the slowest that provides the spec, by QoS specs or by the configuration."""

from __future__ import annotations

import pytest

from elastio.core.model import VolumeSpec
from elastio.errors import RefusedError
from elastio.units import GIB
from elastio_openstack.settings import Declared, Settings
from elastio_openstack.speeds import Speed, choose, quote, speed_of

SLOW, FAST = Speed("slow", 16.5), Speed("fast", 64.0)


def _qos(consumer: str = "front-end", **specs: str) -> dict[str, object]:
    return {"consumer": consumer, "specs": specs}


def test_total_qos_limit_is_the_bandwidth() -> None:
    speed = speed_of("fast", Declared(), _qos(total_bytes_sec="64000000", total_iops_sec="16000"))
    assert speed == Speed("fast", 64.0, iops=16000)


def test_smaller_limit_of_read_and_write_counts() -> None:
    speed = speed_of("fast", Declared(), _qos(read_bytes_sec="200000000", write_bytes_sec="100000000"))
    assert speed == Speed("fast", 100.0)


def test_bandwidth_per_gigabyte_grows_with_the_volume() -> None:
    speed = speed_of("fast", Declared(), _qos(total_bytes_sec_per_gb="2000000"))
    assert speed is not None
    assert speed.at(10) == 20.0


@pytest.mark.parametrize(
    "qos",
    [None, _qos("back-end", total_bytes_sec="1"), _qos(total_bytes_sec="0"), _qos(total_bytes_sec="much"), _qos(x="1")],
)
def test_without_a_bandwidth_the_type_is_unknown(qos: dict[str, object] | None) -> None:
    assert speed_of("fast", Declared(), qos) is None


def test_configuration_takes_precedence_over_qos() -> None:
    speed = speed_of("fast", Declared(bandwidth_mb_s=50, price_per_gib_hour=0.1), _qos(total_bytes_sec="64000000"))
    assert speed == Speed("fast", 50, price_per_gib_hour=0.1)


def test_slowest_type_with_the_bandwidth_is_chosen() -> None:
    assert choose(VolumeSpec(GIB, 10.0), [FAST, SLOW]) == (SLOW, 1)
    assert choose(VolumeSpec(GIB + 1, 20.0), [FAST, SLOW]) == (FAST, 2)


def test_cheapest_of_equal_types_is_chosen() -> None:
    expensive, cheap = Speed("a", 64.0, price_per_gib_hour=2.0), Speed("b", 64.0, price_per_gib_hour=1.0)
    assert choose(VolumeSpec(GIB, 64.0), [expensive, cheap])[0] is cheap


def test_type_too_small_or_with_too_few_iops_is_not_chosen() -> None:
    small, few_iops = Speed("small", 64.0, max_size_gib=1), Speed("few_iops", 64.0, iops=100)
    assert choose(VolumeSpec(2 * GIB, 64.0, 1000), [small, few_iops, FAST])[0] is FAST


@pytest.mark.parametrize(
    ("spec", "types", "code"),
    [
        (VolumeSpec(0, 1.0), [FAST], "spec.not-positive"),
        (VolumeSpec(GIB, float("inf")), [FAST], "spec.not-positive"),
        (VolumeSpec(GIB, 1.0), [], "type.none-known"),
        (VolumeSpec(GIB, 65.0), [SLOW, FAST], "type.bandwidth"),
        (VolumeSpec(2 * GIB, 1.0), [Speed("s", 9.0, max_size_gib=1)], "type.size"),
    ],
)
def test_impossible_spec_is_refused(spec: VolumeSpec, types: list[Speed], code: str) -> None:
    with pytest.raises(RefusedError) as caught:
        choose(spec, types)
    assert caught.value.code == code


def test_missing_price_is_unknown() -> None:
    found = quote(FAST, 2, Settings())
    assert (found.price_per_hour, found.price_known) == (0, False)


def test_price_counts_every_gib() -> None:
    found = quote(Speed("fast", 64.0, price_per_gib_hour=0.5), 3, Settings(currency="CHF", minimum_s=60))
    assert (found.price_per_hour, found.currency, found.minimum_s) == (1.5, "CHF", 60)
    assert found.spec == VolumeSpec(3 * GIB, 64.0, None)
