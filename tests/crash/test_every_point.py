"""The agent dies at every point at which it can; whoever comes after must bring everything to rest."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from elastio.units import GIB, agbs

from .crashes import DOWN_S, POLICY, STORIES, Play, Tripwire

# A bill is closed when its end is seen: an agent that dies between a deletion and its answer sees it only after
# its restart, within two looks of a second. It may claim too much by that, never too little.
LATE_S = 2.0
BILL_PER_S = agbs(POLICY.cache_bandwidth_mb_s, GIB, 1.0)

# How an agent dies, and how long nobody is there to see a bill's end.
HOW: dict[str, tuple[Callable[[Play], None], float]] = {
    "killed": (Play.kill, 0.0),
    "killed, down for 20 s": (Play.kill_and_wait, DOWN_S),
    "power cut": (Play.power_cut, 0.0),
}


def points_of(story: str, tmp_path: Path) -> list[str]:
    """The names of all points of an undisturbed run, which itself must come to rest."""
    tripwire = Tripwire()
    with Play(STORIES[story], tripwire, tmp_path / "undisturbed") as play:
        play.run(play.kill)
        play.check_at_rest(LATE_S * BILL_PER_S)
    return tripwire.passed


@pytest.mark.parametrize(("story", "how"), [(s, h) for s in STORIES for h in HOW if s == "boost" or not HOW[h][1]])
def test_comes_to_rest_wherever_the_agent_dies(
    story: str, how: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    points = points_of(story, tmp_path)
    die, down_s = HOW[how]
    for number, point in enumerate(points):
        with Play(STORIES[story], Tripwire(number), tmp_path / str(number)) as play:
            try:
                play.run(partial(die, play))
                play.check_at_rest((LATE_S + down_s) * BILL_PER_S)
            except (AssertionError, TimeoutError) as error:
                told = "\n".join(play.decisions())
                raise AssertionError(f"{how} at point {number}, {point}: {error}\n{told}") from error
            assert play.deaths == 1, f"nobody died at {point}"
    record_property("points", len(points))
    print(f"{story}, {how}: {len(points)} points")


@pytest.mark.parametrize("story", STORIES)
def test_every_effect_has_a_point_before_and_after_it(story: str, tmp_path: Path) -> None:
    points = points_of(story, tmp_path)
    for effect in ("DetachVolume", "DeleteVolume", "CreateVolume", "ReleaseCacheDisk", "DetachCacheSet"):
        intents = [i for i, p in enumerate(points) if p == f"after intent {effect}"]
        for i in intents:
            assert points[i + 1 : i + 3] == [f"before {effect}", f"after {effect}"]
    assert "after DeleteVolume" in points


def test_dies_twice_in_one_cycle_and_comes_to_rest(tmp_path: Path) -> None:
    points = points_of("boost", tmp_path)
    for number in range(0, len(points), 7):
        tripwire = Tripwire(number)
        with Play(STORIES["boost"], tripwire, tmp_path / str(number)) as play:

            def die_again() -> None:
                play.power_cut() if play.deaths % 2 else play.kill()
                tripwire.armed = len(tripwire.passed) + 5 if play.deaths == 1 else None  # noqa: B023

            play.run(die_again)
            assert play.deaths == 2
            play.check_at_rest(2 * LATE_S * BILL_PER_S)
