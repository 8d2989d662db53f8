"""Which limits share the device, in figures that can be checked by hand."""

from __future__ import annotations

import pytest

from elastio.core.device_queue import DRAIN, DRAIN_TURNS, LEAST_S, REFILL, REFILL_SLOWLY, TWICE, DeviceQueue
from elastio.core.division import ALONE, LARGEST, LOOSE, PATIENCE, ROOM, STEP, UNSEEN, Division, at_limits
from elastio.core.lending import ABSENT, Lending, Requests
from elastio.core.shares import ACTIVE, HYSTERESIS, LatencyTarget, Reserved, SharePlan

DB, ETL = "system.slice/db.service", "system.slice/etl.service"
WEIGHTS = {"system.slice": 100.0, DB: 200.0, ETL: 100.0}
SHARES = {DB: 40.0, ETL: 20.0}
NOT_LONG_S = TWICE * LEAST_S


def limited(
    db: float, etl: float, before: dict[str, float] | None = None, untouched: tuple[str, ...] = (), turns: int = 1
) -> dict[str, float]:
    """The limits after so many turns in which both use just that of 60 MB/s."""
    division, limits = Division(), before or {}
    for _ in range(turns):
        division, limits = division.turn({DB: db, ETL: etl}, WEIGHTS, SharePlan(60.0), limits, untouched)
    return limits


def test_on_a_device_that_is_not_full_nobody_is_limited() -> None:
    assert limited(12.0, 36.0) == {}


def test_two_that_use_their_shares_or_more_of_a_full_device_have_them_at_once() -> None:
    assert limited(40.0, 20.0) == pytest.approx(SHARES)
    assert limited(30.0, 30.0) == pytest.approx(SHARES), "the room of one that may have been slowed down is its share"


def test_who_may_have_been_slowed_down_gets_room_for_twice_of_what_it_uses() -> None:
    assert limited(10.0, 50.0) == pytest.approx({DB: 40.0, ETL: 40.0})


def test_who_is_at_its_limit_gets_what_others_leave_but_for_a_little_room() -> None:
    assert limited(12.0, 20.0, SHARES) == pytest.approx({DB: 40.0, ETL: 60 - 12 * ROOM})
    assert limited(40.0, 12.0, SHARES) == pytest.approx({DB: 60 - 12 * ROOM, ETL: 20.0})


def test_nobody_keeps_room_beyond_its_share() -> None:
    assert limited(39.5, 15.0, {DB: 60.0, ETL: 15.0})[ETL] == pytest.approx(20.0)


def test_the_room_of_the_satisfied_is_not_missing_from_what_is_used() -> None:
    weights = {**WEIGHTS, DB: 10000.0}
    division, limits = Division(), {DB: 60.0, ETL: 60 - 54 * ROOM}
    for _ in range(2 * PATIENCE):
        division, limits = division.turn({DB: 54.0, ETL: 4.2}, weights, SharePlan(60.0), limits)
    assert limits == {DB: 60.0, ETL: 60 - 54 * ROOM}


def test_limits_that_nobody_is_near_stay_until_the_device_is_far_from_full() -> None:
    loose = {DB: 40.0, ETL: 46.8}
    assert limited(12.0, 40.0, loose, turns=2 * PATIENCE) == loose
    assert limited(12.0, 30.0, loose, turns=PATIENCE - 1) == loose
    assert limited(12.0, 30.0, loose, turns=PATIENCE) == {}


def test_what_one_uses_in_its_first_turn_counts_whole() -> None:
    before = Division({ETL: 60.0}, turns=5, counted_mb_s={DB: 0.0, ETL: 60.0})
    _, limits = before.turn({DB: 30.0, ETL: 30.0}, WEIGHTS, SharePlan(60.0), {})
    assert limits == pytest.approx(SHARES)


def test_a_limit_that_is_a_little_less_than_the_share_is_kept() -> None:
    """A mix that changes a little makes it so."""
    almost = {DB: 39.4, ETL: 20.0}
    assert limited(35.0, 20.0, almost)[DB] == almost[DB]


def test_limits_outlast_a_pause_of_a_moment() -> None:
    division, limits = Division(), {DB: 40.0, ETL: 46.8}
    for etl in [20.0, 20.0, 46.0] * PATIENCE:
        division, limits = division.turn({DB: 12.0, ETL: etl}, WEIGHTS, SharePlan(60.0), limits)
        assert limits


def of_one(
    division: Division, limits: dict[str, float], plan: SharePlan, turns: int, db_mb_s: float = 60.0
) -> tuple[Division, dict[str, float]]:
    """After so many turns in which nobody else uses anything."""
    for _ in range(turns):
        division, limits = division.turn({DB: db_mb_s, ETL: 0.0}, WEIGHTS, plan, limits)
    return division, limits


def test_who_is_alone_gets_no_limit_and_after_a_while_one_above_the_capacity_instead_of_an_older_one() -> None:
    plan = SharePlan(60.0)
    assert of_one(Division(), {}, plan, 3 * ALONE)[1] == {}
    division, limits = of_one(Division(), {DB: 60.0}, plan, ALONE)
    assert limits == {DB: 60.0}
    division, limits = of_one(division, limits, plan, 1)
    assert limits == pytest.approx({DB: LOOSE * 60.0})
    assert of_one(division, limits, plan, 3 * ALONE)[1] == limits
    assert of_one(division, limits, plan, 2 * PATIENCE, db_mb_s=12.0)[1] == {}


def test_who_uses_so_little_that_it_is_not_active_may_be_slowed_down_by_one_that_would_be_alone() -> None:
    division, limits = Division(), {DB: 60.0}
    for _ in range(3 * ALONE):
        moved = {DB: 60.0, ETL: ACTIVE / 2 * 60.0}
        division, limits = division.turn(moved, WEIGHTS, SharePlan(60.0), limits)
    assert limits == {DB: 60.0}


def test_who_uses_next_to_nothing_takes_no_limit_from_one_that_is_alone() -> None:
    division, limits = Division(), {DB: 60.0}
    for _ in range(3 * ALONE):
        moved = {DB: 60.0, ETL: UNSEEN * ACTIVE / 2 * 60.0}
        division, limits = division.turn(moved, WEIGHTS, SharePlan(60.0), limits)
    assert limits == {DB: LOOSE * 60.0}


def test_one_that_may_have_a_latency_target_meets_no_queue_of_who_was_alone() -> None:
    prompt = SharePlan(60.0, latency=(LatencyTarget(ETL, 5.0),))
    assert of_one(Division(), {}, prompt, 3 * ALONE)[1] == pytest.approx({DB: 60.0})


def test_who_was_alone_shares_at_once_with_the_next() -> None:
    division, limits = of_one(Division(), {DB: 60.0}, SharePlan(60.0), 2 * ALONE)
    _, limits = division.turn({DB: 57.0, ETL: 3.0}, WEIGHTS, SharePlan(60.0), limits)
    assert limits[DB] <= 57.0


def test_the_queue_of_who_was_alone_is_drained_for_the_next_and_not_before() -> None:
    plan = SharePlan(60.0)
    division, limits = of_one(Division(), {DB: 60.0}, plan, 2 * ALONE)
    for _ in range(2 * ALONE):
        division, limits = division.turn({DB: 60.0}, WEIGHTS, plan, limits, request_s=20 * LEAST_S, requests={DB: 60})
    assert limits == pytest.approx({DB: LOOSE * 60.0})
    for _ in range(2):
        division, limits = division.turn(
            {DB: 57.0, ETL: 3.0}, WEIGHTS, plan, limits, request_s=20 * LEAST_S, requests={DB: 57, ETL: 3}
        )
    assert division.queue.is_draining
    assert division.queue.drains >= DRAIN_TURNS - 2
    assert sum(limits.values()) <= 60.0
    assert limits[ETL] == pytest.approx((1 - DRAIN) * SHARES[ETL])


def test_a_piece_of_who_is_alone_counts_as_no_more_than_there_is() -> None:
    counted, _ = at_limits({DB: 400.0}, {DB: 400.0}, {DB: LOOSE * 60.0}, {}, SharePlan(60.0))
    assert counted == {DB: 60.0}


def test_limits_stay_while_not_all_is_lent_however_empty_the_device_is() -> None:
    plan = SharePlan(60.0, latency=(LatencyTarget("db.service", 20.0),))
    waited = {DB: Requests(10, 0.19)}  # neither too long, nor so short that more is lent
    division, limits = Division(lending=Lending(level=0.25)), {DB: 40.0, ETL: 27.0}
    for _ in range(3 * PATIENCE):
        division, limits = division.turn({DB: 4.0, ETL: 20.0}, WEIGHTS, plan, limits, waited=waited)
    assert (division.lending.level, limits) == (0.25, {DB: 40.0, ETL: 27.0})
    for _ in range(3 * PATIENCE + ABSENT):
        division, limits = division.turn({DB: 0.0, ETL: 20.0}, WEIGHTS, plan, limits, waited={})
    assert (division.lending.level, limits) == (1.0, {})


def drained(request_s: float, turns: int) -> dict[str, float]:
    """The limits after so many turns since they began in which requests took so long, and both used all they had."""
    division, limits = Division().turn({DB: 30.0, ETL: 30.0}, WEIGHTS, SharePlan(60.0), {}, request_s=request_s)
    for _ in range(turns):
        division, limits = division.turn(limits, WEIGHTS, SharePlan(60.0), limits, request_s=request_s)
    return limits


def test_new_limits_are_lower_while_a_queue_stands_at_the_volume_for_three_seconds_at_most() -> None:
    low = {group: (1 - DRAIN) * mb_s for group, mb_s in SHARES.items()}
    assert drained(0.5, 0) == pytest.approx(SHARES)
    assert drained(0.5, 1) == drained(0.5, DRAIN_TURNS) == pytest.approx(low)
    assert drained(0.5, DRAIN_TURNS + 1) == pytest.approx(SHARES)
    assert drained(NOT_LONG_S, 1) == pytest.approx(SHARES)


@pytest.mark.parametrize(
    ("targets", "expected"),
    [((), {DB: 28.0, ETL: 14.0}), ((LatencyTarget(DB, 10.0),), {DB: 1.25 * 25.0, ETL: 42.0 - 25.0 * ROOM})],
)
def test_while_a_queue_is_drained_all_have_their_share_but_for_those_with_a_latency_target(
    targets: tuple[LatencyTarget, ...], expected: dict[str, float]
) -> None:
    """Limits were loose, and the queue serves who has most in it: nobody is near its limit."""
    waited = {each.group: Requests(10, 5.0) for each in targets}
    plan, moved = SharePlan(60.0, latency=targets), {DB: 25.0, ETL: 36.0}
    _, limits = Division().turn(moved, WEIGHTS, plan, {DB: 60.0, ETL: 60.0}, waited=waited, request_s=0.5)
    assert limits == pytest.approx(expected)


@pytest.mark.parametrize(
    ("pending_mb_s", "request_s", "is_drained"), [(0, 1.0, True), (120, 1.0, False), (120, 1.1, True)]
)
def test_requests_that_wait_for_one_of_many_mb_are_no_queue(
    pending_mb_s: float, request_s: float, *, is_drained: bool
) -> None:
    """One of 30 MB takes half a second of 60 MB/s, and twice that is long."""
    before = Division(pending_mb_s={ETL: pending_mb_s} if pending_mb_s else {})
    count = {DB: 10, ETL: 0}
    now, _ = before.turn({DB: 1.0, ETL: 0.0}, WEIGHTS, SharePlan(60.0), SHARES, request_s=request_s, requests=count)
    assert now.queue.is_draining == is_drained


@pytest.mark.parametrize(
    ("db_mb_s", "expected"), [(3.6, {DB: 28.0, ETL: 14.0}), (3.4, {DB: 28.0, ETL: 42 - 3.4 * ROOM})]
)
def test_while_a_queue_is_drained_what_those_leave_is_lent_that_use_less_than_an_eighth_of_their_share(
    db_mb_s: float, expected: dict[str, float]
) -> None:
    moved, loose = {DB: db_mb_s, ETL: 57.0}, {DB: 60.0, ETL: 57.0}
    _, limits = Division().turn(moved, WEIGHTS, SharePlan(60.0), loose, request_s=0.5)
    assert limits == pytest.approx(expected)


@pytest.mark.parametrize(
    ("request_s", "db_mb_s", "etl_mb_s", "wants_more"),
    [(0.5, 24.0, 31.0, True), (0.5, 31.0, 16.0, True), (0.5, 29.0, 18.0, False), (0, 31.0, 16.0, False)],
)
def test_who_wanted_more_still_does_in_a_queue_at_a_device_that_gives_nearly_as_much_or_if_it_uses_most_of_its_limit(
    request_s: float, db_mb_s: float, etl_mb_s: float, *, wants_more: bool
) -> None:
    before = Division(hungry=frozenset(SHARES), queue=DeviceQueue(drains=0.0))
    now, _ = before.turn({DB: db_mb_s, ETL: etl_mb_s}, WEIGHTS, SharePlan(60.0), SHARES, request_s=request_s)
    assert (DB in now.hungry) == wants_more


def test_they_are_lower_until_the_device_is_not_full_any_more_though_requests_do_not_take_long() -> None:
    """What limits hold back waits for the device outside of it."""
    division, limits = Division().turn({DB: 30.0, ETL: 30.0}, WEIGHTS, SharePlan(60.0), {}, request_s=0.5)
    sums = []
    for request_s, moved_mb_s in ((0.5, 62.0), (0.01, 62.0), (0.01, 62.0), (0.01, 42.0), (0.01, 62.0)):
        moved = {group: mb_s * moved_mb_s / 60 for group, mb_s in SHARES.items()}
        division, limits = division.turn(moved, WEIGHTS, SharePlan(60.0), limits, request_s=request_s)
        sums.append(sum(limits.values()))
    assert sums == pytest.approx([42.0, 42.0, 42.0, 60.0, 60.0])


def test_who_moves_large_requests_counts_as_at_its_limit_for_as_long_as_one_of_twice_the_size_may_wait() -> None:
    counted, pending = at_limits({DB: 20.0, ETL: 45.0}, {DB: 0.1, ETL: 45.0}, SHARES, {}, SharePlan(60.0))
    assert (counted, pending) == ({DB: 20.0, ETL: 20.0}, {ETL: 70.0})
    for rest in (50.0, 30.0, 10.0, 0.0):
        counted, pending = at_limits({DB: 20.0, ETL: 0.0}, {DB: 0.1}, SHARES, pending, SharePlan(60.0))
        assert (counted, pending.get(ETL, 0.0)) == ({DB: 20.0, ETL: 20.0}, rest)
    assert at_limits({DB: 20.0, ETL: 0.0}, {DB: 0.1}, SHARES, {}, SharePlan(60.0)) == ({DB: 20.0, ETL: 0.0}, {})
    assert at_limits({ETL: 200.0}, {ETL: 200.0}, SHARES, {}, SharePlan(60.0)) == ({ETL: 20.0}, {ETL: LARGEST - 20.0})


def test_small_requests_that_pass_too_early_count_as_they_are() -> None:
    for request in (0.1, 39.0):
        assert at_limits({ETL: 500.0}, {ETL: request}, SHARES, {}, SharePlan(60.0)) == ({ETL: 500.0}, {})
    assert at_limits({ETL: 500.0}, {}, SHARES, {}, SharePlan(60.0)) == ({ETL: 500.0}, {}), "not known"


def test_what_passes_before_there_is_a_limit_counts_as_it_is_and_the_next_one_may_wait() -> None:
    counted, pending = at_limits({ETL: 30.0}, {ETL: 30.0}, {}, {}, SharePlan(60.0))
    counted, pending = at_limits({ETL: 16.0}, {ETL: 16.0}, {}, pending, SharePlan(60.0))
    assert (counted, pending) == ({ETL: 16.0}, {ETL: 60.0})
    assert at_limits({ETL: 0.0}, {}, SHARES, pending, SharePlan(60.0)) == ({ETL: 20.0}, {ETL: 40.0})
    assert at_limits({ETL: 14.0}, {ETL: 14.0}, {}, {}, SharePlan(60.0)) == ({ETL: 14.0}, {})
    assert at_limits({}, {}, {}, pending, SharePlan(60.0)) == ({}, {}), "one that is gone waits for nothing"


def test_a_reservation_is_the_same_part_of_limits_that_are_lower() -> None:
    plan, division, limits = SharePlan(60.0, (Reserved("db.service", 40.0),)), Division(), dict[str, float]()
    for moved in ({DB: 30.0, ETL: 30.0}, {DB: 40.0, ETL: 20.0}):
        division, limits = division.turn(moved, WEIGHTS, plan, limits, request_s=0.5)
    assert limits == pytest.approx({DB: 28.0, ETL: 14.0})


def test_limits_that_begin_again_soon_are_lower_for_a_part_of_the_pause_only() -> None:
    division, limits, free = Division(), dict[str, float](), {DB: 1.0, ETL: 1.0}
    for moved in ({DB: 30.0, ETL: 30.0}, *(SHARES,) * 2 * DRAIN_TURNS, *(free,) * (DRAIN_TURNS + PATIENCE)):
        division, limits = division.turn(moved, WEIGHTS, SharePlan(60.0), limits, request_s=0.5)
    assert limits == {}
    sums = []
    for _ in range(2 * DRAIN_TURNS):
        moved = limits or {DB: 30.0, ETL: 30.0}
        division, limits = division.turn(moved, WEIGHTS, SharePlan(60.0), limits, request_s=0.5)
        sums.append(sum(limits.values()))
    low = 60 * (1 - DRAIN)
    assert 1 <= sum(each == pytest.approx(low) for each in sums) <= 1 + DRAIN_TURNS * REFILL
    assert sums[-1] == pytest.approx(60.0)


def test_limits_are_lower_again_for_a_queue_that_forms_later_and_for_a_small_part_of_the_time() -> None:
    division, limits, low = Division(), dict(SHARES), 0
    for request_s in (NOT_LONG_S, *(0.5,) * 4 * DRAIN_TURNS):
        moved = {group: 1.03 * mb_s for group, mb_s in SHARES.items()}
        division, limits = division.turn(moved, WEIGHTS, SharePlan(60.0), limits, request_s=request_s)
        low += sum(limits.values()) < 60 * (1 - DRAIN / 2)
    assert low == DRAIN_TURNS
    for turn in range(400):
        request_s = NOT_LONG_S if turn % 2 else 0.5
        division, limits = division.turn(limits, WEIGHTS, SharePlan(60.0), limits, request_s=request_s)
        low += sum(limits.values()) < 60 * (1 - DRAIN / 2)
    assert 1 <= low - DRAIN_TURNS <= 200 * REFILL_SLOWLY


def test_limits_are_not_lower_on_a_device_that_is_slow_by_itself_once_that_is_known() -> None:
    division, limits, low = Division(), dict(SHARES), []
    for _ in range(800):
        division, limits = division.turn(SHARES, WEIGHTS, SharePlan(60.0), limits, request_s=0.1)
        low.append(sum(limits.values()) < 60.0)
    assert any(low[:10])
    assert not any(low[150:])
    division, limits = division.turn(SHARES, WEIGHTS, SharePlan(60.0), limits, request_s=0.5)
    assert sum(limits.values()) < 60.0, "but if they take much longer"


@pytest.mark.parametrize(("request_s", "count", "is_low"), [(0.07, 40, False), (0.07, 160, True), (0.039, 9000, False)])
def test_a_request_waits_for_others_if_it_takes_much_longer_than_the_device_needs_for_it(
    request_s: float, count: int, *, is_low: bool
) -> None:
    """60 MB/s in 40 requests of a turn: 6.25 ms each."""
    division, limits = Division(), dict(SHARES)
    for _ in range(2):
        division, limits = division.turn(
            limits, WEIGHTS, SharePlan(60.0), limits, request_s=request_s, requests={DB: count // 2, ETL: count // 2}
        )
    assert (sum(limits.values()) < 60.0) == is_low


@pytest.mark.parametrize(("mixed", "is_low"), [({DB}, True), ({ETL}, False), (set(), False)])
def test_a_smaller_queue_is_drained_where_who_wants_more_reads_and_writes(mixed: set[str], *, is_low: bool) -> None:
    """60 MB/s in 40 requests of a turn: 6.25 ms each, and these take seven times as long. ETL wants no more."""
    division, limits = Division(), dict(SHARES)
    for _ in range(3):
        moved, requests = {DB: limits[DB], ETL: 10.0}, {DB: 20, ETL: 20}
        division, limits = division.turn(
            moved, WEIGHTS, SharePlan(60.0), limits, request_s=0.045, requests=requests, mixed=mixed
        )
    assert division.queue.is_draining == is_low


def test_one_that_wanted_more_does_so_while_the_device_is_full_however_little_it_is_served() -> None:
    division, limits = Division().turn({DB: 40.0, ETL: 20.0}, WEIGHTS, SharePlan(60.0), SHARES)
    for moved in ({DB: 61.0, ETL: 1.0}, {DB: 1.0, ETL: 61.0}, {DB: 61.0, ETL: 1.0}):
        division, limits = division.turn(moved, WEIGHTS, SharePlan(60.0), limits)
        assert limits == SHARES


def test_who_uses_little_of_a_limit_that_was_raised_wants_no_more_while_another_is_at_its_limit() -> None:
    """A wish of 37.3 MB/s is just so near to the limit of 40 that both are raised, and then it is not."""
    division, limits, seen = Division(), dict[str, float](), list[dict[str, float]]()
    for _ in range(40):
        moved = {group: min(mb_s, limits.get(group, 60.0)) for group, mb_s in {DB: 37.3, ETL: 60.0}.items()}
        division, limits = division.turn(moved, WEIGHTS, SharePlan(60.0), limits)
        seen.append(limits)
    assert seen[20:] == [limits] * 20
    assert limits[ETL] == pytest.approx(60.0 - 37.3, rel=HYSTERESIS)


def test_turns_with_too_much_and_with_too_little_are_not_counted_together() -> None:
    division, limits = Division(), SHARES
    for turn in range(4 * PATIENCE):
        moved = {group: mb_s * (1.3 if turn % 2 else 0.7) for group, mb_s in SHARES.items()}
        division, limits = division.turn(moved, WEIGHTS, SharePlan(60.0), limits)
        assert limits == SHARES


def test_who_is_limited_by_somebody_else_is_left_out_and_counts() -> None:
    assert limited(30.0, 30.0, untouched=(DB,)) == pytest.approx({ETL: 60 - 30 * ROOM})


def test_who_is_slowed_down_by_one_that_has_too_much_gets_its_share_back() -> None:
    crowded = {DB: 40.0, ETL: 42.0}
    assert limited(20.0, 42.0, crowded) == crowded
    assert limited(20.0, 42.0, crowded, turns=2) == pytest.approx(SHARES)


def test_limits_that_are_a_little_off_are_set_right_by_way_of_lower_ones() -> None:
    odd = {DB: 42.0, ETL: 19.0}
    assert limited(42.0, 18.0, odd, turns=PATIENCE - 1) == odd
    assert limited(42.0, 18.0, odd, turns=PATIENCE) == pytest.approx({DB: 40 * (1 - STEP), ETL: 19 * (1 - STEP)})
    assert limited(42.0, 18.0, odd, turns=PATIENCE + 1) == pytest.approx(SHARES)


def test_what_is_left_over_goes_to_the_hungry_although_one_of_them_wants_just_less_than_its_limit() -> None:
    assert limited(37.8, 20.0, SHARES, turns=PATIENCE - 1) == SHARES
    assert limited(37.8, 20.0, SHARES, turns=PATIENCE) == pytest.approx({DB: 40 * (1 + STEP), ETL: 20 * (1 + STEP)})


@pytest.mark.parametrize(("db_mb_s", "is_written"), [(37.1, False), (43.2, False), (36.9, True), (43.5, True)])
def test_a_limit_is_rewritten_for_a_change_of_more_than_eight_percent(db_mb_s: float, *, is_written: bool) -> None:
    found = limited(db_mb_s, 20.0, {DB: db_mb_s, ETL: 20.0})
    assert found[DB] == (pytest.approx(40.0) if is_written else db_mb_s)


def test_no_limit_is_next_to_nothing() -> None:
    weights = {"a": 1.0, "b": 10000.0}
    _, found = Division().turn({"a": 30.0, "b": 30.0}, weights, SharePlan(60.0), {})
    assert found["a"] >= 0.59
