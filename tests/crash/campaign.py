"""Every scenario x every point x everything that may fail there x every way for the agent to end there.

`python -m tests.crash.campaign` plays all of it, in as many processes as there are processors.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from elastio.sim.faults import Kind

from .crashes import DOWN_S, STORIES, AgentKilled, Play, Tripwire
from .faults import SEEN_S, WOES

POINTS = Path(__file__).with_name("points.json")

# How the agent ends at the point, and how long nobody is there to see a bill's end. None: it lives on.
HOW: dict[str, tuple[Callable[[Play], None] | None, float]] = {
    "lives": (None, 0.0),
    "killed": (Play.kill, 0.0),
    "killed, down for 20 s": (Play.kill_and_wait, DOWN_S),
    "power cut": (Play.power_cut, 0.0),
}
# With a fault besides: whether it is killed or the power is cut makes one difference too many.
HOW_WITH_WOE = ("lives", "killed")


@dataclass(frozen=True, order=True)
class Case:
    """One run. Its text is all that is needed to play it again."""

    story: str
    number: int
    how: str
    woe: str

    def __str__(self) -> str:
        return f"{self.story}/{self.number}/{self.how}/{self.woe}"

    @classmethod
    def parse(cls, text: str) -> Case:
        """Raises ValueError for what is no case."""
        words = text.split("/")
        known = len(words) == 4 and words[0] in STORIES and words[2] in HOW and words[3] in WOES
        if not known or not words[1].isdigit():
            raise ValueError(f"{text!r} is no case: story/point/how/woe")
        return cls(words[0], int(words[1]), words[2], words[3])


@dataclass(frozen=True)
class End:
    """What came of a case: an empty `failure` is a pass; `struck` tells whether the fault found a call to spoil."""

    case: Case
    point: str
    struck: bool
    failure: str = ""


def points_of(story: str) -> list[str]:
    """The names of all points of an undisturbed run, which itself must come to rest."""
    tripwire = Tripwire()
    with tempfile.TemporaryDirectory() as folder, Play(STORIES[story], tripwire, Path(folder) / "ledger") as play:
        play.run(play.kill)
        play.check_at_rest(SEEN_S + _down_s(story))
    return tripwire.passed


def _down_s(story: str) -> float:
    return DOWN_S if "stop" in story else 0.0


def fewer_points(counted: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Scenarios that have fewer points than the file knows: now, and before."""
    known: dict[str, int] = json.loads(POINTS.read_text())
    return {story: (counted.get(story, 0), known[story]) for story in known if counted.get(story, 0) < known[story]}


def cases(story: str, points: int) -> Iterator[Case]:
    """All of one story."""
    for number in range(points):
        for how in HOW:
            for woe in WOES:
                if how in HOW_WITH_WOE or woe == "nothing":
                    yield Case(story, number, how, woe)


def all_cases() -> list[Case]:
    return [case for story in STORIES for case in cases(story, len(points_of(story)))]


def play(case: Case) -> End:
    """Run one case; never raises for what it finds."""
    woe, (die, down_s) = WOES[case.woe], HOW[case.how]
    hit: list[str] = []

    def strike(point: str) -> None:
        hit.append(point)
        if case.woe != "nothing":
            woe.strike(scene)
        if die is not None:
            raise AgentKilled(point)

    with tempfile.TemporaryDirectory() as folder:
        scene = Play(STORIES[case.story], Tripwire(case.number, strike), Path(folder) / "ledger")
        with scene:
            try:
                _play(scene, case, partial(die, scene) if die else lambda: None, down_s)
            except (AssertionError, TimeoutError, ArithmeticError, LookupError, ValueError, RuntimeError) as error:
                told = "\n  ".join((f"{type(error).__name__}: {error}", *scene.decisions()))
                return End(case, hit[0] if hit else "", not scene.world.faults.is_armed, told)
            return End(case, hit[0] if hit else "", not scene.world.faults.is_armed)


def _play(scene: Play, case: Case, die: Callable[[], None], down_s: float) -> None:
    woe = WOES[case.woe]
    try:
        scene.run(die)
    except TimeoutError:
        if woe.may_fault and scene.needs_a_human() and not scene.world.lost():
            return
        raise
    assert scene.tripwire.armed is None, "the point was never reached"
    scene.check_at_rest(SEEN_S + _down_s(case.story) + down_s + woe.late_s, is_clock_known=_is_clock_known(case))


def _is_clock_known(case: Case) -> bool:
    """A time of day that is set before a reboot, or before anybody knows of a volume, cannot be told from time gone."""
    unknown = STORIES[case.story].orphan or case.story == "shutdown" or case.how == "power cut"
    return not (unknown and WOES[case.woe].kind is Kind.WALL_JUMP)


def play_all(chosen: list[Case], report: Callable[[End], None]) -> int:
    """Play them in parallel; the number of failures."""
    failures = 0
    with ProcessPoolExecutor() as pool:
        for end in pool.map(play, chosen, chunksize=20):
            failures += bool(end.failure)
            report(end)
    return failures


def main(arguments: list[str]) -> int:
    """All cases, or those named; says how many, and each failure with its story."""
    chosen = [Case.parse(text) for text in arguments] or all_cases()
    struck = 0

    def report(end: End) -> None:
        nonlocal struck
        struck += end.struck
        if end.failure:
            print(f"FAILED {end.case} (at {end.point}): {end.failure}", flush=True)

    failures = play_all(chosen, report)
    points = {} if arguments else {case.story: case.number + 1 for case in sorted(chosen)}
    print(json.dumps({"points": points, "runs": len(chosen), "struck": struck, "failures": failures}))
    fewer = {} if arguments else fewer_points(points)
    if fewer:
        print(f"FAILED points now and before: {fewer}")
    return 1 if failures or fewer else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
