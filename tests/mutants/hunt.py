"""Play random schedules and crash cases, in turn, until one fails: `python -m tests.mutants.hunt PAIRS` in any tree.

The same ones in the same order, whatever is hunted: nothing is chosen to fit a mutant.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from random import Random

import elastio
from tests.crash.campaign import HOW, Case, all_cases, play
from tests.property.campaign import storm_with_ledger
from tests.property.schedule import Schedule

# Faults of calls, accidents, happenings.
WEATHERS = ((3, 1, 2), (0, 2, 5), (5, 2, 5), (2, 2, 0))


def schedules() -> Iterator[Schedule]:
    for seed, weather in enumerate(cycle(WEATHERS)):
        yield Schedule.random(seed, *weather, wild=seed % 5 == 4)


def cases() -> list[Case]:
    """Well mixed, and as many of each way for the agent to end: with faults there would be few power cuts else."""
    shuffled = all_cases()
    Random(1).shuffle(shuffled)
    by_how = [[case for case in shuffled if case.how == how] for how in HOW]
    return [case for some in zip(*by_how, strict=False) for case in some]


def fails(schedule: Schedule) -> str:
    """What a storm does not survive, or an empty string."""
    try:
        storm_with_ledger(schedule)
    except Exception as error:  # whatever a broken agent raises
        return f"{type(error).__name__}: {error}"
    return ""


def hunt(pairs: int) -> dict[str, object]:
    """What failed first, after how many of both."""
    try:
        chosen = cases()
    except (AssertionError, TimeoutError) as error:
        return {"by": "crash", "after": 0, "what": "a story that nothing disturbs", "property": summary(str(error))}
    for number, (schedule, case) in enumerate(islice(zip(schedules(), chosen, strict=False), pairs), 1):
        if told := fails(schedule):
            return {"by": "storm", "after": number, "what": str(schedule), "property": summary(told)}
        if told := play(case).failure:
            return {"by": "crash", "after": number, "what": str(case), "property": summary(told)}
    return {"by": "", "after": pairs, "what": "", "property": ""}


def summary(told: str) -> str:
    """The property, without the schedule that broke it."""
    line = re.sub(r"^AssertionError: ", "", told.splitlines()[0])
    return re.split(r" # |: \d+ ?(?:wild|rewrites|\|)", line)[0][:110]


def main(arguments: list[str]) -> int:
    here = Path.cwd()
    if here not in Path(str(elastio.__file__)).parents:
        raise RuntimeError(f"{elastio.__file__} is not the tree {here}")
    print(json.dumps(hunt(int(arguments[0]))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
