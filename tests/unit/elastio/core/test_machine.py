"""The table of transitions: each pair of it occurs and no other can; and every request is answered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.core.actions import (
    Action,
    AttachVolume,
    CreateVolume,
    DeleteVolume,
    DetachVolume,
    Outcome,
    OutcomeKind,
    TagVolume,
)
from elastio.core.cycle import Timestamps
from elastio.core.detection import DETECTORS, Detection, Event
from elastio.core.machine import TRANSITIONS, decide
from elastio.core.model import CacheState, RequestKind, VolumeSpec, VolumeState, VolumeTag
from elastio.core.policy import Policy
from elastio.core.state import AgentState, Decision, Fault, FaultKind, Observation, Phase
from elastio.errors import InvariantError
from elastio.strategy.memory import Choice
from elastio.strategy.spending import Caps, Spend
from elastio.strategy.worth import Advice
from elastio.units import GIB
from tests.fixtures.errors import refused
from tests.simulated import BURST, assert_at_rest, by_money, in_phase
from tests.simulated import machine as simulated
from tests.values import (
    BOOSTED,
    CACHE_MISSING,
    FORMATTED,
    HIGH,
    NOW,
    POLICY,
    QUIET,
    RELEASED,
    SET,
    UNBOUGHT,
    VOLUME_ID,
    WAITS_FOR_DIRTY,
    asked,
    at_full_speed,
    backing,
    busy_sample,
    cached,
    cycle,
    disk,
    drained,
    host,
    present,
    seen,
    state,
    volume,
)

from . import state_machine_page
from .state_machine_page import PAGE, page

# A cap that no other observation comes near to.
CAPPED_AGBS = 1e9
CHOICE = Choice(80.0, 0.0, holding_s=0.0, quiet_s=2.0)
CREATE = CreateVolume("token", VolumeSpec(10 * GIB, 80), POLICY.caps.max_size_bytes)


def failed(kind: OutcomeKind, code: str = "") -> tuple[Outcome, ...]:
    return (Outcome(CREATE, kind, error="no", code=code),)


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
    (Phase.IDLE, Event.BOOST_DECLINED): (
        state(Phase.IDLE, load=HIGH),
        seen(host(backing()), sample=busy_sample(), advice=Advice(5, 2000.0)),
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
    (Phase.ATTACHING, Event.BOOST_CAPPED): (
        state(Phase.ATTACHING, UNBOUGHT),
        seen(host(backing()), outcomes=failed(OutcomeKind.REFUSED, "caps.max_boosts_per_day")),
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
    (Phase.BOOSTING, Event.CAP_REACHED): (
        state(Phase.BOOSTING, cycle(times=BOOSTED), load=HIGH),
        replace(seen(host(cached(), FORMATTED)), spend=Spend(agbs=CAPPED_AGBS)),
    ),
    (Phase.BOOSTING, Event.FILLED_UP): (
        state(Phase.BOOSTING, cycle(times=BOOSTED, choice=CHOICE, dirty_bytes=0), load=HIGH, full_since=NOW - 100),
        seen(host(cached(dirty_bytes=0, available_percent=30), FORMATTED), advice=Advice(5, 2000.0)),
    ),
    (Phase.BOOSTING, Event.CACHE_LEFT): (
        state(Phase.BOOSTING, cycle(times=BOOSTED)),
        seen(host(backing(state=CacheState.CLEAN, superblock_set=SET), disk())),
    ),
    (Phase.FLUSHING, Event.LOAD_RETURNED): (
        state(Phase.FLUSHING, cycle(times=BOOSTED), load=HIGH),
        seen(host(cached(flush_full_speed=True), FORMATTED), sample=busy_sample()),
    ),
    (Phase.FLUSHING, Event.CAP_REACHED): (
        state(Phase.FLUSHING, cycle(times=BOOSTED), load=HIGH),
        replace(seen(host(cached(flush_full_speed=True), FORMATTED)), spend=Spend(agbs=CAPPED_AGBS)),
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
        state(Phase.FAULTED, cycle(times=BOOSTED), fault=CACHE_MISSING),
        seen(host(cached(), FORMATTED)),
    ),
    **{
        (phase, Event.ENDANGERED): (
            state(phase, None if phase is Phase.IDLE else cycle(times=BOOSTED)),
            seen(WAITS_FOR_DIRTY),
        )
        for phase in Phase
        if phase is not Phase.FAULTED
    },
}


@pytest.mark.parametrize("pair", TRANSITIONS, ids=lambda pair: f"{pair[0]}, {pair[1]}")
def test_every_pair_of_the_table_happens(pair: tuple[Phase, Event]) -> None:
    before, obs = SHOWN[pair]
    assert before.phase is pair[0]
    caps = replace(POLICY.caps, max_boosts_per_day=1, max_agbs_per_day=CAPPED_AGBS)
    policy = replace(POLICY, caps=caps)
    decision = decide(before, obs, policy if obs.advice is None else by_money(policy))
    assert decision.state.phase is (TRANSITIONS[pair] or Phase.BOOSTING)
    assert (decision.state.fault is None) is (decision.state.phase is not Phase.FAULTED)
    not_begun = (decision.state.memory.capped_boosts, decision.state.memory.declined_boosts)
    assert not_begun == (pair[1] is Event.BOOST_CAPPED, pair[1] is Event.BOOST_DECLINED)
    assert decision.reason


@pytest.mark.parametrize(
    "pair",
    [(p, e) for p in Phase for e in Event if (p, e) not in TRANSITIONS],
    ids=lambda pair: f"{pair[0]}, {pair[1]}",
)
def test_a_pair_that_is_not_in_the_table_raises(pair: tuple[Phase, Event], monkeypatch: pytest.MonkeyPatch) -> None:
    phase, event = pair
    monkeypatch.setitem(DETECTORS, phase, lambda *_: Detection(event, "cannot be"))
    with refused(InvariantError, "event.transition"):
        decide(state(phase, None if phase is Phase.IDLE else cycle()), seen(host(backing(), disk())), POLICY)


@pytest.mark.parametrize("phase", [Phase.BOOSTING, Phase.FLUSHING])
def test_a_flush_that_a_cap_began_is_carried_out_whatever_the_load_and_the_cap_is_remembered(phase: Phase) -> None:
    before, obs = SHOWN[phase, Event.CAP_REACHED]
    after = decide(before, obs, replace(POLICY, caps=Caps(max_agbs_per_day=CAPPED_AGBS))).state
    assert present(after.cycle).forced
    assert present(after.memory.capped).key == "caps.max_agbs_per_day"
    kept = replace(POLICY, caps=Caps(max_agbs_per_day=CAPPED_AGBS, ends_boosts=False))
    assert decide(before, obs, kept).state.phase is phase


def test_a_whole_run_can_be_decided_again() -> None:
    decided: list[tuple[AgentState, Observation, Decision]] = []
    sim = simulated(BURST)

    def keep(before: AgentState, obs: Observation, policy: Policy) -> Decision:
        decided.append((before, obs, decide(before, obs, policy)))
        return decided[-1][2]

    present(sim.agent).decide = keep
    sim.run_for(60)
    assert len(decided) > 60
    assert all(decide(before, obs, sim.policy) == decision for before, obs, decision in decided)


@pytest.mark.parametrize(
    ("failures", "cool_down_s", "waits_s"),
    [(0, 5.0, 60.0), (1, 5.0, 120.0), (3, 5.0, 480.0), (4, 5.0, 900.0), (10**6, 5.0, 900.0), (0, 90.0, 90.0)],
)
def test_the_cool_down_doubles_with_each_failure_in_a_row(failures: int, cool_down_s: float, waits_s: float) -> None:
    """60 s after the first, never more than 900 s, and never less than the setting."""
    before = state(Phase.ATTACHING, UNBOUGHT, failures=failures)
    view = seen(host(backing()), outcomes=failed(OutcomeKind.REFUSED))
    after = decide(before, view, replace(POLICY, cool_down_s=cool_down_s)).state
    assert (after.failures, after.cool_until) == (failures + 1, NOW + waits_s)


def test_the_cool_down_after_a_success_is_the_setting() -> None:
    gone = state(Phase.DETACHING, cycle(times=RELEASED, volume=volume(VolumeState.GONE)))
    after = decide(gone, seen(host(backing())), replace(POLICY, cool_down_s=7.0)).state
    assert after.cool_until == NOW + 7.0


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


def test_an_agent_that_was_stopped_by_a_safety_rule_waits_for_an_operator() -> None:
    stopped = state(Phase.FAULTED, cycle(times=BOOSTED), fault=Fault(FaultKind.RULE_BROKEN, "a rule"))
    view = host(cached(), FORMATTED)
    waiting = decide(stopped, seen(view), POLICY)
    assert waiting.state.phase is Phase.FAULTED
    assert waiting.actions == ()
    resumed = decide(stopped, seen(view, requests=asked(RequestKind.RESUME)), POLICY)
    assert resumed.state.phase is Phase.BOOSTING
    assert not resumed.state.is_stopped


def test_before_the_first_scan_every_request_is_answered() -> None:
    decision = decide(AgentState(), seen(requests=asked(RequestKind.BOOST)), POLICY)
    assert [a.accepted for a in decision.answers] == [False]


@pytest.mark.parametrize("kind", RequestKind)
@pytest.mark.parametrize("phase", Phase)
def test_every_request_is_answered_in_every_phase(phase: Phase, kind: RequestKind) -> None:
    cached_yet = phase not in (Phase.IDLE, Phase.ATTACHING)
    of = cycle(times=BOOSTED if cached_yet else Timestamps(decided=NOW - 20))
    view = host(cached(), FORMATTED) if cached_yet else host(backing(), disk())
    before = state(phase, None if phase is Phase.IDLE else of, fault=CACHE_MISSING if phase is Phase.FAULTED else None)
    decision = decide(before, seen(view, requests=asked(kind)), POLICY)
    assert len(decision.answers) == 1
    assert decision.answers[0].text


@pytest.mark.parametrize("kind", [RequestKind.FLUSH, RequestKind.PAUSE])
def test_an_order_that_comes_with_the_end_of_an_attach_is_carried_out(kind: RequestKind) -> None:
    attached = seen(host(cached(), FORMATTED), requests=asked(kind))
    decision = decide(state(Phase.ATTACHING, cycle()), attached, POLICY)
    assert decision.answers[0].accepted
    assert decision.state.phase is Phase.FLUSHING
    assert present(decision.state.cycle).forced


@pytest.mark.parametrize("kind", [RequestKind.FLUSH, RequestKind.PAUSE])
@pytest.mark.parametrize("phase", [Phase.FLUSHING, Phase.DETACHING])
def test_an_order_during_a_release_outlasts_whatever_the_release_meets(phase: Phase, kind: RequestKind) -> None:
    """The cache may turn out to be attached, or come back after a fault: then it may not take writes again."""
    view = host(at_full_speed(), FORMATTED) if phase is Phase.FLUSHING else host(drained(), FORMATTED)
    decision = decide(state(phase, cycle()), seen(view, requests=asked(kind)), POLICY)
    assert present(decision.state.cycle).forced


def test_an_order_to_flush_outweighs_a_load_that_returns_in_the_same_moment() -> None:
    returned = seen(host(at_full_speed(), FORMATTED), sample=busy_sample(), requests=asked(RequestKind.FLUSH))
    decision = decide(state(Phase.FLUSHING, cycle(), load=HIGH), returned, POLICY)
    assert decision.state.phase is Phase.FLUSHING
    assert present(decision.state.cycle).forced


def test_two_requests_of_one_moment_are_carried_out_in_their_order() -> None:
    both = (*asked(RequestKind.PAUSE), *asked(RequestKind.RESUME))
    decision = decide(state(Phase.BOOSTING, cycle()), seen(host(cached(), FORMATTED), requests=both), POLICY)
    assert [answer.accepted for answer in decision.answers] == [True, True]
    assert (decision.state.phase, decision.state.paused) == (Phase.FLUSHING, False)


def test_a_broken_rule_stops_the_agent_and_a_request_that_came_with_it_is_answered() -> None:
    sim = simulated()
    in_phase(sim, Phase.BOOSTING)

    def broken(*_: object) -> Decision:
        raise InvariantError("this must never happen")

    present(sim.agent).decide = broken
    answers = sim.request(RequestKind.FLUSH)
    sim.run_for(2)
    present(sim.agent).decide = decide
    sim.run_for(60)
    assert [(answer.accepted, answer.code) for answer in answers] == [(False, "agent.faulted")]
    assert (sim.phase, sim.state.is_stopped, sim.world.volumes_left()) == (Phase.FAULTED, True, 1)
    assert present(sim.state.fault).kind is FaultKind.RULE_BROKEN
    sim.ask(RequestKind.RESUME)
    assert_at_rest(sim)


@pytest.mark.parametrize("tag", VolumeTag)
def test_what_nobody_remembers_is_released_only_where_it_is_tagged_clean(tag: VolumeTag) -> None:
    owned = (volume(tag=tag),)
    assert state(Phase.IDLE, owned=owned).orphans == (owned if tag is VolumeTag.CLEAN else ())


@pytest.mark.parametrize("tag", VolumeTag)
def test_what_nobody_remembers_keeps_boosts_from_beginning_unless_it_is_tagged_clean(tag: VolumeTag) -> None:
    before = state(Phase.IDLE, owned=(volume(VolumeState.AVAILABLE, tag=tag),))
    after = decide(before, seen(host(backing())), POLICY).state
    assert (after.phase, after.fault and after.fault.kind) == (
        (Phase.DETACHING, None) if tag is VolumeTag.CLEAN else (Phase.FAULTED, FaultKind.MAY_LACK_DATA)
    )


@pytest.mark.parametrize(
    "before",
    [
        state(Phase.IDLE, given_up=(VOLUME_ID,)),
        state(Phase.BOOSTING, cycle(times=BOOSTED)),
        state(Phase.FLUSHING, cycle(times=BOOSTED)),
    ],
    ids=["given up", "boosting", "flushing"],
)
def test_what_is_dirty_and_known_endangers_nothing(before: AgentState) -> None:
    before = replace(before, owned=(volume(tag=VolumeTag.DIRTY),))
    view = host(backing()) if before.cycle is None else host(cached(), FORMATTED)
    assert decide(before, seen(view), POLICY).state.fault is None


def test_what_is_clean_is_released_before_the_agent_stops_for_what_is_not() -> None:
    there = (volume(VolumeState.AVAILABLE, id="vol-2"), volume(VolumeState.AVAILABLE, tag=VolumeTag.DIRTY))
    after = decide(state(Phase.IDLE, owned=there), seen(host(backing())), POLICY).state
    assert (after.phase, after.cycle and after.cycle.volume_id) == (Phase.DETACHING, "vol-2")


def test_the_reference_page_shows_the_table() -> None:
    assert PAGE.read_text() == page(), f"write it again: python {state_machine_page.__file__}"
