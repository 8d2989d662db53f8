"""The rules of shares, for any weights, loads and capacities: no bandwidth twice, none left over, nobody starves."""

from __future__ import annotations

import math
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastio.core import shares
from elastio.core.shares import Reserved, SharePlan, Use

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
# A limit, what is wanted now as a factor of it, and whether nothing is in force yet.
limits = st.dictionaries(st.sampled_from(GROUPS), st.tuples(st.floats(0.1, 2000.0), st.floats(0.8, 1.2), st.booleans()))
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
    found = shares.divide(used, weight, capacity)
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
    hungry = [share for share in shares.divide(used, weight, capacity) if share.wants_more]
    for one in hungry:
        for other in hungry:
            if one.group.rpartition("/")[0] == other.group.rpartition("/")[0]:
                ratio = one.allotted_mb_s / other.allotted_mb_s
                assert ratio == pytest.approx(weight[one.group] / weight[other.group], rel=1e-6)


@given(limits)
def test_no_limit_is_rewritten_for_a_change_of_less_than_eight_percent(
    groups: dict[str, tuple[float, float, bool]],
) -> None:
    in_force = {group: limit for group, (limit, _, is_new) in groups.items() if not is_new}
    wanted = {group: limit * factor for group, (limit, factor, _) in groups.items()}
    written = shares.rewrites(in_force, wanted)
    for group, (_, factor, is_new) in groups.items():
        change = math.inf if is_new else abs(factor - 1)
        assert change >= 0.08 * (1 - ROUNDING) if group in written else change <= 0.08 * (1 + ROUNDING)
    assert written.items() <= wanted.items()


# --- limits ---------------------------------------------------------------------------------------------------

demands = st.dictionaries(st.sampled_from(GROUPS), st.floats(0.01, 3.0), min_size=1)
reserves = st.lists(st.builds(Reserved, st.sampled_from(GROUPS), st.floats(0.1, 2000.0)), unique_by=lambda r: r.group)


@given(uses, weights, capacities, reserves, limits, st.sets(st.sampled_from(GROUPS)))
def test_limits_leave_everybody_its_share_and_touch_no_limit_of_somebody_else(
    used: list[Use],
    weight: dict[str, float],
    capacity: float,
    reserve: list[Reserved],
    before: dict[str, tuple[float, float, bool]],
    untouched: set[str],
) -> None:
    plan = SharePlan(capacity, tuple(reserve))
    in_force = {group: limit for group, (limit, _, _) in before.items()}
    found = shares.limits(used, weight, plan, in_force, untouched)
    assert not found.keys() & untouched
    active = [use for use in used if use.used_mb_s >= shares.ACTIVE * capacity]
    part = shares.parts(weight, [use.group for use in active], plan)
    assert sum(part.values()) == pytest.approx(1.0 if active else 0.0)
    for use in active:
        if use.group in found:
            assert found[use.group] >= part[use.group] * capacity * (1 - 1e-6) or found[use.group] >= use.used_mb_s


def test_a_cgroup_that_wants_no_more_is_never_limited_to_less_than_it_uses() -> None:
    """It uses more than its weight gives, of what another one leaves."""
    uses = [Use("system.slice/a", 0.475), Use("system.slice/b", 0.25), Use("batch.slice/c", 0.25)]
    in_force = {"system.slice/a": 0.475, "system.slice/b": 0.3625}
    weight = {**dict.fromkeys(NODES, 1.0), "batch.slice": 4.0}
    assert shares.limits(uses, weight, SharePlan(1.1), in_force)["system.slice/b"] >= 0.25


# A cgroup that uses just its share of a full device counts as wanting more at every other turn, and takes from those
# that do: what is left of the promise by the worst demands of 6,000.
LEAST_SHARE, LEAST_USED = 0.7, 0.5


@given(weights, demands)
def test_turns_of_the_loop_end_at_the_shares(weight: dict[str, float], wants: dict[str, float]) -> None:
    """A device that serves first what comes first, asked for so much of its capacity by each cgroup.

    Limits go up and down a little for ever, to see who wants more: what counts is the mean of some turns.
    """
    in_force: dict[str, float] = {}
    turns: list[dict[str, float]] = []
    for _ in range(60):
        asked = {group: min(want, in_force.get(group, math.inf)) for group, want in wants.items()}
        turns.append({group: mb_s * min(1.0, 1.02 / sum(asked.values())) for group, mb_s in asked.items()})
        used = [Use(group, mb_s) for group, mb_s in turns[-1].items()]
        wanted = shares.limits(used, weight, SharePlan(1.0), in_force)
        in_force = {**{g: mb_s for g, mb_s in in_force.items() if g in wanted}, **shares.rewrites(in_force, wanted)}
    served = {group: fmean(turn[group] for turn in turns[-20:]) for group in wants}
    for group, entitled in shares.fractions(weight, wants).items():
        assert served[group] >= LEAST_SHARE * min(wants[group], entitled)
    assert sum(served.values()) >= LEAST_USED * min(1.0, sum(wants.values()))
