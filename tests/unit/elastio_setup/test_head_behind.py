"""The head lies on the volume itself, behind a filesystem that is shorter than it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.errors import HostError, NotOursError
from elastio.host import heads, superblock
from elastio.host.heads import BLOCK_BYTES, CONTENT_SECTOR, LEAST_BYTES
from elastio.host.superblock import OFFSET
from elastio.units import KIB, SECTOR
from elastio_setup import adopted_record, at_boot
from elastio_setup.adopt_plan import plan
from elastio_setup.adopted_again import recorded_again
from elastio_setup.adopted_record import Step
from tests.fixtures.errors import refused

from .adopt_machine import UUID, VOLUME_BYTES, AdoptMachine, PowerCutError
from .grown_machine import BLOCKS, GrownMachine, ext4
from .tombstones import record, remove, write

# How many each has.
CHANGES = {"adopt": 10, "write": 4, "remove": 3, "release": 9}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GrownMachine:
    found, fsync = GrownMachine(tmp_path), os.fsync

    def synced(descriptor: int) -> None:
        found.change()
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", synced)
    return found


def work_of(machine: GrownMachine, name: str) -> Callable[[], object]:
    moves = {"write": write, "remove": remove}
    return (
        (lambda: moves[name](machine)) if name in moves else {"adopt": machine.adopt, "release": machine.release}[name]
    )


def end(machine: GrownMachine, name: str, point: int) -> None:
    """What was begun is ended before the change with this number."""
    machine.changes, machine.cut_at = 0, point
    with pytest.raises(PowerCutError):
        work_of(machine, name)()
    machine.cut_at = -1


# --- adopted, composed, released -----------------------------------------------------------------------------------


def test_the_device_ends_where_the_head_begins_and_nothing_before_is_written(machine: GrownMachine) -> None:
    found = machine.plan(head=None)
    assert machine.is_as_before, "a plan changes nothing"
    assert "from 2.0 MiB on" in found.shown
    machine.adopter().adopt(found)
    assert machine.is_adopted
    assert machine.sysfs.read("sys/block/dm-0/size") == str(CONTENT_SECTOR // 4 + VOLUME_BYTES // SECTOR)
    assert machine.contents == machine.before
    machine.release()
    assert machine.is_as_before
    assert machine.head == bytes(LEAST_BYTES), "nobody has named this disk"


def test_nothing_of_bcache_is_where_it_looks_on_the_volume(machine: GrownMachine) -> None:
    machine.adopt()
    at = VOLUME_BYTES + CONTENT_SECTOR * SECTOR + OFFSET
    assert machine.volume[at:][:BLOCK_BYTES] != bytes(BLOCK_BYTES)
    assert machine.volume[OFFSET:][:BLOCK_BYTES] == machine.before[OFFSET:][:BLOCK_BYTES]


def test_it_has_no_change_before_which_it_is_not_ended_below(machine: GrownMachine) -> None:
    for name, changes in CHANGES.items():
        machine.changes = 0
        work_of(machine, name)()
        assert machine.changes == changes


@pytest.mark.parametrize(
    ("command", "ending", "point"),
    [
        (command, ending, point)
        for command, ending in (("adopt", "cut"), ("adopt", "kill"), ("release", "cut"))
        for point in range(CHANGES[command])
    ],
)
def test_whatever_ends_it_it_is_composed_or_as_before(
    machine: GrownMachine, command: str, ending: str, point: int
) -> None:
    if command == "release":
        machine.adopt()
    end(machine, command, point)
    if ending == "cut":
        machine.boot()
    elif machine.records:
        machine.release()
    assert machine.is_adopted or machine.is_as_before
    if machine.is_adopted:
        machine.release()
    machine.adopt()
    assert machine.is_adopted, "what an ended one has left is no obstacle"


@pytest.mark.parametrize(("move", "point"), [(move, n) for move in ("write", "remove") for n in range(CHANGES[move])])
def test_whatever_ends_the_move_of_the_first_sectors_they_are_shown(
    machine: GrownMachine, move: str, point: int
) -> None:
    machine.adopt()
    if move == "remove":
        write(machine)
    end(machine, move, point)
    machine.boot()
    assert machine.is_adopted
    if machine.contents != machine.before:
        remove(machine)
    machine.release()
    assert machine.is_as_before


@pytest.mark.parametrize("has_tombstone", [False, True])
def test_after_the_volume_grew_again_it_is_found_also_without_its_record(
    machine: GrownMachine, has_tombstone: bool
) -> None:
    machine.adopt()
    if has_tombstone:
        write(machine)
    machine.power_off()
    machine.resize("vdb", VOLUME_BYTES + 2 * LEAST_BYTES)
    machine.sysfs.path(f"etc/elastio/adopted/{UUID}").unlink()
    assert recorded_again(machine.adopter(), machine.sysfs.path("dev/vdb")) == "bcache0"
    machine.boot()
    assert machine.is_adopted
    if has_tombstone:
        remove(machine)
    machine.release()
    assert machine.is_as_before


def test_a_volume_without_a_head_gets_no_record(machine: GrownMachine) -> None:
    with refused(NotOursError, "head.none"):
        recorded_again(machine.adopter(), machine.sysfs.path("dev/vdb"))


def test_a_copy_is_not_composed_in_its_place_and_its_bytes_are_left(machine: GrownMachine) -> None:
    machine.adopt()
    machine.disk("vdc", 48, "copy0123456789abcdef", machine.volume)
    machine.found["vdc"] = machine.found["vdb"]
    machine.boot()
    assert machine.is_adopted, "beside its volume a copy of the head is none"
    machine.power_off()
    machine.lay("sys/block/vdb/serial", "gone0123456789abcdef")
    with refused(NotOursError, "volume.copy"):
        machine.run_unit()
    before = machine.volume
    with refused(NotOursError, "release.copy"):
        machine.release()
    del machine.found["vdc"]
    with refused(NotOursError, "volume.copy"):
        machine.release()
    machine.found.clear()
    with refused(HostError, "volume.missing"):
        machine.release()
    assert (machine.volume, machine.records) == (before, ["composed"])


def test_after_a_boot_it_is_erased_on_its_volume_whatever_has_the_name_that_this_had(machine: GrownMachine) -> None:
    machine.adopt()
    machine.power_off()
    adopted_record.save(machine.sysfs, replace(record(machine), head_device="vdh"))
    machine.release()
    assert machine.is_as_before


def test_an_older_release_finds_no_head_on_the_volume_and_so_erases_none(machine: GrownMachine) -> None:
    """It does not read where the head begins, and takes every place for one from the begin of the volume."""
    machine.adopt()
    as_read = replace(record(machine).head, first_sector=0)
    node = machine.sysfs.path("dev/vdb")
    assert heads.read(node) is None
    assert superblock.parse(heads.superblock_of(node, as_read)) is None
    assert superblock.parse(heads.superblock_of(node, record(machine).head)) is not None


def test_at_the_next_boot_its_place_is_found_again(machine: GrownMachine) -> None:
    machine.mount()
    found = plan(machine.sysfs.path("data"), None, machine.sysfs, machine.run, is_at_boot=True)
    at_boot.ask(machine.adopter(), found)
    machine.resize("vdb", VOLUME_BYTES + 2 * LEAST_BYTES)
    machine.boot()
    assert machine.is_adopted


@pytest.mark.parametrize("step", [Step.ADOPTING, Step.RELEASING])
@pytest.mark.parametrize("kind", [AdoptMachine, GrownMachine])
def test_a_label_of_which_a_power_cut_has_left_a_part_is_no_obstacle(
    tmp_path: Path, kind: type[AdoptMachine], step: Step
) -> None:
    """That of a partition has two sectors."""
    machine = kind(tmp_path)
    machine.found["vdb"]["PART_ENTRY_UUID"] = UUID
    device, name = ("vdb", None) if kind is GrownMachine else ("vdh", "dev/vdh")
    machine.adopter().adopt(machine.plan(head=name))
    adopted_record.save(machine.sysfs, replace(record(machine), step=step))
    with machine.sysfs.path(f"dev/{device}").open("r+b") as file:
        file.seek((machine.head_sector + 1) * SECTOR)
        assert os.pread(file.fileno(), SECTOR, file.tell()) != bytes(SECTOR)
        file.write(bytes(SECTOR))
    machine.boot()
    assert machine.is_as_before


def test_a_volume_that_was_reverted_to_what_it_was_before_is_released(machine: GrownMachine) -> None:
    machine.adopt()
    machine.power_off()
    machine.put(0, machine.before + bytes(LEAST_BYTES))
    with refused(HostError, "head.missing"):
        machine.boot()
    machine.release()
    assert machine.is_as_before


# --- the filesystem grows over it ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (KIB, ext4(BLOCKS + 8)),
        (VOLUME_BYTES + BLOCK_BYTES, b"?"),
        (VOLUME_BYTES + LEAST_BYTES - 1, b"?"),
        (VOLUME_BYTES, ext4(1)),
    ],
    ids=["its superblock says so", "that is in its journal", "the last byte", "the label is gone, too"],
)
def test_where_it_has_grown_over_the_head_it_is_not_composed_and_nothing_is_erased(
    machine: GrownMachine, at: int, data: bytes
) -> None:
    """Somebody has mounted the volume itself, while it was not composed."""
    machine.adopt()
    machine.power_off()
    machine.put(at, data)
    if at == VOLUME_BYTES:
        machine.put(KIB, ext4(BLOCKS + 8))
    before = machine.volume
    with refused(NotOursError, "head.reached"):
        machine.boot()
    assert (machine.volume, machine.is_composed) == (before, False)
    assert machine.slept == [], "nobody waits for a head that cannot come later"
    machine.release()
    assert (machine.volume, machine.records) == (before, [])


def test_with_its_tombstone_it_cannot_have_grown_and_is_composed(machine: GrownMachine) -> None:
    """The newest data may be in a cache, which nobody could attach otherwise."""
    machine.adopt()
    write(machine)
    machine.power_off()
    machine.put(VOLUME_BYTES + BLOCK_BYTES, b"?")
    machine.boot()
    assert machine.is_adopted
    remove(machine)
    machine.release()
    assert (machine.contents, machine.records) == (machine.before, [])
    assert machine.volume[VOLUME_BYTES + BLOCK_BYTES :][:1] == b"?"


@pytest.mark.parametrize("work", ["write", "erase"])
def test_only_its_own_places_are_written_on_a_volume(machine: GrownMachine, work: str) -> None:
    """Whatever was written there after the last look."""
    head = machine.plan(head=None).head
    gaps = [at for begin, end in heads.gaps(head) for at in (begin, end - 1) if begin < end]
    for at in gaps:
        machine.put(at, b"?")
    node = machine.sysfs.path("dev/vdb")
    if work == "write":
        heads.write(node, head, bytes(BLOCK_BYTES), lambda _: None)
    else:
        heads.erase(node, head, lambda _: None)
    assert {machine.volume[at : at + 1] for at in gaps} == {b"?"}


def test_another_device_of_that_name_is_not_written_to(machine: GrownMachine) -> None:
    found, serial = machine.plan(head=None), machine.sysfs.read("sys/block/vdb/serial")
    machine.lay("sys/block/vdb/serial", "other0123456789abcde")
    before = machine.volume
    with refused(NotOursError, "head.other"):
        machine.adopter().adopt(found)
    assert machine.volume == before
    machine.lay("sys/block/vdb/serial", serial)
    machine.boot()
    assert machine.is_as_before


def test_a_filesystem_that_grew_since_the_plan_is_not_adopted(machine: GrownMachine) -> None:
    machine.resize("vdb", VOLUME_BYTES + 2 * LEAST_BYTES)
    found = machine.plan(head=None)
    machine.put(KIB, ext4(BLOCKS + 8))
    before = machine.volume
    with refused(NotOursError, "head.other"):
        machine.adopter().adopt(found)
    assert (machine.volume, machine.records) == (before, [])
