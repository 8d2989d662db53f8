"""The market of a device: prices that are known, limits that hold, and nothing guessed."""

from __future__ import annotations

from typing import Any

import pytest

from elastio.agent.daemon import price_market
from elastio.agent.market import UNKNOWN, MarketWatch, market, require_prices, unkept_cap
from elastio.config.schema import Config, parse
from elastio.core.model import Identity
from elastio.core.policy import Model
from elastio.errors import ConfigError
from elastio.units import GIB
from elastio_sim.kernel import KernelSettings
from tests.simulated import machine
from tests.values import present

SIZE = 500 * GIB
TYPES = {
    "slow": {"bandwidth_mb_s": 60, "price_per_gib_hour": 0.00005},
    "fast": {"bandwidth_mb_s": 250, "price_per_gib_hour": 0.0001},
}


def config(
    provider: str = "aws", settings: dict[str, Any] | None = None, hour: float | None = 0.8, **sections: Any
) -> Config:
    device = {"backing_uuid": KernelSettings().backing_uuid, "bandwidth_mb_s": 131, **sections.pop("device", {})}
    cache = {"bandwidth_mb_s": 500, **sections.pop("cache", {})}
    return parse(
        {
            "device": device,
            "cache": cache,
            "policy": {"model": "money"},
            "value": {} if hour is None else {"hour": hour},
            "provider": {"name": provider, provider: settings or {}},
            **sections,
        }
    )


def openstack(types: dict[str, Any], **sections: Any) -> Config:
    sections = {"device": {"bandwidth_mb_s": 60}, "cache": {"bandwidth_mb_s": 190}, **sections}
    return config("openstack", {"currency": "EUR", "types": types}, **sections)


def test_the_default_is_the_published_behaviour() -> None:
    document = {
        "device": {"backing_uuid": KernelSettings().backing_uuid, "bandwidth_mb_s": 131},
        "cache": {"bandwidth_mb_s": 500},
        "provider": {"name": "aws"},
    }
    assert parse(document).policy().model is Model.AGBS
    require_prices(parse(document))


def test_without_the_value_of_an_hour_money_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        config(hour=None)
    assert refused.value.code == "value.hour"


def test_waiting_costs_the_machine_and_its_backing_volume() -> None:
    found = market(config(), "us-east-1", SIZE, None)
    assert found.tariff.currency == "USD"
    assert found.waiting_per_s == pytest.approx((0.8 + 40.0 / 720) / 3600)


def test_every_bandwidth_up_to_the_configured_one_is_offered_with_its_iops() -> None:
    found = market(config(cache={"bandwidth_mb_s": 800}), "us-east-1", SIZE, 1000.0)
    bandwidths = found.offer.bandwidths_mb_s
    assert bandwidths == tuple(sorted(bandwidths))
    assert bandwidths[0] > 131
    assert max(bandwidths) == pytest.approx(800 + 131, rel=0.01)
    assert max(bandwidths) <= 800 + 131
    assert found.bounds.instance_mb_s == 1000.0
    few, many = (present(present(found.offer.spec(GIB, mb_s)).iops) for mb_s in (bandwidths[0], bandwidths[-1]))
    assert few == 3000 < many


def test_what_the_instance_carries_is_the_most_that_is_offered() -> None:
    """The step below it may be slower by a sixth."""
    offer = market(config(cache={"bandwidth_mb_s": 800}), "us-east-1", SIZE, 600.0).offer
    assert max(offer.bandwidths_mb_s) == 600.0
    slow = market(config(cache={"bandwidth_mb_s": 800}), "us-east-1", SIZE, 100.0).offer
    assert max(slow.bandwidths_mb_s) == pytest.approx(1.1 * 131, rel=0.01), "none that is sold is within it"


def test_only_the_type_of_the_configured_bandwidth_is_offered() -> None:
    found = market(openstack(TYPES), "", SIZE, None)
    assert found.offer.bandwidths_mb_s == (250.0,)
    assert found.tariff.volume_type == "fast"


def test_sizes_stay_within_the_settings() -> None:
    offer = market(config(cache={"min_size_gib": 4.0, "max_size_gib": 50.0}), "us-east-1", SIZE, None).offer
    assert (offer.least_bytes, offer.most_bytes) == (4 * GIB, 50 * GIB)


@pytest.mark.parametrize(
    "types",
    [
        {"slow": {"bandwidth_mb_s": 60}, "fast": TYPES["fast"]},
        {"slow": TYPES["slow"], "fast": {"bandwidth_mb_s": 250}},
        {"slow": TYPES["slow"]},
    ],
    ids=["backing", "cache", "not sold"],
)
def test_an_unknown_price_refuses_the_configuration(types: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        require_prices(openstack(types))
    assert refused.value.code == UNKNOWN


def test_the_operators_price_of_the_backing_volume_is_enough() -> None:
    priced = openstack({"fast": TYPES["fast"]}, device={"bandwidth_mb_s": 60, "price_per_month": 7.2})
    require_prices(priced)
    assert market(priced, "", SIZE, None).waiting_per_s == pytest.approx((0.8 + 7.2 / 720) / 3600)


def test_a_region_that_is_not_known_yet_is_waited_for() -> None:
    require_prices(config())
    with pytest.raises(ConfigError) as refused:
        market(config(), "me-central-1", SIZE, None)
    assert refused.value.code == UNKNOWN


def test_a_region_that_is_configured_and_has_no_prices_refuses_the_configuration() -> None:
    with pytest.raises(ConfigError) as refused:
        require_prices(config(settings={"region": "me-central-1"}))
    assert refused.value.code == UNKNOWN


def test_the_market_is_determined_once_for_each_region_size_and_configuration() -> None:
    watch, of = MarketWatch(), config()
    assert watch.market(of, None, SIZE) is None
    here = Identity("aws", "i-1", "us-east-1a", "us-east-1", "m7i.large", 600.0)
    found = watch.market(of, here, SIZE)
    assert present(found).bounds.instance_mb_s == 600.0
    assert watch.market(of, here, SIZE) is found
    nowhere = Identity("aws", "i-1", "me-central-1a", "me-central-1", "m7i.large")
    assert watch.market(of, nowhere, SIZE) is None
    assert watch.trouble


def test_the_agent_gets_its_market_when_its_machine_is_known() -> None:
    sim, watch = machine(), MarketWatch()
    of = config("sim", device={"bandwidth_mb_s": 20}, cache={"bandwidth_mb_s": 80})
    agent = present(sim.agent)
    agent.policy = of.policy()
    price_market(agent, of, watch)
    assert agent.policy.market is None
    sim.run_for(10)
    price_market(agent, of, watch)
    assert present(agent.policy.market).offer.bandwidths_mb_s[-1] == 100


UNPRICED = {"fast": {"bandwidth_mb_s": 250}}
CAP = {"max_cost_per_day": 1.0}


@pytest.mark.parametrize(
    ("types", "caps", "is_unkept"),
    [
        (UNPRICED, CAP, True),
        (UNPRICED, {"max_cost_per_month": 1.0}, True),
        (UNPRICED, {"max_agbs_per_day": 1.0}, False),
        (TYPES, CAP, False),
        ({"slow": {"bandwidth_mb_s": 60}}, CAP, False),  # no type is fast enough: that is another matter
    ],
)
def test_a_cap_on_cost_without_any_price_is_said_before_the_first_boost(
    types: dict[str, Any], caps: dict[str, float], *, is_unkept: bool
) -> None:
    assert bool(unkept_cap(openstack(types, caps=caps, policy={}))) is is_unkept


def test_a_region_that_the_cloud_names_may_have_a_price() -> None:
    assert unkept_cap(config(caps=CAP, policy={})) == ""
    assert unkept_cap(config(settings={"region": "us-east-1"}, caps=CAP, policy={})) == ""
    assert unkept_cap(config(settings={"region": "me-central-1"}, caps=CAP, policy={})) != ""
