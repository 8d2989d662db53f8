"""Two agents on one account share a cap, whatever their loads are and whenever one of them dies.

What is bought together never passes the cap by more than volumes cost while nobody could release them, and no agent
touches a volume of the other.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TypeAlias

import pytest
from hypothesis import settings

from elastio.accounting.shared_caps import SharedCaps
from elastio.core.model import VolumeSpec
from elastio.core.policy import Policy
from elastio.core.state import Phase
from elastio.strategy.spending import Caps, Others, Reservation
from elastio.units import GIB, MIB, agbs
from elastio_sim.prices import TARIFF
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment, Trace
from elastio_sim.world import SimWorld, WorldSettings
from tests.beside import join
from tests.simulated import KERNEL, POLICY
from tests.values import present

SEEDS = range(settings.default.max_examples // 10 if settings.default else 6)
UUIDS = ("aaaaaaaa-0000-0000-0000-000000000000", "bbbbbbbb-0000-0000-0000-000000000000")
SMALL = replace(POLICY, initial_size_bytes=GIB, tags_volumes=True, reconcile_interval_s=60.0)
PER_S = agbs(SMALL.bought_bandwidth_mb_s, GIB, 1.0)
# Both may boost, and neither to the end of its load.
COST_LEFT = 300 * TARIFF.per_hour(VolumeSpec(GIB, SMALL.bought_bandwidth_mb_s)) / 3600
LEAST_S = 1.2 * SMALL.least_boost_s
LENGTH_S = 700
# Beyond the cap: a release that takes longer than predicted. And with each death: nobody releases meanwhile.
BEYOND_S, DOWN_S, STEPS_AGAIN_S = 30.0, 15, 40.0


Pair: TypeAlias = tuple[Simulation, Simulation]


def sharing(folder: Path, uuid: str, policy: Policy, load: tuple[Segment, ...], seed: int) -> Simulation:
    """An agent that shares its caps with those whose statements lie in the same directory."""
    settings = WorldSettings(kernel=replace(KERNEL, backing_uuid=uuid), seed=seed, statements=folder)
    world = SimWorld(settings, Trace(load, block_bytes=4 * MIB))
    return Simulation(world, replace(policy, backing_uuid=uuid), seed=seed)


def pair(folder: Path, caps: Caps, loads: tuple[tuple[Segment, ...], ...], seed: int = 1) -> Pair:
    policy = replace(SMALL, caps=replace(caps, shared=True, max_size_bytes=GIB))
    first, second = (
        sharing(folder, u, policy, load, seed + i) for i, (u, load) in enumerate(zip(UUIDS, loads, strict=True))
    )
    join(first, second)
    return first, second


def spent_s(agents: Pair) -> float:
    """What was bought together, in seconds of one volume."""
    return sum(a.world.provider.bill_agbs() for a in agents) / PER_S


def assert_own(agents: Pair) -> None:
    """No agent asked to detach or delete a volume that the other has bought; no write is lost."""
    for agent in agents:
        asked = (r for r in agent.journal.records() if r["kind"] == "intent")
        ids = {r["with"]["volume_id"] for r in asked if r["action"] in ("DetachVolume", "DeleteVolume")}
        assert ids <= set(agent.world.provider.volumes)
        assert not agent.world.lost()


def bursts(draw: Random) -> tuple[Segment, ...]:
    pairs = [(Segment(draw.uniform(1, 60), 0), Segment(draw.uniform(5, 120), draw.uniform(15, 80))) for _ in range(12)]
    return (*(part for both in pairs for part in both), Segment(1e9, 0))


@pytest.mark.parametrize("seed", SEEDS)
def test_two_agents_never_spend_more_than_the_cap_and_the_bound(seed: int, tmp_path: Path) -> None:
    draw = Random(seed)
    cap_s = draw.uniform(1.5 * LEAST_S, 5 * LEAST_S)
    agents = pair(tmp_path, Caps(max_agbs_per_day=cap_s * PER_S), (bursts(draw), bursts(draw)), seed)
    down, deaths = dict.fromkeys(agents, 0), 0
    for _ in range(LENGTH_S):
        for agent in draw.sample(agents, 2):
            if agent.agent is not None and draw.random() < 0.004:
                agent.kill_agent()
                down[agent], deaths = draw.randint(1, DOWN_S), deaths + 1
            if agent.agent is None:
                down[agent] -= 1
                if down[agent] <= 0:
                    agent.start_agent()
            agent.run_for(1.0)
        assert spent_s(agents) <= cap_s + BEYOND_S + deaths * (DOWN_S + STEPS_AGAIN_S), f"{deaths} deaths"
    assert_own(agents)


LONG = (Segment(2, 0), Segment(1e9, 60))


def together(agents: Pair, seconds: int) -> None:
    for _ in range(seconds):
        for agent in agents:
            agent.run_for(1.0)


def test_of_two_boosts_that_begin_together_one_is_bought_where_the_cap_has_room_for_one(tmp_path: Path) -> None:
    agents = pair(tmp_path, Caps(max_boosts_per_day=1), (LONG, LONG))
    together(agents, 60)
    assert sorted(len(a.world.provider.volumes) for a in agents) == [0, 1]
    (late,) = (a.state for a in agents if not a.world.provider.volumes)
    assert (late.failures, late.memory.capped_boosts > 0) == (0, True), "to be late is no failure"


def test_two_loads_without_an_end_use_the_cap_together_and_do_not_pass_it(tmp_path: Path) -> None:
    cap_s = 4 * LEAST_S
    agents = pair(tmp_path, Caps(max_agbs_per_day=cap_s * PER_S), (LONG, LONG))
    together(agents, 600)
    assert all(a.world.provider.volumes for a in agents), "each has had a boost"
    assert all(a.phase is Phase.IDLE for a in agents)
    assert cap_s / 2 < spent_s(agents) <= cap_s
    assert_own(agents)


def test_no_other_cache_is_bought_after_one_that_a_shared_cap_has_ended(tmp_path: Path) -> None:
    """What the other device had reserved and did not use is room for a volume, and for one after the other."""
    agents = pair(tmp_path, Caps(max_cost_per_month=COST_LEFT), (LONG, (Segment(8, 0), Segment(1e9, 60))))
    together(agents, 240)
    assert [len(a.world.provider.volumes) for a in agents] == [1, 1]
    assert all(a.state.memory.capped is not None for a in agents)


def test_a_dead_agent_that_bought_goes_on_to_count(tmp_path: Path) -> None:
    cap_s = 5 * LEAST_S
    agents = pair(tmp_path, Caps(max_agbs_per_day=cap_s * PER_S), (LONG, (Segment(1e9, 0),)))
    together(agents, 60)
    agents[0].kill_agent()
    together(agents, int(5 * LEAST_S))
    agents[1].world.workload = Trace(LONG, block_bytes=4 * MIB)
    together(agents, 60)
    assert not agents[1].world.provider.volumes


def test_what_an_agent_reserved_and_did_not_buy_ends_when_it_runs_again(tmp_path: Path) -> None:
    agents = pair(tmp_path, Caps(max_boosts_per_day=1), (LONG, LONG))
    other = SharedCaps(tmp_path, "dead", wall=agents[0].world.clock.wall)
    first = agents[0]
    first.run_for(1.0)
    statement = first.account.own() if first.account else None
    assert statement is not None
    wall = first.world.clock.wall()
    held = replace(statement, device="dead", reserved=Reservation("t", wall, 1.0, 0.0, 0.0, wall + 60))
    other.put(lambda _: held, None, wall)
    together(agents, 60)
    assert not any(a.world.provider.volumes for a in agents), "nobody knows whether it was bought"
    other.put(lambda own: replace(own or held, reserved=None), None, wall)
    together(agents, 120)
    assert sum(len(a.world.provider.volumes) for a in agents) == 1


def test_a_statement_that_cannot_be_read_lets_no_boost_begin(tmp_path: Path) -> None:
    agents = pair(tmp_path, Caps(max_agbs_per_day=9 * LEAST_S * PER_S), (LONG, (Segment(1e9, 0),)))
    tmp_path.joinpath("gone.json").write_text("{")
    together(agents, 30)
    assert not agents[0].world.provider.volumes
    tmp_path.joinpath("gone.json").unlink()
    together(agents, 90)
    assert agents[0].world.provider.volumes


@pytest.mark.parametrize("is_clean", [True, False], ids=["bought", "boosting"])
def test_an_orphan_of_one_device_is_left_alone_by_the_agent_of_the_other(tmp_path: Path, *, is_clean: bool) -> None:
    agents = pair(tmp_path, Caps(), ((Segment(2, 0), Segment(30, 60), Segment(1e9, 0)), (Segment(1e9, 0),)))
    while not agents[0].world.provider.volumes:
        together(agents, 1)
    together(agents, 0 if is_clean else 15)
    agents[0].kill_agent()
    bought = list(agents[0].world.provider.volumes.values())
    together(agents, 200)
    assert [v.deleted_at for v in bought] == [None]
    assert agents[1].state.others
    agents[0].start_agent()
    together(agents, 300)
    assert [v.deleted_at is None for v in bought] == [False]
    assert_own(agents)


def test_a_statement_of_its_own_that_cannot_be_read_is_written_anew(tmp_path: Path) -> None:
    """Nobody else may replace it, and all would buy nothing until somebody removed it."""
    first, second = agents = pair(tmp_path, Caps(max_boosts_per_day=2), ((Segment(1e9, 0),), (Segment(1e9, 0),)))
    for agent in agents:
        agent.run_for(10)
    account = present(first.account)
    before = present(account.own())
    (tmp_path / f"{UUIDS[0]}.json").write_text("{")
    second.run_for(10)
    assert present(second.agent).snapshot().spend.others != Others()
    first.start_agent()
    for agent in agents:
        agent.run_for(10)
    after = present(account.own())
    assert after == replace(before, read_wall=after.read_wall)
    assert present(present(second.agent).snapshot().spend.others).trouble == ""
