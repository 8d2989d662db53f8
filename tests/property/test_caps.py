"""Whatever the load is, whoever asks and whenever the agent dies: a cap is passed by no more than the stated bound.

The bound is what a volume costs while nobody can release it. In these schedules that is while no agent runs, and what
a release takes longer than predicted: each death may repeat a step, and a detach waits for an instant without requests.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import settings

from elastio.accounting.recorder import CostRecorder
from elastio.strategy.spending import Caps
from tests.fixtures.memory_ledger import MemoryLedger
from tests.simulated import KERNEL
from tests.spending import CAP_KINDS, Cap

from .schedule import Schedule
from .storm import POLICY, Storm

SEEDS = range(settings.default.max_examples // 5 if settings.default else 12)
# One volume, and how long it exists at the least.
LEAST_S = 1.2 * POLICY.least_boost_s


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_spends_more_than_the_cap_and_the_bound(seed: int) -> None:
    """The storm itself compares the bill of the cloud with the cap, at its end."""
    cap = Cap(CAP_KINDS[seed % len(CAP_KINDS)], Random(seed).uniform(LEAST_S, 3 * LEAST_S))
    Storm(replace(Schedule.random(seed, 0, 0, 5), cap=cap)).run()


@pytest.mark.parametrize("seed", SEEDS[::4])
def test_boosts_are_counted_although_nothing_can_be_written_to_the_ledger(seed: int) -> None:
    schedule = replace(Schedule.random(seed, 0, 0, 5), moved=False, beside=False, cap=None)  # one volume, by its cap
    with MemoryLedger() as ledger:
        recorder = CostRecorder(ledger, KERNEL.backing_uuid)
        storm = Storm(schedule, recorder, policy=replace(POLICY, caps=Caps(max_boosts_per_day=1)))
        ledger.lock_while(lambda: True)
        storm.run()
        assert recorder.unrecorded == len(storm.world.provider.volumes) == 1, str(schedule)


@pytest.mark.parametrize("kind", CAP_KINDS)
def test_caps_end_boosts_in_these_storms(kind: str) -> None:
    ended = 0
    seeds = SEEDS[CAP_KINDS.index(kind) :: len(CAP_KINDS)]
    for seed in seeds:
        storm = Storm(replace(Schedule.random(seed, 0, 0, 0), cap=Cap(kind, LEAST_S)))
        storm.run()
        ended += storm.sim.state.memory.capped is not None
    assert ended >= len(seeds) / 4, "storms in which no cap is near prove nothing"
