"""What `elastio watch` keeps of what it has seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.control.status import Status
from elastio.core.state import Phase
from elastio.units import GIB, MIB
from elastio_cli.watch_view import MOST_POINTS, SILENT, Watched, begun_wall

from .conftest import published, standing
from .test_status import CYCLE

WALL = 1_790_000_000.0
IDLE = published(standing(Phase.IDLE))


def flushing(dirty_bytes: int, at_s: float = 0.0) -> Status:
    seen = published(
        standing(Phase.FLUSHING, cycle=replace(CYCLE, flush_started_dirty_bytes=GIB)), dirty_bytes=dirty_bytes
    )
    return replace(seen, wall=WALL + at_s)


def watched(*dirty: int, every_s: float = 10.0) -> Watched:
    seen = Watched.first(flushing(dirty[0]), 0.0, WALL)
    for turn, left in enumerate(dirty[1:], 1):
        seen = seen.answered(flushing(left, turn * every_s), turn * every_s, None)
    return seen


def test_a_phase_keeps_its_beginning_until_another_begins() -> None:
    seen = Watched.first(IDLE, 0.0, WALL - 500)
    seen = seen.answered(replace(IDLE, wall=WALL + 1), 1.0, None)
    assert (seen.phase_since, seen.is_exact) == (WALL - 500, True)
    seen = seen.answered(flushing(GIB, 2.0), 2.0, WALL + 1.5)
    assert (seen.phase_since, seen.is_exact, len(seen.points)) == (WALL + 1.5, True, 3)
    assert Watched.first(IDLE, 0.0, None).is_exact is False


def test_an_agent_that_is_silent_leaves_a_gap_and_its_last_status() -> None:
    seen = watched(GIB).silent("no answer", 1.0).silent("no answer", 2.0)
    assert ([p.phase for p in seen.points], seen.error) == (["flushing", SILENT, SILENT], "no answer")
    assert (seen.status.phase, seen.seen_s) == ("flushing", 0.0)
    back = seen.answered(flushing(GIB), 3.0, None)
    assert (back.error, back.seen_s) == ("", 3.0)


def test_points_are_bounded() -> None:
    seen = watched(*range(2 * MOST_POINTS))
    assert len(seen.points) == MOST_POINTS
    assert len(seen.silent("x", 1e6).points) == MOST_POINTS


@pytest.mark.parametrize(
    ("dirty", "left_s"),
    [
        ((1000 * MIB, 900 * MIB), 90.0),  # 10 MiB/s
        ((4000 * MIB, *(1000 * MIB - 60 * MIB * n for n in range(8))), 580 / 6.0),  # the last minute alone counts
        ((GIB,), None),
        ((GIB, GIB), None),
        ((GIB, 2 * GIB), None),
        ((GIB, 0), 0.0),
    ],
)
def test_the_time_left_of_a_flush_is_by_its_speed_of_the_last_minute(
    dirty: tuple[int, ...], left_s: float | None
) -> None:
    assert watched(*dirty).flush_left_s == pytest.approx(left_s)


def test_the_speed_of_a_flush_is_not_taken_across_a_gap_or_another_phase() -> None:
    seen = watched(GIB).silent("x", 5.0).answered(flushing(GIB // 2), 10.0, None)
    assert seen.flush_left_s is None
    assert Watched.first(IDLE, 0.0, None).flush_left_s is None


@pytest.mark.parametrize(
    ("decisions", "begun"),
    [
        ([], None),
        ([{"from": "idle", "to": "idle", "wall": 9}], None),
        ([{"from": "idle", "to": "attaching", "wall": 5}, {"from": "attaching", "to": "attaching", "wall": 9}], 5.0),
        ([{"from": "idle", "to": "attaching", "wall": 5}, {"from": "attaching", "to": "boosting", "wall": 9}], None),
        ([{"from": "idle", "to": "attaching"}], None),
    ],
)
def test_a_phase_began_with_the_last_transition_into_it(
    decisions: list[dict[str, object]], begun: float | None
) -> None:
    assert begun_wall(decisions, "attaching") == begun
