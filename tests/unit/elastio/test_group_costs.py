"""Who caused the cost of boosts: bills divided by what cgroups moved, to the last unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastio.accounting.burst_accounts import OTHERS
from elastio.accounting.group_costs import boost_costs, cost_table, divided, folded, total_costs
from elastio.accounting.history import CycleLoad
from elastio.accounting.report import build
from elastio.accounting.report_render import to_dict, to_text
from elastio.core.moved import Moved
from elastio.units import GB
from elastio_adviser.page.report_page import to_html

from .test_report import NOON, cycle, refused, span

DB, TAR = "system.slice/db.service", "system.slice/tar.service"
amounts = st.floats(0.0, 1e15, allow_nan=False)
sizes = st.integers(0, 10**15)
moves = st.dictionaries(st.sampled_from((DB, TAR, "user.slice", OTHERS)), st.builds(Moved, sizes, sizes))
loads = st.none() | st.builds(CycleLoad, sizes, sizes)


@given(amounts, st.lists(sizes, min_size=1, max_size=60), st.randoms(use_true_random=False).map(lambda r: r.shuffle))
def test_parts_are_the_amount_in_any_order(
    amount: float, weights: list[int], shuffle: Callable[[list[float]], None]
) -> None:
    parts = divided(amount, weights)
    whole = sum(weights)
    for part, weight in zip(parts, weights, strict=True):
        assert part >= 0
        assert not whole or part == pytest.approx(amount * weight / whole, rel=1e-9, abs=2 * math.ulp(amount))
    shuffle(parts)
    assert _added(parts) == amount


@given(moves, loads, amounts, st.none() | amounts)
def test_the_bill_of_a_boost_is_divided_to_the_last_unit(
    moved: dict[str, Moved], load: CycleLoad | None, agbs: float, cost: float | None
) -> None:
    found = boost_costs(moved, load, agbs, cost)
    assert _added([each.agbs for each in found]) == agbs
    costs = [each.cost for each in found if each.cost is not None]
    assert (_added(costs), len(costs)) == ((0.0, 0) if cost is None else (cost, len(found)))
    assert {name: each for name, each in moved.items() if each.total_bytes and name != OTHERS} == {
        each.cgroup: each.moved for each in found if each.cgroup != OTHERS
    }
    read, written = (sum(getattr(each.moved, name) for each in found) for name in ("read_bytes", "written_bytes"))
    if load is not None:
        assert read >= load.read_bytes
        assert written >= load.written_bytes
    assert [each.cgroup for each in found].count(OTHERS) == 1


def _added(parts: Sequence[float]) -> float:
    total = 0.0
    for part in parts:
        total += part
    return total


def test_who_writes_pays_and_what_nobody_is_known_for_is_that_of_others() -> None:
    found = boost_costs({DB: Moved(90, 30), TAR: Moved(0, 50)}, CycleLoad(90, 100), 1000.0, 10.0)
    assert [each.cgroup for each in found] == [DB, TAR, OTHERS]
    assert [each.agbs for each in found] == pytest.approx([300, 500, 200])
    assert [each.cost for each in found] == pytest.approx([3, 5, 2])


def test_who_reads_pays_if_nobody_writes() -> None:
    found = boost_costs({DB: Moved(30, 0)}, CycleLoad(40, 0), 1000.0, None)
    assert {each.cgroup: each.agbs for each in found} == {DB: pytest.approx(750), OTHERS: pytest.approx(250)}


def test_a_boost_of_which_nothing_is_known_is_that_of_others() -> None:
    (others,) = boost_costs({}, None, 1000.0, 2.0)
    assert (others.cgroup, others.agbs, others.cost) == (OTHERS, 1000.0, 2.0)


def test_sums_have_the_dearest_first_and_the_others_last() -> None:
    boosts = [
        boost_costs({DB: Moved(0, 1), TAR: Moved(0, 3)}, CycleLoad(0, 20), 1000.0, 10.0),
        boost_costs({DB: Moved(0, 9)}, CycleLoad(0, 10), 1000.0, None),
    ]
    found = total_costs(boosts)
    assert [(each.cgroup, each.boosts, each.moved.written_bytes) for each in found] == [
        (DB, 2, 10),
        (TAR, 1, 3),
        (OTHERS, 2, 17),
    ]
    assert [each.cost for each in found] == pytest.approx([0.5, 1.5, 8.0])
    few = folded(found, 1)
    assert [(each.cgroup, each.boosts, each.moved.written_bytes) for each in few] == [(DB, 2, 10), (OTHERS, 2, 20)]
    assert sum(each.agbs for each in few) == pytest.approx(2000.0)
    assert sum(each.cost or 0.0 for each in few) == pytest.approx(10.0)


def test_no_table_where_no_cgroup_is_known() -> None:
    assert not cost_table(total_costs([boost_costs({}, None, 1000.0, 2.0)]), "USD", 5).rows


def test_the_report_divides_what_its_boosts_cost_in_the_period() -> None:
    rows = [cycle(NOON, NOON + 100), cycle(NOON + 200, NOON + 300, "u"), refused(NOON + 400)]
    moved = {"t": {DB: Moved(0, 3 * GB)}, "u": {DB: Moved(0, GB), TAR: Moved(5 * GB, GB)}}
    known = {"t": CycleLoad(0, 4 * GB), "u": CycleLoad(5 * GB, 2 * GB)}
    report = build(rows, [span(NOON, NOON + 1000)], NOON + 50, NOON + 1000, UTC, known, moved)
    document = to_dict(report)
    assert [list(each["cgroups"]) for each in document["phases"]] == [[DB, OTHERS], [DB, TAR, OTHERS], []]
    for each in document["phases"][:2]:
        assert _added([part["agbs"] for part in each["cgroups"].values()]) == each["cache_agbs"]
        assert _added([part["cost"] for part in each["cgroups"].values()]) == each["cost"]
    assert sum(each["agbs"] for each in document["cgroups"].values()) == pytest.approx(report.vm.cache_agbs)
    assert sum(each["cost"] for each in document["cgroups"].values()) == pytest.approx(report.vm.cost)
    assert document["cgroups"][TAR]["read_bytes"] == 5 * GB
    assert DB in to_text(report)
    page = to_html(report, {}, "machine")
    assert f'<th scope="row">{DB}</th>' in page


def test_costs_in_two_currencies_are_not_added() -> None:
    rows = [cycle(NOON, NOON + 100), replace(cycle(NOON + 200, NOON + 300, "u"), currency="EUR")]
    moved = {row.token: {DB: Moved(0, GB)} for row in rows}
    report = build(rows, [span(NOON, NOON + 1000)], 0.0, NOON + 1000, UTC, {}, moved)
    assert [each.cost for each in report.groups] == [None, None]
    assert all(each["cost"] is not None for each in to_dict(report)["phases"][0]["cgroups"].values())
