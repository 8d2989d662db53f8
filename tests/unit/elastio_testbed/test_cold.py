"""Experiments with prices: the cold volume, the bill at the published size, and the figures that are judged."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elastio.config import schema
from elastio.core.model import VolumeSpec
from elastio.units import GB, GIB, MB
from elastio_adviser.volume_types import volume_type
from elastio_aws.prices import price
from elastio_testbed import dollars, priced
from elastio_testbed.catalogue import COLD_PRICES, EXPERIMENTS, GP3_PRICES
from elastio_testbed.ec2 import Ec2Endpoint, Purchase, Scale
from elastio_testbed.errors import PlanError
from elastio_testbed.evaluation import to_text
from elastio_testbed.experiment import Ahead, Experiment, Scaled, Setup
from elastio_testbed.image import GuestImage
from elastio_testbed.machine import Guest, ahead_tables, config_text
from elastio_testbed.result import Result
from elastio_testbed.run import check
from elastio_testbed.simulated import simulate
from elastio_testbed.tables import all_tables, conditions
from elastio_testbed.tables import dollars as dollar_table
from elastio_testbed.trial import Plan, open_endpoint

from .documents import document, evaluation, setup_result

COLD = EXPERIMENTS["cold"]
SCALED = Scaled(COLD, 0.1, 0.5)
UUID = "0b6f4c1e-5d0c-4a57-9d55-6f3a4b1c2d3e"


# --- the volume --------------------------------------------------------------------------------------------


def test_the_data_volume_is_half_a_tib_of_sc1_scaled_like_everything_else() -> None:
    bucket = SCALED.bucket
    assert bucket is not None
    assert (bucket.base_mb_s, bucket.burst_mb_s) == pytest.approx((6 * 1.048576 / 2, 40 * 1.048576 / 2))
    assert bucket.capacity_bytes == SCALED.backing_bytes == pytest.approx(512 * GIB * 0.05, rel=1e-4)
    assert SCALED.first_credits_bytes > bucket.reserve_bytes
    assert len(SCALED.dumps_bytes) == 24
    assert Scaled(EXPERIMENTS["cm1"], 0.1, 0.5).bucket is None


def test_what_the_dumps_need_is_earned_but_not_without_a_pause() -> None:
    """The credits of an interval pay for its dump; those above the reserve do not pay for the first flush."""
    bucket, dump = SCALED.bucket, SCALED.dumps_bytes[0]
    assert bucket is not None
    assert dump < bucket.base_mb_s * MB * SCALED.compute_each_s
    spare = SCALED.first_credits_bytes - bucket.reserve_bytes
    assert dump * (1 - bucket.base_mb_s / bucket.burst_mb_s) > spare


def guest_of(folder: Path, experiment: str, ahead: Ahead | None, setup: Setup = Setup.ADAPTIVE) -> Guest:
    image = GuestImage(folder, folder, folder, folder, "digest", "bookworm")
    guest = Guest(image, folder, "vm0", setup, Scaled(EXPERIMENTS[experiment], 0.1, 0.5))
    guest.backing_uuid, guest.ahead = UUID, ahead
    return guest


def guest_tables(folder: Path, experiment: str, ahead: Ahead | None = None) -> str:
    guest = guest_of(folder, experiment, ahead)
    with Ec2Endpoint(folder / "cloud") as endpoint:
        return config_text(guest.config_tables(endpoint), ahead_tables(guest.ahead))


def test_the_guests_agent_knows_the_bucket_that_the_hypervisor_keeps(tmp_path: Path) -> None:
    policy = schema.parse(tomllib.loads(guest_tables(tmp_path, "cold"))).policy()
    assert policy.backing_credits == SCALED.bucket
    assert policy.first_credits_bytes == pytest.approx(SCALED.first_credits_bytes)
    assert policy.backing_bandwidth_mb_s == SCALED.backing_bytes_s / MB


def test_the_simulator_has_no_model_of_the_cold_volume_alone() -> None:
    short = Scaled(replace(COLD, dumps_gb=(4.0,) * 2, compute_s=900.0), 0.1, 0.5)
    found = simulate(short, tuple(Setup))
    assert set(found) == {Setup.STATIC_FAST, Setup.ADAPTIVE}
    slower = found[Setup.ADAPTIVE].completion_s / found[Setup.STATIC_FAST].completion_s
    assert 1 < slower <= 1 + COLD_PRICES.most_time_pct / 100


# --- dollars -----------------------------------------------------------------------------------------------

HOUR_S = 360.0  # of the run, which is an hour of the experiment


def test_the_data_volume_costs_what_the_tariffs_say() -> None:
    sc1 = dollars.data_volume(SCALED, COLD_PRICES, Setup.ADAPTIVE, HOUR_S)
    gp3 = dollars.data_volume(SCALED, COLD_PRICES, Setup.STATIC_FAST, HOUR_S)
    assert sc1 * 720 == pytest.approx(512 * 0.015, rel=1e-6)
    assert gp3 * 720 == pytest.approx(512 * 0.08, rel=1e-6)


def bought(seconds: float | None) -> Purchase:
    """10 GiB and 170 MB/s of the experiment, in units of the scaled cloud: 1 GiB is 50 MiB, 1 MiB/s is 0.5 MB/s."""
    return Purchase("vol-1", "vol1", 10, 170, 1000.0, None if seconds is None else 1000.0 + seconds, ())


SCALE = Scale(gib_bytes=GIB // 20, mib_s_bytes=500_000)


@pytest.mark.parametrize(("seconds", "billed_s"), [(30.0, 300.0), (1.0, 60.0), (None, 400.0)])
def test_caches_are_billed_for_their_published_time_and_at_least_a_minute(
    seconds: float | None, billed_s: float
) -> None:
    per_hour = (10 * 0.08 + (170 - 131.072) / 1.048576 * 0.04) / 720
    cost = dollars.caches(SCALED, COLD_PRICES, [bought(seconds)], SCALE, now=1040.0)
    assert cost == pytest.approx(per_hour * billed_s / 3600, rel=1e-4)


class NoCaches:
    scale = SCALE

    def volumes(self) -> list[Purchase]:
        return []

    def live_volumes(self) -> list[object]:
        return []

    def settle(self, timeout_s: float) -> None:
        raise AssertionError


class Cloud(NoCaches):
    def volumes(self) -> list[Purchase]:
        return [bought(30.0)]


def test_a_bill_has_the_data_volumes_and_the_caches_of_experiments_with_tariffs() -> None:
    data = dollars.data_volume(SCALED, COLD_PRICES, Setup.ADAPTIVE, HOUR_S)
    caches = dollars.caches(SCALED, COLD_PRICES, [bought(30.0)], SCALE, now=0.0)
    found = dollars.bill(SCALED, Setup.ADAPTIVE, 2, HOUR_S, Cloud(), 0.0)
    assert found == pytest.approx(2 * data + caches, abs=1e-6)
    assert dollars.bill(Scaled(EXPERIMENTS["cm1"], 0.1, 0.5), Setup.ADAPTIVE, 1, HOUR_S, Cloud(), 0.0) is None


# --- by money ----------------------------------------------------------------------------------------------

MONEY = EXPERIMENTS["cm1-money"]


@pytest.mark.parametrize(("time", "bandwidth"), [(1.0, 1.0), (0.25, 0.5), (0.1, 0.25)])
def test_the_agent_of_a_run_decides_by_the_prices_of_the_experiment(
    time: float, bandwidth: float, tmp_path: Path
) -> None:
    """4 GB and 300 MB/s for an hour, and an hour of the VM: at any scale the same dollars."""
    scaled = Scaled(MONEY, time, bandwidth)
    with open_endpoint(Plan("cm1-money", MONEY.setups, scale=time, bandwidth=bandwidth), scaled, tmp_path) as endpoint:
        tables = tomllib.loads(config_text(dollars.agent_settings(scaled, endpoint.scale)))
        scale = {"gib_bytes": endpoint.scale.gib_bytes, "mib_s_bytes": endpoint.scale.mib_s_bytes}
    assert tables["policy"]["model"] == "money"
    assert tables["value"]["hour"] * time == pytest.approx(GP3_PRICES.vm_hour)
    spec = VolumeSpec(round(4 * GB * time * bandwidth), 300 * bandwidth, None)
    per_hour = price({"prices": tables["provider"]["aws"]["prices"], "scale": scale}, "us-east-1", spec).price_per_hour
    published = volume_type("gp3").per_hour(4 * GB, 300)
    # A cloud sells whole GiB and MiB/s.
    assert published <= per_hour * time <= published * 1.08


def test_the_vm_is_in_the_bill_of_each_set_up_and_static_fast_has_its_own_speed() -> None:
    scaled = Scaled(MONEY, 0.1, 0.5)
    assert (scaled.cache_bytes_s, scaled.fast_bytes_s, scaled.backing_bytes_s) == (256 * MB, 64 * MB, 16.5 * MB)
    fast = dollars.bill(scaled, Setup.STATIC_FAST, 1, HOUR_S, NoCaches(), 0.0)
    assert fast == pytest.approx(0.384 + volume_type("gp3").standing(50 * GB, 128.0, 3600.0), abs=1e-6)


def test_only_an_experiment_by_money_says_what_an_hour_costs(tmp_path: Path) -> None:
    assert "value" not in tomllib.loads(guest_tables(tmp_path / "cold", "cold"))
    found = tomllib.loads(guest_tables(tmp_path / "money", "cm1-money"))
    assert schema.parse(found).value.hour == pytest.approx(3.84)
    assert found["policy"]["cool_down_s"] == 1


def test_by_money_less_time_and_less_money_are_the_bars() -> None:
    better, slower, dearer = (
        Result((setup_result(Setup.STATIC_FAST, 1000.0, 1.0, dollars=1.0), setup_result(Setup.ADAPTIVE, *each)))
        for each in ((960.0, 1.0), (980.0, 1.0), (960.0, 1.0))
    )
    better, slower, dearer = (
        Result((r.setups[0], replace(r.setups[1], dollars=spent)))
        for r, spent in ((better, 0.97), (slower, 0.97), (dearer, 1.01))
    )
    assert [name for r in (better, slower, dearer) for name, met in figures([r], MONEY).meets.items() if not met] == [
        "time_vs_fast_pct",
        "cost_vs_fast_pct",
    ]
    assert "least_credit_share" not in figures([better], MONEY).meets


# --- figures -----------------------------------------------------------------------------------------------


def run(time_s: float = 1020.0, spent: float = 0.2, share: float | None = 0.09, **changes: Any) -> Result:
    fast = setup_result(Setup.STATIC_FAST, 1000.0, 200.0, dollars=1.0)
    ours = setup_result(Setup.ADAPTIVE, time_s, 90.0, dollars=spent, least_credit_share=share, **changes)
    return Result((fast, ours))


def figures(repetitions: list[Result], experiment: Experiment = COLD) -> priced.Figures:
    found = priced.figures_of(experiment, repetitions)
    assert found is not None
    return found


def test_time_is_a_difference_dollars_are_a_share_and_credits_the_least_of_all() -> None:
    found = figures([run(), run(1040.0, 0.22, 0.07), run(1030.0, 0.21, 0.08)])
    assert (found.time_vs_fast_pct, found.cost_vs_fast_pct, found.least_credit_share) == (3.0, 21.0, 0.07)
    assert all(found.meets.values())


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({"time_s": 1051.0}, "time_vs_fast_pct"),
        ({"spent": 0.26}, "cost_vs_fast_pct"),
        ({"share": 0.0}, "least_credit_share"),
        ({"checksums_ok": False}, "checksums_ok"),
        ({"volumes_left": 1}, "volumes_left"),
    ],
)
def test_each_figure_has_its_bar(changes: dict[str, Any], missed: str) -> None:
    assert [name for name, met in figures([run(**changes)]).meets.items() if not met] == [missed]


def test_a_figure_of_a_set_up_that_was_not_run_is_not_known() -> None:
    alone = figures([Result(run().setups[1:])])
    assert (alone.time_vs_fast_pct, alone.cost_vs_fast_pct, alone.least_credit_share) == (None, None, 0.09)


def test_the_document_the_text_and_the_tables_show_the_figures() -> None:
    found = document(run(), experiment="cold")
    assert (found["time_vs_fast_pct"], found["cost_vs_fast_pct"], found["least_credit_share"]) == (2.0, 20.0, 0.09)
    assert (found["checksums_ok"], found["volumes_left"]) == (True, 0)
    assert list(found["tariffs"]) == ["sc1", "gp3"]
    assert "all bars met" in to_text(evaluation(run(), experiment="cold"))
    assert "missed: time_vs_fast_pct" in to_text(evaluation(run(2000.0), experiment="cold"))
    assert dollar_table(found).rows == (
        ("static-fast", "1.0000", "100.0", "-"),
        ("adaptive", "0.2000", "20.0", "9.0"),
    )
    assert dollar_table(found) in all_tables(found)


def test_other_experiments_have_neither_figures_nor_table() -> None:
    found = document()
    assert "least_credit_share" not in found
    assert "Dollars" not in {table.title for table in all_tables(found)}


# --- plans -------------------------------------------------------------------------------------------------


def test_a_plan_that_cannot_be_run_is_refused_before_anything_is_started() -> None:
    check(Plan("lammps", COLD.setups, ahead=Ahead.EXPECT))
    for plan in (Plan("bonnie", COLD.setups, ahead=Ahead.LEARNED), Plan("cold", COLD.setups, disturb=2)):
        with pytest.raises(PlanError):
            check(plan)


def test_the_result_states_how_bursts_were_known_ahead() -> None:
    plain = evaluation()
    told = replace(plain, plan=replace(plain.plan, ahead=Ahead.EXPECT))
    assert (plain.to_json()["ahead"], told.to_json()["ahead"]) == (None, "expect")
    assert "bursts known ahead: expect" in to_text(told)
    rows = {name for name, _ in conditions(document()).rows}
    assert {name: text for name, text in conditions({**document(), "ahead": "learned"}).rows if name not in rows} == {
        "bursts known ahead": "learned"
    }


def test_only_a_learning_agent_has_a_setting_for_it(tmp_path: Path) -> None:
    texts = [guest_tables(tmp_path / str(n), "cm1", ahead) for n, ahead in enumerate((None, Ahead.EXPECT))]
    assert not any("ahead" in text for text in texts)
    learned = tomllib.loads(guest_tables(tmp_path / "learned", "cm1", Ahead.LEARNED))
    assert learned["policy"]["ahead"] == "learned"
    assert learned["policy"]["cool_down_s"] == 1


@pytest.mark.parametrize("experiment", ["cm1", "lammps"])
def test_only_the_application_of_an_adaptive_device_announces_its_dumps(experiment: str, tmp_path: Path) -> None:
    told = guest_of(tmp_path / "told", experiment, Ahead.EXPECT)
    assert told.workload_spec(1)["announced"] == told.scaled.dumps_bytes
    others = [(Ahead.EXPECT, Setup.STATIC_FAST), (Ahead.LEARNED, Setup.ADAPTIVE), (None, Setup.ADAPTIVE)]
    for n, (ahead, setup) in enumerate(others):
        assert "announced" not in guest_of(tmp_path / str(n), experiment, ahead, setup).workload_spec(1)


def test_a_gigabyte_is_not_a_gibibyte() -> None:
    assert COLD.backing_gb * GB == 512 * GIB


def test_the_simulator_has_no_model_of_an_agent_that_knows_prices() -> None:
    assert set(simulate(Scaled(MONEY, 0.1, 0.5), MONEY.setups)) == {Setup.STATIC_FAST}
