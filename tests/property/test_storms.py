"""Storms drawn from seeds. How many: the examples of the Hypothesis profile in force."""

from __future__ import annotations

import pytest
from hypothesis import settings

from .storm import Storm

FEW = 12
SEEDS = range(settings.default.max_examples // 5 if settings.default else FEW)
# Faults of calls, accidents to the machine, deaths and requests.
WEATHER = {"calls fail": (6, 0, 0), "the agent dies": (0, 0, 7), "all at once": (5, 2, 5)}


@pytest.mark.parametrize("weather", WEATHER)
def test_nothing_is_lost_or_left_in_a_storm(weather: str) -> None:
    faults, accidents, happenings = WEATHER[weather]
    boosts = 0
    for seed in SEEDS:
        storm = Storm(seed, faults, accidents, happenings)
        storm.run()
        boosts += len(storm.world.provider.volumes)
    assert boosts >= len(SEEDS), "storms in which nothing is bought prove nothing"


def test_nothing_is_lost_or_left_however_wrong_the_forecasts_are() -> None:
    ahead = 0
    for seed in SEEDS:
        storm = Storm(seed, 4, 1, 4, wild=True)
        storm.run()
        ahead += sum("is expected in" in line.decode() for line in storm.sim.lines)
    assert ahead >= len(SEEDS) / 4, "storms in which no forecast is believed prove nothing"


def test_a_seed_makes_the_same_storm_again() -> None:
    first, second = (Storm(7, 4, 1, 4) for _ in range(2))
    first.run()
    second.run()
    assert first.sim.lines == second.sim.lines
    assert first.world.provider.bill_agbs() == second.world.provider.bill_agbs()
