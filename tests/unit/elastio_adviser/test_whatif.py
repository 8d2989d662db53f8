"""A trace under policies: what is replayed, what it costs, and when the agent is not worth it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.errors import ConfigError
from elastio.strategy.learning import next_size
from elastio.strategy.tariff import Tariff
from elastio.units import GB, GIB, MB, agbs
from elastio_adviser.modification import ChangeRule
from elastio_adviser.rates import Rate, TraceError
from elastio_adviser.replay import Demand, Replay, demands
from elastio_adviser.volume_types import VolumeType, volume_type
from elastio_adviser.whatif import Answer, Question, answer
from elastio_sim.kernel import KernelSettings
from elastio_sim.world import SimWorld, WorldSettings

UUID = KernelSettings().backing_uuid
# 0.08 USD a GB and month, 0.04 a MB/s and month, nothing included.
TYPE = VolumeType("given", Tariff("USD", 0.00011, 0.00006, minimum_s=60))
BURSTS = (Demand(60, 60 * MB, 0), Demand(0, 2000 * MB, 0), Demand(200, 0, 0)) * 2


def question(*wanted: Demand, **changes: object) -> Question:
    values: dict[str, object] = {"backing_mb_s": 20.0, "cache_mb_s": 80.0, "size_bytes": 10 * GB}
    values |= {"initial_bytes": 4 * GIB, "inactivity_delay_s": 4.0, "volume": TYPE, "fast": TYPE}
    return Question(wanted, **{**values, **changes})  # type: ignore[arg-type]


def replay(mb_s: float, *wanted: Demand) -> Replay:
    load = Replay(wanted, 10 * GB)
    world = SimWorld(WorldSettings(kernel=KernelSettings(backing_mb_s=mb_s, backing_bytes=10 * GB)), load)
    world.run_until_done(5000)
    return load


# --- replaying -----------------------------------------------------------------------------------------------


def test_a_segment_that_the_device_can_take_lasts_as_long_as_it_did() -> None:
    load = replay(20, Demand(30, 300 * MB, 0), Demand(10, 0, 0))
    assert load.stats.finished_s == pytest.approx(40, abs=0.2)
    assert load.stats.written_bytes == pytest.approx(300 * MB, abs=2 * MB)


def test_a_segment_that_the_device_cannot_take_lasts_longer_and_delays_the_rest() -> None:
    load = replay(20, Demand(10, 800 * MB, 0), Demand(10, 0, 0))
    assert load.stats.finished_s == pytest.approx(40 + 10, abs=1)
    assert load.stats.written_bytes == pytest.approx(800 * MB, abs=2 * MB)


def test_reads_are_replayed_too() -> None:
    load = replay(20, Demand(5, 0, 200 * MB))
    assert load.stats.read_bytes == pytest.approx(200 * MB, abs=2 * MB)
    assert load.stats.finished_s == pytest.approx(10, abs=0.5)


def test_what_saturated_the_recorded_device_is_replayed_as_fast_as_possible() -> None:
    rates = (Rate(0, 10, 0, 1), Rate(10, 30, 0, 32.5), Rate(40, 30, 1, 31.9), Rate(70, 10, 0, 0))
    wanted = demands(rates, 33.0)
    assert wanted == (Demand(10, 10 * MB, 0), Demand(0, (975 + 957) * MB, 30 * MB), Demand(10, 0, 0))
    assert [d.seconds for d in demands(rates)] == [10, 30, 30, 10]


# --- the comparison ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bursty() -> Answer:
    policies: dict[str, dict[str, float]] = {
        "adaptive": {},
        "never": {"utilization_threshold": 1.0, "trigger_delay_s": 3600.0},
    }
    return answer(question(*BURSTS, policies=policies))


def test_short_bursts_are_worth_it(bursty: Answer) -> None:
    slow, fast, modified = bursty.static
    adaptive, never = bursty.policies
    assert fast.completion_s < adaptive.completion_s < slow.completion_s
    assert adaptive.agbs < fast.agbs
    assert len(adaptive.phases) == 2
    assert modified.agbs == pytest.approx(fast.agbs, rel=0.15)
    assert never.completion_s == pytest.approx(slow.completion_s, abs=1)
    assert never.phases == ()
    assert bursty.worth_it


def test_static_costs_are_bandwidth_times_size_times_time(bursty: Answer) -> None:
    slow = bursty.static[0]
    assert slow.agbs == pytest.approx(agbs(20.0, 10 * GB, slow.completion_s))
    assert slow.cost == pytest.approx(TYPE.per_hour(10 * GB, 20.0) * slow.completion_s / 3600)
    assert slow.per_month == pytest.approx(TYPE.per_hour(10 * GB, 20.0) * 720)


def test_a_month_is_the_volume_and_the_caches_of_as_many_courses() -> None:
    found = answer(question(*BURSTS, recorded_s=1000.0)).policies[0]
    caches = sum(TYPE.cost(b.size_bytes, 100.0, b.held_s) for b in found.phases)
    assert len(found.phases) == 2
    assert found.per_month == pytest.approx(TYPE.per_hour(10 * GB, 20.0) * 720 + caches * 2592)
    assert found.waits_min_per_day == pytest.approx((found.completion_s - 520) / 60 * 86.4)


def test_a_quiet_trace_is_not_worth_it() -> None:
    found = answer(question(Demand(120, 120 * MB, 0)))
    assert not found.worth_it
    assert [choice.name for choice in found.choices] == ["static-slow"]


def test_a_load_that_never_pauses_is_not_worth_it() -> None:
    assert not answer(question(Demand(0, 12 * GB, 0))).worth_it


def test_a_price_list_of_ones_own_counts() -> None:
    dear = VolumeType("dear", Tariff("EUR", per_gib_hour=GIB / GB))
    found = answer(question(Demand(60, 60 * MB, 0), volume=dear, fast=dear))
    assert found.currency == "EUR"
    assert found.static[0].cost == pytest.approx(10 * found.static[0].completion_s / 3600)


def test_tariffs_of_different_currencies_are_refused() -> None:
    euro = VolumeType("euro", Tariff("EUR", per_gib_hour=1.0))
    with pytest.raises(ConfigError) as refused:
        answer(question(Demand(60, 60 * MB, 0), fast=euro))
    assert refused.value.code == "tariff.currency"


def test_a_cloud_that_modifies_no_volume_offers_no_modified_one() -> None:
    found = answer(question(Demand(60, 60 * MB, 0), change_rule=ChangeRule(0)))
    assert [way.name for way in found.static] == ["static-slow", "static-fast"]


# --- the reference load: 4 GB every 15 minutes, as fast as the volume takes it ----------------------------------

GP3, SC1, ST1 = (volume_type(name) for name in ("gp3", "sc1", "st1"))
REFERENCE = (Demand(0, 4 * GB, 0), Demand(870, 0, 0)) * 4


@pytest.mark.parametrize("replayed", [True, False], ids=["replayed", "modelled"])
def test_the_reference_load_costs_what_a_calculation_by_hand_says(replayed: bool) -> None:
    """Prices of us-east-1: 500 GiB; every cache is billed for 60 s, 2,880 times a month."""
    asked = Question(
        REFERENCE, 3600.0, 131.072, 500.0, 500 * GIB, cold=(ST1, SC1), replayed=replayed, with_timeline=False
    )
    found = {way.name: way for way in answer(asked).ways}
    cache = 2880 / 60 * GP3.per_hour(5 * GIB, 631.072)
    assert found["static-slow"].per_month == pytest.approx(40.00, abs=0.01)
    assert found["static-fast"].per_month == pytest.approx(54.07, abs=0.01)
    assert found["adaptive"].per_month == pytest.approx(40.00 + cache, abs=0.15)
    assert found["static-st1"].per_month == pytest.approx(22.50, abs=0.01)
    assert found["static-sc1"].per_month == pytest.approx(7.50, abs=0.01)
    assert found["adaptive-sc1"].per_month < 10
    # 96 dumps a day: 30.5 s on gp3, 8 s on the fast volume, 97.7 s on the burst rate of sc1.
    assert found["static-slow"].waits_min_per_day == pytest.approx(96 * 30.5 / 60, rel=0.01)
    assert found["static-fast"].waits_min_per_day == pytest.approx(96 * 8 / 60, rel=0.01)
    assert found["static-sc1"].waits_min_per_day == pytest.approx(96 * 97.7 / 60, rel=0.01)
    assert found["adaptive-sc1"].waits_min_per_day < found["static-slow"].waits_min_per_day


def test_a_load_that_spends_more_credits_than_it_earns_has_none_in_the_long_run() -> None:
    asked = Question((Demand(0, 40 * GB, 0), Demand(600, 0, 0)), 900.0, 131.0, 500.0, 500 * GIB, cold=(SC1,))
    cold = answer(replace(asked, replayed=False)).cold[0]
    assert cold.least_credits == 0
    assert cold.completion_s > 40_000 / 7


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"headroom": 0.0}, "cache.headroom"),
        ({"trigger_delay_s": -1.0}, "policy.trigger_delay_s"),
        ({"utilization_threshold": 50.0}, "policy.utilization_threshold"),
        ({"release_threshold": 0.5}, "policy.release_threshold"),
        ({"min_size_gib": 101.0}, "cache.min_size_gib"),
        ({"initial_size_gib": 0.5}, "cache.initial_size_gib"),
        ({"initial_size_gib": 1e18}, "cache.initial_size_gib"),
        ({"initial_size_gib": 1e300}, "cache.initial_size_gib"),
        ({"bandwidth_mb_s": 1e9}, "cache.bandwidth_mb_s"),
        ({"drain_bandwidth_mb_s": 0.0, "bandwidth_mb_s": 0.5}, "cache.bandwidth_mb_s"),
        ({"speed": 1.0}, "speed"),
    ],
    ids=str,
)
def test_a_policy_that_no_configuration_may_hold_is_refused(changes: dict[str, float], code: str) -> None:
    with pytest.raises(ConfigError) as refused:
        question(*BURSTS).policy(changes, UUID)
    assert refused.value.code == code


def test_a_policy_may_begin_with_a_cache_above_the_cap_of_the_others() -> None:
    assert question(*BURSTS).policy({"initial_size_gib": 1000.0}, UUID).initial_size_bytes == 1000 * GIB
    assert next_size(None, question(*BURSTS).policy({"initial_size_gib": 1000.0}, UUID)) == 1000 * GIB


def test_a_policy_differs_from_the_agents_settings_by_what_it_changes() -> None:
    policy = question(*BURSTS).policy({"utilization_threshold": 0.2, "headroom": 2.0}, UUID)
    assert (policy.utilization_threshold, policy.release_threshold, policy.headroom) == (0.2, 0.2, 2.0)
    assert (policy.backing_bandwidth_mb_s, policy.bought_bandwidth_mb_s) == (20.0, 100.0)
    assert (policy.initial_size_bytes, policy.inactivity_delay_s) == (4 * GIB, 4.0)


# --- how much is replayed ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "changes", "code"),
    [
        (Demand(40 * 86400.0, 0, 0), {}, "duration"),
        (Demand(1.0, GB, 0), {"backing_mb_s": 1e-300}, "duration"),
        (Demand(1.0, 9e17, 0), {"backing_mb_s": 1e12}, "size"),
    ],
)
def test_a_trace_that_would_run_for_ever_is_rejected(wanted: Demand, changes: dict[str, float], code: str) -> None:
    with pytest.raises(TraceError) as caught:
        answer(question(wanted, **changes))
    assert caught.value.code == code


def test_a_segment_counts_with_the_longer_of_its_time_and_its_bytes() -> None:
    assert question(Demand(10, 100 * MB, 0), Demand(10, 300 * MB, 100 * MB)).slow_s == pytest.approx(10 + 20)


def test_the_timeline_is_kept_where_it_is_wanted() -> None:
    burst = Demand(0, 500 * MB, 0)
    assert len(answer(question(burst)).policies[0].timeline) > 20
    assert answer(question(burst, with_timeline=False)).policies[0].timeline == ()


def test_a_run_waits_for_an_inactivity_delay_that_outlasts_the_trace() -> None:
    found = answer(question(Demand(0, 500 * MB, 0), inactivity_delay_s=5000.0))
    assert found.policies[0].phases[0].held_s > 5000
