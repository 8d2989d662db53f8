"""Which volume type is bought: the slowest that carries what is asked for, by QoS or by the configuration."""

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


def test_qos_of_both_ways_together_is_the_bandwidth() -> None:
    speed = speed_of("fast", Declared(), _qos(total_bytes_sec="64000000", total_iops_sec="16000"))
    assert speed == Speed("fast", 64.0, iops=16000)


def test_lesser_of_read_and_write_counts() -> None:
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


def test_configuration_wins_over_qos() -> None:
    speed = speed_of("fast", Declared(bandwidth_mb_s=50, price_per_gib_hour=0.1), _qos(total_bytes_sec="64000000"))
    assert speed == Speed("fast", 50, price_per_gib_hour=0.1)


def test_slowest_that_carries_it_is_chosen() -> None:
    assert choose(VolumeSpec(GIB, 10.0), [FAST, SLOW]) == (SLOW, 1)
    assert choose(VolumeSpec(GIB + 1, 20.0), [FAST, SLOW]) == (FAST, 2)


def test_of_equals_the_cheapest_is_chosen() -> None:
    dear, cheap = Speed("a", 64.0, price_per_gib_hour=2.0), Speed("b", 64.0, price_per_gib_hour=1.0)
    assert choose(VolumeSpec(GIB, 64.0), [dear, cheap])[0] is cheap


def test_type_too_small_or_with_too_few_iops_is_passed_over() -> None:
    small, lame = Speed("small", 64.0, max_size_gib=1), Speed("lame", 64.0, iops=100)
    assert choose(VolumeSpec(2 * GIB, 64.0, 1000), [small, lame, FAST])[0] is FAST


@pytest.mark.parametrize(
    ("spec", "types", "said"),
    [
        (VolumeSpec(0, 1.0), [FAST], "above 0"),
        (VolumeSpec(GIB, float("inf")), [FAST], "above 0"),
        (VolumeSpec(GIB, 1.0), [], "declare one"),
        (VolumeSpec(GIB, 65.0), [SLOW, FAST], "the fastest type, fast, carries 64 MB/s"),
        (VolumeSpec(2 * GIB, 1.0), [Speed("s", 9.0, max_size_gib=1)], "more than any volume type takes"),
    ],
)
def test_what_cannot_be_bought_is_refused(spec: VolumeSpec, types: list[Speed], said: str) -> None:
    with pytest.raises(RefusedError, match=said):
        choose(spec, types)


def test_price_that_nobody_configured_is_said_to_be_missing() -> None:
    found = quote(FAST, 2, Settings())
    assert (found.price_per_hour, found.price_known) == (0, False)
    assert found.price_source == "no price is configured for volume type fast"


def test_price_counts_every_gib() -> None:
    found = quote(Speed("fast", 64.0, price_per_gib_hour=0.5), 3, Settings(currency="CHF", minimum_s=60))
    assert (found.price_per_hour, found.currency, found.minimum_s) == (1.5, "CHF", 60)
    assert found.spec == VolumeSpec(3 * GIB, 64.0, None)
