"""When a full cache is released under a load that does not end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from elastio.agent.memory import recall
from elastio.codec import encode_kept
from elastio.core.boosting import situation_of
from elastio.core.cycle import Cycle, Timestamps, Trigger
from elastio.core.detection import Event, in_boosting
from elastio.core.machine import decide
from elastio.core.model import BackingView, RequestKind
from elastio.core.policy import Model, Policy
from elastio.core.state import AgentState, Inhibition, InhibitionReason, Observation, Phase
from elastio.strategy import filling, review
from elastio.strategy.memory import Choice, Filling, LoadWatch, Unended
from elastio.strategy.money import late_s, next_plan
from elastio.strategy.review import release
from elastio.strategy.situation import Wish
from elastio.strategy.spending import Spend
from elastio.strategy.tariff import Tariff
from elastio.strategy.worth import Advice
from elastio.units import GIB, MB
from tests.simulated import MARKET, by_money
from tests.values import (
    FORMATTED,
    HIGH,
    NOW,
    POLICY,
    QUIET,
    WALL,
    ask,
    asked,
    backing,
    busy_sample,
    cached,
    changed,
    cycle,
    host,
    present,
    seen,
    state,
    told,
)

DIRTY_S = 40.0  # of flushing at the backing volume's bandwidth
DIRTY = int(DIRTY_S * POLICY.backing_bandwidth_mb_s * MB)
FULL = cached(dirty_bytes=DIRTY, available_percent=30, cutoff_percent=70)
# A second of waiting costs half of what a second of this cache costs, 10 GiB: t = 1.5 flushes.
MARKET_OF = replace(MARKET, tariff=Tariff("USD", per_gib_hour=0.36), waiting_per_s=0.5 * 0.36 * 10 / 3600)
MONEY = by_money(POLICY, MARKET_OF)
KEPT_S = 1.5 * DIRTY_S
CHOICE = Choice(80.0, 0.0, holding_s=100.0, quiet_s=2.0)
BEGUN = NOW - 1000


def boosted(choice: Choice | None = CHOICE, **changes: object) -> Cycle:
    changed = {
        "times": Timestamps(decided=BEGUN, created=BEGUN, boosted=BEGUN + 5),
        "started_at": BEGUN,
        "started_wall": WALL - 1000,
        "opened_wall": WALL - 1000,
        "dirty_bytes": DIRTY,
        "peak_dirty_bytes": DIRTY,
        "choice": choice,
        **changes,
    }
    return cycle(**changed)


def loaded(of: Cycle, full_s: float | None, **changes: object) -> AgentState:
    since = None if full_s is None else NOW - full_s
    load = LoadWatch(above_since=BEGUN, utilization=1.0)
    return state(Phase.BOOSTING, of, **{"load": load, "full_since": since, **changes})


def shown(view: BackingView = FULL, **changes: object) -> Observation:
    return seen(host(view, FORMATTED), **changes)


def why(before: AgentState, policy: Policy = MONEY, known: int = 1) -> str:
    at = situation_of(before, shown(advice=Advice(known, 2000.0)), policy)
    return filling.why_over(before.memory, present(at.cycle), at, policy)


def test_a_full_cache_is_kept_until_its_rent_has_reached_the_price_of_giving_it_up() -> None:
    assert not why(loaded(boosted(), None))
    assert not why(loaded(boosted(), KEPT_S - 1))
    assert why(loaded(boosted(), KEPT_S + 1))


def test_the_dearer_the_waiting_the_longer_it_is_kept() -> None:
    dear = by_money(POLICY, replace(MARKET_OF, waiting_per_s=10 * MARKET_OF.waiting_per_s))
    assert not why(loaded(boosted(), KEPT_S + 1), dear)
    assert why(loaded(boosted(), 6 * DIRTY_S + 1), dear)


@pytest.mark.parametrize("full_s", [30.0, 200.0])
@pytest.mark.parametrize(("times", "lasted_s"), [(19, 332.5), (99, 3960.0)])
def test_where_no_burst_is_known_it_goes_as_soon_as_the_load_is_likely_to_go_on(
    full_s: float, times: int, lasted_s: float
) -> None:
    """64 GB take 3,200 s, and what is dirty 40. A second of waiting costs so many times what one of the cache costs.

    To give it up costs 800 s of the cache: 372.5 ln(3,200/372.5). Of 4,000 s the logarithm would be below 1.
    """
    dear = by_money(POLICY, replace(MARKET_OF, waiting_per_s=times * 0.36 * 10 / 3600))
    for age_s, is_over in ((lasted_s - 1, False), (lasted_s + 1, True)):
        full = loaded(boosted(), full_s, load=LoadWatch(above_since=NOW - age_s, utilization=1.0))
        assert bool(why(full, dear, known=0)) is is_over
        assert not why(full, dear), "such loads are known"


def test_paid_time_is_used_up_first() -> None:
    by_hour = replace(CHOICE, minimum_s=3600.0, step_s=3600.0)
    assert not why(loaded(boosted(by_hour), 900))


@pytest.mark.parametrize("of", [boosted(None), boosted(trigger=Trigger.OPERATOR)])
def test_by_agbs_and_for_an_operator_a_full_cache_stays(of: Cycle) -> None:
    assert not why(loaded(of, 1e6))


def test_without_known_prices_nothing_is_given_up() -> None:
    assert not why(loaded(boosted(), 1e6), replace(MONEY, market=None))


def test_it_is_full_from_near_the_cutoff_on_until_a_part_is_free_again() -> None:
    before = loaded(boosted(), None)
    assert told(filling.noted, before, shown(replace(FULL, available_percent=60)), MONEY).memory.full_since is None
    full = told(filling.noted, before, shown(), MONEY)
    assert full.memory.full_since == NOW
    later = replace(shown(replace(FULL, available_percent=40)), now=NOW + 1)
    assert told(filling.noted, full, later, MONEY).memory.full_since == NOW, "the governor keeps it near the limit"
    free = replace(shown(replace(FULL, available_percent=60, dirty_bytes=DIRTY // 2)), now=NOW + 1)
    assert told(filling.noted, full, free, MONEY).memory.full_since is None


def test_the_end_of_the_load_ends_the_count() -> None:
    quiet = loaded(boosted(), 10, load=LoadWatch(below_since=NOW - 1))
    assert told(filling.noted, quiet, shown(), MONEY).memory.full_since is None


def test_by_agbs_nothing_is_noted() -> None:
    before = loaded(boosted(None), None)
    assert told(filling.noted, before, shown(), POLICY) is before


# --- in the machine --------------------------------------------------------------------------------------


def test_the_flush_is_carried_out_under_the_load_and_no_cache_is_bought_for_it_again() -> None:
    before = loaded(boosted(), KEPT_S + 1)
    detected = in_boosting(before, shown(), Wish(MONEY, ask(release, before, shown(), MONEY)))
    assert detected is not None
    assert detected.event is Event.FILLED_UP
    after = decide(before, shown(sample=replace(busy_sample(), at=NOW)), MONEY).state
    assert after.phase is Phase.FLUSHING
    assert present(after.cycle).forced
    again = decide(after, shown(replace(FULL, flush_full_speed=True), sample=busy_sample()), MONEY)
    assert again.state.phase is Phase.FLUSHING, "the load does not take the cache back"
    idle = state(Phase.IDLE, load=before.memory.load, has_filled=after.memory.has_filled)
    obs = seen(host(backing()), sample=busy_sample())
    assert decide(idle, obs, MONEY).state.phase is Phase.IDLE
    paused = decide(changed(idle, load=LoadWatch(below_since=NOW - 2)), seen(host(backing())), MONEY).state
    assert decide(changed(paused, load=HIGH), obs, MONEY).state.phase is Phase.IDLE, "a moment is not the end"
    over = decide(changed(idle, load=QUIET), seen(host(backing())), MONEY).state
    assert decide(changed(over, load=HIGH), obs, MONEY).state.phase is Phase.ATTACHING
    ordered = decide(idle, replace(obs, requests=asked(RequestKind.BOOST)), MONEY)
    assert ordered.state.phase is Phase.ATTACHING, "an operator may"


@pytest.mark.parametrize("phase", [Phase.FLUSHING, Phase.DETACHING, Phase.IDLE])
def test_requests_that_a_release_holds_back_are_not_the_end_of_the_load(phase: Phase) -> None:
    held = state(phase, None if phase is Phase.IDLE else boosted(), load=QUIET, has_filled=True, is_needless=True)
    after = told(filling.noted, held, seen(host(backing())), MONEY)
    assert after.memory.has_filled is after.memory.is_needless is (phase is not Phase.IDLE)
    idle, delay_s = replace(after, phase=Phase.IDLE, cycle=None), MONEY.inactivity_delay_s
    later = (told(filling.noted, idle, replace(seen(), now=NOW + s), MONEY).memory for s in (delay_s - 1, delay_s))
    assert [each.has_filled for each in later] == [phase is not Phase.IDLE, False], "low since the end of the release"


def test_it_goes_with_its_size_that_the_cloud_sold() -> None:
    """Half as large, so half as dear: waiting counts twice as much."""
    small = boosted()
    small = replace(small, volume=replace(present(small.volume), size_bytes=5 * GIB))
    assert not why(loaded(small, 1.9 * DIRTY_S))
    assert why(loaded(small, 2.1 * DIRTY_S))


# --- a larger one ----------------------------------------------------------------------------------------

# A second of waiting costs a hundred times what a second of this cache costs: it is never given up for its rent.
DEAR_WAITING = by_money(POLICY, replace(MARKET_OF, waiting_per_s=100 * 0.36 * 10 / 3600))
FILLED_S = 10.0


def filling_load(
    full_s: float, choice: Choice | None = CHOICE, filled_s: float = FILLED_S, before: int = 0, **more: object
) -> AgentState:
    """A cache of 40 s of flushing, full for so long, that its load has filled in `filled_s`, all but `before` bytes."""
    begun = NOW - full_s - filled_s
    load = LoadWatch(above_since=begun - 5, utilization=1.0)
    filling = Filling(begun, before, (DIRTY - before) / MB / filled_s)
    return loaded(boosted(choice, **more), full_s, load=load, filling=filling, attach_s=(5.0,))


def outgrown(before: AgentState, policy: Policy = DEAR_WAITING) -> Unended | None:
    return ask(review.outgrown, before, shown(), policy)


def test_a_full_cache_is_given_up_for_a_larger_one_once_as_much_again_would_pay_for_it() -> None:
    """At 80 instead of 20 MB/s three quarters of (W - D)/b are saved, so W has to be above 7/3 D, and the bill."""
    assert outgrown(filling_load(1.3 * DIRTY_S)) is None
    found = outgrown(filling_load(2 * DIRTY_S))
    assert found is not None
    assert found.written_mb == pytest.approx(4 * DIRTY / MB), "with what is written during the flush"
    assert found.rate_mb_s == pytest.approx(DIRTY / MB / FILLED_S)


def test_what_the_load_wrote_before_this_cache_counts() -> None:
    found = outgrown(changed(filling_load(0.3 * DIRTY_S), unended=Unended(3 * DIRTY / MB, 80.0)))
    assert found is not None
    assert found.written_mb == pytest.approx(5.3 * DIRTY / MB)


def test_what_was_dirty_before_the_load_is_not_written_by_it() -> None:
    found = outgrown(filling_load(3 * DIRTY_S, before=DIRTY // 2))
    assert present(found).written_mb == pytest.approx(4.5 * DIRTY / MB)


def test_the_cool_down_and_the_release_pass_before_there_is_a_larger_one() -> None:
    """They take from what a larger one could absorb."""
    before = filling_load(2 * DIRTY_S)
    assert outgrown(before) is not None
    assert outgrown(before, replace(DEAR_WAITING, cool_down_s=30.0)) is None
    assert outgrown(changed(before, release_s=(30.0,))) is None


# --- the rate at which a load fills its cache ------------------------------------------------------------

HELD_S = 900.0


def passed(before: AgentState, at: float, dirty: float, *, is_full: bool = False, is_low: bool = False) -> AgentState:
    """The state after a scan at NOW + `at` that shows the share `dirty` of DIRTY."""
    load = LoadWatch(below_since=NOW + at - 1) if is_low else LoadWatch(above_since=NOW, utilization=1.0)
    view = replace(FULL, dirty_bytes=int(dirty * DIRTY), available_percent=30 if is_full else 90)
    shown_then = replace(shown(view), now=NOW + at, host=replace(host(view, FORMATTED), at=NOW + at))
    return told(filling.noted, changed(before, load=load), shown_then, MONEY)


def rate_of(after: AgentState) -> float | None:
    """MB/s, as a share of DIRTY a second; None: it is not known."""
    rate = present(after.memory.filling).rate_mb_s
    return None if rate is None else rate * MB / DIRTY


def held() -> AgentState:
    """A cache that has served for a quarter of an hour when its load comes."""
    return changed(loaded(boosted(times=Timestamps(boosted=NOW - HELD_S)), None), load=QUIET)


@pytest.mark.parametrize("dirty", [0.0, 0.5])
def test_a_cache_that_was_held_or_bought_ahead_is_filled_from_the_begin_of_the_load_on(dirty: float) -> None:
    begun = passed(passed(held(), -100, 0.3, is_low=True), 0, dirty)
    full = passed(begun, 10, 1.0, is_full=True)
    assert rate_of(full) == pytest.approx((1 - dirty) / 10)
    later = changed(full, full_since=NOW - 2 * DIRTY_S)
    assert present(
        filling.unended(later.memory, situation_of(later, shown(), MONEY), MONEY)
    ).rate_mb_s == pytest.approx((1 - dirty) * DIRTY / MB / 10)


def test_a_dip_adds_nothing_to_the_rate() -> None:
    """Neither one on the way, nor one of a cache that was full."""
    half = passed(passed(passed(held(), 0, 0.0), 10, 0.7), 12, 0.5, is_low=True)
    full = passed(half, 20, 1.0, is_full=True)
    assert rate_of(full) == pytest.approx(1 / 20)
    refilled = passed(passed(passed(full, 60, 0.7, is_low=True), 61, 0.7), 62, 1.0, is_full=True)
    assert rate_of(refilled) == pytest.approx(1 / 20)
    assert refilled.memory.full_since == NOW + 62
    grown = passed(full, 30, 1.05, is_full=True)
    assert rate_of(grown) == pytest.approx(1 / 20), "it has grown at the backing volume's rate"


def test_after_a_restart_under_a_full_cache_a_larger_one_is_bought_as_before() -> None:
    before = filling_load(2 * DIRTY_S)
    record = {"phase": "boosting", **encode_kept(before), "now": NOW, "wall": WALL, "boot": "boot"}
    started = recall([record], Path("journal"), now=NOW, wall=WALL, boot_id="boot").state
    full = passed(passed(started, 0, 1.0, is_full=True), 3 * DIRTY_S, 1.0, is_full=True)
    assert outgrown(changed(full, full_since=NOW - 2 * DIRTY_S)) == outgrown(before) is not None


def test_the_end_of_the_load_and_a_flush_end_a_filling() -> None:
    full = passed(passed(held(), 0, 0.0), 10, 1.0, is_full=True)
    over = changed(full, load=LoadWatch(below_since=NOW - 100))
    assert told(filling.noted, over, shown(), MONEY).memory.filling is None
    flushing = told(filling.noted, replace(full, phase=Phase.FLUSHING), shown(), MONEY)
    assert flushing.memory.filling is None
    back = passed(passed(replace(flushing, phase=Phase.BOOSTING), 50, 0.6), 60, 1.0, is_full=True)
    assert rate_of(back) == pytest.approx(0.4 / 10)


def test_a_cache_that_the_load_found_nearly_full_shows_no_rate() -> None:
    full = passed(passed(held(), 0, 0.9), 1, 1.0, is_full=True)
    assert rate_of(full) is None
    assert outgrown(changed(full, full_since=NOW - 8 * DIRTY_S)) is None


def test_where_no_larger_one_pays_it_is_said_once() -> None:
    free = replace(DEAR_WAITING, market=replace(present(DEAR_WAITING.market), waiting_per_s=1e-9))
    load = filling_load(1).memory.load
    idle = state(Phase.IDLE, load=load, has_filled=True, unended=Unended(9000.0, 80.0), attach_s=(5.0,))
    first = decide(idle, seen(host(backing()), sample=busy_sample()), free)
    assert (first.state.phase, first.reason.startswith("no boost: ")) == (Phase.IDLE, True)
    again = decide(first.state, seen(host(backing()), sample=busy_sample()), free)
    assert (again.state.phase, again.reason) == (Phase.IDLE, "")


def test_a_cache_is_not_given_up_where_no_other_may_be_bought() -> None:
    before = filling_load(2 * DIRTY_S)
    assert outgrown(replace(before, paused=True)) is None
    assert outgrown(replace(before, inhibition=Inhibition(InhibitionReason.STOP, NOW + 60))) is None
    assert outgrown(before, replace(DEAR_WAITING, buys_nothing="it cannot")) is None
    unable = replace(shown(), host=replace(present(shown().host), unsupported="no contiguous memory"))
    assert ask(review.outgrown, before, unable, DEAR_WAITING) is None
    assert outgrown(changed(before, waste=replace(before.memory.waste, stopped="too many gained nothing"))) is None


def test_only_by_money_is_another_bought_for_the_same_load() -> None:
    idle = state(Phase.IDLE, load=filling_load(1).memory.load, has_filled=True, unended=Unended(9000.0, 80.0))
    by_agbs = replace(POLICY, model=Model.AGBS)
    assert decide(idle, seen(host(backing()), sample=busy_sample()), by_agbs).state.phase is Phase.IDLE


def test_a_load_that_is_over_is_forgotten_though_none_was_filled() -> None:
    idle = state(Phase.IDLE, load=QUIET, unended=Unended(9000.0, 80.0))
    assert decide(idle, seen(host(backing())), DEAR_WAITING).state.memory.unended is None


def test_a_load_that_is_hardly_faster_than_the_backing_volume_gets_no_larger_one() -> None:
    assert outgrown(filling_load(2 * DIRTY_S, filled_s=35.0)) is None


@pytest.mark.parametrize(("dirty", "peak"), [(0, 0), (0, DIRTY), (DIRTY // 2, DIRTY)])
def test_a_cache_that_is_hardly_dirty_is_not_given_up_for_a_larger_one(dirty: int, peak: int) -> None:
    """Its buckets wait for garbage collection."""
    assert outgrown(filling_load(8 * DIRTY_S, dirty_bytes=dirty, peak_dirty_bytes=peak)) is None


def test_no_larger_one_for_an_operator_or_without_prices_or_beyond_a_cap() -> None:
    assert outgrown(filling_load(2 * DIRTY_S, trigger=Trigger.OPERATOR)) is None
    assert outgrown(filling_load(2 * DIRTY_S, choice=None)) is None
    assert outgrown(filling_load(2 * DIRTY_S), replace(DEAR_WAITING, market=None)) is None
    capped = replace(DEAR_WAITING, caps=replace(DEAR_WAITING.caps, max_boosts_per_day=1))
    before = filling_load(2 * DIRTY_S)
    assert ask(review.outgrown, before, shown(), capped) is not None
    assert ask(review.outgrown, before, replace(shown(), spend=Spend(boosts=1)), capped) is None


def test_the_larger_one_is_bought_for_the_same_load() -> None:
    before = filling_load(2 * DIRTY_S)
    after = decide(before, shown(sample=replace(busy_sample(), at=NOW)), DEAR_WAITING).state
    assert after.phase is Phase.FLUSHING
    assert present(after.cycle).forced
    assert after.memory.unended == outgrown(before)
    idle = state(Phase.IDLE, load=before.memory.load, has_filled=True, unended=after.memory.unended, attach_s=(5.0,))
    bought = decide(idle, seen(host(backing()), sample=busy_sample()), DEAR_WAITING).state
    assert bought.phase is Phase.ATTACHING
    assert bought.cycle is not None
    assert after.memory.unended is not None
    assert DEAR_WAITING.market is not None
    plan = next_plan(DEAR_WAITING.market, DEAR_WAITING, after.memory.unended, late_s((5.0,), DEAR_WAITING))
    assert plan is not None
    assert bought.cycle.spec.size_bytes == plan.spec.size_bytes
    over = decide(changed(idle, load=QUIET), seen(host(backing())), DEAR_WAITING).state
    assert over.memory.unended is None


def test_none_follows_a_cache_that_was_given_up_for_its_rent() -> None:
    before = changed(loaded(boosted(), KEPT_S + 1), unended=Unended(9000.0, 80.0))
    after = decide(before, shown(sample=replace(busy_sample(), at=NOW)), MONEY).state
    assert after.memory.has_filled
    assert after.memory.unended is None


def test_the_next_one_has_room_for_more_where_room_is_cheap() -> None:
    load, market = Unended(400.0, 80.0), replace(MARKET_OF, waiting_per_s=1e-3)
    cheap = replace(market, tariff=Tariff("USD", per_gib_hour=0.001))
    sizes = []
    for of in (market, cheap):
        plan = next_plan(of, by_money(POLICY, of), load, 5.0)
        assert plan is not None
        sizes.append(plan.spec.size_bytes)
    assert sizes[0] < sizes[1]
