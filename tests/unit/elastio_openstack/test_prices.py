"""The tariffs of volume types, from the configuration alone."""

from __future__ import annotations

import pytest

from elastio.core.model import VolumeSpec
from elastio.errors import RefusedError
from elastio.units import GIB
from elastio_openstack.prices import price, price_list

TABLE = {
    "currency": "CHF",
    "price_source": "contract of 2026",
    "volume_type": "fast",  # of the caches; a backing volume has another
    "types": {
        "slow": {"bandwidth_mb_s": 60, "price_per_gib_hour": 0.0001},
        "fast": {"bandwidth_mb_s": 500, "price_per_gib_hour": 0.0003},
        "new": {"bandwidth_mb_s": 900},
        "by-qos": {"price_per_gib_hour": 0.0002},
    },
}


def test_every_type_with_a_price_has_a_tariff() -> None:
    known = price_list(TABLE, "")
    assert [(t.volume_type, t.per_gib_hour, t.currency) for t in known.tariffs] == [
        ("by-qos", 0.0002, "CHF"),
        ("fast", 0.0003, "CHF"),
        ("slow", 0.0001, "CHF"),
    ]
    assert known.unknown == ("new",)


@pytest.mark.parametrize(("mb_s", "per_gib_hour"), [(33.0, 0.0001), (200.0, 0.0003)])
def test_a_volume_costs_what_the_slowest_sufficient_type_costs(mb_s: float, per_gib_hour: float) -> None:
    quote = price(TABLE, "", VolumeSpec(100 * GIB, mb_s))
    assert quote.price_per_hour == pytest.approx(100 * per_gib_hour)
    assert (quote.currency, quote.price_source.partition(",")[0]) == ("CHF", "contract of 2026")


def test_a_type_without_a_price_makes_the_price_unknown_and_one_that_is_too_slow_is_refused() -> None:
    assert not price(TABLE, "", VolumeSpec(GIB, 700.0)).price_known
    with pytest.raises(RefusedError):
        price(TABLE, "", VolumeSpec(GIB, 5000.0))
