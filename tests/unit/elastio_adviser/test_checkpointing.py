"""Applications that compute and write dumps in turn, compared with published figures."""

from __future__ import annotations

import pytest

from elastio.units import GB, MB, MIB, agbs
from elastio_adviser.checkpointing import CM1, LAMMPS, Checkpointing, Profile, run_static
from elastio_sim.kernel import KernelSettings
from elastio_sim.world import SimWorld, WorldSettings

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


@pytest.mark.parametrize(
    ("profile", "mb_s", "published_s"),
    [(CM1, 33.0, 1471.0), (CM1, 128.0, 1190.0), (LAMMPS, 33.0, 1680.0), (LAMMPS, 128.0, 1454.0)],
    ids=["CM1 slow", "CM1 fast", "LAMMPS slow", "LAMMPS fast"],
)
def test_static_runs_end_when_the_published_ones_did(profile: Profile, mb_s: float, published_s: float) -> None:
    run = run_static(profile, mb_s, 50 * GB)
    arithmetic = profile.compute_s * profile.iterations + profile.iterations * profile.dump_bytes / mb_s / 1e6
    assert run.completion_s == pytest.approx(arithmetic, rel=0.002)
    assert run.completion_s == pytest.approx(published_s, rel=0.02)
    assert run.agbs == pytest.approx(agbs(mb_s, 50 * GB, run.completion_s + run.dump_s[0]))
