from __future__ import annotations

import pytest

from elastio.units import GIB, MIB
from elastio_aws.gp3 import Purchase
from elastio_aws.prices import quote
from elastio_aws.settings import Scale


def test_free_part_costs_only_storage() -> None:
    bought = quote(Purchase(100, 3000, 125), Scale(), "us-east-1")
    assert bought.price_per_hour * 720 == pytest.approx(8.00)
    assert bought.currency == "USD"
    assert bought.minimum_s == 60


def test_throughput_and_iops_over_the_free_part_are_added() -> None:
    bought = quote(Purchase(200, 8000, 2000), Scale(), "us-east-1")
    assert bought.price_per_hour * 720 == pytest.approx(200 * 0.08 + 1875 * 0.04 + 5000 * 0.005)
    assert bought.spec.size_bytes == 200 * GIB
    assert bought.spec.bandwidth_mb_s == pytest.approx(2000 * MIB / 1e6)
    assert bought.spec.iops == 8000


def test_source_names_place_and_date() -> None:
    assert quote(Purchase(1, 3000, 125), Scale(), "us-east-1").price_source.endswith("us-east-1; 2026-11-20")


def test_unlisted_region_says_whose_price_it_shows() -> None:
    here = quote(Purchase(1, 3000, 125), Scale(), "us-east-1")
    there = quote(Purchase(1, 3000, 125), Scale(), "ap-nowhere-1")
    assert there.price_per_hour == here.price_per_hour
    assert "us-east-1, as none is known for ap-nowhere-1" in there.price_source
