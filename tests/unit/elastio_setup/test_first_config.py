"""What the first configuration says where nobody does."""

from __future__ import annotations

import pytest

from elastio.errors import ConfigError
from elastio_setup.first_config import UNKNOWN_UUID, FirstConfig, default_cache_mb_s
from tests.fixtures.errors import refused


@pytest.mark.parametrize(
    ("backing_mb_s", "limit_mb_s", "cache_mb_s"),
    [(131.072, None, 524), (131.072, 10_000.0, 524), (90.0, 400.0, 310), (90.0, 190.0, 100)],
)
def test_a_cache_is_four_times_as_fast_or_what_the_instance_leaves(
    backing_mb_s: float, limit_mb_s: float | None, cache_mb_s: float
) -> None:
    found = default_cache_mb_s(backing_mb_s, limit_mb_s)
    assert found == cache_mb_s
    assert limit_mb_s is None or found + backing_mb_s <= limit_mb_s


@pytest.mark.parametrize("limit_mb_s", [50.0, 90.0, 180.0])
def test_an_instance_that_leaves_nothing_is_refused(limit_mb_s: float) -> None:
    with refused(ConfigError, "setup.instance_limit"):
        default_cache_mb_s(90.0, limit_mb_s)


def test_drop_ins_count_as_the_agent_will_read_them() -> None:
    first = FirstConfig(60.0, 240.0, "toy", beneath={"cache": {"initial_size_gib": 2.0}})
    config = first.parsed(UNKNOWN_UUID)
    assert (config.cache.initial_size_gib, config.cache.bandwidth_mb_s) == (2.0, 240.0)
    with refused(ConfigError, "cache.size"):
        FirstConfig(60.0, 240.0, "toy", beneath={"cache": {"size": 2.0}}).parsed(UNKNOWN_UUID)
