"""What tests of tombstones do to an adopted volume, and look at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from elastio.host import composed, recompose
from elastio.host.heads import BLOCK_BYTES, DATA_OFFSET_SECTORS
from elastio.host.sysfs import wait_for
from elastio.host.tombstone import Tombstone
from elastio.setup import adopted_record
from elastio.setup.adopted_record import Record
from elastio.units import SECTOR
from tests.values import present

from .adopt_machine import UUID, VOLUME_BYTES, AdoptMachine

FRONT = DATA_OFFSET_SECTORS * SECTOR
# Sectors of a block that a write has reached: none, all, with and without those of the superblocks of XFS and ext4.
TORN = ((), tuple(range(8)), (0,), (1, 2, 3, 4, 5, 6, 7), (2,), (0, 1, 3, 4, 5, 6, 7), (0, 2))
WRITES = {"write": 4, "remove": 2}
STONE = Tombstone(UUID, "ext4", "5a3f0c1e-1d3b-4c59-9d57-0b6d0f1c2a34", 3)


def adopted(folder: Path) -> AdoptMachine:
    found = AdoptMachine(folder)
    found.adopter().adopt(found.plan())
    return found


def record(machine: AdoptMachine) -> Record:
    return present(adopted_record.load(machine.sysfs, UUID))


def name(machine: AdoptMachine) -> str:
    return composed.name_of(record(machine).head)


def shown(machine: AdoptMachine) -> bytes:
    """What the adaptive device shows."""
    return machine.sysfs.mapped_bytes(name(machine), FRONT, VOLUME_BYTES)


def write(machine: AdoptMachine) -> None:
    recompose.write_tombstone(machine.sysfs, "dm-0", wait_for)


def remove(machine: AdoptMachine) -> None:
    recompose.remove_tombstone(machine.sysfs, "dm-0", wait_for)


WORK: dict[str, Callable[[AdoptMachine], None]] = {"write": write, "remove": remove}


def is_mountable(machine: AdoptMachine) -> bool:
    """Whether any sector shows the filesystem that was in the first block."""
    block, before = machine.volume[:BLOCK_BYTES], machine.before[:BLOCK_BYTES]
    return any(block[at : at + SECTOR] == before[at : at + SECTOR] for at in range(0, BLOCK_BYTES, SECTOR))
