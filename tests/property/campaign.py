"""Storms in great number: schedules drawn by Hypothesis, in as many processes as there are processors.

`python -m tests.property.campaign 10000` runs so many; `python -m tests.property.campaign 'SCHEDULE'` one again.
A schedule that fails is made as small as it can be, and printed.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, seed, settings

from elastio.accounting.recorder import CostRecorder
from elastio_sim.faults import (
    OP_KINDS,
    RANDOM_CALLS,
    SCHEDULED_KINDS,
    STATES,
    SWAPS,
    Fault,
    FaultMode,
    FaultPlan,
    ScheduledFault,
)
from elastio_sim.workload import Segment
from tests.crash.crashes import FAST
from tests.fixtures.memory_ledger import MemoryLedger
from tests.simulated import KERNEL
from tests.spending import CAP_KINDS, Cap

from .schedule import CAP_LEAST_S, CAP_MOST_S, HAPPENINGS, Happening, Schedule
from .storm import CALM_S, Storm

LONGEST_S = 100.0


def storm_with_ledger(schedule: Schedule) -> Storm:
    """One storm with a ledger, and all that must hold. Raises AssertionError that begins with its schedule."""
    with tempfile.TemporaryDirectory(dir=FAST) as folder, MemoryLedger() as ledger:
        recorder = CostRecorder(ledger, KERNEL.backing_uuid)
        storm = Storm(schedule, recorder, statements=Path(folder))
        ledger.lock_while(storm.sim.is_ledger_locked)
        storm.run()
        storm.sim.run_until(lambda: recorder.unrecorded == 0, CALM_S)
        storm.check_ledger(ledger)
    return storm


def seconds(least: int, most: int) -> st.SearchStrategy[float]:
    """Whole seconds: two schedules that differ by less differ in nothing."""
    return st.integers(least, most).map(float)


@st.composite
def faults(draw: st.DrawFn) -> Fault:
    op = draw(st.sampled_from(tuple(OP_KINDS)))
    kind = draw(st.sampled_from(OP_KINDS[op]))
    calls = draw(st.sampled_from(sorted(set(RANDOM_CALLS))))
    return Fault(op, kind, draw(st.integers(1, 4)), calls, draw(seconds(1, 40)))


WHEN = st.one_of(st.sampled_from(STATES), st.integers(1, int(LONGEST_S)).map(str))
SCHEDULED = st.one_of(
    st.builds(ScheduledFault, WHEN, st.sampled_from(SCHEDULED_KINDS), seconds(1, 120)),
    st.builds(ScheduledFault, WHEN, st.sampled_from((*SWAPS, FaultMode.DISK_FULL)), st.sampled_from((60.0, 600.0))),
)
SEGMENTS = st.builds(
    Segment, seconds(2, 20), st.sampled_from((0.0, 4.0, 8.0, 25.0, 60.0, 90.0)), st.sampled_from((0.0, 0.0, 10.0))
)
BURST = (Segment(1.0, 0.0), Segment(8.0, 60.0))


CAP_S = seconds(CAP_LEAST_S, CAP_MOST_S)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """A burst that buys a cache, whatever else; faults, scheduled faults and happenings in any mixture."""
    load = (*BURST, *draw(st.lists(SEGMENTS, max_size=5)))
    plan = FaultPlan(draw(st.lists(faults(), max_size=5)), draw(st.lists(SCHEDULED, max_size=2)))
    happens = draw(st.lists(st.builds(Happening, seconds(0, 80), st.sampled_from(HAPPENINGS)), max_size=4))
    ordered = tuple(sorted(happens, key=lambda h: h.at_s))
    kinds = {kind: draw(st.booleans()) for kind in ("wild", "rewrites", "money")}
    seed, shares = draw(st.integers(0, 9999)), draw(st.sampled_from((False, False, False, True)))
    beside = draw(st.sampled_from((False, False, False, False, True)))
    moved = draw(st.sampled_from((False, False, False, False, False, True)))
    learns = not kinds["money"] and draw(st.sampled_from((False, False, True)))
    cap = draw(st.one_of(st.none(), st.none(), st.builds(Cap, st.sampled_from(CAP_KINDS), CAP_S)))
    beside_it = {"shares": shares, "beside": beside, "moved": moved, "learns": learns}
    return Schedule(seed, load, plan.spec(), ordered, **kinds, **beside_it, cap=cap)


def search(examples: int, shard: int) -> dict[str, int]:
    """So many schedules of one shard, always the same ones. Raises what the smallest failing one raises."""
    counts = {"schedules": 0, "volumes": 0, "starts": 0, "simulated_s": 0}

    @seed(shard)
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(schedules())
    def survives(schedule: Schedule) -> None:
        storm = storm_with_ledger(schedule)
        counts["schedules"] += 1
        counts["volumes"] += len(storm.world.provider.volumes)
        counts["starts"] += storm.sim.starts
        counts["simulated_s"] += int(storm.world.clock.elapsed())

    survives()
    return counts


def main(arguments: list[str]) -> int:
    """A number of schedules, or one schedule."""
    if not arguments[0].isdigit():
        storm = storm_with_ledger(Schedule.parse(arguments[0]))
        for line in storm.sim.lines:
            print(line.decode().rstrip())
        return 0
    shards = os.cpu_count() or 1
    examples = -(-int(arguments[0]) // shards)
    with ProcessPoolExecutor(shards) as pool:
        found = list(pool.map(search, [examples] * shards, range(shards)))
    print(json.dumps({key: sum(counts[key] for counts in found) for key in found[0]}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
