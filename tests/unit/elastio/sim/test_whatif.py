"""A trace under policies: what is replayed, what it costs, and when the agent is not worth it."""

from __future__ import annotations

import pytest

from elastio.core.policy import next_size
from elastio.errors import ConfigError
from elastio.sim.kernel import KernelSettings
from elastio.sim.replay import Demand, Replay, demands
from elastio.sim.traces import Rate, TraceError
from elastio.sim.whatif import Answer, Question, Tariff, answer, windows
from elastio.sim.world import SimWorld, WorldSettings
from elastio.units import GB, GIB, MB, agbs
from tests.fixtures.errors import refused

UUID = KernelSettings().backing_uuid
BURSTS = (Demand(60, 60 * MB, 0), Demand(0, 2000 * MB, 0), Demand(200, 0, 0)) * 2


def question(*wanted: Demand, **changes: object) -> Question:
    values: dict[str, object] = {"backing_mb_s": 20.0, "cache_mb_s": 80.0, "size_bytes": 10 * GB}
    values |= {"initial_bytes": 4 * GIB, "inactivity_delay_s": 4.0}
    return Question(wanted, **{**values, **changes})  # type: ignore[arg-type]


def replay(mb_s: float, *wanted: Demand) -> Replay:
    load = Replay(wanted, 10 * GB)
    world = SimWorld(WorldSettings(kernel=KernelSettings(backing_mb_s=mb_s, backing_bytes=10 * GB)), load)
    world.run_until_done(5000)
    return load


# --- replaying -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "finished_s", "within_s", "moved"),
    [
        ((Demand(30, 300 * MB, 0), Demand(10, 0, 0)), 40, 0.2, (300 * MB, 0)),
        ((Demand(10, 800 * MB, 0), Demand(10, 0, 0)), 50, 1, (800 * MB, 0)),  # it delays the rest
        ((Demand(5, 0, 200 * MB),), 10, 0.5, (0, 200 * MB)),
    ],
    ids=["as long as it did", "longer on a slow device", "reads"],
)
def test_a_segment_lasts_as_long_as_the_device_needs(
    wanted: tuple[Demand, ...], finished_s: float, within_s: float, moved: tuple[int, int]
) -> None:
    stats = replay(20, *wanted).stats
    assert stats.finished_s == pytest.approx(finished_s, abs=within_s)
    assert (stats.written_bytes, stats.read_bytes) == pytest.approx(moved, abs=2 * MB)


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
    return answer(question(*BURSTS, policies=policies, modify_gap_s=3600.0))


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
    assert slow.cost == pytest.approx(Tariff().cost(10 * GB, 20.0, slow.completion_s))


@pytest.mark.parametrize("wanted", [Demand(120, 120 * MB, 0), Demand(0, 12 * GB, 0)], ids=["quiet", "no pause"])
def test_a_load_without_short_bursts_is_not_worth_it(wanted: Demand) -> None:
    assert not answer(question(wanted, tariff=Tariff("EUR"))).worth_it


def test_a_price_list_of_ones_own_counts() -> None:
    dear = Tariff("EUR", per_gb_hour=1.0, per_mb_s_hour=0.0)
    found = answer(question(Demand(60, 60 * MB, 0), tariff=dear))
    assert found.static[0].cost == pytest.approx(10 * found.static[0].completion_s / 3600)


def test_modifying_a_volume_waits_between_two_changes() -> None:
    assert windows((), 100, 1000) == ()
    assert windows((10, 11, 12), 100, 1000) == ((9, 109),)
    assert windows((10, 150), 100, 1000) == ((9, 150),)
    assert windows((10, 300), 100, 1000) == ((9, 109), (299, 399))
    assert windows((10, 950), 100, 1000) == ((9, 109), (949, 1000))


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
    with refused(ConfigError, code):
        question(*BURSTS).policy(changes, UUID)


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
    with refused(TraceError, code):
        answer(question(wanted, **changes))


def test_a_segment_counts_with_the_longer_of_its_time_and_its_bytes() -> None:
    assert question(Demand(10, 100 * MB, 0), Demand(10, 300 * MB, 100 * MB)).slow_s == pytest.approx(10 + 20)


def test_the_timeline_is_kept_where_it_is_wanted() -> None:
    burst = Demand(0, 500 * MB, 0)
    assert len(answer(question(burst)).policies[0].timeline) > 20
    assert answer(question(burst, with_timeline=False)).policies[0].timeline == ()


def test_a_run_waits_for_an_inactivity_delay_that_outlasts_the_trace() -> None:
    found = answer(question(Demand(0, 500 * MB, 0), inactivity_delay_s=5000.0))
    assert found.policies[0].phases[0].held_s > 5000
