"""What libblkid would still recognize beside a tombstone: such a volume gets no cache, and keeps its first sectors."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from elastio.errors import HostError, NotOursError
from elastio.host import libblkid, recompose
from elastio.host.sysfs import wait_for
from elastio.units import KIB, SECTOR
from tests.fixtures.errors import refused

from . import tombstones
from .adopt_machine import VOLUME_BYTES, AdoptMachine
from .tombstones import FRONT

MD_AT = VOLUME_BYTES - 8 * KIB
# Where it is, what it is, and libblkid's name of it: an image of a disc, and an array with its superblock at the end.
MADE = {
    "iso9660": (32 * KIB, b"\1CD001\1"),
    "linux_raid_member": (MD_AT, struct.pack("<II136xQ", 0xA92B4EFC, 1, MD_AT // SECTOR)),
}


@pytest.fixture
def machine(tmp_path: Path) -> AdoptMachine:
    return tombstones.adopted(tmp_path)


@pytest.mark.parametrize("kind", MADE)
def test_a_tombstone_that_does_not_cover_it_is_taken_back(machine: AdoptMachine, kind: str) -> None:
    machine.sysfs.write_mapped(tombstones.name(machine), FRONT + MADE[kind][0], MADE[kind][1])
    before = machine.volume
    with refused(NotOursError, "tombstone.short") as caught:
        tombstones.write(machine)
    assert kind in str(caught.value)
    assert (machine.volume, recompose.has_tombstone(machine.sysfs, "dm-0")) == (before, False)


@pytest.mark.parametrize("kind", MADE)
def test_behind_a_tombstone_that_is_there_it_gets_no_cache(machine: AdoptMachine, kind: str) -> None:
    tombstones.write(machine)
    recompose.require_tombstone(machine.sysfs, "dm-0", wait_for)
    machine.sysfs.write_mapped(tombstones.name(machine), FRONT + MADE[kind][0], MADE[kind][1])
    with refused(NotOursError, "tombstone.short"):
        recompose.require_tombstone(machine.sysfs, "dm-0", wait_for)


@pytest.mark.parametrize(("first", "second"), [(b"", ""), (b"\xeb\x3c\x90", "a partition table")])
def test_a_partition_table_is_recognized_and_zeros_are_not(tmp_path: Path, first: bytes, second: str) -> None:
    disk = bytearray(VOLUME_BYTES)
    if first:
        disk[446:462] = struct.pack("<8B2I", 0x80, 0, 2, 0, 0x83, 0, 3, 0, 2048, 1024)
        disk[510:512] = b"\x55\xaa"
    node = tmp_path / "disk"
    node.write_bytes(disk)
    with node.open("rb") as file:
        assert libblkid.recognized(file.fileno(), "it") == second


def test_what_cannot_be_looked_at_is_not_taken_for_nothing(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    with refused(HostError, "libblkid.failed"):
        libblkid.recognized(descriptor, "it")
    os.close(descriptor)
