"""What the ledger becomes: counters that never go down, periods, caps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elastio.accounting.burst_accounts import MOST_SUMS, OTHERS
from elastio.accounting.history import CycleLoad
from elastio.accounting.rows import CycleRow
from elastio.core.moved import Moved
from elastio.metrics.ledger_values import LAG_S, Bills, ledger_values
from elastio.strategy.spending import Caps, Others, Period, Spent

GB = 10**9
DAY = Period(1_000_000.0, 1_086_400.0)
MONTH = Period(100_000.0, 2_692_000.0)
WALL = 1_010_000.0
# 0.001 USD a second.
ROW = CycleRow("t", "dev", "load", "vol-1", GB, GB, 100.0, WALL - 201, WALL - 200, currency="USD", price_per_hour=3.6)


def bills(*rows: CycleRow, **changes: Any) -> Bills:
    return replace(Bills(WALL, DAY, MONTH, rows, {}), **changes)


def values(given: Bills) -> dict[tuple[str, ...], float]:
    found = [((v.name.removeprefix("elastio_"), *v.labels), v.value) for v in ledger_values(given)]
    assert len(dict(found)) == len(found), "each series once"
    return dict(found)


def test_an_empty_ledger_has_its_counters_at_zero() -> None:
    found = values(bills())
    assert found["boosts_total", "load"] == found["boosts_failed_total", "lost"] == found["bills_open",] == 0
    assert ("last_boost_timestamp_seconds",) not in found


def test_boosts_are_counted_by_trigger_and_failures_by_kind() -> None:
    refused = replace(ROW, opened_wall=None, failure="quota", failure_kind="error")
    withdrawn = replace(ROW, trigger="operator", failure="the load is over", failure_kind="withdrawn")
    late = replace(refused, failure_kind="capped")
    found = values(bills(ROW, refused, withdrawn, late, replace(ROW, trigger="orphan")))
    assert (found["boosts_total", "load"], found["boosts_total", "operator"]) == (2, 1)
    assert found["boosts_failed_total", "error"] == 1
    assert found[("boosts_withdrawn_total",)] == 1
    assert ("boosts_total", "orphan") not in found
    assert not {("boosts_failed_total", kind) for kind in ("withdrawn", "capped")} & set(found)


def test_the_counter_of_cost_never_goes_down_when_a_running_bill_ends() -> None:
    """The last reading before the end is recorded shows the bill as running still."""
    closed = replace(ROW, closed_wall=WALL)
    late = LAG_S - 1
    readings = [
        values(bills(ROW))["cost_total", "USD"],
        values(bills(ROW, wall=WALL + late))["cost_total", "USD"],
        values(bills(closed, wall=WALL + late))["cost_total", "USD"],
        values(bills(closed, wall=WALL + 1000))["cost_total", "USD"],
    ]
    assert readings == sorted(readings)
    assert readings[-1] == pytest.approx(0.2)


def test_money_and_agbs_of_day_month_and_all_time() -> None:
    earlier = replace(ROW, opened_wall=500_000.0, started_wall=500_000.0, closed_wall=500_100.0)
    euros = replace(ROW, currency="EUR", closed_wall=WALL - 100)
    old = replace(earlier, opened_wall=1000.0, started_wall=1000.0, closed_wall=1100.0)
    found = values(bills(old, earlier, ROW, euros, replace(ROW, price_per_hour=None, currency="")))
    assert found["period_cost", "day", "USD"] == pytest.approx(0.2)
    assert found["period_cost", "month", "USD"] == pytest.approx(0.3)
    assert found["period_cost", "day", "EUR"] == pytest.approx(0.1)
    assert found["cost_total", "USD"] == pytest.approx(0.1 + 0.1 + 0.2 - LAG_S / 1000)
    assert (found["period_boosts", "day"], found["period_boosts", "month"]) == (3, 4)
    assert found["period_unpriced_boosts", "day"] == 1
    assert found["period_agbs", "day"] == pytest.approx(100.0 * (200 + 100 + 200))
    assert found["bills_open",] == 2
    assert found["last_boost_timestamp_seconds",] == ROW.started_wall


def test_each_cap_has_its_share() -> None:
    caps = Caps(max_boosts_per_day=4, max_cost_per_month=0.4, max_agbs_per_day=0)
    found = values(bills(ROW, caps=caps))
    shares = {key[1]: value for key, value in found.items() if key[0] == "cap_used_ratio"}
    assert shares == {"max_boosts_per_day": 0.25, "max_agbs_per_day": 1.0, "max_cost_per_month": pytest.approx(0.5)}
    assert found["cap", "max_cost_per_month"] == 0.4
    assert not any(key[0].startswith("cap") for key in values(bills(ROW)))


def test_what_others_have_spent_uses_up_a_shared_cap() -> None:
    others = Others(Spent(1, 0.0, 0.1), Spent(5, 0.0, 0.2))
    found = values(bills(ROW, caps=Caps(max_boosts_per_day=4, max_cost_per_month=0.8), others=others))
    assert found["cap_used_ratio", "max_boosts_per_day"] == 0.5
    assert found["cap_used_ratio", "max_cost_per_month"] == pytest.approx(0.5)
    assert found["period_boosts", "day"] == 1, "its own"


def test_purchases_ahead_have_their_hit_rate() -> None:
    right = replace(ROW, token="right", trigger="forecast", closed_wall=WALL - 10)
    wrong = replace(right, token="wrong")
    loads = {"right": CycleLoad(1, 1, WALL - 150, WALL - 100)}
    found = values(bills(right, wrong, loads=loads))
    assert (found["ahead_purchases", "learned", "right"], found["ahead_purchases", "learned", "wrong"]) == (1, 1)
    assert found["ahead_hit_ratio", "learned"] == 0.5
    assert ("ahead_hit_ratio", "announced") not in found


def test_the_parts_of_the_account_have_a_series_each() -> None:
    found = values(bills(waits={"a": {"computing": 3.0, "bandwidth": 5.0}}))
    assert found["computing_seconds_total", "a"] == 3
    assert {key[2]: value for key, value in found.items() if key[0] == "wait_seconds_total"} == {
        "queue": 0,
        "bandwidth": 5,
        "latency": 0,
        "elsewhere": 0,
        "unknown": 0,
    }


def test_what_cgroups_cost_is_counted_once_the_bill_is_closed_for_good() -> None:
    moved = {"t": {"a": Moved(0, 3 * GB)}, "u": {"b": Moved(GB, GB)}, "v": {"a": Moved(0, GB)}}
    loads = {"t": CycleLoad(0, 4 * GB)}
    ended = replace(ROW, closed_wall=WALL - 100)
    late, still = replace(ended, token="u", closed_wall=WALL - LAG_S / 2), replace(ROW, token="v")
    found = values(bills(ended, late, still, moved=moved, loads=loads))
    assert {key: value for key, value in found.items() if key[0].startswith("cgroup_")} == {
        ("cgroup_agbs_total", "a"): pytest.approx(7500),
        ("cgroup_agbs_total", "others"): pytest.approx(2500),
        ("cgroup_cost_total", "a", "USD"): pytest.approx(0.075),
        ("cgroup_cost_total", "others", "USD"): pytest.approx(0.025),
        ("cgroup_bytes_total", "a", "read"): 0,
        ("cgroup_bytes_total", "a", "write"): 3 * GB,
        ("cgroup_bytes_total", "others", "read"): 0,
        ("cgroup_bytes_total", "others", "write"): GB,
    }


def test_a_cgroup_that_came_late_is_one_of_the_others_for_ever() -> None:
    rows = [
        replace(ROW, token=f"t{n}", started_wall=WALL - n, closed_wall=WALL - 200 + n) for n in range(MOST_SUMS + 2)
    ]
    moved = {row.token: {f"run-{n}": Moved(0, GB)} for n, row in enumerate(rows)}
    for count in range(MOST_SUMS - 1, len(rows) + 1):
        found = values(bills(*rows[:count], moved=moved))
        names = {key[1] for key in found if key[0] == "cgroup_agbs_total"}
        assert names == {OTHERS, *(f"run-{n}" for n in range(min(count, MOST_SUMS)))}
        agbs = sum(value for key, value in found.items() if key[0] == "cgroup_agbs_total")
        assert agbs == pytest.approx(found[("agbs_total",)])


def test_a_size_that_was_learned_is_shown() -> None:
    assert values(bills(learned_size_bytes=GB))[("learned_size_bytes",)] == GB
    assert ("learned_size_bytes",) not in values(bills())
