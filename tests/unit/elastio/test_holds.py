"""Holds: before a snapshot, a stop, a shutdown, or the end that the cloud announced."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elastio.agent.graceful_shutdown import GracefulShutdown
from elastio.core import inhibition, requests
from elastio.core.cycle import Timestamps
from elastio.core.detection import Detection
from elastio.core.machine import decide
from elastio.core.model import CacheState, Notice, Request, RequestKind
from elastio.core.observation import Answer, Observation
from elastio.core.policy import Policy, StopPolicy
from elastio.core.state import AgentState, Fault, FaultKind, Inhibition, InhibitionReason, Phase
from elastio.sim.run import Simulation
from elastio.sim.workload import Segment

from .simulated import BURST, QUIET, STEADY, assert_at_rest, in_phase, intents, machine, only_the_port, path
from .values import HIGH, NOW, POLICY, SET, WALL, backing, busy_sample, cached, cycle, host, seen, state

FLUSH = StopPolicy(flush=True, limit_s=120.0)
SNAPSHOT = Inhibition(InhibitionReason.SNAPSHOT, NOW + 60)
AGAIN = (Segment(2, 0), Segment(12, 60), Segment(30, 0), Segment(20, 60), QUIET)


def asked(before: AgentState, request: Request, obs: Observation, policy: Policy) -> tuple[AgentState, Answer]:
    return requests.answer(before, request, obs, policy, unmoved)


def unmoved(before: AgentState, detected: Detection) -> AgentState:
    raise AssertionError(f"{detected.event} in {before.phase}")


def quiesce(sim: Simulation, seconds: float = 600.0) -> None:
    assert sim.ask(RequestKind.QUIESCE, seconds=seconds).accepted


def is_safe(sim: Simulation) -> bool:
    return inhibition.is_safe_to_copy(sim.state.cycle, sim.agent.view if sim.agent else None)


# --- the rules, one by one ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("view", "of", "safe"),
    [
        (backing(), None, True),
        (backing(running=False), None, False),
        (backing(state=CacheState.CLEAN), None, False),
        (cached(), cycle(), False),
        (cached(state=CacheState.CLEAN, dirty_bytes=0), cycle(), False),
        (backing(), cycle(), False),  # "no cache", but not yet durably so
        (backing(), cycle(times=Timestamps(released=NOW)), True),
        (backing(), cycle(cache_set=None), True),
    ],
)
def test_only_a_volume_that_durably_needs_no_cache_is_safe_to_copy(view: object, of: object, safe: bool) -> None:
    assert inhibition.is_safe_to_copy(of, host(view)) is safe  # type: ignore[arg-type]
    assert not inhibition.is_safe_to_copy(of, None)  # type: ignore[arg-type]


def test_a_hold_ends_when_its_time_is_over_and_not_before() -> None:
    held = state(Phase.IDLE, inhibition=SNAPSHOT)
    assert inhibition.update(held, seen(), POLICY) == (held, "")
    ended, why = inhibition.update(held, seen(now=NOW + 60), POLICY)
    assert ended.inhibition is None
    assert why


def test_a_notice_holds_beyond_its_moment_and_is_withdrawn_with_it() -> None:
    noticed = state(Phase.BOOSTING, cycle(), notice=Notice("terminate", WALL + 120))
    held, why = inhibition.update(noticed, seen(), POLICY)
    assert held.inhibition is not None
    assert (held.inhibition.reason, held.inhibition.flush) == (InhibitionReason.NOTICE, True)
    assert held.inhibition.until > NOW + 120
    assert "terminate" in why
    assert inhibition.update(held, seen(now=NOW + 1), POLICY) == (held, "")
    assert inhibition.update(replace(held, notice=None), seen(), POLICY)[0].inhibition is None


def test_a_notice_may_leave_the_cache_where_it_is() -> None:
    noticed = state(Phase.BOOSTING, cycle(), notice=Notice("stop", WALL + 120))
    held, _ = inhibition.update(noticed, seen(), replace(POLICY, notice_flush=False))
    assert held.inhibition is not None
    assert not inhibition.wants_flush(held)


@pytest.mark.parametrize("reason", [InhibitionReason.SNAPSHOT, InhibitionReason.STOP, InhibitionReason.SHUTDOWN])
def test_a_notice_takes_back_no_order_to_flush_and_what_it_covers_is_there_after_it(reason: InhibitionReason) -> None:
    before = Inhibition(reason, NOW + 60)
    noticed = state(Phase.FLUSHING, cycle(), inhibition=before, notice=Notice("stop", WALL + 120))
    held, why = inhibition.update(noticed, seen(), replace(POLICY, notice_flush=False))
    assert held.inhibition is not None
    assert (held.inhibition.reason, held.inhibition.flush) == (InhibitionReason.NOTICE, True)
    assert "flushing" in why
    withdrawn = replace(held, notice=None)
    assert inhibition.update(withdrawn, seen(), POLICY)[0].inhibition == before
    assert inhibition.update(withdrawn, seen(now=NOW + 60), POLICY)[0].inhibition is None


@pytest.mark.parametrize("kind", [RequestKind.STOP, RequestKind.SHUTDOWN])
def test_the_hold_of_a_snapshot_is_in_force_again_after_a_stop_that_did_not_happen(kind: RequestKind) -> None:
    snapshot = replace(SNAPSHOT, until=NOW + 9000)
    held = state(Phase.IDLE, inhibition=snapshot)
    for _ in range(3):  # asked for again and again: nothing piles up
        held, answer = asked(held, Request(kind), seen(), POLICY)
        assert answer.accepted
        assert held.inhibition is not None
        assert held.inhibition.under == snapshot
    assert inhibition.update(held, seen(now=NOW + 8000), POLICY)[0].inhibition == snapshot


def test_a_script_can_end_its_hold_under_another_one() -> None:
    stop = Inhibition(InhibitionReason.STOP, NOW + 60, under=SNAPSHOT)
    notice = Inhibition(InhibitionReason.NOTICE, NOW + 600, under=stop)
    after, answer = asked(state(Phase.IDLE, inhibition=notice), Request(RequestKind.UNQUIESCE), seen(), POLICY)
    assert answer.accepted
    assert after.inhibition == replace(notice, under=replace(stop, under=None))
    assert "notice" in answer.text


def test_a_script_learns_that_its_hold_was_over() -> None:
    _, answer = asked(state(Phase.IDLE), Request(RequestKind.UNQUIESCE), seen(), POLICY)
    assert not answer.accepted
    _, answer = asked(state(Phase.IDLE, inhibition=SNAPSHOT), Request(RequestKind.UNQUIESCE), seen(), POLICY)
    assert answer.accepted


@pytest.mark.parametrize("reason", [InhibitionReason.STOP, InhibitionReason.SHUTDOWN, InhibitionReason.NOTICE])
def test_nothing_is_quiesced_while_the_machine_ends(reason: InhibitionReason) -> None:
    before = state(Phase.BOOSTING, cycle(), inhibition=Inhibition(reason, NOW + 60))
    after, answer = asked(before, Request(RequestKind.QUIESCE, seconds=60), seen(), POLICY)
    assert not answer.accepted
    assert after == before


@pytest.mark.parametrize(("seconds", "until"), [(5.0, SNAPSHOT.until), (1e6, NOW + 1e6)])
def test_a_second_quiesce_never_shortens_the_first(seconds: float, until: float) -> None:
    before = state(Phase.IDLE, inhibition=SNAPSHOT)
    after, answer = asked(before, Request(RequestKind.QUIESCE, seconds=seconds), seen(), POLICY)
    assert answer.accepted
    assert after.inhibition == Inhibition(InhibitionReason.SNAPSHOT, until)


def test_a_faulted_agent_quiesces_nothing() -> None:
    _, answer = asked(
        state(Phase.FAULTED, fault=Fault(FaultKind.INCONSISTENT, "x")),
        Request(RequestKind.QUIESCE, seconds=60),
        seen(),
        POLICY,
    )
    assert not answer.accepted


@pytest.mark.parametrize("asked", [(), (Request(RequestKind.BOOST),)])
def test_neither_the_load_nor_an_operator_turns_a_held_flush_back(asked: tuple[Request, ...]) -> None:
    under_load = seen(host(cached(flush_full_speed=True)), sample=busy_sample(), requests=asked)
    free = state(Phase.FLUSHING, cycle(), load=HIGH)
    assert decide(free, under_load, POLICY).state.phase is Phase.BOOSTING
    assert decide(replace(free, inhibition=SNAPSHOT), under_load, POLICY).state.phase is Phase.FLUSHING


@pytest.mark.parametrize(
    ("changes", "over"),
    [
        ({}, True),
        ({"inhibition": Inhibition(InhibitionReason.STOP, NOW + 60, flush=False), "cycle": cycle()}, True),
        ({"inhibition": Inhibition(InhibitionReason.STOP, NOW + 60), "cycle": cycle(cache_set=SET)}, False),
        ({"inhibition": Inhibition(InhibitionReason.STOP, NOW + 60)}, True),
        ({"inhibition": Inhibition(InhibitionReason.STOP, NOW + 60), "recovered": False}, False),
        ({"inhibition": Inhibition(InhibitionReason.STOP, NOW), "cycle": cycle()}, True),
        ({"inhibition": Inhibition(InhibitionReason.STOP, NOW + 60), "cycle": cycle(), "fault": "x"}, True),
    ],
)
def test_the_agent_ends_when_nothing_is_left_or_its_time_is_over(changes: dict[str, Any], over: bool) -> None:
    assert bool(inhibition.stop_reason(state(Phase.FLUSHING, **changes), NOW)) is over


# --- on the simulator -----------------------------------------------------------------------------------


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


def test_the_load_does_not_take_the_cache_back_while_held() -> None:
    sim = machine(AGAIN)
    in_phase(sim, Phase.FLUSHING)
    quiesce(sim)
    sim.run_until(lambda: is_safe(sim), 300)
    assert "boosting" not in path(sim)[path(sim).index("flushing") :]


def test_a_purchase_under_way_is_withdrawn() -> None:
    sim = machine(STEADY)
    in_phase(sim, Phase.ATTACHING)
    quiesce(sim)
    sim.run_until(lambda: sim.phase is Phase.IDLE, 300)
    assert "boosting" not in path(sim)


def test_a_hold_that_nobody_ends_ends_by_itself() -> None:
    sim = machine(STEADY)
    sim.run_until(sim.is_settled, 60)
    quiesce(sim, seconds=40)
    sim.run_for(35)
    assert sim.phase is Phase.IDLE
    in_phase(sim, Phase.BOOSTING, 60)


def test_a_hold_outlives_a_restart_and_a_boot() -> None:
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


@pytest.mark.parametrize("parting", [FLUSH, StopPolicy(flush=False)])
def test_a_hold_outlives_an_orderly_stop(parting: StopPolicy) -> None:
    sim = machine(STEADY, on_stop=parting)
    in_phase(sim, Phase.BOOSTING)
    quiesce(sim)
    sim.run_until(lambda: is_safe(sim), 300)
    departure = depart(sim)
    sim.run_until(lambda: bool(departure.exit_reason()), 120)
    sim.start_agent()
    sim.run_for(60)
    assert sim.phase is Phase.IDLE
    assert is_safe(sim)
    assert sim.ask(RequestKind.UNQUIESCE).accepted
    in_phase(sim, Phase.BOOSTING)


def test_a_stop_that_leaves_changes_nothing_and_the_next_start_goes_on() -> None:
    sim = machine(STEADY)
    in_phase(sim, Phase.BOOSTING)
    sim.run_for(3)
    departure = depart(sim)
    sim.run_until(lambda: bool(departure.exit_reason()), 10)
    assert (sim.phase, intents(sim, "EnterPhase2")) == (Phase.BOOSTING, 0)
    sim.start_agent()
    sim.run_for(3)
    assert (sim.phase, sim.state.inhibition) == (Phase.BOOSTING, None)


def test_a_stop_that_flushes_ends_once_the_volume_is_gone() -> None:
    sim = machine(STEADY, on_stop=FLUSH)
    in_phase(sim, Phase.BOOSTING)
    sim.run_for(3)
    departure = depart(sim)
    sim.run_until(lambda: bool(departure.exit_reason()), 120)
    assert departure.exit_reason() == "no cache is left"
    assert sim.world.volumes_left() == 0
    assert not sim.world.lost(power_cut=True)


def test_a_stop_gives_up_when_its_time_is_over_and_leaves_the_dirty_volume() -> None:
    sim = machine(BURST, on_stop=StopPolicy(flush=True, limit_s=2.0))
    in_phase(sim, Phase.BOOSTING)
    sim.run_for(8)
    departure = depart(sim)
    sim.run_until(lambda: bool(departure.exit_reason()), 10)
    assert sim.world.kernel.bcache.dirty_bytes > 0
    assert sim.world.volumes_left() == 1
    sim.power_cut()
    assert_at_rest(sim)


def test_a_prepared_shutdown_is_not_prepared_anew_by_the_stop() -> None:
    sim = machine(STEADY, on_stop=FLUSH)
    in_phase(sim, Phase.BOOSTING)
    assert sim.ask(RequestKind.SHUTDOWN).accepted
    assert depart(sim).exit_reason()
    assert intents(sim, "EnterPhase2") == 0


def test_a_shutdown_flushes_where_it_is_told_to() -> None:
    sim = machine(STEADY, on_shutdown=FLUSH)
    in_phase(sim, Phase.BOOSTING)
    sim.ask(RequestKind.SHUTDOWN)
    sim.run_until(lambda: bool(inhibition.stop_reason(sim.state, sim.world.clock.now())), 120)
    assert sim.world.volumes_left() == 0


def test_a_reboot_leaves_what_a_power_off_flushes() -> None:
    sim = machine(STEADY, on_shutdown=FLUSH)
    in_phase(sim, Phase.BOOSTING)
    assert sim.ask(RequestKind.SHUTDOWN, reboots=True).accepted
    assert sim.state.inhibition is not None
    assert not sim.state.inhibition.flush
    assert sim.phase is Phase.BOOSTING


def depart(sim: Simulation) -> GracefulShutdown:
    assert sim.agent is not None
    departure = GracefulShutdown(sim.agent, sim.world.clock)
    departure.ask()
    return departure


# --- a notice -------------------------------------------------------------------------------------------


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
    assert sim.state.notice_backoff.retry_at == float("inf")


def test_nobody_is_asked_for_notices_that_nobody_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = machine((QUIET,))
    asked: list[int] = []
    monkeypatch.setattr(type(sim.world.provider), "notice", lambda _: asked.append(1))
    sim.run_for(60)
    assert asked == []
