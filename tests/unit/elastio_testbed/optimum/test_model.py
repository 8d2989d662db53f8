"""The optimum's model of a burst, compared with the simulator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import mean

import pytest

from elastio.core.model import Forecast
from elastio.strategy.spending import Caps
from elastio.units import GB, GIB, MB
from elastio_adviser.replay import Demand, Replay
from elastio_sim.kernel import KernelSettings
from elastio_sim.records import MemoryRecorder
from elastio_sim.run import Simulation
from elastio_sim.world import SimWorld, WorldSettings
from elastio_testbed.optimum.market import (
    ATTACH_S,
    LATE_S,
    RELEASE_S,
    USABLE,
    Market,
    agbs_market,
    gp3_market,
)
from elastio_testbed.optimum.model import Cache, is_burst, passed, slow, stretches
from tests.values import present

# The model is right to these: the share of a time, and the seconds of samples and of decisions between.
TOLERANCE, GRAIN_S = 0.06, 3.0
QUIET_S = 60.0


@dataclass(frozen=True)
class At:
    """A forecast that is right."""

    begins_at: float
    written_bytes: int

    def forecast(self, now: float, wall: float) -> Forecast:
        return Forecast(self.begins_at, self.written_bytes, 1.0)


def simulated(
    market: Market, burst: tuple[Demand, ...], cache: Cache, gib: int, *, is_ahead: bool = True, seed: int = 0
) -> Simulation:
    """One burst on the simulated agent, whose settings are those of the model's cache."""
    kernel = KernelSettings(backing_mb_s=market.backing_mb_s, backing_bytes=market.backing_bytes)
    load = Replay((Demand(QUIET_S, 0, 0), *burst), market.backing_bytes)
    world = SimWorld(WorldSettings(kernel=kernel, seed=seed), load)
    policy = replace(
        market.policy(),
        cache_bandwidth_mb_s=cache.mb_s - cache.drain_mb_s,
        drain_bandwidth_mb_s=cache.drain_mb_s,
        initial_size_bytes=gib * GIB,
        caps=Caps(max_size_bytes=gib * GIB),
        inactivity_delay_s=2.0,
        lead_s=ATTACH_S + 1,
    )
    foretold = At(world.clock.now() + QUIET_S, int(sum(d.write_bytes for d in burst)))
    sim = Simulation(world, policy, forecaster=foretold if is_ahead else None, seed=seed)
    sim.run_until(lambda: world.workload.done, 4000)
    sim.run_until_settled()
    return sim


def billed_s(sim: Simulation) -> float:
    (volume,) = sim.world.provider.volumes.values()
    return (volume.deleted_at or 0.0) - volume.created_at


def near(measured: float, expected: float) -> bool:
    return abs(measured - expected) <= TOLERANCE * expected + GRAIN_S


CHECKPOINT = Demand(60.0, 60 * 100.0 * MB, 60 * MB)
CASES = [
    (agbs_market(), Demand(0, 4 * GB, 0), Cache(161, 33), 10),
    (agbs_market(), Demand(0, 2 * GB, 0), Cache(96, 0), 8),
    (agbs_market(), Demand(0, 6 * GB, 0), Cache(161, 33), 4),  # too small
    (agbs_market(), CHECKPOINT, Cache(200, 16), 12),
    (gp3_market(), Demand(0, 8 * GB, 0), Cache(524, 0), 14),
    (gp3_market(), Demand(0, 16 * GB, 0), Cache(400, 131), 26),
    (gp3_market(), Demand(20, 20 * 250 * MB, 0), Cache(500, 0), 14),
]


@pytest.mark.parametrize(("market", "part", "cache", "gib"), CASES)
def test_a_burst_and_its_volume_last_as_long_as_in_the_simulator(
    market: Market, part: Demand, cache: Cache, gib: int
) -> None:
    roomy = replace(cache, room_mb=USABLE * gib * GIB / MB)
    seconds, dirty, _ = passed(part, market.backing_mb_s, roomy, 0.0)
    sim = simulated(market, (part,), cache, gib)
    assert near((sim.world.workload.stats.finished_s or 0.0) - QUIET_S, seconds)
    assert near(billed_s(sim), ATTACH_S + seconds + dirty / market.backing_mb_s + RELEASE_S)


def test_the_delays_are_the_mean_ones_of_the_simulator() -> None:
    market, part, cache = agbs_market(), Demand(0, 2 * GB, 0), Cache(161, 33)
    seconds, dirty, _ = passed(part, market.backing_mb_s, cache, 0.0)
    late, attach, overhead = [], [], []
    for seed in range(8):
        sim = simulated(market, (part,), cache, 6, is_ahead=False, seed=seed)
        recorder = sim.recorder
        assert isinstance(recorder, MemoryRecorder)
        (cycle,) = recorder.rows.values()
        clock = sim.world.clock
        served_at = present(cycle.times.boosted) - (clock.now() - clock.elapsed())
        late.append(served_at - QUIET_S)
        attach.append(served_at - (present(cycle.opened_wall) - (clock.wall() - clock.elapsed())))
        overhead.append(billed_s(simulated(market, (part,), cache, 6, seed=seed)))
    assert mean(late) == pytest.approx(LATE_S, abs=0.7)
    assert mean(attach) == pytest.approx(ATTACH_S, abs=0.7)
    assert mean(overhead) - seconds - dirty / market.backing_mb_s == pytest.approx(ATTACH_S + RELEASE_S, abs=2.0)


def test_a_part_that_is_fast_enough_without_a_cache_takes_its_own_time() -> None:
    part = Demand(10.0, 100 * MB, 0.0)
    assert slow(part, 33) == 10
    assert not is_burst(part, 33)
    assert is_burst(part, 9)
    assert passed(part, 33, Cache(161, 33), 50.0) == (10.0, 0.0, 50.0), "and the cache is flushed meanwhile"


def test_short_pauses_belong_to_the_burst_around_them() -> None:
    dump, short, long = Demand(0, GB, 0), Demand(3, 0, 0), Demand(30, 0, 0)
    before, found = stretches((long, dump, short, dump, long, dump), 33)
    assert before == (long,)
    assert [(len(s.burst), len(s.pause)) for s in found] == [(3, 1), (1, 0)]
