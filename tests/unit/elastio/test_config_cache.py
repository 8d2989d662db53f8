"""[cache] bandwidth = "learned": its bounds, and what it needs."""

from __future__ import annotations

import pytest

from elastio.config.schema import parse
from elastio.strategy.memory import SpeedBounds

from .test_config_share import LEAST, key_refused


def with_cache(**cache: object) -> dict[str, object]:
    return {**LEAST, "cache": {"bandwidth_mb_s": 100, **cache}}


def test_it_is_fixed_unless_learning_is_switched_on() -> None:
    assert parse(LEAST).policy().bandwidth is None
    assert parse(with_cache(max_bandwidth_mb_s=400)).policy().bandwidth is None


def test_the_bounds_are_the_bandwidth_and_twice_that_by_default() -> None:
    learned = with_cache(bandwidth="learned")
    assert parse(learned).policy().bandwidth == SpeedBounds(100.0, 100.0, 200.0, 0.05)
    between = {**with_cache(bandwidth="learned", min_bandwidth_mb_s=60, max_bandwidth_mb_s=400)}
    between["policy"] = {"stop_gain": 0.1}
    assert parse(between).policy().bandwidth == SpeedBounds(100.0, 60.0, 400.0, 0.1)


@pytest.mark.parametrize(
    ("cache", "key"),
    [
        ({"bandwidth": "fast"}, "cache.bandwidth"),
        ({"bandwidth": "learned", "min_bandwidth_mb_s": 101}, "cache.min_bandwidth_mb_s"),
        ({"bandwidth": "learned", "min_bandwidth_mb_s": 59}, "cache.min_bandwidth_mb_s"),
        ({"bandwidth": "learned", "max_bandwidth_mb_s": 99}, "cache.max_bandwidth_mb_s"),
    ],
)
def test_bounds_that_leave_nothing_to_learn_are_refused(cache: dict[str, object], key: str) -> None:
    assert key_refused(with_cache(**cache)) == key


def test_money_chooses_the_bandwidth_itself() -> None:
    document = {**with_cache(bandwidth="learned"), "policy": {"model": "money"}, "value": {"hour": 1.0}}
    assert key_refused(document) == "cache.bandwidth"


def test_without_the_account_nothing_is_learned() -> None:
    assert key_refused({**with_cache(bandwidth="learned"), "profile": {"enabled": False}}) == "cache.bandwidth"


@pytest.mark.parametrize("gain", [0.0, 0.5, -1])
def test_a_stop_gain_that_no_curve_has_is_refused(gain: float) -> None:
    assert key_refused({**LEAST, "policy": {"stop_gain": gain}}) == "policy.stop_gain"
