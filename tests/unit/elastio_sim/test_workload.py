"""Simulated applications: how much they write and read, when, and their statistics."""

from __future__ import annotations

import pytest

from elastio.units import MB
from elastio_sim.kernel import KernelSettings
from elastio_sim.workload import Segment, Trace, Workload, constant
from elastio_sim.world import SimWorld, WorldSettings

SLOW = WorldSettings(kernel=KernelSettings(backing_mb_s=20.0))


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
