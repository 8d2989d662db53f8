"""When a cap ends a boost: the bill at the end of a release, and nothing else, decides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elastio.core.boosting import cycle_view, situation_of
from elastio.core.cycle import Cycle, Timestamps
from elastio.core.model import Quote, VolumeSpec
from elastio.core.policy import Policy
from elastio.core.state import (
    AgentState,
    Observation,
    Phase,
)
from elastio.strategy.caps import (
    MARGIN,
    SHARED,
    SLACK_S,
    UNKNOWN,
    UNKNOWN_S,
    least_s,
    quote_refusal,
    reached,
    refusal,
    release_s,
    spending_refusal,
    standing,
    with_release_time,
)
from elastio.strategy.credits import CreditBalance, CreditBucket
from elastio.strategy.memory import Capped, Memory
from elastio.strategy.spending import Caps, Others, Period, Spend, Spent
from elastio.units import GIB, MB, agbs
from tests.values import NOW, POLICY, WALL, ask, cycle, seen, state

# A currency unit a second, and a least billed time of a minute.
QUOTE = Quote(VolumeSpec(10 * GIB, 80), "USD", 3600.0, 60.0, "a list")
TODAY = Period(WALL - 50_000, WALL + 30_000)
MONTH = Period(WALL - 500_000, WALL + 300_000)
RELEASE_S = MARGIN * 10 + SLACK_S
LATER = 100.0  # beyond the least billed time


def attached(**changes: object) -> Cycle:
    """A cache without dirty data, bought LATER seconds ago."""
    times = Timestamps(decided=NOW - LATER - 1, created=NOW - LATER)
    plain = cycle(quote=QUOTE, opened_wall=WALL - LATER, started_at=NOW - LATER - 1, started_wall=WALL - LATER - 1)
    return replace(plain, times=times, **changes)  # type: ignore[arg-type]


def running(of: Cycle | None = None, **changes: object) -> AgentState:
    return state(Phase.BOOSTING, of or attached(), **{"release_s": (10.0,), **changes})


def observed(spend: Spend | None = None, **changes: object) -> Observation:
    """The ledger was read just now."""
    known = replace(spend or Spend(), day=TODAY, this_month=MONTH)
    return replace(seen(), spend=known, spend_at=NOW, **changes)  # type: ignore[arg-type]


def refused(of: AgentState, obs: Observation, policy: Policy) -> str:
    return refusal(GIB, of.memory, situation_of(of, obs, policy), policy)


def under(**caps: object) -> Policy:
    return replace(POLICY, caps=Caps(**caps))  # type: ignore[arg-type]


# --- money -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["max_cost_per_day", "max_cost_per_month"])
@pytest.mark.parametrize(("most", "ends"), [(LATER + RELEASE_S - 0.1, True), (LATER + RELEASE_S + 0.1, False)])
def test_a_cost_counts_up_to_the_end_of_the_release(key: str, most: float, *, ends: bool) -> None:
    spent = Spend(currency=LATER, month=Spent(currency=LATER))
    found = ask(reached, running(), observed(spent), under(**{key: most}))
    assert (found is not None) is ends
    assert found is None or (found.key, found.most) == (f"caps.{key}", most)


def test_the_bill_runs_on_from_when_the_ledger_was_read() -> None:
    policy = under(max_cost_per_day=LATER + RELEASE_S + 30)
    obs = observed(Spend(currency=LATER - 40))
    assert ask(reached, running(), obs, policy) is None
    assert ask(reached, running(), replace(obs, spend_at=NOW - 40), policy) is None
    assert ask(reached, running(), replace(obs, spend=replace(obs.spend, currency=LATER), spend_at=NOW - 40), policy)


def test_a_ledger_that_lacks_the_running_cache_does_not_hide_its_bill() -> None:
    assert ask(reached, running(), observed(Spend()), under(max_cost_per_day=LATER + RELEASE_S - 1))
    assert ask(reached, running(), observed(Spend()), under(max_cost_per_day=LATER + RELEASE_S + 1)) is None


def test_within_the_least_billed_time_a_boost_goes_on_because_its_end_saves_nothing() -> None:
    policy = under(max_cost_per_day=30.0)
    young = attached()
    early = replace(young, opened_wall=WALL - 60 + RELEASE_S + 1)
    late = replace(young, opened_wall=WALL - 60 + RELEASE_S - 1)
    assert ask(reached, running(early), observed(Spend(currency=60.0)), policy) is None
    assert ask(reached, running(late), observed(Spend(currency=60.0)), policy) is not None


@pytest.mark.parametrize("quote", [None, replace(QUOTE, price_known=False)])
def test_a_cap_on_cost_ends_a_boost_whose_price_is_not_known(quote: Quote | None) -> None:
    found = ask(reached, running(attached(quote=quote)), observed(), under(max_cost_per_day=1e9))
    assert found is not None
    assert not found.has_price
    assert ask(reached, running(attached(quote=quote)), observed(), under(max_agbs_per_day=1e9)) is None


# --- AGBs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["max_agbs_per_day", "max_agbs_per_month"])
def test_agbs_count_up_to_the_end_of_the_release_and_have_no_least_time(key: str) -> None:
    per_s = agbs(80, 10 * GIB, 1.0)
    young = attached(opened_wall=WALL - 10)
    spent = Spend(agbs=per_s * 10, month=Spent(agbs=per_s * 10))
    assert ask(reached, running(young), observed(spent), under(**{key: per_s * (RELEASE_S + 9)}))
    assert ask(reached, running(young), observed(spent), under(**{key: per_s * (RELEASE_S + 11)})) is None


# --- the period ------------------------------------------------------------------------------------------------


def test_what_is_billed_after_midnight_counts_for_the_next_day() -> None:
    soon = replace(observed(Spend(currency=LATER)).spend, day=Period(TODAY.since_wall, WALL + 5))
    obs = replace(observed(), spend=soon)
    assert ask(reached, running(), obs, under(max_cost_per_day=LATER + 6)) is None
    assert ask(reached, running(), obs, under(max_cost_per_day=LATER + 4)) is not None


def test_what_was_billed_yesterday_does_not_count_for_today() -> None:
    today = replace(observed().spend, currency=20.0, day=Period(WALL - 20, WALL + 80_000))
    obs = replace(observed(), spend=today)
    assert ask(reached, running(), obs, under(max_cost_per_day=20 + RELEASE_S + 1)) is None
    assert ask(reached, running(), obs, under(max_cost_per_day=20 + RELEASE_S - 1)) is not None


# --- what ends no boost ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("caps", [{}, {"max_boosts_per_day": 0}, {"max_cost_per_day": 0.0, "ends_boosts": False}])
def test_no_cap_no_end(caps: dict[str, object]) -> None:
    assert ask(reached, running(), observed(Spend(boosts=9, currency=1e9)), under(**caps)) is None


@pytest.mark.parametrize(
    ("others", "ends"),
    [
        (Others(), False),
        (Others(trouble="read-only"), True),
        (Others(trouble="read-only", granted_until_wall=4e9), False),
    ],
)
def test_a_bill_that_others_do_not_know_ends_where_it_cannot_be_stated(others: Others, *, ends: bool) -> None:
    found = ask(reached, running(), observed(Spend(others=others)), under(max_agbs_per_day=1e12, shared=True))
    assert (found is not None and found.key == SHARED) is ends


@pytest.mark.parametrize(("full", "key"), [("caps.max_cost_per_month", "caps.max_cost_per_month"), ("", SHARED)])
def test_a_shared_cap_without_room_ends_a_boost_and_is_remembered_and_trouble_is_not(full: str, key: str) -> None:
    policy = under(max_cost_per_month=1e12, shared=True)
    obs = observed(Spend(others=Others(granted_until_wall=WALL, full=full)))
    found = ask(reached, running(), obs, policy)
    assert found is not None
    assert found.key == key
    assert bool(standing(Memory(capped=found), WALL, policy)) is bool(full)


@pytest.mark.parametrize(("read_ago_s", "ends"), [(UNKNOWN_S, False), (UNKNOWN_S + 0.1, True)])
def test_a_boost_goes_on_for_some_minutes_without_the_ledger(read_ago_s: float, *, ends: bool) -> None:
    obs = replace(observed(Spend(known=False)), spend_at=NOW - read_ago_s)
    found = ask(reached, running(), obs, under(max_agbs_per_day=1e12))
    assert (found is not None and found.key == UNKNOWN) is ends


def test_what_was_not_bought_yet_costs_nothing() -> None:
    assert ask(reached, running(attached(opened_wall=None)), observed(), under(max_cost_per_day=0.0)) is None


# --- how long a release takes ----------------------------------------------------------------------------------


def test_a_flush_is_predicted_as_if_applications_wrote_at_their_limit() -> None:
    of = attached(dirty_bytes=1000 * MB)
    dirty = cycle_view(replace(of, times=replace(of.times, boosted=NOW - 50)))
    unseen = POLICY.cache_bandwidth_mb_s
    flush_s = (1000 + unseen) / (POLICY.backing_bandwidth_mb_s / 2)
    more_s = release_s(Memory(), dirty, POLICY) - release_s(Memory(), cycle_view(attached()), POLICY)
    assert more_s == pytest.approx(MARGIN * flush_s)


def test_the_longest_of_the_last_releases_is_expected_and_before_the_first_the_setting() -> None:
    assert release_s(Memory(), cycle_view(attached()), POLICY) == pytest.approx(MARGIN * POLICY.release_s + SLACK_S)
    measured = Memory(release_s=(5.0, 12.0, 7.0))
    assert release_s(measured, cycle_view(attached()), POLICY) == pytest.approx(MARGIN * 12 + SLACK_S)


def test_a_release_is_measured_from_the_clean_cache_to_the_deletion() -> None:
    times = Timestamps(clean=NOW - 9, deleted=NOW - 2)
    assert with_release_time(Memory(), cycle_view(cycle(times=times))).release_s[-1] == 7.0
    assert with_release_time(Memory(), cycle_view(cycle(times=Timestamps(deleted=NOW)))).release_s == ()


def test_a_boost_must_leave_time_for_a_release_as_long_as_the_last_ones() -> None:
    """What a boost needs at the least is measured: a slow detach is not forgotten at the next purchase."""
    slow, quick = state(Phase.IDLE, release_s=(300.0,)), state(Phase.IDLE, release_s=(5.0,))
    policy = under(max_agbs_per_day=agbs(80, GIB, 200.0))
    assert least_s(slow.memory, policy) - least_s(quick.memory, policy) == pytest.approx(MARGIN * 295)
    assert refused(slow, observed(), policy) != ""
    assert refused(quick, observed(), policy) == ""


# --- afterwards ------------------------------------------------------------------------------------------------

CAPPED = Capped("caps.max_cost_per_day", 5.0, TODAY)


@pytest.mark.parametrize(
    ("wall", "caps", "stands"),
    [
        (WALL, {"max_cost_per_day": 5.0}, True),
        (TODAY.until_wall, {"max_cost_per_day": 5.0}, False),
        (TODAY.since_wall - 1, {"max_cost_per_day": 5.0}, False),  # the clock was set back
        (WALL, {"max_cost_per_day": 6.0}, False),
        (WALL, {"max_cost_per_month": 5.0}, False),
    ],
)
def test_no_boost_begins_until_the_day_is_over_or_the_cap_is_changed(
    wall: float, caps: dict[str, object], *, stands: bool
) -> None:
    idle = state(Phase.IDLE, capped=CAPPED)
    assert bool(standing(idle.memory, wall, under(**caps))) is stands
    assert bool(refused(idle, observed(wall=wall), under(**caps))) is stands


def test_a_flush_that_uses_up_the_credits_is_counted_at_the_base_rate() -> None:
    times = Timestamps(decided=NOW - LATER - 1, created=NOW - LATER, boosted=NOW - LATER)
    dirty = cycle_view(replace(attached(), dirty_bytes=4 * GIB, times=times))
    cold = replace(POLICY, backing_credits=CreditBucket(2.0, 20.0, 100 * GIB))
    known = Memory(release_s=(10.0,))
    rich, poor = (
        release_s(replace(known, credits=CreditBalance(balance, NOW)), dirty, cold) for balance in (90.0 * GIB, 0.0)
    )
    assert rich == pytest.approx(release_s(known, dirty, POLICY))
    assert poor - rich == pytest.approx((rich - RELEASE_S) * 9)


# --- before a purchase -----------------------------------------------------------------------------------


def test_nothing_is_refused_without_a_reason() -> None:
    assert spending_refusal(GIB, Spend(1000, 1e9, 1e9), POLICY) == ""


@pytest.mark.parametrize(
    ("caps", "spend", "words"),
    [
        (Caps(max_size_bytes=GIB), Spend(), "cache.max_size_gib"),
        (Caps(max_boosts_per_day=2), Spend(boosts=2), "caps.max_boosts_per_day"),
        (Caps(max_agbs_per_day=1000), Spend(), "caps.max_agbs_per_day"),
        (Caps(max_cost_per_day=1.0), Spend(currency=1.0), "caps.max_cost_per_day"),
        (Caps(max_boosts_per_month=2), Spend(month=Spent(boosts=2)), "caps.max_boosts_per_month"),
        (Caps(max_agbs_per_month=1000), Spend(), "caps.max_agbs_per_month"),
        (Caps(max_cost_per_month=1.0), Spend(month=Spent(currency=1.0)), "caps.max_cost_per_month"),
    ],
)
def test_a_cap_that_is_reached_is_named(caps: Caps, spend: Spend, words: str) -> None:
    assert words in spending_refusal(2 * GIB, spend, replace(POLICY, caps=caps))


@pytest.mark.parametrize(("step_s", "code"), [(0.0, ""), (3600.0, "caps.max_cost")])
def test_the_first_step_of_the_cloud_must_fit_below_the_cap(step_s: float, code: str) -> None:
    quote = Quote(VolumeSpec(GIB, 80.0), "USD", 3.6, 60.0, "a list", step_s=step_s)
    found, _ = quote_refusal(quote, needs_price=True, most_cost=1.0, least_s=600.0, max_size_bytes=GIB)
    assert found == code


@pytest.mark.parametrize("caps", [Caps(max_boosts_per_day=2), Caps(max_cost_per_day=1.0)])
def test_what_was_spent_earlier_in_the_month_does_not_count_for_the_day(caps: Caps) -> None:
    assert spending_refusal(GIB, Spend(month=Spent(boosts=9, currency=9.0)), replace(POLICY, caps=caps)) == ""


@pytest.mark.parametrize("key", ["boosts", "agbs", "cost"])
@pytest.mark.parametrize("period", ["day", "month"])
def test_with_a_cap_nothing_is_bought_while_the_spending_is_unknown(key: str, period: str) -> None:
    limit: dict[str, Any] = {f"max_{key}_per_{period}": 10**9}
    caps = Caps(**limit)
    assert spending_refusal(GIB, Spend(known=False), replace(POLICY, caps=caps)) != ""
    assert caps.needs_price is (key == "cost")


def test_a_boost_must_fit_into_the_rest_of_the_day_at_its_shortest() -> None:
    least = agbs(80, GIB, POLICY.least_boost_s)
    policy = replace(POLICY, caps=Caps(max_agbs_per_day=1000 + least))
    assert spending_refusal(GIB, Spend(agbs=1000), policy) == ""
    assert spending_refusal(GIB, Spend(agbs=1001), policy) != ""
