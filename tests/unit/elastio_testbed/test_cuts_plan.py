"""The plan of cuts, and their summary."""

from dataclasses import replace

import pytest

from elastio_testbed.cuts.cut_result import CutResult, summary
from elastio_testbed.cuts.plan import PER_VISIT, PHASES, SURVIVALS, Phase, PlannedCut, control, plan


def flat(cycles: tuple[tuple[PlannedCut, ...], ...]) -> list[PlannedCut]:
    return [cut for cycle in cycles for cut in cycle]


@pytest.mark.parametrize("runs", [1, 4, 11, 12, 25, 60])
def test_phases_have_equal_shares_and_cycles_a_maximum(runs: int) -> None:
    cycles = plan(runs, 3)
    assert sorted(cut.number for cut in flat(cycles)) == list(range(1, runs + 1))
    shares = [sum(cut.phase is phase for cut in flat(cycles)) for phase in PHASES]
    assert max(shares) - min(shares) <= 1
    for cycle in cycles:
        assert [PHASES.index(cut.phase) for cut in cycle] == sorted(PHASES.index(cut.phase) for cut in cycle)
        assert all(sum(cut.phase is phase for cut in cycle) <= PER_VISIT for phase in PHASES)


def test_each_phase_is_cut_with_every_survival() -> None:
    assert plan(15, 5) == plan(15, 5) != plan(15, 6)
    found = {(cut.phase, cut.survival) for cut in flat(plan(15, 5))}
    in_turn = {(phase, survival) for phase in PHASES[:-1] for survival in SURVIVALS}
    assert found == in_turn | {(Phase.RELEASED, 0.0)}


def cut(phase: Phase) -> PlannedCut:
    return PlannedCut(1, phase, 0.0, 1)


KEPT = [CutResult(cut(phase), acknowledged=10, lost=()) for phase in PHASES]
LOSING = [CutResult(each, acknowledged=5, lost=(5,)) for each in control(3, 1)]


def test_nothing_lost_where_the_control_loses_is_sound() -> None:
    found = summary(KEPT, LOSING)
    assert found["sound"]
    assert found["phases"]["boosting"] == {"cuts": 1, "losing_cuts": 0, "acknowledged": 10, "lost": 0}
    assert found["control"] == {"dm-writecache": {"cuts": 3, "losing_cuts": 3, "acknowledged": 15, "lost": 3}}


@pytest.mark.parametrize("phase", range(len(PHASES)))
def test_one_lost_record_is_not_sound(phase: int) -> None:
    results = [replace(result, lost=(10,)) if n == phase else result for n, result in enumerate(KEPT)]
    found = summary(results, LOSING)
    assert not found["sound"]
    assert found["lost"] == 1


def test_a_control_that_loses_nothing_or_could_not_be_read_proves_nothing() -> None:
    assert not summary(KEPT, [replace(result, lost=()) for result in LOSING])["sound"]
    assert not summary(KEPT, [replace(result, failure="no device") for result in LOSING])["sound"]
    assert not summary(KEPT, [])["sound"]


def test_a_test_that_skipped_a_phase_is_not_sound() -> None:
    assert not summary(KEPT[:4] * 2, LOSING)["sound"]
    assert not summary([], LOSING)["sound"]
