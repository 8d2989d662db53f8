from __future__ import annotations

import pytest

from elastio_testbed.catalogue import EXPERIMENTS
from elastio_testbed.experiment import Scaled
from elastio_testbed.workloads import Bonnie, Lammps, lammps

LAMMPS, BONNIE = EXPERIMENTS["lammps"], EXPERIMENTS["bonnie"]
SCALES = [(1.0, 1.0), (1.0, 0.5), (0.25, 0.5), (0.06, 0.5)]


def checkpoint_bytes(atoms: int, files: lammps.Files) -> int:
    return atoms * lammps.values_per_atom(files) * lammps.DOUBLE_BYTES


@pytest.mark.parametrize(("time", "bandwidth"), SCALES)
def test_lammps_checkpoints_have_the_scaled_bytes_of_the_published_ones(time: float, bandwidth: float) -> None:
    workload, scaled = Lammps(), Scaled(LAMMPS, time, bandwidth)
    atoms = workload.atoms(scaled)
    first = checkpoint_bytes(atoms, workload.every_time + workload.first_time)
    later = checkpoint_bytes(atoms, workload.every_time)
    assert first == pytest.approx(4e9 * time * bandwidth, rel=0.01)
    assert later == pytest.approx(3e9 * time * bandwidth, rel=0.01)


@pytest.mark.parametrize("atoms", [4, 500, 31_337, 1_000_000, 12_345_678])
def test_the_box_is_nearly_a_cube_with_nearly_that_many_atoms(atoms: int) -> None:
    x, y, z = lammps.cells_for(atoms)
    assert 4 * x * y * z == pytest.approx(atoms, rel=0.01)
    assert max(x, y, z) <= 2 * min(x, y, z)


def test_lammps_writes_the_larger_checkpoint_first_and_every_file_once() -> None:
    spec = Lammps().spec(Scaled(LAMMPS, 0.25, 0.5))
    first, *later = spec["checkpoints"]
    assert len(later) == 3
    assert all(set(files) < set(first) for files in later)
    assert spec["compute_s"] == pytest.approx(1380 * 0.25 / 3)


def test_a_guest_of_lammps_holds_the_atoms_and_a_checkpoint_in_memory() -> None:
    workload, scaled = Lammps(), Scaled(LAMMPS, 1.0, 1.0)
    needed = workload.atoms(scaled) * lammps.MEMORY_BYTES_PER_ATOM + scaled.dumps_bytes[0]
    assert workload.memory_mib(scaled) << 20 > needed


def test_the_file_of_bonnie_is_twice_its_memory() -> None:
    spec = Bonnie().spec(Scaled(BONNIE, 0.25, 0.5))
    assert len(spec["files_mib"]) == 3
    assert all(size == pytest.approx(2 * spec["memory_mib"], rel=0.01) for size in spec["files_mib"])


def test_the_random_reads_of_bonnie_are_scaled_with_its_data() -> None:
    whole, part = Bonnie().spec(Scaled(BONNIE, 1.0, 1.0)), Bonnie().spec(Scaled(BONNIE, 0.25, 0.5))
    assert whole["seeks"] == 8192
    assert part["seeks"] == 1024
    assert part["pause_s"] == pytest.approx(30)


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_every_experiment_fits_on_its_backing_device(name: str) -> None:
    scaled = Scaled(EXPERIMENTS[name], 0.25, 0.5)
    kept = max(scaled.dumps_bytes) if name == "bonnie" else sum(scaled.dumps_bytes)
    assert kept < 0.9 * scaled.backing_bytes
    assert scaled.experiment.workload.moved_bytes(scaled) >= sum(scaled.dumps_bytes)
