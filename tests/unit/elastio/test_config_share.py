"""[share]: off by default, and no reservation that the idle device cannot keep."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from elastio.config.schema import parse
from elastio.config.text import render
from elastio.core.shares import BoostRights, Reserved
from elastio.errors import ConfigError
from tests.fixtures.least_configuration import least

LEAST = least("aws", bandwidth_mb_s=60)


def key_refused(document: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(document)
    return caught.value.code


def with_shares(**share: object) -> dict[str, Any]:
    return {**LEAST, "share": share}


def test_nothing_is_shared_unless_that_is_switched_on() -> None:
    assert parse(LEAST).policy().share_reserve is None
    assert parse(with_shares(reserve={"db.service": 4})).policy().share_reserve is None
    assert parse(with_shares(enabled=True)).policy().share_reserve == ()
    enabled = parse(with_shares(enabled=True, reserve={"db.service": 4}))
    assert enabled.policy().share_reserve == (Reserved("db.service", 4.0),)


def test_reservations_leave_a_tenth_of_the_idle_device_to_others() -> None:
    parse(with_shares(enabled=True, reserve={"a": 40, "b": 12.3}))
    assert key_refused(with_shares(reserve={"a": 40, "b": 12.4})) == "share.reserve"


def test_reservations_on_a_volume_with_credits_fit_its_base_bandwidth() -> None:
    device = {**LEAST["device"], "base_bandwidth_mb_s": 10, "credits_gib": 5}
    assert key_refused({**with_shares(reserve={"a": 9}), "device": device}) == "share.reserve"


@pytest.mark.parametrize("reserve", [7, {"": 4}, {"a": 0}, {"a": "4"}, {"a": {"b": 4}}, ["a"]])
def test_a_reservation_that_is_none_is_refused(reserve: object) -> None:
    assert key_refused(with_shares(reserve=reserve)).startswith("share.reserve")


def test_all_may_cause_a_boost_unless_some_are_named() -> None:
    assert parse(LEAST).policy().boost_rights.is_everybody
    rights = parse(with_shares(may_boost=["db.service", "user.slice"], no_boost=["cron*"])).policy().boost_rights
    assert rights == BoostRights(("db.service", "user.slice"), ("cron*",))


@pytest.mark.parametrize("key", ["may_boost", "no_boost"])
@pytest.mark.parametrize("names", ["db.service", [7], [""], [["a"]], {"a": 1}])
def test_what_is_no_list_of_names_is_refused(key: str, names: object) -> None:
    assert key_refused(with_shares(**{key: names})) == f"share.{key}"


def test_a_list_that_is_written_is_read_again() -> None:
    chosen = {"share.may_boost": ("db.service", 'a"b'), "share.no_boost": ()}
    share = tomllib.loads(render(chosen))["share"]
    assert share == {"may_boost": ["db.service", 'a"b'], "no_boost": []}
