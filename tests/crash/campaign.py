"""Every scenario x every point x everything that may fail there x every way for the agent to end there.

`python -m tests.crash.campaign` plays all of it, in as many processes as there are processors.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import chain, groupby, islice
from pathlib import Path

from elastio_sim.faults import OP_KINDS, FaultMode

from .branches import Branches
from .crashes import FAST, AgentKilled, CrashPoint, Run
from .faults import CLOUD, FAULTS, SEEN_S
from .scenarios import DOWN_S, SCENARIOS

TOGETHER = 200
EVERYTHING = frozenset(OP_KINDS)
POINTS = Path(__file__).with_name("points.json")


@dataclass(frozen=True)
class How:
    """How the agent ends at the point, and how long nobody is there to see a bill's end. `end` None: it lives on."""

    end: Callable[[Run], None] | None = None
    down_s: float = 0.0
    may_fault: bool = False


HOW = {
    "lives": How(),
    "killed": How(Run.kill),
    "killed, down for 20 s": How(Run.kill_and_wait, DOWN_S),
    "power cut": How(Run.power_cut),
    "power cut, then the cache dies": How(Run.lose_cache_at_boot, 5.0, may_fault=True),
    "the cache dies, then power cut": How(Run.lose_cache_unseen, DOWN_S + 5.0, may_fault=True),
    "the cache is seen to die, then power cut": How(Run.lose_cache_seen, DOWN_S + 5.0, may_fault=True),
}
# With a fault besides: whether it is killed or the power is cut makes one difference too many.
HOW_WITH_FAULT = ("lives", "killed")


@dataclass(frozen=True, order=True)
class Case:
    """One run. Its text is all that is needed to play it again."""

    scenario: str
    number: int
    how: str
    fault: str

    def __str__(self) -> str:
        return f"{self.scenario}/{self.number}/{self.how}/{self.fault}"

    @classmethod
    def parse(cls, text: str) -> Case:
        """Raises ValueError for what is no case."""
        words = text.split("/")
        known = len(words) == 4 and words[0] in SCENARIOS and words[2] in HOW and words[3] in FAULTS
        if not known or not words[1].isdigit():
            raise ValueError(f"{text!r} is no case: scenario/point/how/fault")
        return cls(words[0], int(words[1]), words[2], words[3])


@dataclass(frozen=True)
class End:
    """What came of a case: an empty `failure` is a pass; `struck` tells whether the fault found a call to spoil.

    `called`: the operations that were called from the point on. `at_s`: when all was at rest, in simulated time.
    """

    case: Case
    point: str
    struck: bool
    failure: str = ""
    called: frozenset[str] = frozenset()
    at_s: float = 0.0


def points_of(scenario: str) -> list[str]:
    """The names of all points of an undisturbed run, which itself must come to rest."""
    crash_point = CrashPoint()
    with (
        tempfile.TemporaryDirectory(dir=FAST) as folder,
        Run(SCENARIOS[scenario], crash_point, Path(folder)) as play,
    ):
        play.run(play.kill)
        play.check_at_rest(SEEN_S + _down_s(scenario))
    return crash_point.passed


def _down_s(scenario: str) -> float:
    return DOWN_S if "stop" in scenario else 0.0


def fewer_points(counted: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Scenarios that have fewer points than the file knows: now, and before."""
    known: dict[str, int] = json.loads(POINTS.read_text())
    return {
        scenario: (counted.get(scenario, 0), known[scenario])
        for scenario in known
        if counted.get(scenario, 0) < known[scenario]
    }


def cases(scenario: str, points: int) -> Iterator[Case]:
    """All of one scenario."""
    is_shared = SCENARIOS[scenario].policy.caps.shared
    faults = [name for name, fault in FAULTS.items() if is_shared or not fault.is_of_shared_caps]
    for number in range(points):
        for how in HOW:
            for fault in faults:
                if (
                    fault == "nothing"
                    or how == "lives"
                    or (how in HOW_WITH_FAULT and not FAULTS[fault].is_over_with_agent)
                ):
                    yield Case(scenario, number, how, fault)


@cache
def all_cases() -> tuple[Case, ...]:
    """Counted once in a process: each scenario is played for it."""
    return tuple(case for scenario in SCENARIOS for case in cases(scenario, len(points_of(scenario))))


def every(one_of: int) -> Iterator[Case]:
    """One of so many of all cases, in their order."""
    return islice(all_cases(), 0, None, one_of)


def worth_running(chosen: list[Case], called: Mapping[tuple[str, int, str], frozenset[str]]) -> list[Case]:
    """Without those whose fault would find no call to spoil: each is the same run as the one without a fault."""
    return [c for c in chosen if FAULTS[c.fault].may_strike(called.get((c.scenario, c.number, c.how), EVERYTHING))]


class Attempt:
    """The case that a process plays, from its point on."""

    def __init__(self, case: Case, point: str, scene: Run) -> None:
        """Strike, short of the end of the agent."""
        self.case, self.point, self.scene = case, point, scene
        self._before = Counter(scene.world.faults.counted())
        fault, how = FAULTS[case.fault], HOW[case.how]
        if case.fault != "nothing":
            fault.strike(scene)
        scene.may_fault |= how.may_fault
        scene.held_s += 0.0 if fault.ops == CLOUD else 2 * fault.late_s  # to be lifted, and to be seen
        # A release that waits for a lost cache ends so much later.
        scene.caps.failing_s += fault.late_s + (how.down_s if how.may_fault else 0.0)
        scene.way.is_clock_known &= fault.kind is not FaultMode.WALL_JUMP

    def check(self) -> None:
        """What must be true in the end. Raises AssertionError."""
        scene, fault, how = self.scene, FAULTS[self.case.fault], HOW[self.case.how]
        if not scene.needs_a_human():
            late_s = SEEN_S + _down_s(self.case.scenario) + how.down_s + fault.late_s
            scene.check_at_rest(late_s, is_clock_known=_is_clock_known(self.case))

    def end(self, told: str) -> End:
        faults = self.scene.world.faults
        called = frozenset(faults.counted() - self._before)
        return End(self.case, self.point, not faults.is_armed, told, called, self.scene.world.clock.elapsed())


class Play:
    """One run of a scenario, for several cases: see `branches`."""

    def __init__(self, chosen: Sequence[Case], folder: Path) -> None:
        self.branches = Branches[Case, End](chosen, self._begin, _unplayed, folder)
        self.scene = Run(SCENARIOS[chosen[0].scenario], self.branches, folder)
        self._attempt: Attempt | None = None

    def _begin(self, case: Case, point: str) -> None:
        self._attempt = Attempt(case, point, self.scene)
        if HOW[case.how].end is not None:
            raise AgentKilled(point)

    def _die(self) -> None:
        end = None if self._attempt is None else HOW[self._attempt.case.how].end
        if end is not None:
            end(self.scene)

    def run(self) -> list[End]:
        """The end of the one case that this process plays, or of all whose point it has not reached."""
        told = self._failure()
        if self._attempt is not None:
            return [self._attempt.end(told)]
        return [_unplayed(case, told or "the point was never reached") for case in self.branches.waiting]

    def _failure(self) -> str:
        try:
            self.scene.run(self._die)
            if self._attempt is not None:
                self._attempt.check()
        except (AssertionError, TimeoutError, ArithmeticError, LookupError, ValueError, RuntimeError) as error:
            return "\n  ".join((f"{type(error).__name__}: {error}", *self.scene.decisions()))
        return ""


def _unplayed(case: Case, why: str) -> End:
    return End(case, "", struck=False, failure=why)


def run_cases(chosen: Sequence[Case]) -> list[End]:
    """Run cases of one scenario; never raises for what it finds. The ends are in the order of the points."""
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        play = Play(chosen, Path(folder))
        with play.scene:
            return play.branches.play(play.run)


def run_case(case: Case) -> End:
    """Run one case; never raises for what it finds."""
    return run_cases([case])[0]


def _is_clock_known(case: Case) -> bool:
    """A time of day that is set before a reboot, or before anybody knows of a volume, cannot be told from time gone."""
    played = SCENARIOS[case.scenario]
    unknown = played.orphan or played.moved or case.scenario == "shutdown" or "power cut" in case.how
    return not (unknown and FAULTS[case.fault].kind is FaultMode.WALL_JUMP)


def run_all(chosen: Sequence[Case], report: Callable[[End], None]) -> int:
    """Run them in parallel; the number of failures."""
    failures = 0
    with ProcessPoolExecutor() as pool:
        for end in chain.from_iterable(pool.map(run_cases, _together(chosen))):
            failures += bool(end.failure)
            report(end)
    return failures


def _together(chosen: Sequence[Case]) -> Iterator[list[Case]]:
    """Cases that are played from one run: of one scenario, and not so many that a processor waits for the end."""
    for _, some in groupby(sorted(chosen), key=lambda case: case.scenario):
        while few := list(islice(some, TOGETHER)):
            yield few


def main(arguments: list[str]) -> int:
    """All cases, or those named; says how many, and each failure with its scenario."""
    chosen = [Case.parse(text) for text in arguments] or list(all_cases())
    struck = 0
    called: dict[tuple[str, int, str], frozenset[str]] = {}

    def report(end: End) -> None:
        nonlocal struck
        struck += end.struck
        called[end.case.scenario, end.case.number, end.case.how] = end.called
        if end.failure:
            print(f"FAILED {end.case} (at {end.point}): {end.failure}", flush=True)

    plain = [case for case in chosen if case.fault == "nothing"]
    failures = run_all(plain, report)
    spoiled = worth_running([case for case in chosen if case.fault != "nothing"], called)
    failures += run_all(spoiled, report)
    points = {} if arguments else {case.scenario: case.number + 1 for case in sorted(chosen)}
    runs = len(plain) + len(spoiled)
    told = {"points": points, "runs": runs, "nothing to spoil": len(chosen) - runs}
    print(json.dumps({**told, "struck": struck, "failures": failures}))
    fewer = {} if arguments else fewer_points(points)
    if fewer:
        print(f"FAILED points now and before: {fewer}")
    return 1 if failures or fewer else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
