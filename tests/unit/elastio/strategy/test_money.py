"""What is bought by money, and when it is declined."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from elastio.core import detection
from elastio.core.boosting import situation_of
from elastio.core.cycle import Cycle, Trigger
from elastio.core.detection import Detection, Event
from elastio.core.machine import decide
from elastio.core.model import Forecast, Rates, RequestKind
from elastio.core.policy import Policy
from elastio.core.state import AgentState, Observation, Phase
from elastio.strategy import ahead, money
from elastio.strategy.hindsight import PastLoad, first_plan
from elastio.strategy.memory import LoadWatch, Unended, UselessBoost, Waste
from elastio.strategy.review import review
from elastio.strategy.spending import Caps, Spend
from elastio.strategy.waste import FREE
from elastio.strategy.worth import Advice, late_per_s
from elastio.units import GIB, MB
from tests.simulated import MARKET, best_plan, by_money
from tests.values import (
    BOOSTED,
    FORMATTED,
    HIGH,
    NOW,
    POLICY,
    WALL,
    asked,
    backing,
    busy_sample,
    cached,
    changed,
    host,
    present,
    seen,
    state,
)
from tests.values import cycle as values_cycle

MONEY = by_money(POLICY)
DEAR = by_money(POLICY, replace(MARKET, waiting_per_s=1e-9))
PAST = (PastLoad(2000.0, math.inf, 300.0),) * 5
LATE_S = 7.0
WAITING = replace(HIGH, peak=1.0)
DEARLY_AWAITED = replace(MARKET, waiting_per_s=1e-3)


def advice(policy: Policy = MONEY, past: tuple[PastLoad, ...] = PAST) -> Advice:
    market = present(policy.market)
    plan = best_plan(money.terms_of(market, policy, LATE_S), market.offer, past, money.bounds_of(market, policy))
    return Advice(len(past), max(load.written_mb for load in past), plan, pays=True)


def idle(load: LoadWatch = WAITING) -> AgentState:
    return state(Phase.IDLE, load=load)


def loaded(known: Advice | None = None, **changes: object) -> Observation:
    return seen(host(backing()), sample=busy_sample(), advice=known, **changes)


def wanted(policy: Policy, obs: Observation, before: AgentState | None = None) -> Detection | None:
    of = before or idle()
    _, wish = review(of.memory, replace(situation_of(of, replace(obs, sample=None), policy), may_buy=True))
    return detection.wanted(wish)


def test_without_a_known_burst_the_settings_are_bought_and_kept_for_what_is_paid() -> None:
    plan = present(present(wanted(MONEY, loaded())).plan)
    choice = present(plan.choice)
    assert plan.spec.size_bytes == POLICY.initial_size_bytes
    assert (choice.cache_mb_s, choice.drain_mb_s) == (POLICY.cache_bandwidth_mb_s, POLICY.drain_bandwidth_mb_s)
    assert (choice.minimum_s, choice.quiet_s) == (60.0, POLICY.inactivity_delay_s)
    assert choice.holding_s == 0.0


def test_by_agbs_nothing_is_chosen_whatever_is_known() -> None:
    plan = present(present(wanted(POLICY, loaded(advice()))).plan)
    assert plan.choice is None
    assert plan.spec.size_bytes == POLICY.initial_size_bytes


def test_the_plan_that_was_cheapest_for_the_past_is_bought_and_recorded() -> None:
    best = present(advice().plan)
    decision = decide(idle(), loaded(advice()), MONEY)
    cycle = present(decision.state.cycle)
    choice = present(cycle.choice)
    assert decision.state.phase is Phase.ATTACHING
    assert cycle.spec.size_bytes == best.spec.size_bytes
    assert cycle.spec.bandwidth_mb_s == pytest.approx(best.spec.bandwidth_mb_s)
    assert (choice.cache_mb_s, choice.drain_mb_s) == (cycle.spec.bandwidth_mb_s - best.drain_mb_s, best.drain_mb_s)
    assert choice.reason in decision.reason


def test_a_plan_stays_within_the_settings_and_the_instance() -> None:
    market = present(MONEY.market)
    limited = replace(market, bounds=replace(market.bounds, instance_mb_s=60.0))
    small = replace(market, offer=replace(market.offer, most_bytes=GIB))
    assert present(advice(by_money(POLICY, limited)).plan).spec.bandwidth_mb_s <= 60
    assert present(advice(by_money(POLICY, small)).plan).spec.size_bytes == GIB
    slower = replace(MONEY, cache_bandwidth_mb_s=50.0)
    assert present(advice(slower).plan).spec.bandwidth_mb_s <= 50


def test_a_plan_that_waits_before_it_buys_is_waited_for() -> None:
    known = advice()
    late = replace(known, plan=replace(present(known.plan), delay_s=30.0))
    early = idle(load=LoadWatch(above_since=NOW - 20, utilization=1.0))
    after = idle(load=LoadWatch(above_since=NOW - 30, utilization=1.0))
    assert wanted(MONEY, loaded(late), early) is None
    assert present(wanted(MONEY, loaded(late), after)).event is Event.BOOST_WANTED


def test_before_any_burst_the_first_guess_is_bought() -> None:
    terms, bounds = money.terms_of(DEARLY_AWAITED, MONEY, LATE_S), money.bounds_of(DEARLY_AWAITED, MONEY)
    guess = present(first_plan(terms, DEARLY_AWAITED.offer, bounds))
    none_known = present(money.unadvised(DEARLY_AWAITED, MONEY, LATE_S))
    assert (none_known.bursts, none_known.plan) == (0, guess)
    found = present(wanted(by_money(POLICY, DEARLY_AWAITED), loaded(none_known)))
    assert present(found.plan).spec.size_bytes == guess.spec.size_bytes
    assert present(wanted(DEAR, loaded(money.unadvised(present(DEAR.market), DEAR, LATE_S)))).event is (
        Event.BOOST_DECLINED
    )


def test_the_cutoff_that_the_kernel_showed_decides_how_much_room_a_size_has() -> None:
    """By default 40 % of a cache can be dirty; the kernel shows 80 %."""
    burst = Forecast(NOW + 5, 2000 * MB, 1.0)
    before = state(Phase.IDLE, awaited=replace(burst, is_announced=True))
    supposed = present(present(wanted(MONEY, loaded(), before)).plan)
    measured = present(present(wanted(MONEY, loaded(), changed(before, cutoff_percent=80))).plan)
    assert measured.spec.size_bytes <= supposed.spec.size_bytes / 2 + GIB


def test_the_cutoff_is_kept_from_the_attachment_on() -> None:
    coming = state(Phase.ATTACHING, values_cycle())
    after = decide(coming, seen(host(cached(cutoff_percent=70), FORMATTED)), MONEY).state
    assert after.phase is Phase.BOOSTING
    assert after.memory.cutoff_percent == 70


# --- declined --------------------------------------------------------------------------------------------


def test_a_boost_whose_bill_is_above_the_time_it_saves_is_declined_once_for_each_load() -> None:
    known = advice(DEAR)
    assert known.plan is None
    declined = decide(idle(), loaded(known), DEAR)
    assert declined.state.phase is Phase.IDLE
    assert declined.state.cycle is None
    assert declined.reason.startswith("no boost")
    again = decide(declined.state, loaded(known), DEAR)
    assert not again.reason
    later = changed(declined.state, load=LoadWatch(above_since=NOW - 1, utilization=1.0))
    assert decide(later, loaded(known), DEAR).reason.startswith("no boost")


def test_a_burst_that_outlasts_all_known_ones_is_judged_by_itself() -> None:
    short = Advice(5, 40.0)
    long_load = idle(load=LoadWatch(above_since=NOW - 200, utilization=1.0, peak=1.0))
    assert present(wanted(MONEY, loaded(short))).event is Event.BOOST_DECLINED, "5 s so far, and 2 s are usual"
    assert present(wanted(MONEY, loaded(short), long_load)).event is Event.BOOST_WANTED
    assert present(wanted(DEAR, loaded(short), long_load)).event is Event.BOOST_DECLINED


def test_a_burst_that_has_written_no_more_than_known_ones_does_not_outlast_them() -> None:
    """200 s at the backing volume's 20 MB/s are 4,000 MB."""
    load = idle(load=LoadWatch(above_since=NOW - 200, utilization=1.0, peak=1.0))
    assert present(wanted(MONEY, loaded(Advice(5, 3600.0)), load)).event is Event.BOOST_DECLINED
    assert present(wanted(MONEY, loaded(Advice(5, 3000.0)), load)).event is Event.BOOST_WANTED
    slow = idle(load=LoadWatch(above_since=NOW - 200, utilization=0.9, peak=0.9))
    assert present(wanted(MONEY, loaded(Advice(5, 1000.0)), slow)).event is Event.BOOST_DECLINED, "it does not wait"


def test_a_burst_that_the_known_ones_do_not_speak_for_has_to_wait_for_the_backing_volume() -> None:
    """What it moves may be all that it wants: then no cache would save anything."""
    sure = advice()
    unsure = (Advice(0, 0.0, sure.plan), replace(sure, pays=False), replace(sure, all_waited=False))
    for used, buys in ((0.95, False), (0.98, True)):
        load = idle(load=LoadWatch(above_since=NOW - 5, utilization=0.5, peak=used))
        events = [present(wanted(MONEY, loaded(known), load)).event for known in (*unsure, sure)]
        assert events == [Event.BOOST_WANTED if buys else Event.BOOST_DECLINED] * 3 + [Event.BOOST_WANTED]
    begun = idle(load=LoadWatch(above_since=NOW - 1, utilization=0.5, peak=0.5))
    assert wanted(MONEY, loaded(unsure[0]), begun) is None, "its first sample may be of a part of a second"
    slower = idle(load=LoadWatch(above_since=NOW - 5, utilization=0.5, peak=0.9))
    event = present(wanted(MONEY, loaded(replace(unsure[0], waits_at=0.9)), slower)).event
    assert event is Event.BOOST_WANTED, "the volume gives no more"


def test_loads_that_never_seem_to_wait_get_a_cache_once_to_see_whether_they_do() -> None:
    """As soon as one in a hundred such loads would have lost the price of a cache in vain."""
    market, plan = present(MONEY.market), present(advice().plan)
    doubt_s = money.doubt_s(market, MONEY, plan, LATE_S)
    terms = money.terms_of(market, MONEY, LATE_S)
    lost = 0.01 * doubt_s * late_per_s(terms, plan.app_mb_s)
    assert lost == pytest.approx(terms.tariff.cost(plan.spec, terms.overhead_s))
    known = replace(advice(), all_waited=False)
    for lasted_s, unwaited_s, buys in ((5, 0, False), (1, doubt_s, True), (doubt_s, 0, True), (5, doubt_s, True)):
        load = idle(load=LoadWatch(above_since=NOW - lasted_s, utilization=0.5, peak=0.5))
        found = wanted(MONEY, loaded(replace(known, unwaited_s=unwaited_s)), load)
        assert present(found).event is (Event.BOOST_WANTED if buys else Event.BOOST_DECLINED)
    none_pays = Advice(5, 2000.0, unwaited_s=10 * doubt_s)
    assert present(wanted(MONEY, loaded(none_pays), load)).event is Event.BOOST_WANTED
    assert present(wanted(DEAR, loaded(none_pays), load)).event is Event.BOOST_DECLINED


def test_what_the_agent_expects_itself_is_bought_ahead_only_where_each_known_burst_waited() -> None:
    burst = Forecast(NOW + 5, 0, 1.0)
    for known, is_announced, buys in (
        (advice(), False, True),
        (replace(advice(), all_waited=False), False, False),
        (replace(advice(), pays=False), False, False),
        (replace(advice(), pays=False), True, True),
    ):
        before = state(Phase.IDLE, awaited=replace(burst, is_announced=is_announced))
        assert (wanted(MONEY, replace(loaded(known), sample=None), before) is not None) is buys


def test_what_a_longer_burst_still_writes_is_in_proportion_to_what_it_has_written() -> None:
    load = idle(load=LoadWatch(above_since=NOW - 200, utilization=1.0, peak=1.0))
    plan = money.next_plan(present(MONEY.market), MONEY, Unended(4000.0, math.inf), LATE_S)
    assert present(present(wanted(MONEY, loaded(Advice(5, 40.0)), load)).plan).spec == replace(
        present(plan).spec, iops=MONEY.cache_iops
    )


def test_a_cache_that_pays_only_ahead_of_bursts_is_not_bought_when_one_is_there() -> None:
    ahead = replace(advice(), pays_late=False)
    assert present(wanted(MONEY, loaded(ahead))).event is Event.BOOST_DECLINED
    before = state(Phase.IDLE, awaited=Forecast(NOW + 5, 0, 1.0))
    assert present(wanted(MONEY, replace(loaded(ahead), sample=None), before)).event is Event.BOOST_WANTED


def test_without_known_prices_nothing_is_bought_and_nothing_guessed() -> None:
    unknown = replace(MONEY, market=None)
    assert wanted(unknown, loaded(advice())) is None
    assert decide(idle(), loaded(advice()), unknown).state.phase is Phase.IDLE


def test_an_operator_is_told_that_it_is_not_worth_it_and_gets_the_cache() -> None:
    obs = replace(loaded(advice(DEAR)), requests=asked(RequestKind.BOOST))
    quiet = state(Phase.IDLE)
    dear, cheap = decide(quiet, obs, DEAR), decide(quiet, replace(obs, advice=advice()), MONEY)
    for decision in (dear, cheap):
        assert decision.answers[0].accepted
        assert present(decision.state.cycle).trigger is Trigger.OPERATOR
        assert present(present(decision.state.cycle).choice).cache_mb_s == POLICY.cache_bandwidth_mb_s
    assert dear.answers[0].text.startswith(cheap.answers[0].text)
    assert dear.answers[0].text != cheap.answers[0].text


def test_a_cap_is_checked_with_the_chosen_bandwidth() -> None:
    known = advice()
    capped = replace(MONEY, caps=Caps(max_cost_per_day=1.0))
    assert present(wanted(capped, loaded(known))).event is Event.BOOST_WANTED
    assert present(wanted(capped, loaded(known, spend=Spend(currency=1.0)))).event is Event.BOOST_CAPPED


# --- announced -------------------------------------------------------------------------------------------


def test_an_announced_size_is_answered_by_the_formulas() -> None:
    burst = Forecast(NOW + 5, 2000 * MB, 1.0)
    before = state(Phase.IDLE, awaited=burst)
    found = present(wanted(MONEY, loaded(), before))
    assert present(found.plan).known.chance_until == ahead.chance_until(burst, MONEY)
    assert present(present(found.plan).choice).cache_mb_s <= POLICY.cache_bandwidth_mb_s
    assert present(wanted(DEAR, loaded(), before)).event is Event.BOOST_DECLINED


def test_a_burst_that_the_agent_expects_itself_is_answered_by_the_known_ones() -> None:
    """The forecast sums up what one cache served, several bursts where it was held."""
    burst, known = Forecast(NOW + 5, 40_000 * MB, 1.0), advice()
    found = present(wanted(MONEY, loaded(known), state(Phase.IDLE, awaited=burst)))
    assert present(found.plan).spec.size_bytes == present(known.plan).spec.size_bytes
    announced = state(Phase.IDLE, awaited=replace(burst, is_announced=True))
    most = MARKET.offer.most_bytes
    assert present(present(wanted(MONEY, loaded(known), announced)).plan).spec.size_bytes == most
    assert present(present(wanted(MONEY, loaded(), state(Phase.IDLE, awaited=burst))).plan).spec.size_bytes == most


# --- what is known, and what is in force ------------------------------------------------------------------


def test_known_bursts_decide_whether_a_boost_is_worth_it_and_useless_ones_do_not() -> None:
    useless = Waste(useless=(UselessBoost(1.0, 1000.0, WALL - 1),) * FREE)
    before = changed(idle(), waste=useless)
    paying, supposing = replace(advice(), pays=True), replace(advice(), pays=False)
    assert present(wanted(MONEY, loaded(paying), before)).event is Event.BOOST_WANTED
    assert wanted(MONEY, loaded(supposing), before) is None, "only a burst that is supposed would have been worth it"
    assert present(wanted(MONEY, loaded(supposing))).event is Event.BOOST_WANTED
    assert wanted(MONEY, loaded(), before) is None, "no burst is known"
    assert wanted(POLICY, loaded(paying), before) is None


def test_bandwidths_of_the_cycle_are_in_force_while_it_lasts() -> None:
    """Half as fast a cache as configured is saturated by a load that the configured one would flush beside."""
    half = replace(slowed(POLICY.cache_bandwidth_mb_s / 2), times=BOOSTED)
    load = Rates(write_mb_s=0.95 * POLICY.cache_bandwidth_mb_s / 2)
    obs = seen(host(cached(), FORMATTED), sample=replace(busy_sample(), adaptive=load, cache=load, backing=Rates()))
    of = state(Phase.BOOSTING, half, load=HIGH)
    assert decide(of, obs, MONEY).state.flush_mb_s == 0
    assert present(decide(replace(of, cycle=replace(half, choice=None)), obs, MONEY).state.flush_mb_s) > 0


def slowed(cache_mb_s: float) -> Cycle:
    """A cycle whose plan has this bandwidth, and nothing for the drain."""
    cycle = present(decide(idle(), loaded(advice()), MONEY).state.cycle)
    return values_cycle(choice=replace(present(cycle.choice), cache_mb_s=cache_mb_s, drain_mb_s=0.0))


def test_without_a_choice_the_settings_are_in_force() -> None:
    assert money.in_force(MONEY, None) is MONEY
