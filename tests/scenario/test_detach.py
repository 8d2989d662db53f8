"""A detach that the kernel was never asked for explains no missing cache."""

from __future__ import annotations

import pytest

from elastio.core.detection import MOST_DIRTIED
from elastio.core.model import CacheMode, RequestKind
from elastio.core.state import FaultKind, Phase
from elastio_sim.faults import FaultMode
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment
from tests.simulated import QUIET, assert_at_rest, in_phase, intents, machine, path
from tests.values import present

AWAY_S = 60.0
# Under requests the detach is not over at once.
MURMURING = (Segment(2, 0), Segment(9, 60), Segment(40, 3), QUIET)


class Killed(BaseException):
    """Nothing in the agent may catch this."""


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
    sim.world.swap_backing(AWAY_S, FaultMode.SWAP_NAMELESS)
    sim.run_for(AWAY_S - 10)
    assert sim.phase is Phase.FAULTED
    assert present(sim.state.fault).kind is FaultKind.MAY_LACK_DATA
    assert sim.world.volumes_left() == 1
    assert intents(sim, "ReleaseCacheDisk") == 0


def test_a_refused_detach_is_repeated_and_ends() -> None:
    sim = refused_once()
    assert_at_rest(sim)
    assert intents(sim, "DetachCacheSet") > 1


def meddled(mode: CacheMode, times: int) -> Simulation:
    """Somebody sets another mode each time that the cache is to be detached, which is refused once at least."""
    sim = machine(faults=f"detach_cache_set#1x{times}=busy")
    left = [times]

    def meddle() -> None:
        bcache = sim.world.kernel.bcache
        if left[0] and sim.phase is Phase.DETACHING and bcache.mode is CacheMode.NONE and not bcache.detaching:
            sim.world.kernel.set_mode(mode)
            left[0] -= 1

    sim.on_step = meddle
    sim.run_until(lambda: not left[0], 900)
    return sim


@pytest.mark.parametrize("mode", [mode for mode in CacheMode if mode is not CacheMode.NONE])
@pytest.mark.parametrize("dies", [False, True])
def test_a_cache_whose_mode_somebody_changes_is_released(mode: CacheMode, *, dies: bool) -> None:
    sim = meddled(mode, 2)
    if dies:
        sim.start_agent()
    assert_at_rest(sim)


def test_a_mode_that_is_changed_again_and_again_is_a_fault_until_an_operator_resumes() -> None:
    sim = meddled(CacheMode.WRITEAROUND, MOST_DIRTIED)
    in_phase(sim, Phase.FAULTED)
    assert present(sim.state.fault).kind is FaultKind.MODE_CHANGED
    sim.start_agent()
    sim.run_for(60)
    assert (sim.phase, sim.world.volumes_left()) == (Phase.FAULTED, 1)
    assert sim.ask(RequestKind.RESUME).accepted
    assert_at_rest(sim)


@pytest.mark.parametrize("mode", [CacheMode.WRITETHROUGH, CacheMode.WRITEAROUND, CacheMode.NONE])
def test_a_cache_whose_mode_somebody_changes_as_it_is_attached_is_released(mode: CacheMode) -> None:
    sim = machine()

    def meddle() -> None:
        if sim.phase is Phase.ATTACHING and sim.world.kernel.bcache.cache is not None:
            sim.world.kernel.set_mode(mode)

    sim.on_step = meddle
    sim.run_until(lambda: sim.phase is Phase.FLUSHING, 60)
    assert_at_rest(sim)
    assert "faulted" not in path(sim)


@pytest.mark.parametrize("mode", [CacheMode.WRITETHROUGH, CacheMode.WRITEAROUND])
def test_a_detach_under_way_is_remembered_over_a_restart_although_somebody_changed_the_mode(mode: CacheMode) -> None:
    killed: list[str] = []

    def die(point: str) -> None:
        if point == "after DetachCacheSet" and not killed:
            killed.append(point)
            raise Killed

    sim = machine(MURMURING, point=die)
    with pytest.raises(Killed):
        sim.run_for(900)
    sim.world.kernel.set_mode(mode)
    sim.start_agent()
    assert_at_rest(sim)
    assert "faulted" not in path(sim)
