"""Storms, some drawn from seeds and some by Hypothesis. How many: the examples of the profile in force."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings

from .campaign import search, storm_with_ledger
from .schedule import Schedule
from .storm import Storm

FEW = 12
SEEDS = range(settings.default.max_examples // 5 if settings.default else FEW)
# Faults of calls, scheduled faults to the machine, deaths and requests.
WEATHER = {"calls fail": (6, 0, 0), "the agent dies": (0, 0, 7), "all at once": (5, 2, 5)}


@pytest.mark.parametrize("weather", WEATHER)
def test_nothing_is_lost_or_left_in_a_storm(weather: str, record_property: Callable[[str, object], None]) -> None:
    boosts = 0
    for seed in SEEDS:
        storm = storm_with_ledger(Schedule.random(seed, *WEATHER[weather]))
        boosts += len(storm.world.provider.volumes)
    assert boosts >= len(SEEDS), "storms in which nothing is bought prove nothing"
    record_property("schedules", len(SEEDS))


def test_nothing_is_lost_or_left_however_wrong_the_forecasts_are(
    record_property: Callable[[str, object], None],
) -> None:
    ahead = 0
    for seed in SEEDS:
        storm = storm_with_ledger(Schedule.random(seed, 4, 1, 4, wild=True))
        ahead += sum("is expected in" in line.decode() for line in storm.sim.lines)
    assert ahead >= len(SEEDS) / 4, "storms in which no forecast is believed prove nothing"
    record_property("schedules", len(SEEDS))


def test_nothing_is_lost_or_left_in_any_schedule(record_property: Callable[[str, object], None]) -> None:
    examples = settings.default.max_examples if settings.default else FEW
    counts = search(examples, shard=0)
    assert counts["schedules"] >= examples
    assert counts["volumes"] >= examples / 2
    record_property("schedules", counts["schedules"])


@pytest.mark.parametrize(
    "line",
    [
        "0 | 1s:0:0 8s:60:0 | create#1=unseen:11 | kill@4",  # deleted before the cloud shows it: the bill goes on
        "1 | 1s:0:0 8s:60:0 | nothing | flush@8.33526",  # flushed in the decision that ends the attach
        # The journal's disk is full while a release under a shared cap goes on.
        "5085 beside moved cap=max_cost_per_day:60 | 1s:0:0 8s:60:0 | @dirty=vanish:1 @clean=disk_full:600 | kill@11",
        # The first try has made a cache set, the second one another, which is attached late.
        "7 | 1s:0:0 30s:60:0 | format_cache#1=lose_reply:1 attach_cache_set#1=late_success:1 | nobody",
        # Somebody bypasses the cache while cgroups are limited.
        "210 shares moved | 10s:0:10 22s:0:10 | @clean=none:10 | nobody",
        # Nothing that is absorbed wakes the flush of what the superblock calls clean.
        "285 | 2s:0:0 15s:60:0 | @dirty=power_cut:1 @dirty=writearound:1 | nobody",
    ],
)
def test_a_schedule_that_failed_once_passes(line: str) -> None:
    assert storm_with_ledger(Schedule.parse(line)).world.provider.volumes


def test_a_seed_makes_the_same_storm_again() -> None:
    first, second = (Storm(Schedule.random(7, 4, 1, 4)) for _ in range(2))
    first.run()
    second.run()
    assert first.sim.lines == second.sim.lines
    assert first.world.provider.bill_agbs() == second.world.provider.bill_agbs()


@pytest.mark.parametrize("seed", range(5))
def test_a_schedule_that_is_told_plays_again(seed: int) -> None:
    schedule = Schedule.random(seed, 3, 2, 3, wild=seed % 2 == 1)
    told = Schedule.parse(str(schedule))
    assert str(told) == str(schedule)
    assert Schedule.parse(str(told)) == told


@pytest.mark.parametrize("line", ["", "1 | 3s:0:0", "1 | 3s:0:0 | attach#0=hang | nobody", "x | | nothing | nobody"])
def test_a_line_that_is_no_schedule_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="is no schedule"):
        Schedule.parse(line)
