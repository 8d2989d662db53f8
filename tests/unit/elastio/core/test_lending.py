"""How much is lent while a cgroup with a latency target waits, in figures that can be checked by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.core.division import ROOM, Division
from elastio.core.lending import (
    ABSENT,
    COUNTED_S,
    HOLD,
    PATIENCE,
    PATIENCE_UP,
    Lending,
    Look,
    Requests,
    like_its_own,
    over_time,
)
from elastio.core.moved import Moved
from elastio.core.shares import LatencyTarget, SharePlan

DB, ETL, TAR = "system.slice/db.service", "system.slice/etl.service", "system.slice/tar.service"
WEIGHTS = {"system.slice": 100.0, DB: 200.0, ETL: 100.0, TAR: 100.0}
TARGET_S = {DB: 0.010, ETL: 0.100}
PLAN = SharePlan(60.0, latency=(LatencyTarget("db.service", 10.0),))


def after(lending: Lending, turns: int, **mean_ms: float) -> Lending:
    """So many turns in which the requests of these cgroups took so long."""
    waited = {{"db": DB, "etl": ETL}[name]: Requests(4, 4 * ms / 1000) for name, ms in mean_ms.items()}
    for _ in range(turns):
        lending = lending.turn(waited, TARGET_S)
    return lending


def test_less_is_lent_when_somebody_has_waited_too_long_for_some_turns() -> None:
    assert after(Lending(), PATIENCE - 1, db=11).level == 1.0
    assert after(Lending(), PATIENCE, db=11).level == 0.5
    assert after(Lending(), 6 * PATIENCE, db=11).level == 0.0


def test_the_one_that_waits_longest_for_its_target_decides() -> None:
    assert after(Lending(), PATIENCE, db=1, etl=101).level == 0.5
    assert after(Lending(), PATIENCE, db=9, etl=99).level == 1.0


def test_near_the_target_nothing_changes() -> None:
    half = after(Lending(), PATIENCE, db=11)
    assert after(half, 100, db=9).level == 0.5


def test_more_is_lent_up_to_half_of_the_way_to_where_waits_were_too_long() -> None:
    half = after(Lending(), PATIENCE, db=11)
    more = after(half, PATIENCE_UP, db=7)
    assert (more.level, more.calm_at, more.long_at) == (0.75, 0.5, 1.0)
    assert after(more, PATIENCE, db=11).level == 0.5


def test_a_higher_level_is_tried_after_a_while_and_then_after_twice_as_long() -> None:
    found = Lending(0.5, calm_at=0.5, long_at=0.52)
    assert after(found, HOLD - 1, db=7).level == 0.5
    tried = after(found, HOLD + 1, db=7)
    assert (tried.level, tried.hold) == (0.75, 2 * HOLD)


def test_all_is_lent_when_nobody_with_a_target_has_been_there_for_some_turns() -> None:
    half = after(Lending(), PATIENCE, db=11)
    assert after(half, ABSENT - 1).level == 0.5
    assert after(half, ABSENT) == Lending()
    assert after(after(after(half, ABSENT - 1), 1, db=9), ABSENT - 1).level == 0.5


@pytest.mark.parametrize(("limits", "untouched", "stays"), [({DB: 4.0, TAR: 4.0}, (), 16), ({TAR: 4.0}, (DB,), 0)])
def test_one_whose_large_request_may_wait_for_a_limit_of_ours_is_still_there(
    limits: dict[str, float], untouched: tuple[str, ...], stays: int
) -> None:
    plan = replace(PLAN, capacity_mb_s=16.0)
    division = Division(lending=Lending(0.25, absent={DB: 0}), pending_mb_s={DB: 64.0})
    levels = []
    for _ in range(stays + ABSENT + 1):
        division, _ = division.turn({DB: 0.0, TAR: 4.0}, WEIGHTS, plan, limits, untouched)
        levels.append(division.lending.level)
    assert levels == [0.25] * (len(levels) - 2) + [1.0] * 2, (
        "64 MB/s of one turn are 16 turns at 4 MB/s; a foreign limit says nothing"
    )


def test_a_turn_in_which_no_request_ends_says_nothing() -> None:
    short = after(Lending(), PATIENCE - 1, db=11)
    silent = Lending(run=short.run).turn({DB: Requests()}, TARGET_S)
    assert (silent.run, silent.level) == (short.run, 1.0)


def test_a_turn_in_which_those_who_may_borrow_wait_themselves_says_only_whether_somebody_still_waits_too_long() -> None:
    half = after(Lending(), PATIENCE - 1, db=11)
    for _ in range(HOLD):
        half = half.turn({DB: Requests(4, 0.004)}, TARGET_S, is_quiet=True)
    assert (half.level, half.run) == (1.0, 1 - PATIENCE)
    assert half.turn({DB: Requests(4, 0.044)}, TARGET_S, is_quiet=True).level == 0.5
    for _ in range(ABSENT):
        half = half.turn({}, TARGET_S, is_quiet=True)
    assert half == Lending()


def test_the_longer_somebody_waits_the_less_is_lent_at_once() -> None:
    assert after(Lending(), PATIENCE, db=40).level == 0.25
    assert after(Lending(calm_at=0.3), PATIENCE, db=40).level == 0.3, "where nobody waited too long"


def test_requests_are_those_of_the_kind_that_the_cgroup_had() -> None:
    reads, writes = Requests(1, 0.1), Requests(2, 0.4)
    assert like_its_own(Moved(5, 0), reads, writes) == reads
    assert like_its_own(Moved(0, 5), reads, writes) == writes
    assert like_its_own(Moved(5, 5), reads, writes).mean_s == pytest.approx(0.5 / 3)
    assert like_its_own(Moved(), reads, writes).mean_s is None


def test_few_requests_that_wait_for_long_count_as_much_as_many_short_ones_in_the_same_time() -> None:
    """Who asks again after an answer has 100 requests of 1 ms in one half of the time, and 5 of 20 ms in the other."""
    busy, calm = Look(0.1, Requests(), Requests(5, 0.1)), Look(0.1, Requests(), Requests(100, 0.1))
    idle = Look(0.8, Requests(), Requests())
    found = over_time(Moved(0, 5), [busy, calm, idle])
    assert (found.count, found.seconds) == pytest.approx((0.2, 0.1 * 0.020 + 0.1 * 0.001))
    assert busy.writes.plus(calm.writes).mean_s == pytest.approx(0.2 / 105), "the mean over requests"
    assert over_time(Moved(5, 0), [busy, calm]) == Requests()


# --- what it does to limits --------------------------------------------------------------------------------


def limited(level: float, used: dict[str, float], before: dict[str, float] | None = None) -> dict[str, float]:
    """The limits at this level, which stays as it is."""
    division = Division(lending=Lending(level, run=0))
    _, limits = division.turn(used, WEIGHTS, PLAN, before or {}, waited={DB: Requests(4, 4 * 0.009)})
    return limits


@pytest.mark.parametrize(("level", "etl"), [(1.0, 54.0), (0.5, 37.0), (0.0, 20.0)])
def test_who_borrows_has_its_share_and_the_level_of_the_rest(level: float, etl: float) -> None:
    found = limited(level, {DB: 6 / ROOM, ETL: 54.0}, {DB: 40.0, ETL: 54.0})
    assert found == pytest.approx({DB: 40.0, ETL: etl})


def test_one_that_borrows_on_a_device_that_is_not_full_is_limited_as_well() -> None:
    used = {DB: 3.0, ETL: 36.0}
    assert limited(1.0, used) == {}
    assert limited(0.9, used) == {}
    assert limited(0.0, used) == pytest.approx({DB: 40.0, ETL: 20.0})


def test_who_has_a_target_borrows_as_before() -> None:
    found = limited(0.0, {DB: 50.0, ETL: 9.0}, {DB: 50.0, ETL: 20.0})
    assert found[DB] == pytest.approx(50.0)
    assert limited(0.0, {DB: 45.0, ETL: 5.0}) == {}


def test_one_that_uses_next_to_nothing_and_not_in_every_turn_has_a_share_as_well() -> None:
    division, limits = Division(), dict[str, float]()
    for turn in range(80):
        is_there = turn % 4 == 0
        waited = {DB: Requests(4, 4.0)} if is_there else {}
        used = {DB: 0.01 if is_there else 0.0, ETL: limits.get(ETL, 60.0)}
        division, limits = division.turn(used, WEIGHTS, PLAN, limits, waited=waited)
        if division.lending.level == 0.0:
            assert limits == {DB: 40.0, ETL: 20.0}
    assert division.lending.level == 0.0


def test_who_wants_more_than_its_share_waits_for_that() -> None:
    division, limits = Division(), {DB: 40.0, ETL: 20.0}
    for _ in range(5 * PATIENCE):
        waited = {DB: Requests(4, 4.0)}
        division, limits = division.turn({DB: 40.0, ETL: 20.0}, WEIGHTS, PLAN, limits, waited=waited)
    assert division.lending.level == 1.0


def test_what_is_withheld_makes_nobody_hungrier() -> None:
    division, limits = Division(lending=Lending(0.0)), {DB: 40.0, ETL: 20.0}
    for _ in range(20):
        waited = {DB: Requests(4, 4 * 0.009)}
        division, limits = division.turn({DB: 6.0, ETL: 20.0}, WEIGHTS, PLAN, limits, waited=waited)
        assert limits == {DB: 40.0, ETL: 20.0}


def test_a_counter_that_wraps_and_one_of_another_device_make_nobody_wait() -> None:
    """The kernel counts milliseconds in 32 bits."""
    before = Requests(100.0, COUNTED_S - 1.0)
    found = Requests(110.0, 1.0).since(before)
    assert found.count == 10.0
    assert found.seconds == pytest.approx(2.0)
    assert Requests(10.0, 1.0).since(before) == Requests()
