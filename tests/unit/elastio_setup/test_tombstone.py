"""The tombstone of an adopted volume: whatever ends the writing or the removal of it, not a byte is lost.

The power is cut after each write, and within each write, with some of its sectors on the disk.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.errors import DeviceBusyError, HostError, NotOursError
from elastio.host import composed, heads, recompose, superblock, tombstone
from elastio.host.blockdev import run_wipefs
from elastio.host.commands import run
from elastio.host.heads import BLOCK_BYTES, SAVED_SECTOR
from elastio.host.sysfs import wait_for
from elastio.host.tombstone import (
    BTRFS_MAGIC,
    BTRFS_MAGIC_AT,
    BTRFS_SUPERBLOCK,
    SECOND_MAGIC,
    Tombstone,
    parse,
    serialize,
)
from elastio.units import KIB, MIB, SECTOR
from tests.fixtures.errors import refused
from tests.values import present

from .adopt_machine import UUID, VOLUME_BYTES, AdoptMachine
from .tombstones import FRONT, LENGTHS, STONE, WORK, adopt, adopted, is_mountable, name, record, remove, shown, write

# Where btrfs is recognized, and the second header of LUKS2.
PLACES = ((BTRFS_SUPERBLOCK + BTRFS_MAGIC_AT, BTRFS_MAGIC), (16 * KIB, SECOND_MAGIC), (MIB, SECOND_MAGIC))


@pytest.fixture(params=LENGTHS)
def machine(tmp_path: Path, request: pytest.FixtureRequest) -> AdoptMachine:
    return adopted(tmp_path, request.param)


# --- its form ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stone", [STONE, replace(STONE, at=4096)])
def test_what_is_serialized_is_parsed_and_a_changed_byte_is_noticed(stone: Tombstone) -> None:
    sector = serialize(stone)
    assert parse(sector) == stone
    assert parse(bytes(SECTOR)) is None
    length = len(sector.rstrip(b"\0"))
    for at in range(len(tombstone.INTRODUCTION), length):
        with refused(NotOursError, "tombstone.damaged"):
            parse(sector[:at] + bytes([sector[at] ^ 1]) + sector[at + 1 :])
    with refused(NotOursError, "tombstone.names"):
        serialize(Tombstone("a b", "ext4", "c", 1))


@pytest.mark.runs_programs
def test_it_looks_like_nothing_to_libblkid_and_names_its_volume_to_udev(tmp_path: Path) -> None:
    node = tmp_path / "vdb"
    node.write_bytes(serialize(STONE).ljust(VOLUME_BYTES, b"\0"))
    assert run_wipefs(node, run) == ()
    with refused(HostError, "program.failed"):
        run(["blkid", "-p", str(node)])
    assert f"\nELASTIO_ADOPTED={UUID}\n".encode() in node.read_bytes()


# --- written and removed ------------------------------------------------------------------------------------------


def test_the_volume_alone_shows_nothing_and_the_device_shows_what_it_did(machine: AdoptMachine) -> None:
    assert recompose.has_tombstone(machine.sysfs, "dm-0") is False
    write(machine)
    assert (shown(machine), is_mountable(machine)) == (machine.before, False)
    assert parse(machine.volume) is not None
    end = record(machine).head.saved_sectors * SECTOR
    assert machine.volume[SECTOR:] == bytes(end - SECTOR) + machine.before[end:]
    assert recompose.has_tombstone(machine.sysfs, "dm-0") is True
    write(machine)
    assert shown(machine) == machine.before, "again"
    remove(machine)
    assert (shown(machine), machine.volume) == (machine.before, machine.before)
    assert recompose.has_tombstone(machine.sysfs, "dm-0") is False
    remove(machine)
    assert machine.volume == machine.before, "again"


def test_what_the_filesystem_writes_meanwhile_is_on_the_volume_afterwards(machine: AdoptMachine) -> None:
    machine.sysfs.write_mapped(name(machine), FRONT, b"before the tombstone")
    write(machine)
    machine.sysfs.write_mapped(name(machine), FRONT + 1024, b"a superblock of ext4")
    end = record(machine).head.saved_sectors * SECTOR
    machine.sysfs.write_mapped(name(machine), FRONT + end - SECTOR, b"a superblock of btrfs")
    machine.sysfs.write_mapped(name(machine), FRONT + end, b"a group descriptor")
    expected = shown(machine)
    machine.boot()
    assert shown(machine) == expected
    remove(machine)
    assert machine.volume == expected
    assert machine.volume.startswith(b"before the tombstone")
    write(machine)
    assert shown(machine) == expected, "the saved block of the time before is not shown"


def test_nothing_of_a_change_stays_open(machine: AdoptMachine) -> None:
    """Neither descriptors nor processes: an agent boosts for years."""
    write(machine)
    before = sorted(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(3):
        remove(machine)
        write(machine)
    assert sorted(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_device_that_is_not_composed_has_no_tombstone(machine: AdoptMachine) -> None:
    assert recompose.has_tombstone(machine.sysfs, "vdb") is None
    for work in WORK.values():
        with refused(NotOursError, "tombstone.none"):
            recompose.write_tombstone(machine.sysfs, "vdb", wait_for)
        machine.lay("sys/block/dm-0/dm/uuid", "LVM-other")
        with refused(NotOursError, "tombstone.none"):
            work(machine)
    assert machine.volume == machine.before


@pytest.mark.parametrize("work", WORK)
def test_nothing_of_bcache_is_read_while_requests_wait(
    machine: AdoptMachine, work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock may be held by somebody who waits for a request."""
    if work == "remove":
        write(machine)
    read, mapped, of_bcache = machine.sysfs._text, name(machine), list[str]()

    def watched(path: str) -> str:
        if "bcache/" in path:
            assert not machine.sysfs.is_suspended(mapped), path
            of_bcache.append(path)
        return read(path)

    monkeypatch.setattr(machine.sysfs, "_text", watched)
    WORK[work](machine)
    assert bool(of_bcache) == (work == "remove")


@pytest.mark.parametrize("shown", ["clean", "dirty", "inconsistent", ""])
def test_it_stays_while_there_is_a_cache_or_one_may_come_back(machine: AdoptMachine, shown: str) -> None:
    """After an accepted loss the kernel attaches the lost set by itself, should it appear."""
    write(machine)
    if shown:
        machine.lay("sys/block/dm-0/bcache/state", shown)
    else:
        machine.link("sys/block/dm-0/bcache/cache", "../../../fs/bcache/set")
    with refused(DeviceBusyError, "tombstone.cache"):
        remove(machine)
    assert not is_mountable(machine)


@pytest.mark.parametrize("state", [1, 2, 3])
def test_it_stays_while_the_superblock_names_a_cache(machine: AdoptMachine, state: int) -> None:
    write(machine)
    head = record(machine).head
    with machine.sysfs.path("dev/vdh").open("r+b") as file:
        file.seek(head.content_sector * SECTOR + superblock.OFFSET + superblock.LAYOUT.size - 104)
        file.write((state << 61).to_bytes(8, "little"))  # the flags: clean, dirty, stale
    with refused(DeviceBusyError, "tombstone.cache"):
        remove(machine)
    assert (is_mountable(machine), machine.sysfs.is_suspended(name(machine))) == (False, False)


# --- whose it is ------------------------------------------------------------------------------------------------------


def test_a_head_that_is_an_older_copy_is_refused(machine: AdoptMachine) -> None:
    older = machine.head
    write(machine)
    machine.sysfs.path("dev/vdh").write_bytes(older)
    with refused(NotOursError, "tombstone.other"):
        machine.boot()
    assert not machine.is_composed


@pytest.mark.parametrize("place", ["first", "last"])
def test_a_volume_that_was_written_to_beside_its_tombstone_is_refused(machine: AdoptMachine, place: str) -> None:
    write(machine)
    with machine.sysfs.path("dev/vdb").open("r+b") as file:
        file.seek(SECTOR if place == "first" else record(machine).head.saved_sectors * SECTOR - 100)
        file.write(b"mkfs was here")
    with refused(NotOursError, "tombstone.overwritten"):
        machine.boot()
    with refused(NotOursError, "tombstone.overwritten"):
        machine.adopter().release(record(machine), None)


@pytest.mark.parametrize("work", WORK)
def test_a_tombstone_that_somebody_has_overwritten_gives_up_no_saved_piece(machine: AdoptMachine, work: str) -> None:
    """What the volume shows of its first sectors is on the head alone."""
    write(machine)
    with machine.sysfs.path("dev/vdb").open("r+b") as file:
        file.write(bytes(SECTOR))
    head = machine.head
    with refused(NotOursError, "tombstone.overwritten"):
        WORK[work](machine)
    assert (machine.head, shown(machine), machine.sysfs.is_suspended(name(machine))) == (head, machine.before, False)


def test_with_an_overwritten_tombstone_nothing_is_released(machine: AdoptMachine) -> None:
    write(machine)
    with machine.sysfs.path("dev/vdb").open("r+b") as file:
        file.write(bytes(SECTOR))
    head = machine.head
    for is_found in (True, False):  # as LUKS is whose first header cryptsetup has repaired
        if not is_found:
            machine.found.clear()
        with refused(NotOursError, "tombstone.overwritten"):
            machine.adopter().release(record(machine), None)
    assert (machine.head, machine.records, machine.is_composed) == (head, ["composed"], True)


def test_a_restored_copy_of_the_volume_is_refused(machine: AdoptMachine) -> None:
    write(machine)
    machine.lay("sys/block/vdb/serial", "copy0123456789abcdef")
    with refused(NotOursError, "volume.copy"):
        machine.boot()


def test_without_its_head_a_volume_with_a_tombstone_is_neither_composed_nor_released(machine: AdoptMachine) -> None:
    write(machine)
    content = machine.head
    machine.sysfs.path("dev/vdh").write_bytes(bytes(len(content)))
    with refused(HostError, "head.missing"):
        machine.boot()
    with refused(HostError, "head.missing"):
        machine.adopter().release(record(machine), None)
    assert machine.records
    machine.sysfs.path("dev/vdh").write_bytes(content)
    machine.boot()
    assert shown(machine) == machine.before


@pytest.mark.parametrize("volume", ["missing", "unreadable"])
def test_a_head_that_may_have_the_first_block_is_not_erased_without_the_volume(
    machine: AdoptMachine, volume: str
) -> None:
    write(machine)
    machine.power_off()
    node, content = machine.sysfs.path("dev/vdb"), machine.volume
    node.unlink()
    if volume == "unreadable":
        node.mkdir()
    machine.found.clear()
    with refused(HostError, "volume.missing"):
        machine.adopter().release(record(machine), None)
    if volume == "unreadable":
        node.rmdir()
    node.write_bytes(content)
    machine.boot()
    assert shown(machine) == machine.before
    remove(machine)


def test_of_a_partition_libblkid_tells_its_place_and_the_tombstone_is_found(machine: AdoptMachine) -> None:
    machine.found["vdb"] |= {"PART_ENTRY_UUID": "1", "PART_ENTRY_NUMBER": "1"}
    length = record(machine).head.saved_sectors
    machine.adopter().release(record(machine), None)
    adopt(machine, length)
    write(machine)
    machine.boot()
    assert shown(machine) == machine.before
    machine.adopter().release(record(machine), None)
    assert machine.is_as_before


def test_a_tombstone_says_whose_the_volume_is_whatever_libblkid_finds_behind_it(
    machine: AdoptMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was formatted while it had a cache, which has written some of that."""
    write(machine)
    run = machine.run

    def found(argv: Sequence[str], *, timeout_s: float) -> str:
        is_volume = argv[0] == "blkid" and argv[-1].endswith("/vdb")
        return f"TYPE=btrfs\nUUID={UUID[::-1]}\n" if is_volume else run(argv, timeout_s=timeout_s)

    monkeypatch.setattr(machine, "run", found)
    machine.boot()
    assert shown(machine) == machine.before


def test_what_was_formatted_while_it_was_adopted_can_be_released(machine: AdoptMachine) -> None:
    write(machine)
    remove(machine)
    machine.found["vdb"] = {"TYPE": "btrfs", "UUID": UUID[::-1]}
    machine.adopter().release(record(machine), None)
    assert machine.is_as_before
    node = str(machine.sysfs.path("dev/vdb"))
    assert [argv[-1] for argv in machine.ran if argv[:2] == ["blockdev", "--flushbufs"]] == [node]


def test_a_damaged_tombstone_of_another_volume_is_in_nobodys_way(machine: AdoptMachine) -> None:
    sector = serialize(STONE)
    machine.disk("vdc", 48, "another0123456789abc", sector.replace(b"ext4", b"ext3").ljust(VOLUME_BYTES, b"\0"))
    machine.boot()
    assert machine.is_composed
    machine.adopter().release(record(machine), None)
    machine.adopter().adopt(machine.plan())
    machine.power_off()
    machine.sysfs.path("dev/vdb").write_bytes(sector.replace(b"ext4", b"ext3").ljust(VOLUME_BYTES, b"\0"))
    with refused(NotOursError, "tombstone.damaged"):
        machine.boot()


def test_the_unit_resumes_what_was_left_suspended_and_a_release_too(machine: AdoptMachine) -> None:
    machine.lay("sys/block/dm-0/dm/suspended", "1")
    assert machine.adopter().assemble(UUID) == "bcache0"
    assert not machine.sysfs.is_suspended(name(machine))
    machine.lay("sys/block/dm-0/dm/suspended", "1")
    machine.adopter().release(record(machine), None)
    assert machine.is_as_before


def test_a_volume_that_is_composed_is_not_searched_for_at_each_of_its_changes(machine: AdoptMachine) -> None:
    machine.ran.clear()
    with composed.locked(machine.sysfs, wait_for, 1.0):
        assert machine.adopter().assemble(UUID) == "bcache0"
    assert machine.ran == []


def test_a_volume_with_a_tombstone_is_taken_for_no_blank_disk(machine: AdoptMachine) -> None:
    write(machine)
    node = machine.sysfs.path("dev/vdb")
    with refused(NotOursError, "x"):
        tombstone.require_none(node, "/dev/vdb", "x")
    node.write_bytes((serialize(STONE)[:-1] + b"x").ljust(BLOCK_BYTES, b"\0"))
    with refused(NotOursError, "x"):
        tombstone.require_none(node, "/dev/vdb", "x")


@pytest.mark.parametrize(("at", "magic"), PLACES)
def test_what_is_recognized_behind_the_saved_piece_gets_no_cache(machine: AdoptMachine, at: int, magic: bytes) -> None:
    """It was formatted again, or converted, while it was adopted: nobody could tell the volume from its tombstone."""
    machine.sysfs.write_mapped(name(machine), FRONT + at, magic)
    before = (machine.volume, machine.head)
    if at < record(machine).head.saved_sectors * SECTOR:
        write(machine)
        assert recompose.has_tombstone(machine.sysfs, "dm-0")
        return
    with refused(NotOursError, "tombstone.short"):
        write(machine)
    assert (machine.volume, machine.head, machine.sysfs.is_suspended(name(machine))) == (*before, False)
    assert recompose.has_tombstone(machine.sysfs, "dm-0") is False


def test_the_label_before_it_is_never_overwritten(machine: AdoptMachine) -> None:
    for sequence in range(2, 6):
        before = [machine.head[slot:][:BLOCK_BYTES] for slot in heads.SLOTS]
        write(machine)
        label = present(heads.read(machine.sysfs.path("dev/vdh")))
        assert label.sequence == sequence
        kept = [machine.head[slot:][:BLOCK_BYTES] == old for slot, old in zip(heads.SLOTS, before, strict=True)]
        assert sorted(kept) == [False, True]
        end = label.saved_sectors * SECTOR
        assert machine.head[SAVED_SECTOR * SECTOR :][:end] == machine.before[:end]
        remove(machine)
