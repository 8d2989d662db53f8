"""What `decide` is given and answers, in every crash scenario and in random schedules: the acceptance test of a move.

    python -m tests.decisions record FILE      before the sources are changed
    python -m tests.decisions compare FILE     afterwards: exit code 1 and the first difference, if there is one

FILE has one line for each run: its name, and a digest of each of its decisions. A digest covers the observation and
all that comes of it but the state's own shape: phase, fault, actions, reason, answers, bills, next wake-up. So fields
may move and be renamed inside the state, and nothing may be decided differently.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from elastio.agent import loop
from elastio.codec import encode
from elastio.core.machine import decide
from elastio.core.policy import Policy
from elastio.core.state import AgentState, Decision, Observation

from .crash.crashes import FAST, CrashPoint, Run
from .crash.scenarios import SCENARIOS
from .property.campaign import storm_with_ledger
from .property.schedule import Schedule

SCHEDULES = 300
DIGITS = 8
# Faults of calls, scheduled faults, happenings.
WEATHER = ((6, 0, 0), (0, 0, 7), (5, 2, 5), (0, 0, 0))
# Fields of a cycle that only the strategy reads: they move, and what they change shows in what is decided.
OF_STRATEGY = frozenset({"bare", "chance_until", "clean_since", "gained_bytes", "least_s", "longest_s", "moved_bytes"})
OF_STRATEGY |= {"updates_learned_size"}

Decide = Callable[[AgentState, Observation, Policy], Decision]


@dataclass
class Recording:
    """Decides as `decide` does, and keeps a digest of each decision; of number `shown` also the text."""

    shown: int = -1
    text: str = ""

    def __post_init__(self) -> None:
        self.digests: list[str] = []

    def __call__(self, state: AgentState, obs: Observation, policy: Policy) -> Decision:
        decision = decide(state, obs, policy)
        text = json.dumps(told(obs, decision), sort_keys=True, default=repr)
        if len(self.digests) == self.shown:
            self.text = text
        self.digests.append(hashlib.sha256(text.encode()).hexdigest()[:DIGITS])
        return decision


def told(obs: Observation, decision: Decision) -> dict[str, Any]:
    """What a digest covers."""
    state = decision.state
    return {
        "given": {**encode(obs), "busy": sorted(obs.busy)},
        "phase": state.phase.value,
        "fault": encode(state.fault),
        "waits": state.waiting_for,
        "actions": [(type(action).__name__, encode(action)) for action in decision.actions],
        "reason": decision.reason,
        "records": [_bill(cycle) for cycle in encode(decision.records)],
        "answers": encode(decision.answers),
        "wake_at": decision.wake_at,
        "course": {**encode(decision.course), "ended": _bill(encode(decision.course.ended) or {})},
    }


def _bill(cycle: dict[str, Any]) -> dict[str, Any]:
    flat = {**{name: value for name, value in cycle.items() if name != "use"}, **cycle.get("use", {})}
    return {name: value for name, value in flat.items() if name not in OF_STRATEGY}


def names(schedules: int) -> list[str]:
    """Every run: a scenario by its name, a schedule by its line."""
    drawn = (Schedule.random(seed, *WEATHER[seed % len(WEATHER)], wild=seed % 5 == 0) for seed in range(schedules))
    return [*SCENARIOS, *map(str, drawn)]


def play(name: str, shown: int = -1) -> Recording:
    """The decisions of one run, of all its agents, in the order in which they were made."""
    recording = Recording(shown)
    # An agent takes its `decide` from there when it is made: also after a death.
    setattr(loop, "decide", recording)  # noqa: B010  a name that the module imports
    try:
        with tempfile.TemporaryDirectory(dir=FAST) as folder:
            _play(name, Path(folder))
    finally:
        setattr(loop, "decide", decide)  # noqa: B010
    return recording


def _play(name: str, statements: Path) -> None:
    if name not in SCENARIOS:
        storm_with_ledger(Schedule.parse(name))
        return
    with Run(SCENARIOS[name], CrashPoint(), statements) as run:
        run.run(lambda: None)


def line_of(name: str) -> str:
    return f"{name}\t{' '.join(play(name).digests)}"


def record(file: Path, schedules: int) -> str:
    lines = list(_lines(names(schedules)))
    file.write_text("\n".join(lines) + "\n")
    return f"{len(lines)} runs, {sum(line.count(' ') for line in lines)} decisions"


def _lines(runs: Sequence[str]) -> Iterator[str]:
    if len(runs) == 1:
        yield line_of(*runs)
        return
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(line_of, runs)


def differences(file: Path) -> Iterator[str]:
    """For each run that went another way: its name, and the first decision that differs."""
    before = dict(line.split("\t") for line in file.read_text().splitlines())
    for name, line in zip(before, _lines(list(before)), strict=True):
        old, new = before[name].split(), line.split("\t")[1].split()
        if old != new:
            equal = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
            yield f"{name}\n  decision {equal} of {len(old)}, {len(new)} now: {play(name, equal).text or 'none'}"


def main(arguments: list[str]) -> int:
    match arguments:
        case ["record", file, *number]:
            print(record(Path(file), int(number[0]) if number else SCHEDULES))
            return 0
        case ["compare", file]:
            different = 0
            for text in differences(Path(file)):
                print(text)
                different += 1
            print(f"{different} runs differ")
            return min(different, 1)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
