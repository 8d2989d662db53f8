"""Whatever the load is, whoever asks and whenever the agent dies: a cap is passed by no more than the stated bound.

The bound is what a volume costs while nobody can release it. In these schedules that is while no agent runs, and what
a release takes longer than predicted: each death may repeat a step, and a detach waits for an instant without requests.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import settings

from elastio.accounting.recorder import CostRecorder
from elastio.core.model import VolumeSpec
from elastio.core.policy import Caps
from elastio.sim.prices import TARIFF
from elastio.sim.records import LockableLedger
from elastio.units import GIB, agbs
from tests.simulated import KERNEL

from .schedule import Schedule
from .storm import POLICY, Storm

SEEDS = range(settings.default.max_examples // 5 if settings.default else 12)
PER_S = agbs(POLICY.bought_bandwidth_mb_s, GIB, 1.0)
COST_PER_S = TARIFF.per_hour(VolumeSpec(GIB, POLICY.bought_bandwidth_mb_s)) / 3600
KINDS = ("max_agbs_per_day", "max_agbs_per_month", "max_cost_per_day", "max_cost_per_month")
# One volume, and how long it exists at the least.
LEAST_S = 1.2 * POLICY.least_boost_s
BEYOND_S = 30.0
DEATHS = frozenset({"kill", "down", "power_cut", "stop", "shutdown"})


def storm_under(cap_s: float, schedule: Schedule, kind: str = "max_agbs_per_day") -> Storm:
    """A storm under a cap of so many seconds of the smallest cache."""
    limit = cap_s * (COST_PER_S if "cost" in kind else PER_S)
    fields: dict[str, Any] = {kind: limit}
    return Storm(schedule, policy=replace(POLICY, caps=Caps(max_size_bytes=GIB, **fields)))


def spent_s(storm: Storm, kind: str) -> float:
    """What was bought, in seconds of the smallest cache."""
    provider = storm.world.provider
    return provider.bill_cost() / COST_PER_S if "cost" in kind else provider.bill_agbs() / PER_S


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_spends_more_than_the_cap_and_the_bound(seed: int) -> None:
    kind = KINDS[seed % len(KINDS)]
    cap_s = Random(seed).uniform(LEAST_S, 3 * LEAST_S)
    schedule = Schedule.random(seed, 0, 0, 5)
    storm = storm_under(cap_s, schedule, kind)
    storm.run()
    spent = spent_s(storm, kind)
    deaths = sum(h.kind in DEATHS for h in schedule.happenings)
    assert spent <= cap_s + BEYOND_S + deaths * (BEYOND_S + 20.0), f"{spent:.0f} of {cap_s:.0f} s: {schedule}"


@pytest.mark.parametrize("seed", SEEDS[::4])
def test_boosts_are_counted_although_nothing_can_be_written_to_the_ledger(seed: int, tmp_path: Path) -> None:
    schedule = Schedule.random(seed, 0, 0, 5)
    with LockableLedger(tmp_path / "ledger") as ledger:
        recorder = CostRecorder(ledger, KERNEL.backing_uuid)
        storm = Storm(schedule, recorder, policy=replace(POLICY, caps=Caps(max_boosts_per_day=1)))
        ledger.lock_while(lambda: True)
        storm.run()
        assert recorder.unrecorded == len(storm.world.provider.volumes) == 1, str(schedule)


@pytest.mark.parametrize("kind", KINDS)
def test_caps_end_boosts_in_these_storms(kind: str) -> None:
    ended = 0
    seeds = SEEDS[KINDS.index(kind) :: len(KINDS)]
    for seed in seeds:
        storm = storm_under(LEAST_S, Schedule.random(seed, 0, 0, 0), kind)
        storm.run()
        ended += storm.sim.state.capped is not None
    assert ended >= len(seeds) / 4, "storms in which no cap is near prove nothing"
