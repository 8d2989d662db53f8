"""What LVM is told to do with its groups while a volume of one is adopted, and what is broken there."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastio.errors import NotOursError
from elastio_setup import adopted_record
from elastio_setup.adopted_again import recorded_again
from tests.fixtures.errors import refused

from . import tombstones
from .adopt_machine import UUID
from .lvm_machine import EXTENT, LvmMachine, mapped
from .tombstones import record

OTHER_UUID = "OtHeR0-aaaa-bbbb-cccc-dddd-eeee-ffffff"


@pytest.fixture
def machine(tmp_path: Path) -> LvmMachine:
    found = LvmMachine(tmp_path)
    found.adopter().adopt(found.plan())
    return found


def release(machine: LvmMachine) -> None:
    machine.adopter().release(record(machine), None)


def test_renamed_it_is_found_and_removed(machine: LvmMachine) -> None:
    machine.made[0]["lv_name"] = "renamed"
    for row in machine.logicals:
        row["vg_name"] = "newgroup"
    machine.boot()
    assert machine.is_composed
    release(machine)
    assert machine.made == []


@pytest.mark.parametrize(("shown", "group"), [("group-data", "group"), ("a--b-c--d", "a-b")])
@pytest.mark.parametrize("activates", [True, False])
def test_a_broken_group_is_in_the_way_of_no_other(machine: LvmMachine, shown: str, group: str, activates: bool) -> None:
    for row in machine.logicals:
        row["vg_name"] = group
    machine.lay("sys/block/dm-1/dm/name", shown)
    machine.is_other_broken, machine.activates = True, activates
    machine.boot()
    assert machine.is_composed
    release(machine)
    assert machine.is_as_before


def test_of_a_group_that_was_merged_into_another_the_head_goes_with_it(machine: LvmMachine) -> None:
    """vgmerge(8): what is moved has the UUID of the other group then."""
    machine.power_off()
    for row in machine.logicals:
        device = machine.node_of(row)
        row["vg_uuid"] = OTHER_UUID
        if device is not None:
            machine.lay(f"sys/block/{device}/dm/uuid", mapped(row))
    release(machine)
    assert machine.is_as_before


def pvmove(machine: LvmMachine, number: int) -> None:
    """The volume is on another disk now: pvmove(8)."""
    slaves = machine.sysfs.path("sys/block/dm-1/slaves")
    for slave in slaves.iterdir():
        slave.unlink()
    machine.disk(f"vd{'jkl'[number]}", 96 + number, f"another{number}123456789abc", bytes(EXTENT))
    machine.link(f"sys/block/dm-1/slaves/vd{'jkl'[number]}", f"../../vd{'jkl'[number]}")


@pytest.mark.parametrize("has_tombstone", [True, False])
def test_a_volume_that_was_moved_while_it_was_composed_is_composed_again(
    machine: LvmMachine, has_tombstone: bool
) -> None:
    """Each change of the volume starts the unit."""
    if has_tombstone:
        tombstones.write(machine)
    for number in range(2):
        pvmove(machine, number)
        assert machine.adopter().assemble(UUID) == "bcache0"
        machine.boot()
        assert machine.is_composed
    if has_tombstone:
        tombstones.remove(machine)
    pvmove(machine, 2)
    release(machine)
    assert machine.is_as_before


def test_a_disk_that_is_missing_is_not_forgotten(machine: LvmMachine) -> None:
    """Of a RAID that has lost one: it may be there again at the next boot."""
    before = record(machine)
    pvmove(machine, 0)
    machine.lay("sys/block/vdb/serial", "")
    assert machine.adopter().assemble(UUID) == "bcache0"
    assert record(machine) == before


def test_a_lost_record_is_written_again_while_another_group_is_broken(machine: LvmMachine) -> None:
    before = record(machine)
    adopted_record.delete(machine.sysfs, before)
    machine.power_off()
    machine.is_other_broken = True
    recorded_again(machine.adopter(), machine.sysfs.path(f"dev/{machine.head_device}"))
    assert record(machine).group_uuid == before.group_uuid


def test_a_volume_that_was_moved_while_it_was_not_composed_counts_as_a_copy(machine: LvmMachine) -> None:
    machine.power_off()
    pvmove(machine, 0)
    with refused(NotOursError, "volume.copy"):
        machine.boot()
