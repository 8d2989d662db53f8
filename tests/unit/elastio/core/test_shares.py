"""What cgroups have of the adaptive device by their weights, in figures that can be checked by hand."""

from __future__ import annotations

import math

import pytest

from elastio.core import shares
from elastio.core.shares import Reserved, Share, SharePlan, Use

DB, ETL, SESSIONS = "system.slice/db.service", "system.slice/etl.service", "user.slice"
WEIGHTS = {"system.slice": 100.0, DB: 200.0, ETL: 100.0, SESSIONS: 100.0}
CAPACITY = 60.0


def divided(*uses: Use, reserve: tuple[Reserved, ...] = ()) -> dict[str, Share]:
    return {share.group: share for share in shares.divide(uses, WEIGHTS, SharePlan(CAPACITY, reserve))}


def test_a_reservation_is_a_part_of_the_capacity_and_the_rest_goes_by_weight() -> None:
    found = divided(Use(DB, 30.0), Use(ETL, 15.0), Use(SESSIONS, 15.0), reserve=(Reserved("db.service", 45.0),))
    assert {group: share.entitled_mb_s for group, share in found.items()} == pytest.approx(
        {DB: 45, ETL: 7.5, SESSIONS: 7.5}
    )


# --- weights --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("active", "expected"),
    [
        ((DB, ETL, SESSIONS), {DB: 1 / 3, ETL: 1 / 6, SESSIONS: 1 / 2}),
        ((DB, ETL), {DB: 2 / 3, ETL: 1 / 3}),
        ((ETL, SESSIONS), {ETL: 1 / 2, SESSIONS: 1 / 2}),
        ((), {}),
    ],
)
def test_weights_count_among_siblings_that_are_active(active: tuple[str, ...], expected: dict[str, float]) -> None:
    assert shares.fractions(WEIGHTS, active) == pytest.approx(expected)


def test_the_path_of_a_cgroup_has_all_above_it() -> None:
    assert shares.path("a/b.service/c") == ("a", "a/b.service", "a/b.service/c")
    assert shares.path("user.slice") == ("user.slice",)


# --- water-filling --------------------------------------------------------------------------------------------


def test_who_wants_less_gets_all_and_the_rest_goes_by_weight() -> None:
    assert shares.fill(90.0, [10.0, math.inf, math.inf], [100.0, 200.0, 100.0]) == pytest.approx([10, 160 / 3, 80 / 3])


def test_what_one_leaves_may_satisfy_the_next() -> None:
    assert shares.fill(90.0, [40.0, 10.0, math.inf], [100.0, 100.0, 100.0]) == pytest.approx([40, 10, 40])


def test_nothing_is_handed_out_that_nobody_wants() -> None:
    assert shares.fill(90.0, [10.0, 20.0], [1.0, 1.0]) == [10.0, 20.0]
    assert shares.fill(90.0, [], []) == []


# --- who wants more -------------------------------------------------------------------------------------------


def test_two_that_want_everything_have_two_to_one() -> None:
    found = divided(Use(DB, 30.0, waiting=0.9), Use(ETL, 30.0, waiting=0.9))
    assert [found[group].allotted_mb_s for group in (DB, ETL)] == pytest.approx([40.0, 20.0])
    assert shares.is_overloaded(found.values())


def test_who_uses_less_than_its_share_keeps_that_and_leaves_the_rest() -> None:
    found = divided(Use(DB, 10.0), Use(ETL, 50.0))
    assert (found[DB].wants_more, found[ETL].wants_more) == (False, True)
    assert [found[DB].entitled_mb_s, found[DB].allotted_mb_s] == pytest.approx([40.0, 10.0])
    assert found[ETL].allotted_mb_s == pytest.approx(50.0)


@pytest.mark.parametrize(("waiting", "allotted_mb_s"), [(shares.WAITS - 0.1, 10.0), (shares.WAITS, 40.0)])
def test_who_waits_on_a_full_device_wants_its_share(waiting: float, allotted_mb_s: float) -> None:
    assert divided(Use(DB, 10.0, waiting), Use(ETL, 50.0))[DB].allotted_mb_s == pytest.approx(allotted_mb_s)


@pytest.mark.parametrize(("limit_mb_s", "wants_more"), [(20.0, True), (22.0, False), (None, False)])
def test_who_uses_all_of_its_limit_wants_more_although_the_device_is_not_full(
    limit_mb_s: float | None, wants_more: bool
) -> None:
    """Others are given time, or the queue drains."""
    found = divided(Use(DB, 5.0), Use(ETL, 20.0, limit_mb_s=limit_mb_s))
    assert found[ETL].wants_more is shares.is_overloaded(found.values()) is wants_more
    assert found[ETL].allotted_mb_s == pytest.approx(55.0 if wants_more else 20.0)


def test_on_a_device_that_is_not_full_nobody_wants_more() -> None:
    found = divided(Use(DB, 33.0, waiting=1.0), Use(ETL, 20.0, waiting=1.0))
    assert [found[group].allotted_mb_s for group in (DB, ETL)] == [33.0, 20.0]
    assert not shares.is_overloaded(found.values())


def test_who_uses_next_to_nothing_takes_no_part() -> None:
    found = divided(Use(DB, 59.0), Use(SESSIONS, 0.05))
    assert list(found) == [DB]
    assert found[DB].entitled_mb_s == pytest.approx(CAPACITY)


# --- reservations ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capacity", "part"),
    [(60.0, 1 / 3), (40.0, 1 / 2), (10.0, 0.9)],
    ids=["what is reserved", "weighs more with less capacity", "and leaves a tenth to others"],
)
def test_a_reservation_is_a_part_of_the_capacity_in_force(capacity: float, part: float) -> None:
    plan = SharePlan(capacity, (Reserved("etl.service", 20.0),))
    assert shares.parts(WEIGHTS, [DB, ETL, SESSIONS], plan)[ETL] == pytest.approx(part)


def test_a_reservation_of_a_cgroup_that_is_not_active_is_lent() -> None:
    plan = SharePlan(60.0, (Reserved("etl.service", 20.0),))
    assert shares.parts(WEIGHTS, [DB, SESSIONS], plan) == pytest.approx({DB: 0.5, SESSIONS: 0.5})
    assert shares.parts(WEIGHTS, [ETL], plan) == {ETL: 1.0}
