"""The cost of volumes by a tariff."""

from __future__ import annotations

import pytest

from elastio.core.model import VolumeSpec
from elastio.strategy.tariff import Tariff, agbs_tariff, unpriced
from elastio.units import GB, GIB, agbs

# gp3 in us-east-1, in a month of 720 h: 0.08 USD for a GiB, 0.04 for a MB/s above 125, 0.005 for an IOPS above 3,000.
GP3 = Tariff("USD", 0.08 / 720, 0.04 / 720, 0.005 / 720, included_mb_s=125, included_iops=3000, minimum_s=60)


@pytest.mark.parametrize(
    ("spec", "a_month"),
    [
        (VolumeSpec(100 * GIB, 125, 3000), 8.00),
        (VolumeSpec(100 * GIB, 100, 1000), 8.00),  # what is included costs nothing, and is not paid back
        (VolumeSpec(100 * GIB, 500, 3000), 8.00 + 15.00),
        (VolumeSpec(8 * GIB, 1000, 4000), 0.64 + 35.00 + 5.00),
        (VolumeSpec(100 * GIB, 125), 8.00),  # IOPS left to the provider: those that are included
    ],
)
def test_a_volume_is_charged_by_size_and_by_what_exceeds_the_included(spec: VolumeSpec, a_month: float) -> None:
    assert GP3.per_hour(spec) * 720 == pytest.approx(a_month)


@pytest.mark.parametrize(
    ("seconds", "minimum_s", "step_s", "billed_s"),
    [(12.0, 60.0, 0.0, 60.0), (61.5, 60.0, 0.0, 61.5), (61.5, 60.0, 1.0, 62.0), (10.0, 0.0, 3600.0, 3600.0)],
)
def test_time_is_billed_from_a_minimum_and_in_steps(
    seconds: float, minimum_s: float, step_s: float, billed_s: float
) -> None:
    assert Tariff("USD", minimum_s=minimum_s, step_s=step_s).billed_s(seconds) == billed_s


def test_requests_are_charged_beside_time() -> None:
    tariff = Tariff("USD", per_gib_hour=0.01, per_million_requests=0.2)
    assert tariff.cost(VolumeSpec(10 * GIB, 100), 1800, 500_000) == pytest.approx(0.05 + 0.1)


def test_the_tariff_in_agbs_is_bandwidth_times_size_times_seconds() -> None:
    spec = VolumeSpec(6 * GB, 161)
    assert agbs_tariff().cost(spec, 120) == pytest.approx(agbs(161, 6 * GB, 120))


def test_a_quote_says_what_is_sold_at_which_price_and_where_the_price_comes_from() -> None:
    spec = VolumeSpec(100 * GIB, 500, 3000)
    known = Tariff("EUR", per_gib_hour=0.01, minimum_s=60, source="a list", region="here", date="2026-11-20")
    quote = known.quote(spec)
    assert (quote.spec, quote.currency, quote.minimum_s, quote.price_known) == (spec, "EUR", 60, True)
    assert quote.price_per_hour == pytest.approx(1.0)
    assert quote.price_source == "a list; here; 2026-11-20"
    assert Tariff("EUR", source="a contract").quote(spec).price_source == "a contract"


def test_an_unknown_price_is_marked_as_such() -> None:
    quote = unpriced(VolumeSpec(GIB, 100), "EUR", 60, "nobody knows")
    assert (quote.price_known, quote.price_source) == (False, "nobody knows")
