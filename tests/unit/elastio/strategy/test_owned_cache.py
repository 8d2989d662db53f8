"""What past bursts say of the cache that is owned: whether it is worth holding, and whether another one is better."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from elastio.core.boosting import cycle_view
from elastio.core.cycle import Cycle, Trigger
from elastio.core.model import VolumeSpec
from elastio.core.policy import Ahead, Policy
from elastio.strategy import money
from elastio.strategy.forecast import Burst
from elastio.strategy.hindsight import PastLoad, Pause
from elastio.strategy.memory import Choice
from elastio.strategy.worth import OwnedCache, Plan, hold_per_s, rebuy_price
from elastio.units import GIB, MB
from tests.simulated import MARKET, best_plan, by_money
from tests.values import BOOSTED, POLICY, present
from tests.values import cycle as values_cycle

MONEY = by_money(POLICY)
DEAR = by_money(POLICY, replace(MARKET, waiting_per_s=1e-9))
PAST = (PastLoad(2000.0, math.inf, 300.0),) * 5
LATE_S = 7.0
SOON = (Pause(5.0, 0.0, 0.0),) * 5
DEARLY_AWAITED = replace(MARKET, waiting_per_s=1e-3)


def best_for(policy: Policy = MONEY, past: tuple[PastLoad, ...] = PAST) -> Plan | None:
    market = present(policy.market)
    return best_plan(money.terms_of(market, policy, LATE_S), market.offer, past, money.bounds_of(market, policy))


def owned(size_gib: int, **changes: object) -> Cycle:
    choice = Choice(80.0, 0.0, holding_s=100.0, quiet_s=2.0, minimum_s=60.0)
    sold = replace(present(values_cycle().volume), size_bytes=size_gib * GIB)
    return values_cycle(volume=sold, **{"choice": choice, "times": BOOSTED, **changes})


def judged(
    of: Cycle, best: Plan | None, past: tuple[PastLoad, ...] = PAST, pauses: tuple[Pause, ...] = ()
) -> OwnedCache | None:
    return money.judged(present(MONEY.market), MONEY, cycle_view(of), best, past, pauses, served=past)


def test_a_cache_that_is_too_large_is_held_for_its_paid_time_and_one_that_is_too_small_hinders() -> None:
    best = present(best_for())
    fits, large = (present(judged(owned(size), best)) for size in (best.spec.size_bytes // GIB, 1000))
    assert not fits.is_outdated
    assert (large.is_outdated, large.is_hindrance) == (True, False)
    huge = (PastLoad(20_000.0, math.inf, 2000.0),) * 5
    dearly = by_money(POLICY, DEARLY_AWAITED)
    faster, small = best_for(dearly, huge), cycle_view(owned(1))
    for served, hinders in ((huge, True), ((), False)):
        found = present(money.judged(DEARLY_AWAITED, dearly, small, faster, huge, (), served=served))
        assert (found.is_outdated, found.is_hindrance) == (True, hinders)


@pytest.mark.parametrize(("waiting_per_s", "hinders"), [(5.4e-6, False), (6.4e-6, True)])
def test_a_cache_is_a_hindrance_only_if_what_was_waited_pays_for_the_change_too(
    waiting_per_s: float, hinders: bool
) -> None:
    """One burst for which it is too small: another cache alone pays from 4.2e-6 on, with the change from 5.9e-6 on."""
    huge, dearly = (PastLoad(20_000.0, math.inf, 2000.0),) * 5, by_money(POLICY, DEARLY_AWAITED)
    market, best = replace(DEARLY_AWAITED, waiting_per_s=waiting_per_s), best_for(dearly, huge)
    found = money.judged(market, by_money(POLICY, market), cycle_view(owned(3)), best, huge, (), served=huge[:1])
    assert present(found).is_hindrance is hinders


@pytest.mark.parametrize(("pause_s", "hinders"), [(500.0, True), (3000.0, False)])
def test_the_best_cache_by_the_hour_costs_a_burst_the_part_of_its_hour_until_the_next_one(
    pause_s: float, hinders: bool
) -> None:
    """The burst waits for half the price of an hour: a pause of 500 s is less of it, one of 3,000 s is more."""
    hourly = replace(MARKET, tariff=replace(MARKET.tariff, minimum_s=3600.0, step_s=3600.0))
    served, small = (PastLoad(20_000.0, math.inf, math.inf),), owned(1)
    best = Plan(VolumeSpec(40 * GIB, 80), 80.0, 0.0, 0.0, 0.0)
    terms = money.terms_of(hourly, MONEY, LATE_S)
    waited_s = 20_000 / terms.backing_mb_s - 20_000 / 80
    market = replace(hourly, waiting_per_s=hold_per_s(terms, best.spec) * 1800 / waited_s)
    pauses = (Pause(pause_s, 20_000.0, 1000.0),)
    found = money.judged(market, by_money(POLICY, market), cycle_view(small), best, served, pauses, served=served)
    assert present(found).is_hindrance is hinders


def test_a_cache_is_outdated_only_if_another_one_saves_twice_what_it_costs_to_change() -> None:
    """Each second of a long hold costs more than with the best one."""
    best = replace(present(best_for()), holding_s=math.inf)
    larger, terms = owned(2 * best.spec.size_bytes // GIB), money.terms_of(MARKET, MONEY, LATE_S)
    once = rebuy_price(terms, best.spec, best.app_mb_s, 1e9)
    per_s = hold_per_s(terms, larger.provisioned) - hold_per_s(terms, best.spec)
    fair_s = 2 * once / per_s
    for pause_s, is_outdated in ((0.7 * fair_s, False), (1.3 * fair_s, True)):
        past = (PastLoad(2000.0, math.inf, pause_s), PastLoad(2000.0, math.inf, math.inf))
        assert present(judged(larger, best, past)).is_outdated is is_outdated


def test_a_cache_is_not_held_for_a_gap_that_the_best_one_is_worth_buying_after() -> None:
    """The large one costs more for a gap than the one that fits costs again, but less than it costs again itself."""
    best = present(best_for())
    fits, large = (present(judged(owned(s), best, pauses=SOON)) for s in (best.spec.size_bytes // GIB, 1000))
    assert (fits.holding_s, large.holding_s) == (5.0, 0.0)


def test_of_an_owned_cache_that_is_too_small_what_applications_do_not_use_is_for_the_drain() -> None:
    """80 MB/s: at 50 they leave room for a drain of all of the backing volume's 20; without a limit they leave none."""
    small, fits = owned(2), owned(100)
    for rate, of, drain_mb_s in ((50.0, small, 20.0), (math.inf, fits, 0.0), (50.0, fits, 0.0)):
        past = (PastLoad(2000.0, rate, 2000.0),) * 3
        assert present(judged(of, best_for(past=past), past)).drain_mb_s == drain_mb_s
    drained = owned(100, choice=Choice(60.0, 20.0, holding_s=100.0, quiet_s=2.0))
    past = (PastLoad(2000.0, 50.0, 2000.0),) * 3
    assert present(judged(drained, best_for(past=past), past)).drain_mb_s == 20.0, "as it is where none is better"
    slow = owned(2, choice=Choice(20.0, 0.0, holding_s=100.0, quiet_s=2.0))
    assert present(judged(slow, best_for(past=past), past)).drain_mb_s == 0.0, "nothing is left for a drain"


def test_a_cache_that_would_have_to_be_flushed_under_the_load_hinders_only_if_that_pays() -> None:
    market = replace(DEARLY_AWAITED, offer=replace(MARKET.offer, most_bytes=100 * GIB))
    dearly, past = by_money(POLICY, market), (PastLoad(5000.0, math.inf, 2000.0),) * 3
    best, short, enough = best_for(dearly, past), (Pause(1.0, 5000.0, 1000.0),), (Pause(2000.0, 5000.0, 1000.0),)
    found = [
        present(money.judged(market, dearly, cycle_view(owned(10)), best, past, of, served=past))
        for of in (short, enough)
    ]
    assert [of.is_hindrance for of in found] == [False, True]
    terms, plan = money.terms_of(market, dearly, LATE_S), replace(present(best), spec=owned(10).provisioned)
    dirty_mb = terms.cutoff * 10 * GIB / MB
    assert money.flush_under_load_s(terms, plan, past, short) == pytest.approx(dirty_mb / terms.backing_mb_s - 1)
    assert money.flush_under_load_s(terms, plan, past, enough) == 0.0
    assert money.flush_under_load_s(terms, plan, past, ()) == 0.0, "no pause is known"


def test_bursts_are_met_ahead_only_where_a_gap_is_long_enough_for_another_cache() -> None:
    learns = replace(MONEY, ahead=Ahead.LEARNED)
    for pause_s, expected in ((300.0, 1.0), (110.0, 0.0)):
        bursts = [Burst(n * (pause_s + 20), n * (pause_s + 20) + 20, 2000 * MB) for n in range(6)]
        pauses = (Pause(pause_s, 2000.0, 20.0),) * 5
        assert money.met_ahead(MARKET, learns, bursts, pauses, LATE_S) == expected
        assert money.met_ahead(MARKET, replace(learns, cool_down_s=200.0), bursts, pauses, LATE_S) == 0.0
    assert money.met_ahead(MARKET, learns, bursts, (), LATE_S) == 0.0


def test_gaps_that_have_become_too_short_are_not_met_ahead() -> None:
    """Only the last flushes count: those of larger bursts take longer."""
    learns = replace(MONEY, ahead=Ahead.LEARNED)
    bursts = [Burst(n * 170.0, n * 170.0 + 20, 2000 * MB) for n in range(6)]
    small, large = Pause(150.0, 2000.0, 20.0), Pause(150.0, 2900.0, 20.0)
    for pauses, expected in (((large,) * 6 + (small,) * 5, 1.0), ((small,) * 6 + (large,) * 5, 0.0)):
        assert money.met_ahead(MARKET, learns, bursts, pauses, LATE_S) == expected


def test_no_cache_is_bought_again_in_the_paid_time_of_the_last_one_unless_it_outlasts_the_pauses() -> None:
    learns = replace(MONEY, ahead=Ahead.LEARNED)
    bursts = [Burst(n * 320.0, n * 320.0 + 20, 2000 * MB) for n in range(6)]
    pauses = (Pause(300.0, 2000.0, 20.0),) * 5
    for minimum_s, expected in ((200.0, 1.0), (310.0, 0.0), (3600.0, 1.0)):
        market = replace(MARKET, tariff=replace(MARKET.tariff, minimum_s=minimum_s))
        assert money.met_ahead(market, learns, bursts, pauses, LATE_S) == expected


def test_what_is_met_ahead_waits_for_no_cache_but_pays_for_one() -> None:
    late, ahead = (money.terms_of(MARKET, MONEY, LATE_S, share) for share in (0.0, 1.0))
    assert (ahead.late_s, ahead.overhead_s) == (0.0, late.overhead_s)


def test_without_a_cache_that_would_have_been_worth_it_the_owned_one_is_outdated() -> None:
    assert present(money.judged(present(DEAR.market), DEAR, cycle_view(owned(10)), None, PAST, ())).is_outdated
    assert not present(judged(owned(10), None)).is_outdated, "it is worth more than nothing"


def test_an_operators_cache_and_one_by_the_settings_are_not_judged() -> None:
    assert judged(owned(1000, trigger=Trigger.OPERATOR), best_for()) is None
    assert judged(owned(1000, choice=None), best_for()) is None
    assert judged(owned(1000), None, ()) is None


def test_how_late_a_cache_comes_is_not_known_before_it_is_attached() -> None:
    """Else it would look as if the next one were there at once, and this one would not be worth holding."""
    best = best_for()
    assert judged(owned(10, times=replace(BOOSTED, boosted=None)), best, pauses=SOON) is None
    assert present(judged(owned(10), best)).holding_s == 0
    assert present(judged(owned(10), best, pauses=SOON)).holding_s == 5.0
