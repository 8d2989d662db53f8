"""The bandwidth of the next cache is learned from the account of each boosted burst, in the whole agent."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from elastio.config.sections import ProfileSection
from elastio.core.model import Quote, RequestKind, VolumeSpec
from elastio.core.state import Phase
from elastio.errors import RefusedError
from elastio.strategy.bandwidth import STEP
from elastio.strategy.learning import in_force
from elastio.strategy.memory import SpeedBounds
from elastio.strategy.spending import Caps
from elastio.strategy.watched_bursts import Seen, Watch
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment
from tests.crash.watches import SpeedWatch
from tests.simulated import QUIET, assert_at_rest, machine
from tests.values import present

BOUNDS = SpeedBounds(30.0, 25.0, 80.0)


def bursts(*mb_s: float) -> tuple[Segment, ...]:
    parts = [part for each in mb_s for part in (Segment(20, each), Segment(30, 0))]
    return (Segment(2, 0), *parts[:-1], QUIET)


def learning(load: tuple[Segment, ...], bounds: SpeedBounds = BOUNDS, **policy: Any) -> Simulation:
    sim = machine(load, bandwidth=bounds, **policy)
    sim.keep_accounts(lambda rows, moves: None, ProfileSection())
    return sim


def to_its_end(sim: Simulation, boosts: int) -> None:
    sim.run_until(lambda: len(bought(sim)) == boosts, 900)
    assert_at_rest(sim)
    sim.run_for(10)


def bought(sim: Simulation) -> list[float]:
    return [v.spec.bandwidth_mb_s for v in sim.world.provider.volumes.values()]


def reasons(sim: Simulation) -> list[str]:
    records = (json.loads(line) for line in sim.lines)
    return [r["reason"] for r in records if r["kind"] == "decision" and "the next cache has" in r["reason"]]


def test_each_burst_that_waits_for_bandwidth_makes_the_next_cache_a_step_faster() -> None:
    sim = learning(bursts(90, 90, 90, 90))
    to_its_end(sim, 4)
    assert bought(sim) == pytest.approx([30, 30 * STEP, 60, 60])
    assert len(reasons(sim)) == 2


def test_nothing_is_bought_above_b_star_and_a_low_load_gets_less() -> None:
    """A load that computes in between: with a stop gain of 25 % its B* is its V over the rest of its time."""
    sim = learning(bursts(12, 12, 12), SpeedBounds(40.0, 20.0, 80.0, 0.25))
    watch, broken = SpeedWatch(sim), set[str]()
    sim.on_step = lambda: broken.add(watch.broken())
    to_its_end(sim, 3)
    assert bought(sim) == pytest.approx([40, 20, 20])
    assert broken == {""}


def test_a_raise_that_a_load_at_a_fixed_rate_gains_nothing_by_is_taken_back() -> None:
    sim = learning(bursts(20, 20, 20, 20), SpeedBounds(30.0, 30.0, 30.0 * STEP))
    to_its_end(sim, 4)
    first, second, third, fourth = bought(sim)
    assert first == fourth < second == third
    assert len(reasons(sim)) == 2


def test_a_raise_that_the_cloud_refuses_costs_one_burst_its_cache() -> None:
    parts = [part for _ in range(4) for part in (Segment(20, 90), Segment(400, 0))]
    sim = learning((Segment(2, 0), *parts, QUIET))
    quote = sim.world.provider._quote

    def sold(spec: VolumeSpec) -> Quote:
        if spec.bandwidth_mb_s > 45:
            raise RefusedError("so many MB/s need more IOPS")
        return quote(spec)

    sim.world.provider._quote = sold  # type: ignore[method-assign]
    sim.run_for(2 + 4 * 420)
    assert bought(sim) == pytest.approx([30, 30 * STEP, 30 * STEP])
    assert_at_rest(sim)


def test_waits_are_compared_with_what_is_left_beside_a_flush_that_may_begin() -> None:
    """A look begins before the first write is absorbed, and the flush takes its part before it ends."""
    sim = learning(bursts(60), drain_bandwidth_mb_s=10.0)
    asked, submit = set[float | None](), sim.looks.submit

    def listen(job: Watch, timeout_s: float) -> None:
        if sim.phase is Phase.BOOSTING and not job.only_counts:
            asked.add(job.cap_mb_s)
        submit(job, timeout_s)

    sim.looks.submit = listen  # type: ignore[method-assign]
    to_its_end(sim, 1)
    # Between what is left where a MB costs the usual, and the bandwidth of applications: as some bytes miss the cache.
    assert asked
    assert all(cap is not None and 0.9 * 30.0 <= cap <= 1.03 * 30.0 for cap in asked), asked


def test_only_what_a_burst_waited_for_with_its_cache_is_cured_by_a_faster_one() -> None:
    """Half of it had none. Of that it has the seconds and bytes, and nothing that a cache could shorten."""
    sim = learning((Segment(2, 0), Segment(40, 90), QUIET), trigger_delay_s=20.0)
    sim.run_until(lambda: sim.phase is Phase.BOOSTING, 60)
    begun_at = sim.world.clock.elapsed()
    to_its_end(sim, 1)
    (lesson,) = present(sim.state.memory.bandwidth).lessons
    assert 22 < begun_at < 35
    assert lesson.seconds == pytest.approx(40, abs=2)
    assert lesson.waited_s == pytest.approx(42 - begun_at, abs=1.5)
    assert lesson.waited_mb == pytest.approx(30 * lesson.waited_s, rel=0.1)
    assert lesson.moved_mb == pytest.approx(20 * (begun_at - 2) + 30 * (42 - begun_at), rel=0.1)


def test_a_look_that_was_asked_for_before_the_cache_was_there_is_not_of_it() -> None:
    sim = learning((Segment(2, 0), Segment(40, 90), QUIET), trigger_delay_s=20.0)
    submit, poll, asked, late = sim.looks.submit, sim.looks.poll, list[Phase](), list[Seen]()

    def ask(job: Watch, timeout_s: float) -> None:
        asked.append(sim.phase)
        submit(job, timeout_s)

    def answer() -> Seen | None:
        if sim.phase is not Phase.BOOSTING or asked[-1] is Phase.BOOSTING:
            return poll()
        boosted_s = sim.world.clock.now() - present(present(sim.state.cycle).times.boosted)
        seen = poll() if boosted_s > 2.0 else None
        if seen is None:
            return None
        unknown = {name: replace(each.standing_for(900.0), unclear_s=900.0) for name, each in seen.groups.items()}
        late.append(replace(seen, groups=unknown))
        return late[-1]

    sim.looks.submit, sim.looks.poll = ask, answer  # type: ignore[method-assign]
    to_its_end(sim, 1)
    assert late[0].groups
    assert len(present(sim.state.memory.bandwidth).lessons) == 1, "nothing of it is unknown"


def test_a_burst_that_begins_with_its_cache_has_it_from_its_first_sample() -> None:
    sim = learning((Segment(16, 0), Segment(20, 90), QUIET), inactivity_delay_s=20.0)
    sim.run_for(3)
    assert sim.ask(RequestKind.BOOST).accepted
    to_its_end(sim, 1)
    (lesson,) = present(sim.state.memory.bandwidth).lessons
    assert lesson.seconds == pytest.approx(20, abs=2)
    assert lesson.waited_s == pytest.approx(lesson.seconds, abs=0.6)


def test_what_is_fixed_stays() -> None:
    sim = machine(bursts(60, 60, 60))
    sim.keep_accounts(lambda rows, moves: None, ProfileSection())
    to_its_end(sim, 1)
    assert bought(sim) == [80]
    assert sim.state.memory.bandwidth is None


def test_what_was_learned_survives_a_restart_and_a_power_cut() -> None:
    sim = learning(bursts(90, 90, 90))
    sim.run_until(lambda: bool(reasons(sim)), 120)
    before = sim.state.memory.bandwidth
    assert before is not None
    sim.start_agent()
    assert sim.state.memory.bandwidth == before
    sim.power_cut()
    assert sim.state.memory.bandwidth == before
    to_its_end(sim, 3)
    assert bought(sim)[1] == pytest.approx(30 * STEP)


def test_it_changes_only_between_cycles() -> None:
    sim = learning(bursts(90, 90, 90))

    def check() -> None:
        cycle = sim.state.cycle
        if cycle is not None and sim.state.recovered:
            assert cycle.spec.bandwidth_mb_s == in_force(sim.policy, sim.state.memory).cache_bandwidth_mb_s

    sim.on_step = check
    to_its_end(sim, 3)
    assert len(reasons(sim)) >= 2


def test_a_burst_that_outlasts_its_cache_teaches_nothing() -> None:
    """A cap has ended the boost, and the load goes on at the speed of the backing volume."""
    sim = learning((Segment(2, 0), Segment(200, 60), QUIET), caps=Caps(max_agbs_per_day=8000))
    sim.run_until(lambda: len(bought(sim)) == 1 and sim.state.cycle is None, 400)
    sim.run_for(300)
    assert_at_rest(sim)
    assert sim.state.memory.bandwidth is None or sim.state.memory.bandwidth.lessons == ()


def test_a_burst_with_a_second_cache_teaches_nothing() -> None:
    """An operator ends the first boost while the load goes on: what the burst waited for is not of one cache."""
    sim = learning((Segment(2, 0), Segment(400, 60), QUIET))
    sim.run_until(lambda: sim.state.phase is Phase.BOOSTING, 400)
    assert sim.ask(RequestKind.FLUSH).accepted
    sim.run_until(lambda: len(bought(sim)) == 1 and sim.state.cycle is None, 400)
    sim.run_for(5)
    assert sim.ask(RequestKind.BOOST).accepted
    sim.run_until(lambda: len(bought(sim)) == 2 and sim.state.cycle is None, 900)
    sim.run_for(60)
    assert sim.state.memory.bandwidth is None or sim.state.memory.bandwidth.lessons == ()
