"""Simulated applications: how much they write and read, when, and their statistics."""

from __future__ import annotations

import pytest

from elastio.sim.kernel import KernelSettings
from elastio.sim.workload import CM1, Checkpointing, Profile, Segment, Trace, Workload, constant
from elastio.sim.world import SimWorld, WorldSettings
from elastio.units import MB, MIB

SLOW = WorldSettings(kernel=KernelSettings(backing_mb_s=20.0))


def test_a_dump_lasts_as_long_as_the_device_needs() -> None:
    profile = Profile(compute_s=10.0, dump_bytes=100 * MIB, iterations=2, initial_bytes=200 * MIB)
    world = SimWorld(SLOW, Checkpointing(profile))
    world.run_until_done()
    stats = world.workload.stats
    assert [d.initial for d in stats.dumps] == [True, False, False]
    assert stats.dumps[0].mb_s == pytest.approx(20.0, rel=0.01)
    assert [d.seconds for d in stats.dumps[1:]] == pytest.approx([100 * MIB / MB / 20] * 2, rel=0.02)
    assert stats.completion_s == pytest.approx(20 + 2 * 100 * MIB / MB / 20, rel=0.01)
    assert stats.written_bytes == 400 * MIB


def test_compute_after_the_last_dump_counts() -> None:
    profile = Profile(compute_s=5.0, dump_bytes=20 * MIB, iterations=1, tail_s=7.0)
    world = SimWorld(SLOW, Checkpointing(profile))
    world.run_until_done()
    assert world.workload.stats.completion_s == pytest.approx(12 + 20 * MIB / MB / 20, abs=0.15)


def test_scaling_keeps_the_shape() -> None:
    small = CM1.scaled(0.01)
    assert small.dump_bytes / small.compute_s == pytest.approx(CM1.dump_bytes / CM1.compute_s)
    assert small.iterations == CM1.iterations


def test_a_constant_load_keeps_its_rate() -> None:
    world = SimWorld(SLOW, constant(write_mb_s=6.0, read_mb_s=3.0))
    world.advance(20.0)
    read, written = world.counters.read()["adaptive"]
    assert written / MB / 20 == pytest.approx(6.0, rel=0.02)
    assert read / MB / 20 == pytest.approx(3.0, rel=0.02)


def test_a_trace_follows_its_segments_and_ends() -> None:
    world = SimWorld(SLOW, Trace((Segment(10.0, 0.0), Segment(10.0, 8.0), Segment(5.0, 0.0))))
    world.advance(10.0)
    assert world.counters.read()["adaptive"] == (0, 0)
    world.advance(10.0)
    assert world.counters.read()["adaptive"][1] / MB / 10 == pytest.approx(8.0, rel=0.03)
    assert not world.workload.done
    world.advance(5.1)
    assert world.workload.done


def test_what_a_slow_device_cannot_take_is_not_made_up_for() -> None:
    world = SimWorld(SLOW, Trace((Segment(10.0, 100.0), Segment(30.0, 0.0))))
    world.advance(40.0)
    assert world.workload.stats.written_bytes / MB == pytest.approx(200.0, rel=0.02)


def test_an_idle_application_never_ends() -> None:
    world = SimWorld(SLOW, Workload())
    with pytest.raises(TimeoutError):
        world.run_until_done(limit_s=5.0)
