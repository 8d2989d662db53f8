"""The agent dies at every point at which it can, and things fail there; whoever comes after must bring all to rest.

All cases are played by `make storms`; here all points once, and one of so many of the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from .campaign import (
    HOW,
    POINTS,
    Case,
    all_cases,
    cases,
    every,
    fewer_points,
    points_of,
    run_case,
    run_cases,
    worth_running,
)
from .crashes import CrashPoint, Run
from .faults import FAULTS, SEEN_S
from .scenarios import SCENARIOS

# One of so many: a number that shares no factor with the cases of a point, so that every kind of case is met.
ONE_OF = 101
# Processors share the scenarios: those that take longest come first, so that none is left over at the end.
SLOWEST_FIRST = (
    *("filled", "held", "shared", "slower", "second burst", "capped", "beside", "learned", "expected", "boost again"),
    *("shutdown", "stop while flushing", "stop while boosting", "written again", "shares", "boost", "taken over"),
    *("adopted", "pause", "operator", "orphan"),
)


def sampled(scenario: str) -> list[Case]:
    """The cases of one scenario among one of so many of all."""
    return [case for case in every(ONE_OF) if case.scenario == scenario]


def assert_all_end_well(cases: list[Case]) -> int:
    """The number in which the fault found something to spoil."""
    ends = run_cases(cases)
    failed = [f"{end.case} (at {end.point}): {end.failure}" for end in ends if end.failure]
    assert not failed, f"{len(failed)} of {len(cases)}: " + "\n".join(failed[:3])
    return sum(end.struck for end in ends)


@pytest.mark.parametrize("scenario", SLOWEST_FIRST)
def test_comes_to_rest_whatever_fails_and_however_it_ends(
    scenario: str, record_property: Callable[[str, object], None]
) -> None:
    chosen = sampled(scenario)
    struck = assert_all_end_well(chosen)
    assert struck > len(chosen) / 2, "faults that find nothing to spoil prove nothing"
    record_property("crash_cases", len(chosen))
    print(f"{scenario}: {len(chosen)} cases, {struck} of which struck")


@pytest.mark.parametrize("scenario", SLOWEST_FIRST)
def test_comes_to_rest_wherever_the_agent_is_killed(
    scenario: str, record_property: Callable[[str, object], None]
) -> None:
    points = len(points_of(scenario))
    assert_all_end_well([Case(scenario, number, "killed", "nothing") for number in range(points)])
    record_property("crash_points", points)
    print(f"{scenario}: {points} points")


def test_no_point_is_lost() -> None:
    """A scenario whose points become fewer proves less: change the file only where the agent has fewer effects."""
    counted = {scenario: len(points_of(scenario)) for scenario in SCENARIOS}
    assert json.loads(POINTS.read_text()).keys() == counted.keys()
    assert fewer_points(counted) == {}
    assert fewer_points({**counted, "boost": 3}).keys() == {"boost"}
    print(f"{sum(counted.values())} points: {counted}")


def test_the_sampled_cases_of_the_scenarios_are_one_of_so_many_of_all() -> None:
    played = [case for scenario in SLOWEST_FIRST for case in sampled(scenario)]
    assert sorted(played) == sorted(islice(all_cases(), 0, None, ONE_OF))
    assert {case.scenario for case in played} == set(SCENARIOS)
    assert {case.fault for case in played} == set(FAULTS)
    assert {case.how for case in played} == set(HOW)


def test_what_is_left_out_would_find_nothing_to_spoil() -> None:
    scenario = list(cases("orphan", len(points_of("orphan"))))
    ends = run_cases([case for case in scenario if case.fault == "nothing"])
    played = set(
        worth_running(scenario, {(end.case.scenario, end.case.number, end.case.how): end.called for end in ends})
    )
    left_out = [case for case in scenario if case not in played]
    assert {case.how for case in left_out} == {"lives", "killed"}
    assert not any(end.struck for end in run_cases(left_out[::23]))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_effect_has_a_point_before_and_after_it(scenario: str) -> None:
    points = points_of(scenario)
    for effect in ("DetachVolume", "DeleteVolume", "CreateVolume", "ReleaseCacheDisk", "DetachCacheSet"):
        intents = [i for i, p in enumerate(points) if p == f"after intent {effect}"]
        for i in intents:
            assert points[i + 1 : i + 3] == [f"before {effect}", f"after {effect}"]
    assert "after DeleteVolume" in points


def test_a_bypass_that_missed_its_instant_waits_no_longer_each_time() -> None:
    """The load does not end, and the cap on its cache is passed meanwhile."""
    assert run_case(Case.parse("capped/88/lives/a device is busy")).failure == ""


@pytest.mark.parametrize(
    "case", ["shared/47/killed/the cloud refuses", "shared/59/the cache dies, then power cut/nothing"]
)
def test_a_release_that_gives_way_to_a_load_has_not_reserved_for_a_boost(case: str) -> None:
    """What a release costs is stated whatever the caps leave."""
    assert run_case(Case.parse(case)).failure == ""


def test_dies_twice_in_one_cycle_and_comes_to_rest(tmp_path: Path) -> None:
    for number in range(0, len(points_of("boost")), 7):
        crash_point = CrashPoint(number)
        with Run(SCENARIOS["boost"], crash_point, tmp_path / str(number)) as play:

            def die_again() -> None:
                play.power_cut() if play.deaths % 2 else play.kill()
                crash_point.armed = len(crash_point.passed) + 5 if play.deaths == 1 else None  # noqa: B023

            play.run(die_again)
            assert play.deaths == 2
            play.check_at_rest(2 * SEEN_S)


@pytest.mark.parametrize("text", ["boost/3/killed", "boost/x/killed/nothing", "boost/3/killed/nonsense"])
def test_a_text_that_is_no_case_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no case"):
        Case.parse(text)


def test_a_case_that_is_told_is_the_same_case() -> None:
    case = Case("boost again", 7, "power cut", "nothing")
    assert Case.parse(str(case)) == case
