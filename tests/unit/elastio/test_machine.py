"""The table: every pair of it happens, no other can, and the same input gives the same decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from elastio.core.actions import (
    Action,
    AttachVolume,
    CreateVolume,
    DeleteVolume,
    DescribeVolume,
    DetachVolume,
    Identify,
    ListVolumes,
    Outcome,
    OutcomeKind,
    TagVolume,
    TuneBacking,
    Value,
    Worker,
)
from elastio.core.cycle import Backoff, Timestamps, Trigger
from elastio.core.detection import DETECTORS, Detection, Event
from elastio.core.machine import TRANSITIONS, decide
from elastio.core.model import CacheState, DiskView, Request, RequestKind, Spend, VolumeSpec, VolumeState, VolumeTag
from elastio.core.observation import Decision, Observation
from elastio.core.policy import Policy
from elastio.core.state import AgentState, Fault, FaultKind, Phase
from elastio.errors import InvariantError
from elastio.sim.run import Simulation
from elastio.units import GIB

from . import state_machine_page
from .simulated import BURST
from .simulated import machine as simulated
from .state_machine_page import PAGE, page
from .values import (
    HIGH,
    IDENTITY,
    NOW,
    OTHER_SET,
    POLICY,
    QUIET,
    SERIAL,
    SET,
    VOLUME_ID,
    backing,
    busy_sample,
    cached,
    cycle,
    disk,
    drained,
    host,
    seen,
    state,
    volume,
)

CREATE = CreateVolume("token", VolumeSpec(10 * GIB, 80), POLICY.caps.max_size_bytes)
BOOSTED = Timestamps(decided=NOW - 20, created=NOW - 19, boosted=NOW - 15)
RELEASED = replace(BOOSTED, durable=NOW - 2, released=NOW - 2)
UNBOUGHT = cycle(volume_id=None, serial=None, cache_set=None, volume=None, seen=False, opened_wall=None)
FORMATTED = disk(cache_set=SET, superblock=SET, held=True)
MISSED = Fault(FaultKind.CACHE_MISSING, "the cache is missing")
MISSING = host(backing(state=CacheState.DIRTY, running=False))


def asked(kind: RequestKind) -> tuple[Request, ...]:
    return (Request(kind),)


def failed(kind: OutcomeKind) -> tuple[Outcome, ...]:
    return (Outcome(CREATE, kind, error="no"),)


# What shows each event in each phase.
SHOWN: dict[tuple[Phase, Event], tuple[AgentState, Observation]] = {
    (Phase.IDLE, Event.BOOST_WANTED): (
        state(Phase.IDLE, load=HIGH),
        seen(host(backing()), sample=busy_sample()),
    ),
    (Phase.IDLE, Event.BOOST_CAPPED): (
        state(Phase.IDLE, load=HIGH),
        replace(seen(host(backing()), sample=busy_sample()), spend=Spend(boosts=1)),
    ),
    (Phase.IDLE, Event.ORPHAN_FOUND): (
        state(Phase.IDLE, owned=(volume(VolumeState.AVAILABLE),)),
        seen(host(backing())),
    ),
    (Phase.ATTACHING, Event.CACHE_ATTACHED): (
        state(Phase.ATTACHING, cycle()),
        seen(host(cached(), FORMATTED)),
    ),
    (Phase.ATTACHING, Event.BOOST_REFUSED): (
        state(Phase.ATTACHING, UNBOUGHT),
        seen(host(backing()), outcomes=failed(OutcomeKind.REFUSED)),
    ),
    (Phase.ATTACHING, Event.BOOST_ABANDONED): (
        state(Phase.ATTACHING, cycle(started_at=NOW - POLICY.attach_timeout_s - 1)),
        seen(host(backing(), disk())),
    ),
    (Phase.ATTACHING, Event.BOOST_WITHDRAWN): (
        state(Phase.ATTACHING, cycle()),
        seen(host(backing(), disk()), requests=asked(RequestKind.FLUSH)),
    ),
    (Phase.BOOSTING, Event.WENT_QUIET): (
        state(Phase.BOOSTING, cycle(times=Timestamps(boosted=NOW - 60)), load=QUIET),
        seen(host(cached(), FORMATTED)),
    ),
    (Phase.BOOSTING, Event.CACHE_LEFT): (
        state(Phase.BOOSTING, cycle(times=BOOSTED)),
        seen(host(backing(state=CacheState.CLEAN, superblock_set=SET), disk())),
    ),
    (Phase.FLUSHING, Event.LOAD_RETURNED): (
        state(Phase.FLUSHING, cycle(times=BOOSTED), load=HIGH),
        seen(host(cached(flush_full_speed=True), FORMATTED), sample=busy_sample()),
    ),
    (Phase.FLUSHING, Event.CACHE_LEFT): (
        state(Phase.FLUSHING, cycle(times=replace(BOOSTED, detaching=NOW - 3))),
        seen(host(backing(), disk())),
    ),
    (Phase.FLUSHING, Event.DRAINED): (
        state(Phase.FLUSHING, cycle(times=BOOSTED)),
        seen(host(drained(), FORMATTED)),
    ),
    (Phase.DETACHING, Event.DIRTIED): (
        state(Phase.DETACHING, cycle(times=BOOSTED)),
        seen(host(cached(), FORMATTED)),
    ),
    (Phase.DETACHING, Event.RELEASED): (
        state(Phase.DETACHING, cycle(times=RELEASED, volume=volume(VolumeState.GONE))),
        seen(host(backing())),
    ),
    (Phase.FAULTED, Event.REPAIRED): (
        state(Phase.FAULTED, cycle(times=BOOSTED), fault=MISSED),
        seen(host(cached(), FORMATTED)),
    ),
    **{
        (phase, Event.ENDANGERED): (state(phase, None if phase is Phase.IDLE else cycle(times=BOOSTED)), seen(MISSING))
        for phase in Phase
        if phase is not Phase.FAULTED
    },
}


@pytest.mark.parametrize("pair", TRANSITIONS, ids=lambda pair: f"{pair[0]}, {pair[1]}")
def test_every_pair_of_the_table_happens(pair: tuple[Phase, Event]) -> None:
    before, obs = SHOWN[pair]
    assert before.phase is pair[0]
    decision = decide(before, obs, replace(POLICY, caps=replace(POLICY.caps, max_boosts_per_day=1)))
    assert decision.state.phase is (TRANSITIONS[pair] or Phase.BOOSTING)
    assert decision.reason


def test_nothing_is_shown_that_is_not_in_the_table() -> None:
    assert SHOWN.keys() == TRANSITIONS.keys()


@pytest.mark.parametrize(
    "pair",
    [(p, e) for p in Phase for e in Event if (p, e) not in TRANSITIONS],
    ids=lambda pair: f"{pair[0]}, {pair[1]}",
)
def test_a_pair_that_is_not_in_the_table_raises(pair: tuple[Phase, Event], monkeypatch: pytest.MonkeyPatch) -> None:
    phase, event = pair
    monkeypatch.setitem(DETECTORS, phase, lambda *_: Detection(event, "cannot be"))
    with pytest.raises(InvariantError):
        decide(state(phase, None if phase is Phase.IDLE else cycle()), seen(host(backing(), disk())), POLICY)


def test_only_a_repair_leads_out_of_faulted() -> None:
    assert [event for phase, event in TRANSITIONS if phase is Phase.FAULTED] == [Event.REPAIRED]
    faulted = state(Phase.FAULTED, cycle(times=BOOSTED), fault=MISSED)
    decision = decide(faulted, seen(host(cached(), FORMATTED)), POLICY)
    assert decision.state.phase is Phase.BOOSTING
    assert decision.state.fault is None


def test_every_phase_can_be_reached_and_left() -> None:
    assert {after for after in TRANSITIONS.values() if after is not None} == set(Phase)
    assert {before for before, _ in TRANSITIONS} == set(Phase)


@pytest.mark.parametrize("pair", TRANSITIONS, ids=lambda pair: f"{pair[0]}, {pair[1]}")
def test_the_same_input_gives_the_same_decision(pair: tuple[Phase, Event]) -> None:
    before, obs = SHOWN[pair]
    assert decide(before, obs, POLICY) == decide(before, obs, POLICY)


def test_a_whole_run_can_be_decided_again() -> None:
    asked_before: list[tuple[AgentState, Observation, Decision]] = []
    sim = simulated(BURST)
    assert sim.agent is not None
    sim.agent.decide = recording(asked_before)
    sim.run_for(60)
    assert len(asked_before) > 60
    for before, obs, decision in asked_before:
        assert decide(before, obs, sim.policy) == decision


def recording(kept: list[tuple[AgentState, Observation, Decision]]) -> Callable[..., Decision]:
    def decide_and_keep(before: AgentState, obs: Observation, policy: Policy) -> Decision:
        decision = decide(before, obs, policy)
        kept.append((before, obs, decision))
        return decision

    return decide_and_keep


# --- what the table does not say -------------------------------------------------------------------------------


def test_an_inconsistent_device_is_left_to_an_operator() -> None:
    view = host(backing(state=CacheState.INCONSISTENT))
    decision = decide(state(Phase.IDLE), seen(view), POLICY)
    assert decision.state.phase is Phase.FAULTED
    assert decision.state.fault is not None
    assert decision.state.fault.kind is FaultKind.INCONSISTENT
    assert decide(decision.state, seen(view), POLICY).state.phase is Phase.FAULTED
    again = decide(decision.state, seen(view, requests=asked(RequestKind.RESUME)), POLICY)
    assert again.answers[0].accepted
    assert decide(again.state, seen(view), POLICY).state.phase is Phase.IDLE


def test_an_inconsistent_device_whose_cache_volume_is_left_is_not_resumed() -> None:
    view = host(backing(state=CacheState.INCONSISTENT))
    faulted = decide(state(Phase.BOOSTING, cycle(times=BOOSTED)), seen(view), POLICY).state
    assert faulted.phase is Phase.FAULTED
    again = decide(faulted, seen(view, requests=asked(RequestKind.RESUME)), POLICY)
    assert not again.answers[0].accepted
    assert (again.state.phase, again.actions) == (Phase.FAULTED, ())


def test_a_strange_cache_set_is_not_touched() -> None:
    view = host(cached(cache_set=OTHER_SET), disk(cache_set=OTHER_SET, superblock=OTHER_SET))
    decision = decide(state(Phase.IDLE), seen(view), POLICY)
    assert decision.state.phase is Phase.FAULTED
    assert decision.state.fault is not None
    assert decision.state.fault.kind is FaultKind.FOREIGN_CACHE
    assert decision.actions == ()


def test_a_volume_on_another_machine_is_left_to_an_operator() -> None:
    before = state(Phase.DETACHING, cycle(times=RELEASED, volume=volume(VolumeState.ELSEWHERE)))
    decision = decide(before, seen(host(backing())), POLICY)
    assert decision.state.phase is Phase.FAULTED
    assert decision.state.fault is not None
    assert decision.state.fault.kind is FaultKind.ATTACHED_ELSEWHERE
    later = decide(decision.state, seen(host(backing())), POLICY)
    assert later.actions == ()


@pytest.mark.parametrize("phase", [Phase.ATTACHING, Phase.DETACHING])
def test_a_volume_of_another_machine_is_forgotten_and_left_alone(phase: Phase) -> None:
    """The journal of an image, or a purchase that was answered with somebody else's volume."""
    never = cycle(volume=volume(VolumeState.FOREIGN), cache_set=None, tag=VolumeTag.CLEAN)
    before = state(phase, never)
    taken: list[Action] = []
    for _ in range(4):
        decision = decide(before, seen(host(backing())), POLICY)
        before = decision.state
        taken += decision.actions
    assert (before.phase, before.cycle) == (Phase.IDLE, None)
    assert not any(isinstance(a, DetachVolume | DeleteVolume | AttachVolume | TagVolume) for a in taken)


def test_no_two_machines_name_a_purchase_alike() -> None:
    """Machines of one image that decide in the same millisecond."""
    view = seen(host(backing()), sample=busy_sample())
    of = [state(Phase.IDLE, load=HIGH, machine=machine) for machine in ("i-1", "i-2", "", "")]
    chances = (0.5, 0.5, 0.25, 0.75)
    bought = [decide(s, replace(view, jitter=j), POLICY).state.cycle for s, j in zip(of, chances, strict=True)]
    assert len({c.token for c in bought if c}) == 4
    assert all(len(c.token) <= 64 for c in bought if c), "EC2 takes no longer client token"


def test_a_purchase_under_way_is_waited_for_before_anything_is_called_released() -> None:
    before = state(Phase.DETACHING, UNBOUGHT)
    waiting = decide(before, seen(host(backing()), busy=frozenset({Worker.CLOUD})), POLICY)
    assert waiting.state.phase is Phase.DETACHING
    assert decide(before, seen(host(backing())), POLICY).state.phase is Phase.IDLE


def test_an_agent_that_was_stopped_by_a_safety_rule_waits_for_an_operator() -> None:
    stopped = state(Phase.FAULTED, cycle(times=BOOSTED), fault=Fault(FaultKind.RULE_BROKEN, "a rule"))
    view = host(cached(), FORMATTED)
    waiting = decide(stopped, seen(view), POLICY)
    assert waiting.state.phase is Phase.FAULTED
    assert waiting.actions == ()
    resumed = decide(stopped, seen(view, requests=asked(RequestKind.RESUME)), POLICY)
    assert resumed.state.phase is Phase.BOOSTING
    assert not resumed.state.is_stopped


def test_an_agent_that_was_stopped_asks_for_nothing_even_if_its_cache_is_missing() -> None:
    of = cycle(times=BOOSTED, volume=volume(VolumeState.AVAILABLE))
    missing = state(Phase.FAULTED, of, fault=MISSED)
    assert decide(missing, seen(MISSING), POLICY).actions == (AttachVolume(VOLUME_ID),)
    assert decide(replace(missing, fault=Fault(FaultKind.RULE_BROKEN, "a rule")), seen(MISSING), POLICY).actions == ()


def test_a_broken_rule_stops_the_agent() -> None:
    sim = simulated((*BURST[:1], BURST[1], BURST[2]))
    sim.run_until(lambda: sim.phase is Phase.BOOSTING, 60)
    rule = "this must never happen"
    assert sim.agent is not None
    sim.agent.decide = raising(rule)
    sim.run_for(1)
    sim.agent.decide = decide
    sim.run_for(60)
    assert sim.phase is Phase.FAULTED
    assert sim.state.is_stopped
    assert rule in str(sim.state.fault)
    assert sim.world.volumes_left() == 1
    assert resume_and_settle(sim)


def raising(rule: str) -> Callable[..., Decision]:
    def decide_wrongly(*_: object) -> Decision:
        raise InvariantError(rule)

    return decide_wrongly


def resume_and_settle(sim: Simulation) -> bool:
    sim.ask(RequestKind.RESUME)
    sim.run_until_settled()
    return sim.world.volumes_left() == 0 and not sim.world.lost(power_cut=True)


def test_before_the_first_look_every_request_is_answered() -> None:
    decision = decide(AgentState(), seen(requests=asked(RequestKind.BOOST)), POLICY)
    assert [a.accepted for a in decision.answers] == [False]
    assert "just started" in decision.answers[0].text


@pytest.mark.parametrize("kind", RequestKind)
@pytest.mark.parametrize("phase", Phase)
def test_every_request_is_answered_in_every_phase(phase: Phase, kind: RequestKind) -> None:
    cached_yet = phase not in (Phase.IDLE, Phase.ATTACHING)
    of = cycle(times=BOOSTED if cached_yet else Timestamps(decided=NOW - 20))
    view = host(cached(), FORMATTED) if cached_yet else host(backing(), disk())
    before = state(phase, None if phase is Phase.IDLE else of, fault=MISSED if phase is Phase.FAULTED else None)
    decision = decide(before, seen(view, requests=asked(kind)), POLICY)
    assert len(decision.answers) == 1
    assert decision.answers[0].text


@pytest.mark.parametrize("tag", VolumeTag)
def test_what_nobody_remembers_is_released_only_where_it_is_marked_clean(tag: VolumeTag) -> None:
    owned = (volume(tag=tag),)
    assert state(Phase.IDLE, owned=owned).orphans == (owned if tag is VolumeTag.CLEAN else ())


def test_an_orphan_does_not_teach_a_size() -> None:
    orphan = cycle(trigger=Trigger.ORPHAN, times=BOOSTED, volume=volume(VolumeState.GONE), peak_in_use_percent=3)
    decision = decide(state(Phase.DETACHING, orphan, learned_size_bytes=7 * GIB), seen(host(backing())), POLICY)
    assert decision.state.learned_size_bytes == 7 * GIB


@pytest.mark.parametrize("kind", OutcomeKind)
def test_a_wait_of_weeks_is_a_wait_like_any_other(kind: OutcomeKind) -> None:
    of = cycle(times=replace(BOOSTED, detaching=NOW - 9), volume=volume(VolumeState.DETACHING))
    values: dict[Action, Value] = {
        ListVolumes(): (volume(VolumeState.DETACHING),),
        DescribeVolume(VOLUME_ID): volume(VolumeState.DETACHING),
    }
    values |= {DetachVolume(VOLUME_ID, SERIAL): None, TuneBacking(): None}
    for action, value in values.items():
        often = Backoff(100_000, NOW - 1, "" if kind is OutcomeKind.DONE else "no")
        before = state(Phase.DETACHING, of.with_backoff(action, often), list_backoff=often, tune_backoff=often)
        outcome = Outcome(action, kind, value, error=often.error)
        after = decide(before, seen(host(backing()), outcomes=(outcome,)), POLICY).state
        assert after.phase is Phase.DETACHING
        paces = [after.list_backoff, after.tune_backoff, *(after.cycle.backoffs.values() if after.cycle else ())]
        assert all(p.retry_at <= NOW + 60 for p in paces)


def test_the_first_failure_after_many_good_looks_is_a_first_one() -> None:
    before = state(Phase.IDLE, list_backoff=Backoff(5000, NOW - 1))
    failed_now = (Outcome(ListVolumes(), OutcomeKind.RETRY, error="throttled"),)
    after = decide(before, seen(host(backing()), outcomes=failed_now), POLICY).state
    assert after.list_backoff.retry_at <= NOW + 2


def test_a_volume_in_error_whose_disk_is_blank_and_still_there_is_detached() -> None:
    looked = {"DescribeVolume": Backoff(1, NOW - 1)}
    of = cycle(times=RELEASED, volume=volume(VolumeState.ERROR), backoffs=looked, tag=VolumeTag.CLEAN)
    decision = decide(state(Phase.DETACHING, of), seen(host(backing(), disk())), POLICY)
    assert decision.actions == (DetachVolume(VOLUME_ID, SERIAL),)


def test_the_reference_page_shows_the_table() -> None:
    assert PAGE.read_text() == page(), f"write it anew: python {state_machine_page.__file__}"


def test_an_idle_agent_asks_once_who_it_is_and_again_later_when_it_is_not_told() -> None:
    unknown = replace(state(Phase.IDLE), identity=None)
    view = host(backing())
    assert decide(unknown, seen(view), POLICY).actions == (Identify(),)

    told = Outcome(Identify(), OutcomeKind.DONE, IDENTITY)
    known = decide(unknown, seen(view, outcomes=(told,)), POLICY)
    assert known.state.identity == IDENTITY
    assert known.actions == ()

    silent = Outcome(Identify(), OutcomeKind.RETRY, error="no answer")
    waiting = decide(unknown, seen(view, outcomes=(silent,)), POLICY)
    assert waiting.actions == ()
    assert decide(waiting.state, replace(seen(view), now=NOW + 61), POLICY).actions == (Identify(),)


@pytest.mark.parametrize("shown", [(), (disk(),)], ids=["gone", "still shown"])
def test_a_volume_that_the_cloud_has_detached_is_deleted_though_the_kernel_may_still_show_its_disk(
    shown: tuple[DiskView, ...],
) -> None:
    """A machine that lost its power in the middle of a detach may boot with the disk plugged in again."""
    polled = {"DescribeVolume": Backoff(1, NOW)}
    of = cycle(times=RELEASED, volume=volume(VolumeState.AVAILABLE), backoffs=polled, tag=VolumeTag.CLEAN)
    decision = decide(state(Phase.DETACHING, of), seen(host(backing(), *shown)), POLICY)
    assert decision.actions == (DeleteVolume(VOLUME_ID, SERIAL),)
