"""The rules of shares, for any weights, loads and capacities: no bandwidth twice, none left over, nobody starves."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastio.core import shares
from elastio.core.shares import SharePlan, Use

# A machine's cgroups: services in two slices, and one slice without children.
GROUPS = ("system.slice/a", "system.slice/b", "batch.slice/c", "batch.slice/d", "user.slice")
NODES = tuple(dict.fromkeys(node for group in GROUPS for node in shares.path(group)))

capacities = st.floats(1.0, 2000.0)
weights = st.fixed_dictionaries({node: st.floats(1.0, 10000.0) for node in NODES})
uses = st.lists(
    st.builds(Use, st.sampled_from(GROUPS), st.floats(0.0, 2000.0), st.floats(0.0, 1.0)),
    unique_by=lambda use: use.group,
)
parts = st.floats(1.0, 10000.0)
wishes = st.one_of(st.floats(0.0, 2000.0), st.just(math.inf))
# Relative error of some additions.
ROUNDING = 1e-9


@given(capacities, st.lists(st.tuples(wishes, parts), min_size=1))
def test_the_sum_is_the_capacity_unless_less_is_wanted(capacity: float, groups: list[tuple[float, float]]) -> None:
    wanted = [wish for wish, _ in groups]
    got = shares.fill(capacity, wanted, [part for _, part in groups])
    assert sum(got) == pytest.approx(min(capacity, sum(wanted)), rel=ROUNDING, abs=ROUNDING)
    assert sum(got) <= capacity * (1 + ROUNDING)


@given(capacities, st.lists(st.tuples(wishes, parts), min_size=1))
def test_who_wants_less_than_its_share_gets_all_of_it(capacity: float, groups: list[tuple[float, float]]) -> None:
    of_all = sum(part for _, part in groups)
    got = shares.fill(capacity, [wish for wish, _ in groups], [part for _, part in groups])
    for amount, (wish, part) in zip(got, groups, strict=True):
        fair = capacity * part / of_all
        assert amount <= wish
        assert amount >= min(wish, fair) * (1 - ROUNDING), "nobody has less than its share while it wants it"


@given(capacities, st.lists(st.tuples(wishes, parts), min_size=2))
def test_weights_are_respected_among_the_hungry(capacity: float, groups: list[tuple[float, float]]) -> None:
    got = shares.fill(capacity, [wish for wish, _ in groups], [part for _, part in groups])
    levels = [(amount / part, amount < wish * (1 - ROUNDING)) for amount, (wish, part) in zip(got, groups, strict=True)]
    hungry = [level for level, is_hungry in levels if is_hungry]
    assert hungry == pytest.approx(hungry[:1] * len(hungry), rel=1e-6)
    assert all(level <= min(hungry) * (1 + 1e-6) for level, is_hungry in levels if hungry and not is_hungry)


@given(uses, weights, capacities)
def test_what_is_allotted_is_never_more_than_the_capacity_and_all_of_it_while_overloaded(
    used: list[Use], weight: dict[str, float], capacity: float
) -> None:
    found = shares.divide(used, weight, SharePlan(capacity))
    allotted = sum(share.allotted_mb_s for share in found)
    assert allotted <= capacity * (1 + ROUNDING)
    assert sum(share.entitled_mb_s for share in found) <= capacity * (1 + ROUNDING)
    if shares.is_overloaded(found):
        assert allotted == pytest.approx(capacity), "work-conserving: nothing is left over while somebody wants more"
    for share in found:
        used_mb_s = next(use.used_mb_s for use in used if use.group == share.group)
        least = share.entitled_mb_s if share.wants_more else min(used_mb_s, share.entitled_mb_s)
        assert share.allotted_mb_s >= least * (1 - 1e-6)


@given(uses, weights, capacities)
def test_the_hungry_of_one_slice_have_it_by_their_weights(
    used: list[Use], weight: dict[str, float], capacity: float
) -> None:
    hungry = [share for share in shares.divide(used, weight, SharePlan(capacity)) if share.wants_more]
    for one in hungry:
        for other in hungry:
            if one.group.rpartition("/")[0] == other.group.rpartition("/")[0]:
                ratio = one.allotted_mb_s / other.allotted_mb_s
                assert ratio == pytest.approx(weight[one.group] / weight[other.group], rel=1e-6)
