"""When an attached cache is released for lack of load."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elastio.billing import RELEASE_IN_STEPS_S, RELEASE_S
from elastio.core.boosting import situation_of
from elastio.core.cycle import CacheUse, Cycle, Timestamps, Trigger
from elastio.core.detection import Event, in_boosting
from elastio.core.machine import decide
from elastio.core.model import BackingView, CacheState, Quote, RequestKind, VolumeSpec
from elastio.core.policy import Policy
from elastio.core.state import AgentState, Inhibition, InhibitionReason, Observation, Phase
from elastio.strategy import holding
from elastio.strategy.memory import Choice, LoadWatch
from elastio.strategy.review import release
from elastio.strategy.situation import Wish
from elastio.strategy.spending import Caps, Spend, Spent
from elastio.strategy.worth import Advice, OwnedCache
from elastio.units import GIB, MB
from tests.simulated import by_money
from tests.values import FORMATTED, NOW, POLICY, WALL, ask, asked, cached, changed, cycle, host, present, seen, state

MONEY = by_money(POLICY)
CHOICE = Choice(80.0, 0.0, holding_s=100.0, quiet_s=2.0, minimum_s=60.0, reason="because")
CLEAN = cached(state=CacheState.CLEAN, dirty_bytes=0, flush_full_speed=False)
QUOTE = Quote(VolumeSpec(10 * GIB, 80), "USD", 3.6, 60.0, "list")


def held(
    choice: Choice | None = CHOICE, *, age_s: float = 300.0, clean_s: float | None = 50.0, **changes: object
) -> AgentState:
    """A boost of this age whose cache has been clean and unused for `clean_s`."""
    of = cycle(
        times=Timestamps(decided=NOW - age_s, created=NOW - age_s, boosted=NOW - age_s + 5),
        started_at=NOW - age_s,
        started_wall=WALL - age_s,
        opened_wall=WALL - age_s,
        quote=QUOTE,
        choice=choice,
        **{name: changes.pop(name) for name in tuple(changes) if name in {*Cycle.__slots__, *CacheUse.__slots__}},
    )
    clean_since = None if clean_s is None else NOW - clean_s
    return state(Phase.BOOSTING, of, **{"clean_since": clean_since, "moved_bytes": GIB, **changes})


def boosting(of: AgentState, quiet_s: float | None = 60.0, **changes: object) -> AgentState:
    load = LoadWatch(above_since=NOW - 5) if quiet_s is None else LoadWatch(below_since=NOW - quiet_s)
    return changed(of, **{"load": load, **changes})


def shown(view: BackingView = CLEAN, **changes: object) -> Observation:
    return seen(host(view, FORMATTED), **changes)


def why(before: AgentState, obs: Observation | None = None, policy: Policy = MONEY) -> str:
    at = situation_of(before, obs or shown(), policy)
    return holding.why_over(before.memory, present(at.cycle), at, policy)


def test_a_clean_cache_is_held_for_as_long_as_it_is_worth_and_no_longer() -> None:
    assert not why(boosting(held(clean_s=99)))
    assert why(boosting(held(clean_s=101), quiet_s=120))


def test_a_clean_cache_is_never_released_within_its_paid_time() -> None:
    free = replace(CHOICE, holding_s=0.0)
    end = 60 - RELEASE_S
    assert not why(boosting(held(free, age_s=end - 1, clean_s=20), quiet_s=20))
    assert why(boosting(held(free, age_s=end + 1, clean_s=20), quiet_s=20))


def test_a_begun_hour_is_used_up_and_the_next_one_never_begun_for_nothing() -> None:
    by_hour = replace(CHOICE, holding_s=1000.0, minimum_s=3600.0, step_s=3600.0)
    end = 3600 - RELEASE_IN_STEPS_S
    assert not why(boosting(held(by_hour, age_s=end - 1, clean_s=3000), quiet_s=3010))
    assert why(boosting(held(by_hour, age_s=end + 1, clean_s=3000), quiet_s=3010)), "1000 s do not pay for an hour"


def test_dirty_data_is_flushed_before_the_time_begins() -> None:
    old = held(age_s=600, clean_s=None, peak_dirty_bytes=4 * GIB)
    assert not why(boosting(old, quiet_s=120), shown(cached(dirty_bytes=2 * GIB)))


def test_a_trickle_that_never_lets_the_cache_become_clean_does_not_hold_it_for_ever() -> None:
    for_ever = held(age_s=5000, clean_s=None, peak_dirty_bytes=2000 * MB)
    flushed_twice_s = 2 * 2000 / POLICY.backing_bandwidth_mb_s
    dirty = shown(cached(dirty_bytes=100 * MB))
    assert not why(boosting(for_ever, quiet_s=flushed_twice_s + 90), dirty)
    assert why(boosting(for_ever, quiet_s=flushed_twice_s + 110), dirty)


def test_a_load_is_never_ended() -> None:
    assert not why(boosting(held(age_s=90_000, clean_s=None), quiet_s=None))


def test_by_agbs_the_inactivity_delay_decides() -> None:
    delay_s = POLICY.inactivity_delay_s
    assert not why(boosting(held(None), quiet_s=delay_s - 1), policy=POLICY)
    assert why(boosting(held(None), quiet_s=delay_s + 1), policy=POLICY)


def test_an_expected_burst_is_waited_for_and_one_that_did_not_come_is_not_held_for() -> None:
    awaited = held(age_s=400, clean_s=300, trigger=Trigger.FORECAST, moved_bytes=0, chance_until=NOW + 10)
    assert not why(boosting(awaited, quiet_s=390))
    missed = changed(awaited, chance_until=NOW - 1)
    assert why(boosting(missed, quiet_s=390))
    assert why(boosting(changed(missed, clean_since=NOW - 1), quiet_s=390)), "no second more than is paid for"


@pytest.mark.parametrize(
    ("caps", "spend", "is_over"),
    [
        (Caps(max_cost_per_day=1.0), Spend(currency=0.5), False),
        (Caps(max_cost_per_day=1.0), Spend(currency=0.95), True),
        (Caps(max_cost_per_month=1.0), Spend(month=Spent(currency=0.95)), True),
        (Caps(max_agbs_per_day=1e9), Spend(agbs=0.5e9), False),
        (Caps(max_agbs_per_day=1e9), Spend(agbs=1e9), True),
        (Caps(max_agbs_per_month=1e9), Spend(month=Spent(agbs=1e9)), True),
        (Caps(max_boosts_per_day=1), Spend(boosts=1), False),
        (Caps(max_boosts_per_day=1), Spend(known=False), True),
        (Caps(), Spend(known=False), False),
    ],
)
def test_a_cap_that_the_bill_would_pass_until_the_release_ends_a_hold(caps: Caps, spend: Spend, is_over: bool) -> None:
    # An hour costs 3.60 USD: a minute 0.06.
    assert bool(why(boosting(held()), shown(spend=spend), replace(MONEY, caps=caps))) is is_over


def test_a_cap_does_not_end_a_boost_before_its_load_had_time_to_come() -> None:
    policy, spent = replace(MONEY, caps=Caps(max_cost_per_day=1.0)), shown(spend=Spend(currency=2.0))
    just_attached = held(replace(CHOICE, quiet_s=30.0), age_s=20, clean_s=None, trigger=Trigger.OPERATOR)
    assert not why(boosting(just_attached, quiet_s=500), spent, policy)
    assert not why(boosting(held(clean_s=None), quiet_s=1), spent, policy)


def test_a_cap_does_not_end_a_load() -> None:
    policy = replace(MONEY, caps=Caps(max_cost_per_day=1.0))
    assert not why(boosting(held(clean_s=None), quiet_s=None), shown(spend=Spend(currency=2.0)), policy)


def test_a_cap_that_ends_no_boosts_does_not_end_the_wait_for_an_expected_burst() -> None:
    policy = replace(MONEY, caps=Caps(max_cost_per_day=1.0, ends_boosts=False))
    awaited = held(age_s=400, clean_s=300, trigger=Trigger.FORECAST, moved_bytes=0, chance_until=NOW + 10)
    spent = shown(spend=Spend(currency=2.0))
    assert not why(boosting(awaited, quiet_s=390), spent, policy)


@pytest.mark.parametrize("ends_boosts", [True, False])
def test_a_cap_ends_a_hold_whether_or_not_it_ends_boosts(ends_boosts: bool) -> None:
    policy = replace(MONEY, caps=Caps(max_cost_per_day=1.0, ends_boosts=ends_boosts))
    before, obs = boosting(held()), shown(spend=Spend(currency=2.0))
    event = Event.CAP_REACHED if ends_boosts else Event.WENT_QUIET
    assert present(in_boosting(before, obs, Wish(policy, ask(release, before, obs, policy)))).event is event


# --- what the past teaches about the owned cache ---------------------------------------------------------


def taught(**changes: Any) -> Observation:
    known = replace(OwnedCache("token", 500.0, CHOICE.drain_mb_s), **changes)
    return shown(advice=Advice(5, 2000.0, owned=known))


def test_an_outdated_cache_is_held_for_its_paid_time_and_no_longer() -> None:
    assert why(boosting(held()), taught(is_outdated=True))
    by_hour = replace(CHOICE, minimum_s=3600.0, step_s=3600.0)
    assert not why(boosting(held(by_hour)), taught(is_outdated=True))


@pytest.mark.parametrize(("age_s", "is_over"), [(3530, False), (3550, True), (3595, False), (3650, False)])
def test_what_becomes_clean_shortly_before_its_hour_ends_is_released_at_once(age_s: float, is_over: bool) -> None:
    by_hour = replace(CHOICE, minimum_s=3600.0, step_s=3600.0, holding_s=0.0)
    assert bool(why(boosting(held(by_hour, age_s=age_s, clean_s=5)), taught())) is is_over


def test_a_cache_that_hinders_goes_at_once_but_never_under_a_load() -> None:
    by_hour = replace(CHOICE, minimum_s=3600.0, step_s=3600.0)
    hinders = taught(is_outdated=True, is_hindrance=True)
    assert why(boosting(held(by_hour)), hinders)
    assert not why(boosting(held(by_hour, clean_s=None), quiet_s=1), hinders)
    assert not why(boosting(held(by_hour, clean_s=None), quiet_s=None), hinders)


def test_the_flush_of_a_cache_that_hinders_is_carried_out_whatever_the_load() -> None:
    for known, is_forced in ((taught(is_hindrance=True), True), (taught(is_outdated=True), False)):
        after = decide(boosting(held()), known, MONEY).state
        assert (after.phase, present(after.cycle).forced) == (Phase.FLUSHING, is_forced)


def test_what_is_known_of_another_cycle_says_nothing() -> None:
    assert not why(boosting(held()), taught(token="other", is_outdated=True, is_hindrance=True))


def test_the_time_of_a_hold_is_what_is_known_when_it_begins() -> None:
    begun = present(decide(boosting(held(clean_s=None), quiet_s=3), taught(), MONEY).state.cycle)
    assert present(begun.choice).holding_s == 500.0
    outdated = present(decide(boosting(held(clean_s=None), quiet_s=3), taught(is_outdated=True), MONEY).state.cycle)
    assert present(outdated.choice).holding_s == 0.0


def test_the_bandwidth_of_an_owned_cache_is_split_anew_when_it_is_unused() -> None:
    bought = CHOICE.cache_mb_s + CHOICE.drain_mb_s
    known = taught(drain_mb_s=20.0)
    split = present(present(decide(boosting(held(clean_s=None), quiet_s=3), known, MONEY).state.cycle).choice)
    assert (split.cache_mb_s, split.drain_mb_s) == (bought - 20.0, 20.0)
    busy = present(present(decide(boosting(held(clean_s=None), quiet_s=None), known, MONEY).state.cycle).choice)
    assert (busy.cache_mb_s, busy.drain_mb_s) == (CHOICE.cache_mb_s, CHOICE.drain_mb_s)


# --- bought ahead of a burst that does not come ----------------------------------------------------------


@pytest.mark.parametrize("trigger", [Trigger.ANNOUNCED, Trigger.FORECAST])
@pytest.mark.parametrize(
    ("age_s", "chance_s", "is_over"),
    [
        (300, 1, False),  # the burst may still come
        (300, -1, True),  # its time is over, and the paid minute is used up
        (30, -1, False),  # the minute is paid anyway
        (60 - RELEASE_S + 1, -1, True),
    ],
)
def test_a_cache_bought_in_vain_goes_when_its_chance_is_over_and_its_paid_time_used_up(
    age_s: float, chance_s: float, is_over: bool, trigger: Trigger
) -> None:
    late = held(CHOICE, age_s=age_s, clean_s=age_s - 10, trigger=trigger, chance_until=NOW + chance_s, moved_bytes=MB)
    assert bool(why(boosting(late, quiet_s=500))) is is_over


def test_it_goes_at_once_although_it_was_attached_a_moment_ago() -> None:
    slow = replace(CHOICE, quiet_s=30.0, minimum_s=0.0)
    late = held(slow, age_s=20, clean_s=None, trigger=Trigger.FORECAST, chance_until=NOW - 1)
    assert why(boosting(late, quiet_s=500))


def test_a_load_that_came_is_held_for_as_any_other_is() -> None:
    came = held(trigger=Trigger.FORECAST, chance_until=NOW - 1, longest_s=12.0)
    assert not why(boosting(came))
    assert not why(boosting(changed(came, chance_until=None, longest_s=0.0)))


# --- in the machine --------------------------------------------------------------------------------------


def test_the_begin_of_a_hold_is_a_decision_that_the_journal_keeps() -> None:
    begun = decide(boosting(held(clean_s=None), quiet_s=3), shown(), MONEY)
    assert begun.state.memory.boost.clean_since == NOW
    assert begun.reason
    assert not decide(begun.state, shown(), MONEY).reason, "once for each pause"


def test_a_load_that_returns_ends_the_count() -> None:
    back = decide(boosting(held(), quiet_s=None), shown(), MONEY)
    assert back.state.phase is Phase.BOOSTING
    assert back.state.memory.boost.clean_since is None


def test_a_restart_goes_on_with_the_hold_although_no_sample_has_shown_the_load() -> None:
    unknown = changed(held(), load=LoadWatch())
    after = decide(unknown, shown(), MONEY)
    assert after.state.phase is Phase.BOOSTING
    assert after.state.memory.boost.clean_since == NOW - 50


def test_by_agbs_nothing_is_noted() -> None:
    before = boosting(held(None, clean_s=None), quiet_s=3)
    assert ask(holding.noted, before, shown()) == (before.memory, None, "")


@pytest.mark.parametrize("kind", [RequestKind.FLUSH, RequestKind.PAUSE])
def test_an_operator_ends_a_hold_at_once(kind: RequestKind) -> None:
    assert decide(boosting(held()), shown(requests=asked(kind)), MONEY).state.phase is Phase.FLUSHING


def test_an_inhibition_ends_a_hold_at_once() -> None:
    inhibited = boosting(held(), inhibition=Inhibition(InhibitionReason.SHUTDOWN, NOW + 300))
    assert decide(inhibited, shown(), MONEY).state.phase is Phase.FLUSHING


def test_a_cache_that_is_lost_while_it_is_held_is_a_fault() -> None:
    lost = host(cached(cache_set=None, state=CacheState.DIRTY, running=False))
    assert decide(boosting(held()), seen(lost), MONEY).state.phase is Phase.FAULTED
