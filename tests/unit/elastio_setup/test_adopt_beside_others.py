"""Others want the volume as well while it is adopted or composed: none of them is beside the composed device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from elastio.errors import DeviceBusyError
from elastio.host import composed
from elastio_setup import adopted_record
from elastio_setup.adopt import Adopter
from elastio_setup.adopted_record import Record
from tests.fixtures.errors import refused
from tests.values import present

from .adopt_machine import UUID, AdoptMachine, PowerCutError


@pytest.fixture
def machine(tmp_path: Path) -> AdoptMachine:
    return AdoptMachine(tmp_path)


def record(machine: AdoptMachine) -> Record:
    return present(adopted_record.load(machine.sysfs, UUID))


def test_luks_that_was_opened_meanwhile_is_not_composed(machine: AdoptMachine) -> None:
    """The kernel lets dm-crypt and the composed device share the volume: both would write to it."""
    plan, holder = machine.plan(), "sys/block/vdb/holders/dm-9"
    machine.lay(holder, "")
    with refused(DeviceBusyError, "adopt.used"):
        machine.adopter().adopt(plan)
    assert machine.is_as_before
    machine.sysfs.path(holder).unlink()
    machine.adopter().adopt(plan)
    machine.power_off()
    machine.lay(holder, "")
    machine.ran.clear()
    with refused(DeviceBusyError, "composed.held"):
        machine.boot()
    assert not machine.is_composed
    assert "dmsetup" not in {argv[0] for argv in machine.ran}, "nobody sees it twice, not for a moment"


def open_beside(machine: AdoptMachine, then: Callable[[], None] = lambda: None) -> None:
    """`cryptsetup open` of the volume itself, in the moment before `dmsetup create`; and what comes after both."""
    dmsetup = machine._dmsetup

    def with_another(argv: Sequence[str]) -> str:
        answer = dmsetup(argv)
        if argv[1] == "create":
            machine.lay("sys/block/dm-9/dm/uuid", "CRYPT-LUKS2-safe")
            machine.lay("sys/block/dm-9/dm/name", "safe")
            machine.lay("sys/block/vdb/holders/dm-9", "")
            then()
        return answer

    machine._dmsetup = with_another  # type: ignore[method-assign]


def test_what_was_opened_just_before_the_claim_is_not_composed_beside_it(machine: AdoptMachine) -> None:
    plan = machine.plan()
    open_beside(machine)
    with refused(DeviceBusyError, "composed.held"):
        machine.adopter().adopt(plan)
    assert machine.is_as_before
    assert machine.sysfs.read("sys/fs/bcache/register_quiet") == "", "it was never registered"
    assert machine.sysfs.names("sys/block/vdb/holders") == ("dm-9",)


def test_who_is_killed_before_a_look_at_others_has_not_registered_it_and_the_next_one_looks(
    machine: AdoptMachine,
) -> None:
    machine.adopter().adopt(machine.plan())
    machine.power_off()

    def die() -> None:
        raise PowerCutError

    open_beside(machine, die)
    with pytest.raises(PowerCutError):
        machine.run_unit()
    assert machine.sysfs.exists("sys/block/dm-0")
    with refused(DeviceBusyError, "composed.held"):
        machine.run_unit()
    assert machine.sysfs.names("sys/block/vdb/holders") == ("dm-9",)
    assert not machine.is_composed


def test_a_volume_that_is_mounted_elsewhere_too_is_mounted_again_and_not_adopted(machine: AdoptMachine) -> None:
    machine.mount()
    plan = machine.plan("data")
    machine.lay("sys/block/vdb/holders/dm-9", "")
    with refused(DeviceBusyError, "adopt.used"):
        machine.adopter().adopt(plan)
    assert machine.is_mounted
    assert machine.is_as_before


def test_others_wait_neither_for_the_unmount_nor_for_the_check_of_the_filesystem(machine: AdoptMachine) -> None:
    """It may take an hour, and a boost of another volume needs the lock."""
    machine.mount()
    plan, ran = machine.plan("data"), list[str]()

    def run(argv: Sequence[str], *, timeout_s: float) -> str:
        if argv[0] in ("umount", "e2fsck"):
            with composed.locked(machine.sysfs, lambda condition, _: condition(), 0.0):
                ran.append(argv[0])
        return machine.run(argv, timeout_s=timeout_s)

    adopter = Adopter(machine.sysfs, run, machine.wait, machine.slept.append)
    adopter.adopt(plan)
    adopter.release(record(machine), machine.place)
    assert ran == ["umount", "e2fsck", "umount"]


def test_a_volume_that_is_used_during_the_check_is_not_adopted(machine: AdoptMachine) -> None:
    machine.mount()
    plan = machine.plan("data")

    def run(argv: Sequence[str], *, timeout_s: float) -> str:
        if argv[0] == "e2fsck":
            machine.lay("sys/block/vdb/holders/dm-9", "")
        return machine.run(argv, timeout_s=timeout_s)

    with refused(DeviceBusyError, "adopt.used"):
        Adopter(machine.sysfs, run, machine.wait, machine.slept.append).adopt(plan)
    assert machine.is_mounted
    assert machine.is_as_before
