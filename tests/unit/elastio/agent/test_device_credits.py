"""The credits of the backing volume: by the configuration, or by the type that the provider knows."""

from __future__ import annotations

from typing import Any

import pytest

from elastio.agent.market import policy_of
from elastio.config.schema import parse
from elastio.errors import ConfigError
from elastio.strategy.credits import CreditBucket
from elastio.units import GIB, MB, MIB

UUID = "01234567-89ab-cdef-0123-456789abcdef"


def policy(provider: str = "aws", **device: Any) -> Any:
    document = {
        "device": {"backing_uuid": UUID, "bandwidth_mb_s": 500, **device},
        "cache": {"bandwidth_mb_s": 128},
        "provider": {"name": provider},
    }
    return policy_of(parse(document))


def test_a_device_without_credits_has_the_configured_policy() -> None:
    plain = policy()
    assert (plain.backing_bandwidth_mb_s, plain.backing_credits, plain.first_credits_bytes) == (500.0, None, 0.0)


def test_configured_rates_and_credits_are_the_bucket() -> None:
    cold = policy(base_bandwidth_mb_s=6, credits_gib=500, first_credits_gib=100)
    assert cold.backing_credits == CreditBucket(6.0, 500.0, 500 * GIB)
    assert (cold.backing_bandwidth_mb_s, cold.first_credits_bytes) == (500.0, 100 * GIB)


@pytest.mark.parametrize(("kind", "base", "burst"), [("sc1", 6, 40), ("st1", 20, 125)])
def test_the_type_and_the_size_decide_where_the_provider_knows_them(kind: str, base: float, burst: float) -> None:
    cold = policy(volume_type=kind, volume_size_gib=512)
    bucket = cold.backing_credits
    assert (bucket.base_mb_s, bucket.burst_mb_s) == pytest.approx((base * MIB / MB, burst * MIB / MB))
    assert bucket.capacity_bytes == 512 * GIB
    assert cold.backing_bandwidth_mb_s == bucket.burst_mb_s


def test_an_instance_that_is_slower_than_the_volume_limits_its_burst() -> None:
    bucket = policy(volume_type="st1", volume_size_gib=512, bandwidth_mb_s=100).backing_credits
    assert (bucket.burst_mb_s, bucket.capacity_bytes) == (100.0, 512 * GIB)


@pytest.mark.parametrize(("provider", "kind"), [("aws", "gp3"), ("openstack", "st1")])
def test_a_type_whose_credits_the_provider_does_not_know_is_refused(provider: str, kind: str) -> None:
    with pytest.raises(ConfigError) as caught:
        policy(provider, volume_type=kind, volume_size_gib=512)
    assert caught.value.code == "device.volume_type"
