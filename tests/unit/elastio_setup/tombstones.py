"""What tests of tombstones do to an adopted volume, and look at."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.host import composed, recompose
from elastio.host.heads import DATA_OFFSET_SECTORS, MOST_SAVED_SECTORS, SAVED_SECTORS
from elastio.host.sysfs import wait_for
from elastio.host.tombstone import Tombstone
from elastio.units import SECTOR
from elastio_setup import adopted_record
from elastio_setup.adopted_record import Record
from tests.values import present

from .adopt_machine import UUID, VOLUME_BYTES, AdoptMachine, PowerCutError

FRONT = DATA_OFFSET_SECTORS * SECTOR
# Lengths of the saved piece: one block, as far as the superblock of btrfs, and the longest.
BTRFS_SECTORS = 136
LENGTHS = (SAVED_SECTORS, BTRFS_SECTORS, MOST_SAVED_SECTORS)
# Where something is recognized: XFS, ext4, btrfs, and the second header of LUKS2 at its first and its last place.
MAGIC = (0, 2, 128, 32, 1024)
WRITES = {"write": 4, "remove": 2}
STONE = Tombstone(UUID, "ext4", "5a3f0c1e-1d3b-4c59-9d57-0b6d0f1c2a34", 3)


def torn(length: int) -> list[tuple[int, ...]]:
    """Sectors of a piece that a write has reached: none, all, with and without each that something is recognized by."""
    whole = range(length)
    found = [(), tuple(whole), (0, 2), tuple(range(length // 2)), tuple(range(length // 2, length))]
    for magic in set(MAGIC) & set(whole):
        found += [(magic,), tuple(sector for sector in whole if sector != magic)]
    return found


def adopted(folder: Path, length: int = SAVED_SECTORS) -> AdoptMachine:
    found = AdoptMachine(folder)
    adopt(found, length)
    return found


def adopt(machine: AdoptMachine, length: int) -> None:
    plan = machine.plan()
    machine.adopter().adopt(replace(plan, head=replace(plan.head, saved_sectors=length)))


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


def end(machine: AdoptMachine) -> int:
    """Bytes of the saved piece."""
    return record(machine).head.saved_sectors * SECTOR


def require_hidden_by_tombstone(
    machine: AdoptMachine, is_recognized: Callable[[AdoptMachine], bool], length: int
) -> None:
    """The way of a volume with real data: recognized by nobody while it has its tombstone, and else what it was."""
    assert is_recognized(machine)
    machine.adopter().adopt(machine.plan())
    assert (end(machine), machine.volume) == (length, machine.before)
    write(machine)
    assert not is_recognized(machine)
    machine.boot()
    assert shown(machine) == machine.before[:VOLUME_BYTES]
    remove(machine)
    assert machine.volume == machine.before
    machine.adopter().release(record(machine), None)
    assert machine.is_as_before
    assert is_recognized(machine)


def is_mountable(machine: AdoptMachine) -> bool:
    """Whether any sector shows what was in the saved piece."""
    now, end = machine.volume, record(machine).head.saved_sectors * SECTOR
    return any(now[at : at + SECTOR] == machine.before[at : at + SECTOR] for at in range(0, end, SECTOR))


def cut_within(machine: AdoptMachine, work: str, number: int, left: Iterable[int], patch: pytest.MonkeyPatch) -> bool:
    """The power is cut in the write with this number, of which these sectors are on the disk; False: it has fewer."""
    pwritev, seen, holder = os.pwritev, 0, os.getpid()

    def cut(descriptor: int, buffers: list[bytes], at: int) -> int:
        nonlocal seen
        seen += 1
        if os.getpid() != holder or seen > number + 1:
            raise PowerCutError  # neither it nor its guard completes anything
        if seen <= number:
            return pwritev(descriptor, buffers, at)
        with Path(f"/proc/self/fd/{descriptor}").open("r+b") as file:
            for sector in left:
                file.seek(at + sector * SECTOR)
                file.write(bytes(buffers[0])[sector * SECTOR :][:SECTOR])
        raise PowerCutError

    with patch.context() as patched:
        patched.setattr(os, "pwritev", cut)
        try:
            WORK[work](machine)
        except PowerCutError:
            return True
    return False
