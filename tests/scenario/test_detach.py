"""A detach that the kernel was never asked for explains no missing cache."""

from __future__ import annotations

from elastio.core.model import CacheMode
from elastio.core.state import FaultKind, Phase
from elastio.sim.faults import Kind
from elastio.sim.run import Simulation
from tests.simulated import assert_at_rest, intents, machine
from tests.values import present

AWAY_S = 60.0


def refused_once() -> Simulation:
    """Somebody sets writeback mode between the decision to detach and the detach, which is refused."""
    passed: list[str] = []

    def meddle(point: str) -> None:
        if point == "before DetachCacheSet" and point not in passed:
            sim.world.kernel.bcache.mode = CacheMode.WRITEBACK
        passed.append(point)

    sim = machine(point=meddle)
    sim.run_until(lambda: "after outcome DetachCacheSet" in passed, 200)
    return sim


def test_a_disk_that_is_swapped_after_a_refused_detach_is_not_believed() -> None:
    sim = refused_once()
    sim.world.swap_backing(AWAY_S, Kind.SWAP_NAMELESS)
    sim.run_for(AWAY_S - 10)
    assert sim.phase is Phase.FAULTED
    assert present(sim.state.fault).kind is FaultKind.MAY_LACK_DATA
    assert sim.world.volumes_left() == 1
    assert intents(sim, "ReleaseCacheDisk") == 0


def test_a_refused_detach_is_repeated_and_ends() -> None:
    sim = refused_once()
    assert_at_rest(sim)
    assert intents(sim, "DetachCacheSet") > 1
