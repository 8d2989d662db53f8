"""The alert rules: each fires in its situation of a simulated machine, and no other one does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from elastio.core.cycle import FailureKind
from elastio.core.model import RequestKind, VolumeSpec, VolumeState, VolumeTag
from elastio.core.state import Phase
from elastio.strategy.spending import Caps
from elastio.units import GIB
from elastio_sim.workload import Segment
from tests.simulated import STEADY, in_phase

from .promtool import RULE_TESTS, assert_fired, promtool, series_in
from .recorded import Recorded

pytestmark = pytest.mark.runs_programs

Record = Callable[..., Recorded]
BURSTS = (Segment(2, 0), Segment(12, 60), Segment(160, 0)) * 3 + (Segment(1e9, 0),)


@pytest.fixture
def record(path: Path) -> Iterator[Record]:
    with ExitStack() as stack:

        def begin(*load_and_faults: Any, **policy: Any) -> Recorded:
            recorded = Recorded(path, *load_and_faults, **policy)
            stack.enter_context(recorded.ledger)
            return recorded

        yield begin


def test_the_rules_fire_when_they_should_with_what_an_operator_does_next() -> None:
    promtool("test", "rules", str(RULE_TESTS))


def test_nothing_fires_beside_three_boosts(record: Record, tmp_path: Path) -> None:
    recorded = record(BURSTS, caps=Caps(max_boosts_per_day=10))
    recorded.run(30)
    assert (
        series_in(recorded.texts[-1])[f'elastio_boosts_total{{instance="vm",{device(recorded)},trigger="load"}}'] == 3
    )
    assert_fired(recorded.texts, recorded.wall, [], tmp_path)


def test_a_dirty_cache_whose_volume_is_gone_fires_faulted(record: Record, tmp_path: Path) -> None:
    recorded = record(STEADY, "@dirty=vanish")
    sim = recorded.sim
    sim.run_until(lambda: bool(sim.world.happened), 60)
    for bought in sim.world.provider.existing():
        bought.state, bought.deleted_at = VolumeState.GONE, sim.world.clock.elapsed()
        sim.world.kernel.destroy(bought.serial)
    recorded.run(20)
    assert sim.phase is Phase.FAULTED
    assert_fired(recorded.texts, recorded.wall, ["ElastioFaulted"], tmp_path)


@pytest.mark.parametrize("is_given_up", [False, True])
def test_a_volume_that_may_hold_data_and_that_no_cycle_knows_fires_volume_kept_and_faulted_until_it_is_given_up(
    is_given_up: bool, record: Record, tmp_path: Path
) -> None:
    recorded = record((Segment(1e9, 0),), reconcile_interval_s=60)
    recorded.run(4)
    provider = recorded.sim.world.provider
    forgotten = provider.create("forgotten", VolumeSpec(GIB, 80), {})
    provider.tag(forgotten.id, VolumeTag.DIRTY)
    if is_given_up:
        in_phase(recorded.sim, Phase.FAULTED)
        recorded.sim.ask(RequestKind.RECOVER, accepts_loss=True, volume_id=forgotten.id)
    recorded.run(20)
    assert recorded.sim.phase is (Phase.IDLE if is_given_up else Phase.FAULTED)
    assert len(provider.existing()) == 1
    fired = ["ElastioVolumeKept"] if is_given_up else ["ElastioFaulted", "ElastioVolumeKept"]
    assert_fired(recorded.texts, recorded.wall, fired, tmp_path)


def test_purchases_that_are_refused_fire_boost_failing(record: Record, tmp_path: Path) -> None:
    recorded = record(STEADY, "create#1+=quota")
    recorded.run(40)
    labels = f'{device(recorded)},kind="{FailureKind.QUOTA}"'
    assert series_in(recorded.texts[-1])[f'elastio_boosts_failed_total{{instance="vm",{labels}}}'] >= 3
    assert_fired(recorded.texts, recorded.wall, ["ElastioBoostFailing"], tmp_path)


def test_a_cap_that_is_nearly_used_fires_cap_near(record: Record, tmp_path: Path) -> None:
    recorded = record(BURSTS, caps=Caps(max_boosts_per_day=3))
    recorded.run(30)
    assert recorded.sim.phase is Phase.IDLE
    assert_fired(recorded.texts, recorded.wall, ["ElastioCapNear"], tmp_path)


def test_an_agent_that_was_killed_fires_agent_stale(record: Record, tmp_path: Path) -> None:
    recorded = record(BURSTS)
    recorded.run(10)
    recorded.sim.kill_agent()
    recorded.run(20)
    assert_fired(recorded.texts, recorded.wall, ["ElastioAgentStale"], tmp_path)


def test_what_the_simulator_gives_is_what_promtool_expects_of_metrics(record: Record) -> None:
    recorded = record(BURSTS, caps=Caps(max_boosts_per_day=3, max_cost_per_month=5.0))
    recorded.sim.run_until(lambda: recorded.sim.phase is Phase.FLUSHING, 300)
    promtool("check", "metrics", stdin=recorded.text())


def device(recorded: Recorded) -> str:
    return f'device="{recorded.sim.policy.backing_uuid}"'
