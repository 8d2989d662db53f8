"""The comparison, and the command that makes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from elastio.core.policy import Ahead, Model
from elastio.units import GB, GIB
from elastio_adviser.replay import Demand
from elastio_testbed.cli import main
from elastio_testbed.optimum.comparison import Row, Way, document, to_text
from elastio_testbed.optimum.market import agbs_market, gp3_market, markets, openstack_market
from elastio_testbed.optimum.online import money_policy, run
from elastio_testbed.optimum.traces import Load, loads
from tests.values import present

BURSTS = "seconds,read_mb_s,write_mb_s\n0,0,0\n100,0,120\n140,0,0\n300,0,120\n340,0,0\n500,0,0\n"


def invoke(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["optimum", *(str(word) for word in words)])


def row(load: str, money: float, today: float) -> Row:
    best, own = Way(1000.0, 1.0, 11.0, 1), 10.0
    ways = (Way(1000.0, 1.0, cost, 1) for cost in (today, money))
    return Row("aws-gp3", load, "test", 1, 900.0, own, 14.0, best, 11.25, *ways)


def test_ratios_are_of_all_costs_and_of_those_that_can_be_decided() -> None:
    found = document([row("a", 11.0, 12.1), row("b", 12.1, 13.2), row("c", 11.5, 11.0)], [gp3_market()])
    for of in (found, found["tariffs"]["aws-gp3"]):
        assert (of["ratio_median"], of["ratio_worst"]) == (pytest.approx(11.5 / 11, abs=1e-4), 1.1)
        assert (of["decided_median"], of["decided_worst"]) == (1.5, 2.1)
        assert (of["today_ratio_median"], of["today_ratio_worst"]) == (1.1, 1.2)
        assert (of["decided_floor_median"], of["decided_floor_worst"]) == (1.25, 1.25)
        assert (of["over_floor_median"], of["over_floor_worst"]) == (1.2, 1.68)
        assert (of["slow_decided_median"], of["today_decided_worst"]) == (4.0, 3.2)
    rows = found["tariffs"]["aws-gp3"]["rows"]
    assert [r["ratio"] for r in rows] == [1.0, 1.1, 1.0455]
    assert [r["decided"] for r in rows] == [1.0, 2.1, 1.5]


def test_dearer_is_by_a_share_of_what_the_other_way_waits_and_pays() -> None:
    """Beyond the load's own 10: 4 for nothing bought, 1 for today's."""
    found = document([row("a", 10.5, 11.0), row("b", 14.1, 11.0), row("c", 11.005, 11.0)], [gp3_market()])
    rows = found["tariffs"]["aws-gp3"]["rows"]
    assert [r["dearer_than_never"] for r in rows] == [-0.875, 0.025, pytest.approx(-0.7488, abs=1e-4)]
    assert [r["dearer_than_default"] for r in rows] == [-0.5, 3.1, 0.005]
    assert (found["dearer_than_never"], found["dearer_than_never_count"]) == (0.025, 1)
    assert (found["dearer_than_default"], found["dearer_than_default_count"]) == (3.1, 1)


def test_a_load_with_nothing_to_decide_has_an_overhead_ratio_of_one() -> None:
    best = Way(1000.0, 0.0, 10.0, 0)
    nothing = Row("aws-gp3", "quiet", "test", 0, 1000.0, 10.0, 10.0, best, 10.0, best, best)
    assert nothing.decided(10.0) == 1.0
    assert nothing.dearer_than_never == 0.0


def test_the_table_has_a_line_for_each_tariff(golden: Callable[[str, str], None]) -> None:
    golden("optimum.txt", to_text(document([row("a", 11.0, 12.1), row("b", 12.1, 13.2)], [gp3_market()])))


def test_given_traces_are_compared_at_every_tariff(tmp_path: Path) -> None:
    folder, result = tmp_path / "traces", tmp_path / "out" / "result.json"
    folder.mkdir()
    (folder / "bursts.csv").write_text(BURSTS)
    done = invoke("--traces", folder, "--saturated", "128", "--jobs", "1", "--json", result)
    assert done.exit_code == 0, done.output
    tariffs = json.loads(result.read_text())["tariffs"]
    assert list(tariffs) == [m.name for m in markets()]
    for of in tariffs.values():
        (only,) = of["rows"]
        assert only["bursts"] == 2
        assert of["decided_median"] == of["decided_worst"] == only["decided"]
        assert only["slow_cost"] >= only["floor_cost"] >= only["optimum"]["cost"]


def test_what_cannot_be_compared_is_refused_before_anything_runs(tmp_path: Path) -> None:
    assert invoke("--saturated", "128").exit_code == 2
    assert invoke("--traces", tmp_path / "missing").exit_code == 2
    assert invoke("--traces", tmp_path).exit_code == 1, "an empty folder"


def test_by_money_a_load_that_leaves_no_time_to_flush_costs_much_less_than_today() -> None:
    load = next(load for load in loads() if load.name == "checkpoints-300s-150mb")
    few = Load(load.name, load.kind, load.wanted[:12])
    today, money = (run(few, agbs_market(), by_money=by_money) for by_money in (False, True))
    assert money.cost < 0.8 * today.cost


def test_by_money_the_agent_decides_itself_and_expects_bursts() -> None:
    policy = money_policy(openstack_market())
    assert (policy.model, policy.ahead) == (Model.MONEY, Ahead.LEARNED)
    assert present(policy.market).offer.most_bytes == policy.caps.max_size_bytes, "as the daemon limits it"


def test_a_first_guess_that_is_too_large_is_given_up_when_its_hour_is_over() -> None:
    bursts = [d for _ in range(14) for d in (Demand(500, 0, 0), Demand(0, 2 * GB, 0))]
    found = run(Load("small", "test", tuple(bursts)), openstack_market(), by_money=True)
    assert found.boosts == 2
    market = openstack_market()
    hour = market.cache.cost(market.billed_spec(10 * GIB, 250.0), 3600.0)
    assert hour < found.bill < 2 * hour
