"""Snapshots, stops, shutdowns and notices of the cloud on the simulated machine."""

from __future__ import annotations

import pytest

from elastio.agent.event_loop import GracefulShutdown
from elastio.agent.status_builder import is_safe_to_copy
from elastio.core.model import Notice, RequestKind
from elastio.core.policy import StopPolicy
from elastio.core.state import InhibitionReason, Phase
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment
from tests.simulated import BURST, QUIET, STEADY, assert_at_rest, in_phase, intents, machine, only_the_port, path
from tests.values import present

FLUSH = StopPolicy(flush=True, limit_s=120.0)


def quiesce(sim: Simulation, seconds: float = 600.0) -> None:
    assert sim.ask(RequestKind.QUIESCE, seconds=seconds).accepted


def is_safe(sim: Simulation) -> bool:
    return is_safe_to_copy(sim.state.cycle, sim.agent.view if sim.agent else None)


def test_resume_says_which_hold_still_prevents_boosts() -> None:
    sim = machine((QUIET,))
    sim.run_for(5)
    free = sim.ask(RequestKind.RESUME)
    sim.ask(RequestKind.SHUTDOWN)
    held = sim.ask(RequestKind.RESUME)
    assert free.accepted
    assert held.accepted
    assert InhibitionReason.SHUTDOWN in held.text
    assert InhibitionReason.SHUTDOWN not in free.text


def test_quiesce_flushes_under_load_and_no_boost_begins_until_unquiesce() -> None:
    sim = machine(STEADY)
    in_phase(sim, Phase.BOOSTING)
    sim.run_for(5)
    assert not is_safe(sim)
    quiesce(sim)
    sim.run_until(lambda: is_safe(sim), 300)
    assert not sim.world.lost(power_cut=True)
    assert sim.world.kernel.bcache.sb_set is None  # what a snapshot of the backing volume shows
    sim.run_for(60)
    assert sim.phase is Phase.IDLE
    assert sim.world.volumes_left() == 0
    assert not sim.ask(RequestKind.BOOST).accepted
    assert sim.ask(RequestKind.UNQUIESCE).accepted
    in_phase(sim, Phase.BOOSTING)


def test_an_inhibition_survives_a_restart_and_a_boot() -> None:
    sim = machine(STEADY)
    in_phase(sim, Phase.BOOSTING)
    quiesce(sim)
    sim.start_agent()
    sim.run_until(lambda: is_safe(sim), 300)
    sim.power_cut()
    sim.run_for(60)
    assert sim.state.inhibition is not None
    assert sim.phase is Phase.IDLE
    assert sim.ask(RequestKind.UNQUIESCE).accepted
    sim.start_agent()
    in_phase(sim, Phase.BOOSTING)


def test_a_stop_gives_up_when_its_time_is_over_and_leaves_the_dirty_volume() -> None:
    sim = machine(BURST, on_stop=StopPolicy(flush=True, limit_s=2.0))
    in_phase(sim, Phase.BOOSTING)
    sim.run_for(8)
    shutdown = begin_shutdown(sim)
    sim.run_until(lambda: bool(shutdown.exit_reason()), 10)
    assert sim.world.kernel.bcache.dirty_bytes > 0
    assert sim.world.volumes_left() == 1
    sim.power_cut()
    assert_at_rest(sim)


def test_a_prepared_shutdown_is_not_prepared_again_by_the_stop() -> None:
    sim = machine(STEADY, on_stop=FLUSH)
    in_phase(sim, Phase.BOOSTING)
    assert sim.ask(RequestKind.SHUTDOWN).accepted
    assert begin_shutdown(sim).exit_reason()
    assert intents(sim, "EnterPhase2") == 0


def begin_shutdown(sim: Simulation) -> GracefulShutdown:
    shutdown = GracefulShutdown(present(sim.agent), sim.world.clock)
    shutdown.ask()
    return shutdown


def announce(sim: Simulation, in_s: float = 120.0) -> None:
    sim.world.provider.announced = Notice("terminate", sim.world.clock.wall() + in_s)


def test_a_notice_flushes_within_its_time() -> None:
    sim = machine(STEADY, notice_poll_s=5.0)
    in_phase(sim, Phase.BOOSTING)
    sim.run_for(5)
    announce(sim)
    sim.run_for(110)
    assert sim.world.volumes_left() == 0
    assert not sim.world.lost(power_cut=True)
    assert "flushing" in path(sim)


def test_a_notice_that_is_too_short_leaves_the_dirty_volume_attached() -> None:
    sim = machine((Segment(2, 0), Segment(40, 80), QUIET), notice_poll_s=5.0, initial_size_bytes=2**33)
    in_phase(sim, Phase.BOOSTING)
    sim.run_for(30)
    announce(sim, 8)
    sim.run_for(8)
    assert sim.world.kernel.bcache.dirty_bytes > 0
    assert (sim.world.volumes_left(), intents(sim, "DetachVolume"), intents(sim, "DeleteVolume")) == (1, 0, 0)
    sim.world.provider.announced = None
    sim.power_cut()  # the machine comes back elsewhere, with its volumes
    assert_at_rest(sim)


def test_a_boost_that_begins_after_a_notice_is_given_up_before_it_has_a_cache() -> None:
    """An idle agent does not ask: it would keep a process of 25 MB awake for it. The first boost does."""
    sim = machine((Segment(20, 0), Segment(1e9, 60)), notice_poll_s=5.0)
    sim.run_for(2)
    announce(sim)
    assert intents(sim, "CreateVolume") == 0
    sim.run_for(100)
    assert (intents(sim, "CreateVolume"), intents(sim, "InstallCache")) == (1, 0)
    assert (sim.phase, sim.world.volumes_left()) == (Phase.IDLE, 0)


def test_a_cloud_without_notices_is_asked_once() -> None:
    sim = machine(BURST, notice_poll_s=5.0)
    sim.world.provider = only_the_port(sim.world.provider)
    sim.run_for(60)
    assert sim.state.backoff_of("PollNotice").retry_at == float("inf")


def test_nobody_is_asked_for_notices_that_nobody_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = machine((QUIET,))
    asked: list[int] = []
    monkeypatch.setattr(type(sim.world.provider), "notice", lambda _: asked.append(1))
    sim.run_for(60)
    assert asked == []
