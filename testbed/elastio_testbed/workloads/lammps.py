"""LAMMPS: the melting of a Lennard-Jones crystal, with restart and dump files as checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elastio.units import MIB
from elastio_testbed.experiment import GUEST_MIB, Scaled, Workload

Files = tuple[tuple[str, str], ...]
# Every value in the binary files of LAMMPS has the size of a double.
DOUBLE_BYTES = 8
# A restart file has per atom: its own length, position, tag, type, mask, image flags, velocity.
RESTART_VALUES = 11
RESTARTS = 2  # one and its copy
# Each dump file and its columns. Measured: 8 bytes per atom and column, plus a few hundred.
EVERY_TIME = (
    ("positions", "id type x y z"),
    ("velocities", "id type vx vy vz"),
    ("forces", "id type fx fy fz"),
    ("unwrapped", "id type xu yu zu"),
    ("images", "id type ix iy iz"),
    ("scaled", "id type xs ys zs"),
    ("scaled-unwrapped", "id type xsu ysu zsu"),
    ("state", "id type mass x y z ix iy iz vx vy vz fx fy fz"),
)
# The first published dump is a third larger than the others.
FIRST_TIME = (
    ("first-positions", "id type mass x y z xs ys zs xu yu zu"),
    ("first-motion", "id type mass vx vy vz fx fy fz ix iy iz"),
)
ATOMS_PER_CELL = 4  # of a face-centred cubic lattice
# Measured with half neighbour lists up to 2.5 + 0.3: 163 MB for 500,000 atoms, plus the buffer of a restart file.
MEMORY_BYTES_PER_ATOM = 520


def values_per_atom(files: Files) -> int:
    """Doubles per atom in one checkpoint: its restart files and these dump files."""
    return RESTARTS * RESTART_VALUES + sum(len(columns.split()) for _, columns in files)


def cells_for(atoms: float) -> tuple[int, int, int]:
    """Lattice cells along x, y, z: the nearly cubic box that comes closest to this number of atoms."""
    cells = max(1.0, atoms / ATOMS_PER_CELL)
    side = max(1, round(cells ** (1 / 3)))
    sides = range(max(1, side * 4 // 5), side + 1)
    boxes = ((max(1, round(cells / (y * z))), y, z) for y in sides for z in sides)
    return min(boxes, key=lambda box: (abs(box[0] * box[1] * box[2] - cells), max(box)))


@dataclass(frozen=True, slots=True)
class Lammps(Workload):
    """The published input, sized so that a checkpoint has the scaled bytes.

    Each checkpoint but the first is preceded by `steps` of real computing, the same in every set-up; the rest of the
    scaled compute time is spent sleeping. Under emulation the published 30 steps would exceed that time, and so would
    the number of atoms whose restart data alone fills a checkpoint: more data than that is stored per atom.
    """

    steps: int = 1
    every_time: Files = EVERY_TIME
    first_time: Files = FIRST_TIME
    program: str = "lammps"
    needs_tools: bool = True
    is_checkpointing: bool = True
    writers: int = 1

    def cells(self, scaled: Scaled) -> tuple[int, int, int]:
        """Sized by the later checkpoints; the first one has additional files."""
        return cells_for(scaled.dumps_bytes[-1] / (values_per_atom(self.every_time) * DOUBLE_BYTES))

    def atoms(self, scaled: Scaled) -> int:
        x, y, z = self.cells(scaled)
        return ATOMS_PER_CELL * x * y * z

    def spec(self, scaled: Scaled) -> dict[str, Any]:
        later = [dict(self.every_time)] * (len(scaled.dumps_bytes) - 1)
        return {
            "cells": self.cells(scaled),
            "checkpoints": [dict(self.every_time + self.first_time), *later],
            "restarts": RESTARTS,
            "steps": self.steps,
            "compute_s": scaled.compute_each_s,
            "timeout_s": 300 + 4 * (scaled.compute_each_s + max(scaled.dumps_bytes) / scaled.backing_bytes_s),
        }

    def memory_mib(self, scaled: Scaled) -> int:
        """With room for a checkpoint in the page cache, so that its checksums cause no reads from the device."""
        return GUEST_MIB + self.resident_mib(scaled) + max(scaled.dumps_bytes) // MIB

    def resident_mib(self, scaled: Scaled) -> int:
        return self.atoms(scaled) * MEMORY_BYTES_PER_ATOM // MIB
