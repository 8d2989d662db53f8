"""A strategy that wants anything at any time: the mechanism loses no data all the same, and leaves no volume behind."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from elastio.core import machine
from elastio.core.cycle import Trigger
from elastio.core.model import VolumeSpec
from elastio.core.policy import Policy
from elastio.strategy import review
from elastio.strategy.memory import Memory
from elastio.strategy.situation import BoostPlan, Release, Situation, Wish
from elastio.units import GIB

from .campaign import storm_with_ledger
from .schedule import Schedule

WEATHER = ((6, 0, 0), (0, 0, 7), (5, 2, 5), (0, 0, 0))
# None with a cap, which is kept by the strategy; none whose machine has to be left in a boost.
DRAWN = (Schedule.random(seed, *WEATHER[seed % len(WEATHER)], wild=seed % 5 == 0) for seed in range(60))
SCHEDULES = tuple(schedule for schedule in DRAWN if schedule.cap is None and not schedule.moved)[:24]
# Of all decisions: so many want the cache to be released, and so many under load want one.
RELEASES, BUYS = 0.04, 0.5


class Whim:
    """Wishes that follow from the moment, and from nothing else."""

    def __init__(self) -> None:
        self.wishes: Counter[str] = Counter()

    def review(self, memory: Memory, at: Situation) -> tuple[Memory, Wish]:
        memory, wish = review.review(memory, replace(at, may_buy=False))  # its memory goes on
        dice = Random(f"{at.now} {at.sample}")
        wish = replace(wish, flush_mb_s=dice.choice((None, 0.0, 3.0, 1e3)))
        if at.cycle is None:
            return memory, replace(wish, boost=self._boost(memory, wish.policy, dice) if at.may_buy else None)
        if dice.random() > RELEASES:
            return memory, replace(wish, release=None)
        kind = dice.choice(("filled", "unused", "ordered"))
        self.wishes[kind] += 1
        return memory, replace(
            wish, release=Release("a whim", is_filled=kind == "filled", is_ordered=kind == "ordered")
        )

    def _boost(self, memory: Memory, policy: Policy, dice: Random) -> BoostPlan | None:
        # What has filled its cache is not bought for again: a promise of the strategy's own.
        if memory.has_filled or memory.load.above_since is None or dice.random() > BUYS:
            return None
        self.wishes["buy"] += 1
        trigger = dice.choice((Trigger.LOAD, Trigger.OPERATOR, Trigger.FORECAST))
        return BoostPlan(
            trigger, VolumeSpec(dice.randint(1, 4) * GIB, policy.bought_bandwidth_mb_s), 60.0, reason="a whim"
        )


def test_whatever_the_strategy_wants_no_data_is_lost_and_no_volume_left(monkeypatch: pytest.MonkeyPatch) -> None:
    whim = Whim()
    monkeypatch.setattr(machine, "review", whim.review)
    for schedule in SCHEDULES:
        storm_with_ledger(schedule)
    assert whim.wishes.keys() == {"filled", "unused", "ordered", "buy"}
