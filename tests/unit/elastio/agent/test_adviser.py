"""What the adviser learns from samples, and that it never takes long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from elastio.agent.adviser import REPLAYS_PER_SAMPLE, HindsightAdviser
from elastio.core.model import Rates, Sample
from elastio.core.policy import Ahead, Policy
from elastio.core.state import AgentState, Phase
from elastio.errors import LedgerError
from elastio.strategy import bursts, hindsight, money
from elastio.strategy.ahead import MOST_MISSED
from elastio.strategy.bursts import LoadRun
from elastio.strategy.learned import NOTHING_KNOWN, CacheCosts, Past
from elastio.strategy.memory import Choice, Memory
from elastio.strategy.worth import Advice
from elastio.units import GIB
from tests.simulated import MARKET, best_plan, by_money
from tests.values import BOOSTED, POLICY, cycle, present, volume

MONEY = by_money(POLICY)
BY_FORECAST = replace(MONEY, ahead=Ahead.LEARNED)
STATE = AgentState()


def runs(count: int, mb_s: float = 80.0, seconds: int = 20, pause_s: float = 300.0) -> tuple[LoadRun, ...]:
    """So many equal bursts with their pauses."""
    found, at = [], 0.0
    for _ in range(count):
        for _ in range(seconds):
            found.append(LoadRun(at, 1.0, mb_s, mb_s))
            at += 1
        found.append(LoadRun(at, pause_s, 0.0, 0.0))
        at += pause_s
    return tuple(found)


def settled(
    by: HindsightAdviser, policy: Policy = MONEY, calls: int = 2000, state: AgentState = STATE
) -> Advice | None:
    found = None
    for _ in range(calls):
        found = by.advise(None, state, policy, offset_s=0.0)
    return found


def test_without_bursts_the_first_guess_is_advised_at_once() -> None:
    found = present(HindsightAdviser().advise(None, STATE, MONEY, offset_s=0.0))
    assert found == money.unadvised(MARKET, MONEY, money.late_s((), MONEY))
    assert found.bursts == 0


def test_the_owned_cache_is_judged_by_the_last_bursts() -> None:
    choice = Choice(80.0, 0.0, holding_s=100.0, quiet_s=2.0)
    owned = cycle(choice=choice, times=BOOSTED, volume=replace(volume(), size_bytes=1000 * GIB))
    by = HindsightAdviser(runs(6))
    judged = present(present(settled(by, state=AgentState(cycle=owned))).owned)
    assert (judged.token, judged.is_outdated) == (owned.token, True)
    assert present(settled(by)).owned is None, "it is gone"


@pytest.mark.parametrize(("started_wall", "size_gib", "hinders"), [(0.0, 1, True), (1e5, 1, False), (0.0, 30, False)])
def test_a_cache_hinders_by_the_known_bursts_that_it_has_served(
    started_wall: float, size_gib: int, hinders: bool
) -> None:
    """Those before it have not waited for it, nor has the supposed one, for which 30 GiB are too small."""
    dearly = replace(MARKET, waiting_per_s=1e-3, offer=replace(MARKET.offer, most_bytes=100 * GIB))
    choice = Choice(80.0, 0.0, holding_s=100.0, quiet_s=2.0)
    sold = replace(volume(), size_bytes=size_gib * GIB)
    owned = cycle(choice=choice, times=BOOSTED, volume=sold, started_wall=started_wall)
    by = HindsightAdviser(runs(2, seconds=100, pause_s=2000.0))
    found = present(settled(by, by_money(POLICY, dearly), state=AgentState(cycle=owned)))
    assert present(found.owned).is_hindrance is hinders


def test_what_the_kernel_showed_of_its_cutoff_changes_the_advice() -> None:
    policy = by_money(POLICY, replace(MARKET, waiting_per_s=1e-3))
    sizes = []
    for state in (STATE, AgentState(memory=Memory(cutoff_percent=80))):
        by, found = HindsightAdviser(runs(2)), None
        for _ in range(200):
            found = by.advise(None, state, policy, offset_s=0.0)
        sizes.append(present(present(found).plan).spec.size_bytes)
    supposed, shown = sizes
    assert shown < supposed


def test_one_burst_is_replayed_already_with_one_that_exceeds_it() -> None:
    found = present(settled(HindsightAdviser(runs(1))))
    assert (found.bursts, found.gaps, found.largest_mb) == (1, 1, 1600.0)
    usable = money.usable_share(MONEY)
    assert present(found.plan).spec.size_bytes * usable > 1.5 * 1600e6


def test_what_pays_for_a_supposed_burst_alone_does_not_pay_for_the_known_ones() -> None:
    """Bursts that a cache of 80 MB/s has served: 19 MB/s are the application's own, and the backing volume takes 20."""
    dearly = by_money(POLICY, replace(MARKET, waiting_per_s=1e-3))
    below, above = (present(settled(HindsightAdviser(served(2, mb_s)), dearly)) for mb_s in (19.0, 60.0))
    assert (below.plan is not None, below.pays) == (True, False)
    assert (above.plan is not None, above.pays) == (True, True)
    assert (below.all_waited, above.all_waited) == (False, True)


def test_for_how_long_bursts_have_left_bandwidth_unused_is_known() -> None:
    assert [present(settled(HindsightAdviser(runs(2, mb_s)))).unwaited_s for mb_s in (15.0, 20.0)] == [40.0, 0.0]


def served(count: int, mb_s: float) -> tuple[LoadRun, ...]:
    return tuple(replace(run, offered_mb_s=80.0) if run.written_mb else run for run in runs(count, mb_s, 60))


def test_a_load_whose_bursts_are_met_ahead_waits_for_no_cache() -> None:
    late, ahead = (settled(HindsightAdviser(runs(6)), replace(MONEY, ahead=of)) for of in (Ahead.OFF, Ahead.LEARNED))
    assert present(present(ahead).plan).cost < present(present(late).plan).cost


def unreadable(wall: float) -> Past:
    raise LedgerError("the ledger is locked")


@pytest.mark.parametrize(
    ("past", "state"),
    [
        (lambda wall: Past(money=CacheCosts(total=100.0, wasted=5.0, per_s=0.001)), STATE),
        (unreadable, STATE),
        (lambda wall: NOTHING_KNOWN, AgentState(memory=Memory(missed_forecasts=MOST_MISSED))),
    ],
    ids=["too much was wasted", "the ledger cannot be read", "the last forecasts were wrong"],
)
def test_a_cache_is_held_for_bursts_that_none_may_be_bought_ahead_of(
    past: Callable[[float], Past], state: AgentState
) -> None:
    late = present(settled(HindsightAdviser(runs(6))))
    ahead = present(settled(HindsightAdviser(runs(6), lambda wall: NOTHING_KNOWN), BY_FORECAST))
    found = present(settled(HindsightAdviser(runs(6), past), BY_FORECAST, state=state))
    assert present(found.plan) == present(late.plan)
    assert present(found.plan).cost > present(ahead.plan).cost


def test_bursts_that_are_over_before_a_cache_is_there_pay_only_if_it_is_bought_ahead() -> None:
    """8 s at the backing volume's bandwidth, and a cache takes 20."""
    short, long = (present(settled(HindsightAdviser(runs(6, seconds=s)), BY_FORECAST)) for s in (2, 20))
    assert (short.plan is not None, short.pays_late) == (True, False)
    assert (long.plan is not None, long.pays_late) == (True, True)


def test_a_load_that_does_not_count_is_no_burst() -> None:
    by, end = HindsightAdviser(runs(2)), 2 * 320.0
    for second in range(40):
        rates = Rates(0.0, 80.0 if second < 20 else 0.0)
        by.advise(Sample(end + second + 1, 1.0, rates, counted=Rates()), STATE, MONEY, offset_s=0.0)
    assert present(by.advise(Sample(end + 500, 1.0, Rates()), STATE, MONEY, offset_s=0.0)).bursts == 2


def test_a_rate_near_that_of_the_backing_volume_is_known_once_a_cache_has_served_it() -> None:
    """24 MB/s on a volume of 20 look like its limit: on a cache of 80 they are the application's own."""
    served = cycle(choice=Choice(80.0, 0.0, 100.0, 2.0), times=BOOSTED)
    attached_later = replace(served, times=replace(BOOSTED, boosted=1e6))
    plans = []
    for state in (
        STATE,
        AgentState(phase=Phase.FLUSHING, cycle=served),
        AgentState(phase=Phase.BOOSTING, cycle=attached_later),
        AgentState(memory=Memory(full_since=0.0), phase=Phase.BOOSTING, cycle=served),
        AgentState(phase=Phase.BOOSTING, cycle=served),
    ):
        by, found = HindsightAdviser(), None
        for second in range(3000):
            sample = Sample(1000.0 + second, 1.0, Rates(0.0, 24.0 if second % 300 < 60 else 0.0))
            found = by.advise(sample, state, MONEY, offset_s=0.0)
        plans.append(present(found).plan)
    *unknown, known = plans
    assert [present(plan).spec.bandwidth_mb_s > 50 for plan in unknown] == [True] * 4
    assert known is None or known.spec.bandwidth_mb_s <= 50


def test_many_bursts_lead_to_the_plan_that_hindsight_finds() -> None:
    found = present(settled(HindsightAdviser(runs(6))))
    watch = bursts.BurstWatch()
    for run in runs(6):
        watch = bursts.with_run(watch, run, 20, 0.3, 0.25)
    past = hindsight.supposed(bursts.past_loads(watch.bursts, 20, 80))
    pauses = bursts.pauses(watch, 20, 80)
    terms = money.terms_of(MARKET, MONEY, money.late_s((), MONEY))
    assert found.plan == best_plan(terms, MARKET.offer, past, money.bounds_of(MARKET, MONEY), pauses)
    assert found.plan is not None


def test_bursts_that_no_cache_would_have_been_worth_are_known_as_such() -> None:
    dear = by_money(POLICY, replace(MARKET, waiting_per_s=1e-9))
    found = present(settled(HindsightAdviser(runs(6)), dear))
    assert (found.bursts, found.plan) == (6, None)


def test_one_sample_tries_only_a_part_of_the_plans() -> None:
    by = HindsightAdviser(runs(6))
    terms, bounds = money.terms_of(MARKET, MONEY, 21.0), money.bounds_of(MARKET, MONEY)
    plans = len(list(hindsight.plans(terms, MARKET.offer, past(), bounds)))
    samples = plans // (REPLAYS_PER_SAMPLE // len(past()))
    assert samples > 1
    assert settled(by, calls=samples // 2) is None
    assert settled(by, calls=samples + 2) is not None


def past() -> tuple[hindsight.PastLoad, ...]:
    watch = bursts.BurstWatch()
    for run in runs(6):
        watch = bursts.with_run(watch, run, 20, 0.3, 0.25)
    return hindsight.supposed(bursts.past_loads(watch.bursts, 20, 80))


def test_until_the_search_is_over_the_advice_of_before_holds() -> None:
    by = HindsightAdviser(runs(2))
    before = settled(by)
    at = 2 * 320.0
    for second in range(20):
        sample = Sample(at + second + 1, 1.0, Rates(write_mb_s=80.0))
        assert by.advise(sample, STATE, MONEY, offset_s=0.0) == before
    for second in range(20, 22):
        found = by.advise(Sample(at + second + 1, 1.0, Rates()), STATE, MONEY, offset_s=0.0)
    assert found == before
    assert present(settled(by)).bursts == 3


def test_nothing_is_done_where_money_does_not_decide_or_prices_are_unknown() -> None:
    by = HindsightAdviser(runs(6))
    assert settled(by, POLICY, calls=5) is None
    assert settled(by, replace(MONEY, market=None), calls=5) is None
    assert present(settled(by)).bursts == 6, "the past is not lost meanwhile"
