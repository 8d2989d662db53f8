"""Which volume type is bought: the slowest that provides the spec, by QoS specs or by the configuration."""

from __future__ import annotations

import pytest

from elastio.core.model import VolumeSpec
from elastio.errors import RefusedError
from elastio.units import GIB
from elastio_openstack.settings import Declared, Settings
from elastio_openstack.speeds import Speed, choose, quote, speed_of, tariff
from tests.fixtures.errors import refused

SLOW, FAST = Speed("slow", 16.5), Speed("fast", 64.0)
SMALL, FEW_IOPS = Speed("small", 64.0, max_size_gib=1), Speed("a-few-iops", 64.0, iops=100)
CHEAP = Speed("b", 64.0, declared=Declared(price_per_gib_hour=1.0))
EXPENSIVE = Speed("a", 64.0, declared=Declared(price_per_gib_hour=2.0))
GROWING = Speed("c", 2.0, per_gib=True)
DECLARED = Declared(bandwidth_mb_s=50, price_per_gib_hour=0.1)


def _qos(consumer: str = "front-end", **specs: str) -> dict[str, object]:
    return {"consumer": consumer, "specs": specs}


@pytest.mark.parametrize(
    ("declared", "qos", "speed"),
    [
        (Declared(), _qos(total_bytes_sec="64000000", total_iops_sec="16000"), Speed("fast", 64.0, iops=16000)),
        (Declared(), _qos(read_bytes_sec="100000000", write_bytes_sec="200000000"), Speed("fast", 100.0)),
        (Declared(), _qos(total_bytes_sec_per_gb="2000000"), Speed("fast", 2.0, per_gib=True)),
        (DECLARED, _qos(total_bytes_sec="64000000"), Speed("fast", 50, declared=DECLARED)),
        (Declared(), None, None),
        (Declared(), _qos("back-end", total_bytes_sec="1"), None),
        (Declared(), _qos(total_bytes_sec="0"), None),
        (Declared(), _qos(total_bytes_sec="much"), None),
        (Declared(), _qos(x="1"), None),
    ],
)
def test_speed_is_the_configured_one_or_the_limit_of_qos(
    declared: Declared, qos: dict[str, object] | None, speed: Speed | None
) -> None:
    assert speed_of("fast", declared, qos) == speed


@pytest.mark.parametrize(
    ("spec", "types", "chosen"),
    [
        (VolumeSpec(GIB, 10.0), [FAST, SLOW], (SLOW, 1)),
        (VolumeSpec(GIB + 1, 20.0), [FAST, SLOW], (FAST, 2)),
        (VolumeSpec(GIB, 64.0), [EXPENSIVE, CHEAP], (CHEAP, 1)),
        (VolumeSpec(10 * GIB, 20.0), [SLOW, GROWING], (GROWING, 10)),
        (VolumeSpec(2 * GIB, 64.0, 1000), [SMALL, FEW_IOPS, FAST], (FAST, 2)),
    ],
)
def test_slowest_and_then_cheapest_type_that_provides_the_spec_is_chosen(
    spec: VolumeSpec, types: list[Speed], chosen: tuple[Speed, int]
) -> None:
    assert choose(spec, types) == chosen


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
    with refused(RefusedError, code):
        choose(spec, types)


def test_missing_price_is_unknown() -> None:
    found = quote(FAST, 2, Settings())
    assert (found.price_per_hour, found.price_known) == (0, False)


def test_price_counts_every_gib() -> None:
    priced = Speed("fast", 64.0, declared=Declared(price_per_gib_hour=0.5))
    found = quote(priced, 3, Settings(currency="CHF", minimum_s=60))
    assert (found.price_per_hour, found.currency, found.minimum_s) == (1.5, "CHF", 60)
    assert found.spec == VolumeSpec(3 * GIB, 64.0, None)


def test_a_type_is_billed_by_its_own_prices_and_steps() -> None:
    """MB/s and IOPS are those of the type, as the cloud sells no others."""
    declared = Declared(
        price_per_gib_hour=0.5, price_per_mb_s_hour=0.01, price_per_iops_hour=0.001, minimum_s=0.0, step_s=60.0
    )
    found = quote(Speed("fast", 64.0, iops=1000, declared=declared), 3, Settings(minimum_s=10.0, step_s=3600.0))
    assert found.price_per_hour == pytest.approx(1.5 + 0.64 + 1.0)
    assert (found.minimum_s, found.step_s, found.billing.billed_s(61.0)) == (0.0, 60.0, 120.0)
    by_hour = quote(Speed("slow", 64.0, declared=Declared(price_per_mb_s_hour=0.01)), 3, Settings(step_s=3600.0))
    assert by_hour.price_per_hour == pytest.approx(0.64)
    assert by_hour.billing.billed_s(1.0) == 3600.0


def test_requests_are_billed_if_the_type_says_so() -> None:
    priced = Declared(price_per_gib_hour=0.001, price_per_million_requests=2.0)
    known = tariff("fast", priced, Settings())
    assert known is not None
    assert known.cost(VolumeSpec(GIB, 64.0), 3600.0, requests=500_000) == pytest.approx(1.001)


@pytest.mark.parametrize("declared", [Declared(minimum_s=60.0, step_s=60.0), Declared(price_per_million_requests=2.0)])
def test_what_has_no_price_for_a_time_has_no_known_price(declared: Declared) -> None:
    """A cap on cost would never act."""
    assert tariff("fast", declared, Settings()) is None
    assert not quote(Speed("fast", 64.0, declared=declared), 1, Settings()).price_known


def test_of_equal_types_that_with_the_cheaper_boost_is_bought() -> None:
    daily = Speed("daily", 64.0, declared=Declared(price_per_gib_hour=0.9, step_s=86_400.0))
    exact = Speed("exact", 64.0, declared=Declared(price_per_gib_hour=1.0))
    assert choose(VolumeSpec(GIB, 64.0), [daily, exact]) == (exact, 1)
