"""Run random schedules and crash cases, in turn, until one fails: `python -m tests.mutants.hunt PAIRS [FIRST ...]`.

The same ones in the same order, whatever is hunted. `FIRST` is part of the names of crash cases that are played before.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from random import Random

import elastio
from tests.crash.campaign import HOW, Case, all_cases, run_case
from tests.property.campaign import storm_with_ledger
from tests.property.schedule import Schedule

# So many at most of the cases that come first.
FIRST = 400
# Faults of calls, scheduled faults, happenings.
WEATHERS = ((3, 1, 2), (0, 2, 5), (5, 2, 5), (2, 2, 0))


def schedules() -> Iterator[Schedule]:
    for seed, weather in enumerate(cycle(WEATHERS)):
        yield Schedule.random(seed, *weather, wild=seed % 5 == 4)


def mixed() -> list[Case]:
    shuffled = all_cases()
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
    """What failed first, after how many runs."""
    number = 0
    try:
        for number, (by, what, failure) in enumerate(runs(pairs, first), 1):
            if told := failure():
                return {"by": by, "after": number, "what": str(what), "property": summary(told)}
    except (AssertionError, TimeoutError) as error:
        return {"by": "crash", "after": 0, "what": "a story that nothing disturbs", "property": summary(str(error))}
    return {"by": "", "after": number, "what": "", "property": ""}


def summary(told: str) -> str:
    """The property, without the schedule that broke it."""
    line = re.sub(r"^AssertionError: ", "", told.splitlines()[0])
    return re.split(r" # |: \d+ ?(?:wild|rewrites|\|)", line)[0][:110]


def main(arguments: list[str]) -> int:
    here = Path.cwd()
    if here not in Path(str(elastio.__file__)).parents:
        raise RuntimeError(f"{elastio.__file__} is not the tree {here}")
    print(json.dumps(hunt(int(arguments[0]), arguments[1:])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
