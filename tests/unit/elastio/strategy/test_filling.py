"""When a full cache is released under a load that does not end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.core.cycle import Cycle, Timestamps, Trigger
from elastio.core.detection import Event, in_boosting
from elastio.core.machine import decide
from elastio.core.model import BackingView, RequestKind
from elastio.core.observation import Observation
from elastio.core.policy import Policy
from elastio.core.state import AgentState, Phase
from elastio.strategy import filling
from elastio.strategy.memory import Choice, LoadWatch
from elastio.strategy.review import release
from elastio.strategy.tariff import Tariff
from elastio.strategy.wish import Wish
from elastio.units import GIB, MB
from tests.simulated import MARKET, by_money
from tests.values import (
    FORMATTED,
    HIGH,
    NOW,
    POLICY,
    QUIET,
    WALL,
    asked,
    backing,
    busy_sample,
    cached,
    changed,
    cycle,
    host,
    seen,
    state,
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


def why(before: AgentState, policy: Policy = MONEY) -> str:
    assert before.cycle is not None
    return filling.why_over(before, before.cycle, shown(), policy)


def test_a_full_cache_is_kept_until_its_rent_has_reached_the_price_of_giving_it_up() -> None:
    assert not why(loaded(boosted(), None))
    assert not why(loaded(boosted(), KEPT_S - 1))
    assert why(loaded(boosted(), KEPT_S + 1))


def test_the_dearer_the_waiting_the_longer_it_is_kept() -> None:
    dear = by_money(POLICY, replace(MARKET_OF, waiting_per_s=10 * MARKET_OF.waiting_per_s))
    assert not why(loaded(boosted(), KEPT_S + 1), dear)
    assert why(loaded(boosted(), 6 * DIRTY_S + 1), dear)


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
    assert filling.noted(before, shown(replace(FULL, available_percent=60)), MONEY).memory.full_since is None
    full = filling.noted(before, shown(), MONEY)
    assert full.memory.full_since == NOW
    later = replace(shown(replace(FULL, available_percent=40)), now=NOW + 1)
    assert filling.noted(full, later, MONEY).memory.full_since == NOW, "the governor keeps it near the limit"
    free = replace(shown(replace(FULL, available_percent=60, dirty_bytes=DIRTY // 2)), now=NOW + 1)
    assert filling.noted(full, free, MONEY).memory.full_since is None


def test_the_end_of_the_load_ends_the_count() -> None:
    quiet = loaded(boosted(), 10, load=LoadWatch(below_since=NOW - 1))
    assert filling.noted(quiet, shown(), MONEY).memory.full_since is None


def test_by_agbs_nothing_is_noted() -> None:
    before = loaded(boosted(None), None)
    assert filling.noted(before, shown(), POLICY) is before


# --- in the machine --------------------------------------------------------------------------------------


def test_the_flush_is_carried_out_under_the_load_and_no_cache_is_bought_for_it_again() -> None:
    before = loaded(boosted(), KEPT_S + 1)
    detected = in_boosting(before, shown(), Wish(MONEY, release(before, shown(), MONEY)))
    assert detected is not None
    assert detected.event is Event.FILLED_UP
    after = decide(before, shown(sample=replace(busy_sample(), at=NOW)), MONEY).state
    assert after.phase is Phase.FLUSHING
    assert after.cycle is not None
    assert after.cycle.forced
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
    held = state(phase, None if phase is Phase.IDLE else boosted(), load=QUIET, has_filled=True)
    assert filling.noted(held, seen(host(backing())), MONEY).memory.has_filled is (phase is not Phase.IDLE)


def test_it_goes_with_its_size_that_the_cloud_sold() -> None:
    """Half as large, so half as dear: waiting counts twice as much."""
    small = boosted()
    assert small.volume is not None
    small = replace(small, volume=replace(small.volume, size_bytes=5 * GIB))
    assert not why(loaded(small, 1.9 * DIRTY_S))
    assert why(loaded(small, 2.1 * DIRTY_S))
