"""LAMMPS: the melting of a Lennard-Jones crystal, with restart and dump files as checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elastio.units import MIB
from elastio_testbed.experiment import GUEST_MIB, Scaled

Files = tuple[tuple[str, str], ...]
# Everything in LAMMPS's binary files is a double (or as long as one).
DOUBLE_BYTES = 8
# A restart file has per atom: its own length, position, tag, type, mask, image flags, velocity.
RESTART_VALUES = 11
RESTARTS = 2  # one and its copy
# Each dump file and its columns. Measured: a file has 8 bytes per atom and column, and some hundred more.
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
# The published first dump is a third larger than the others.
FIRST_TIME = (
    ("first-positions", "id type mass x y z xs ys zs xu yu zu"),
    ("first-motion", "id type mass vx vy vz fx fy fz ix iy iz"),
)
ATOMS_PER_CELL = 4  # of a face-centred cubic lattice
# Measured with half neighbour lists up to 2.5 + 0.3: 163 MB for 500,000 atoms, and what a restart file is packed in.
MEMORY_BYTES_PER_ATOM = 520


def values_per_atom(files: Files) -> int:
    """Doubles that one checkpoint holds of each atom: its restart files and these dump files."""
    return RESTARTS * RESTART_VALUES + sum(len(columns.split()) for _, columns in files)


def cells_for(atoms: float) -> tuple[int, int, int]:
    """Lattice cells along x, y, z: of all boxes up to a fifth from a cube, the one whose atoms come nearest."""
    cells = max(1.0, atoms / ATOMS_PER_CELL)
    side = max(1, round(cells ** (1 / 3)))
    sides = range(max(1, side * 4 // 5), side + 1)
    boxes = ((max(1, round(cells / (y * z))), y, z) for y in sides for z in sides)
    return min(boxes, key=lambda box: (abs(box[0] * box[1] * box[2] - cells), max(box)))


@dataclass(frozen=True, slots=True)
class Lammps:
    """The published input, sized so that a checkpoint has the scaled bytes.

    `steps` of real computing lie before each checkpoint but the first, the same in every set-up; the rest of the scaled
    compute time is waited out. The published 30 would take longer than that time under emulation, and so would as many
    atoms as fill a checkpoint with only what a restart needs: more than that is kept of each atom.
    """

    steps: int = 1
    every_time: Files = EVERY_TIME
    first_time: Files = FIRST_TIME
    program: str = "lammps"
    needs_tools: bool = True
    is_checkpointing: bool = True

    def cells(self, scaled: Scaled) -> tuple[int, int, int]:
        """Sized by the checkpoints that come again and again; the first follows from its additional files."""
        return cells_for(scaled.dumps_bytes[-1] / (values_per_atom(self.every_time) * DOUBLE_BYTES))

    def atoms(self, scaled: Scaled) -> int:
        x, y, z = self.cells(scaled)
        return ATOMS_PER_CELL * x * y * z

    @property
    def writers(self) -> int:
        return 1

    def spec(self, scaled: Scaled) -> dict[str, Any]:
        later = [dict(self.every_time)] * (len(scaled.dumps_bytes) - 1)
        return {
            "cells": self.cells(scaled),
            "checkpoints": [dict(self.every_time + self.first_time), *later],
            "restarts": RESTARTS,
            "steps": self.steps,
            "compute_s": scaled.compute_each_s,
            "patience_s": 300 + 4 * (scaled.compute_each_s + max(scaled.dumps_bytes) / scaled.backing_bytes_s),
        }

    def memory_mib(self, scaled: Scaled) -> int:
        """With room in the page cache for a checkpoint: its checksums are taken without touching the device."""
        return GUEST_MIB + self.resident_mib(scaled) + max(scaled.dumps_bytes) // MIB

    def resident_mib(self, scaled: Scaled) -> int:
        return self.atoms(scaled) * MEMORY_BYTES_PER_ATOM // MIB

    def moved_bytes(self, scaled: Scaled) -> int:
        return sum(scaled.dumps_bytes)
