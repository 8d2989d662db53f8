"""Run random schedules and crash cases, in turn, until one fails: `python -m tests.mutants.hunt PAIRS [FIRST ...]`.

The same ones in the same order, whatever is hunted. `FIRST` is part of the names of crash cases that are played before.
`python -m tests.mutants.hunt --play BY WHAT` plays what has once caught something.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle, islice
from random import Random

from tests.crash.campaign import HOW, Case, all_cases, points_of, run_case
from tests.crash.scenarios import SCENARIOS
from tests.property.campaign import storm_with_ledger
from tests.property.schedule import Schedule

# So many at most of the cases that come first.
FIRST = 400
# Faults of calls, scheduled faults, happenings.
WEATHERS = ((3, 1, 2), (0, 2, 5), (5, 2, 5), (2, 2, 0))


def schedules() -> Iterator[Schedule]:
    """Each as it is told, so that what catches something can be played again from its text."""
    for seed, weather in enumerate(cycle(WEATHERS)):
        yield Schedule.parse(str(Schedule.random(seed, *weather, wild=seed % 5 == 4)))


def mixed() -> list[Case]:
    shuffled = list(all_cases())
    Random(1).shuffle(shuffled)
    return shuffled


def cases(shuffled: list[Case]) -> list[Case]:
    """As many of each way for the agent to end: with faults there would be few power cuts else."""
    by_how = [[case for case in shuffled if case.how == how] for how in HOW]
    return [case for some in zip(*by_how, strict=False) for case in some]


def fails(schedule: Schedule) -> str:
    """What a storm does not survive, or an empty string."""
    try:
        storm_with_ledger(schedule)
    except Exception as error:  # whatever a broken agent raises
        return f"{type(error).__name__}: {error}"
    return ""


def failure_of(case: Case) -> str:
    return run_case(case).failure


def undisturbed(scenario: str) -> str:
    """How a scenario fails in which nothing happens."""
    try:
        points_of(scenario)
    except (AssertionError, TimeoutError) as error:
        return str(error)
    return ""


# Who catches something, and what is played for it.
PLAYS: dict[str, Callable[[str], str]] = {
    "story": undisturbed,
    "storm": lambda told: fails(Schedule.parse(told)),
    "crash": lambda told: failure_of(Case.parse(told)),
}


def runs(pairs: int, first: Sequence[str]) -> Iterator[tuple[str, Schedule | Case, Callable[[], str]]]:
    """Who plays it, what it is, and a call that tells how it failed."""
    shuffled = mixed()
    for part in first:
        for case in islice((c for c in shuffled if part in str(c)), FIRST):
            yield "crash", case, partial(failure_of, case)
    for schedule, case in islice(zip(schedules(), cases(shuffled), strict=False), pairs):
        yield "storm", schedule, partial(fails, schedule)
        yield "crash", case, partial(failure_of, case)


def hunt(pairs: int, first: Sequence[str] = ()) -> dict[str, object]:
    """What failed first, after how many runs; the stories that nothing disturbs come before all of them."""
    for scenario in SCENARIOS:
        if told := undisturbed(scenario):
            return found("story", 0, scenario, told)
    number = 0
    for number, (by, what, failure) in enumerate(runs(pairs, first), 1):
        if told := failure():
            return found(by, number, str(what), told)
    return found("", number, "", "")


def found(by: str, after: int, what: str, told: str) -> dict[str, object]:
    return {"by": by, "after": after, "what": what, "property": summary(told)}


def summary(told: str) -> str:
    """The property, without the schedule that broke it."""
    line = re.sub(r"^AssertionError: ", "", told.partition("\n")[0])
    return re.split(r" # |: \d+ ?(?:wild|rewrites|\|)", line)[0][:110]


def main(arguments: list[str]) -> int:
    if arguments[0] == "--play":
        _, by, what = arguments
        told = PLAYS[by](what)
        print(json.dumps(found(by if told else "", 1, what, told)))
    else:
        print(json.dumps(hunt(int(arguments[0]), arguments[1:])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
