"""A volume is adopted and released: nothing on it is written, and the boot after a power cut ends what was begun."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.errors import DeviceBusyError, ElastioError, HostError, NotOursError
from elastio.host import superblock
from elastio.host.composed import LOCK
from elastio.host.heads import CONTENT_SECTOR, LEAST_BYTES, SLOTS
from elastio.host.locks import try_lock
from elastio.units import MIB, SECTOR
from elastio_setup import adopted_record
from elastio_setup.adopt import APPEAR_S, POLL_S, Adopter
from elastio_setup.adopted_record import Record
from tests.fixtures.errors import refused
from tests.values import present

from .adopt_machine import UUID, AdoptMachine, PowerCutError

# More than adopting or releasing has.
MOST_CHANGES = 12


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AdoptMachine:
    found = AdoptMachine(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda _: found.change())
    return found


def record(machine: AdoptMachine) -> Record:
    return present(adopted_record.load(machine.sysfs, UUID))


def test_an_adopted_volume_is_composed_and_not_written_to(machine: AdoptMachine) -> None:
    plan = machine.plan()
    assert machine.is_as_before, "a plan changes nothing"
    assert machine.adopter().adopt(plan) == "bcache0"
    assert machine.volume == machine.before
    assert (machine.records, machine.is_composed) == (["composed"], True)
    place = CONTENT_SECTOR * SECTOR + superblock.OFFSET
    assert superblock.is_without_cache(machine.head[place:][:4096])


def test_a_released_volume_and_its_head_are_as_before(machine: AdoptMachine) -> None:
    machine.adopter().adopt(machine.plan())
    machine.adopter().release(record(machine), None)
    assert machine.is_as_before
    with refused(ElastioError, "release.none"):
        machine.adopter().release(Record(machine.plan().head, adopted_record.Step.COMPOSED, "vdh"), None)


@pytest.mark.parametrize("is_composed", [True, False], ids=["at once", "by who comes after a kill"])
def test_nobody_sees_the_volume_before_what_was_read_of_it_is_dropped(machine: AdoptMachine, is_composed: bool) -> None:
    machine.adopter().adopt(machine.plan())
    if not is_composed:
        machine.power_off()
    hidden, run = list[tuple[str, bool]](), machine.run

    def watched(argv: Sequence[str], *, timeout_s: float) -> str:
        hidden.extend(
            [(argv[0], machine.is_hidden)] if str(argv[-1]).endswith("dev/vdb") and argv[0] != "blkid" else []
        )
        return run(argv, timeout_s=timeout_s)

    Adopter(machine.sysfs, watched, machine.wait, machine.slept.append).release(record(machine), None)
    assert hidden == [("blockdev", True), ("udevadm", False)]


def test_a_mounted_volume_is_unmounted_and_mounted_again_both_times(machine: AdoptMachine) -> None:
    machine.mount()
    machine.adopter().adopt(machine.plan("data"))
    assert f"252:0 / {machine.place}" in machine.sysfs.read("proc/self/mountinfo")
    machine.adopter().release(record(machine), machine.place)
    assert f"240:16 / {machine.place}" in machine.sysfs.read("proc/self/mountinfo")
    assert machine.is_as_before


def is_cut(work: Callable[[], object], machine: AdoptMachine, point: int) -> bool:
    """Whether the power was cut before the change with this number; it has fewer changes otherwise."""
    machine.changes, machine.cut_at = 0, point
    try:
        work()
    except PowerCutError:
        return True
    finally:
        machine.cut_at = -1
    assert machine.changes <= point
    return False


@pytest.mark.parametrize("point", range(MOST_CHANGES))
def test_after_a_power_cut_while_adopting_it_is_composed_or_as_before(machine: AdoptMachine, point: int) -> None:
    plan = machine.plan()
    if is_cut(lambda: machine.adopter().adopt(plan), machine, point):
        machine.boot()
    assert machine.volume == machine.before
    assert (machine.records, machine.is_composed) == (["composed"], True) or machine.is_as_before
    if machine.is_as_before:
        machine.adopter().adopt(machine.plan())
    assert machine.is_composed


@pytest.mark.parametrize("point", range(MOST_CHANGES))
def test_after_a_power_cut_while_releasing_it_is_composed_or_as_before(machine: AdoptMachine, point: int) -> None:
    machine.adopter().adopt(machine.plan())
    known = record(machine)
    if is_cut(lambda: machine.adopter().release(known, None), machine, point):
        machine.boot()
    assert machine.volume == machine.before
    assert (machine.records, machine.is_composed) == (["composed"], True) or machine.is_as_before
    if machine.is_composed:
        machine.adopter().release(record(machine), None)
    assert machine.is_as_before


@pytest.mark.parametrize("point", range(MOST_CHANGES))
def test_a_killed_adoption_can_be_released(machine: AdoptMachine, point: int) -> None:
    """The machine did not go down: what the kernel has is still there."""
    plan = machine.plan()
    is_cut(lambda: machine.adopter().adopt(plan), machine, point)
    if machine.records:
        machine.adopter().release(record(machine), None)
    assert machine.is_as_before


@pytest.mark.parametrize("is_mounted", [True, False])
def test_an_adoption_that_was_killed_before_it_was_recorded_stays_where_it_is_used(
    machine: AdoptMachine, is_mounted: bool
) -> None:
    """Nothing else was left to do. systemd mounts it as soon as it appears."""
    machine.adopter().adopt(machine.plan())
    adopted_record.save(machine.sysfs, replace(record(machine), step=adopted_record.Step.ADOPTING))
    if is_mounted:
        machine.mount("252:0")
    machine.run_unit()
    assert machine.records == (["composed"] if is_mounted else [])
    assert is_mounted or machine.is_as_before


def test_an_adoption_that_is_interrupted_is_undone(machine: AdoptMachine) -> None:
    interrupts = [KeyboardInterrupt]

    def interrupted(condition: Callable[[], bool], seconds: float) -> bool:
        is_done = machine.wait(condition, seconds)
        if machine.is_composed and interrupts:
            raise interrupts.pop()
        return is_done

    plan = machine.plan()
    with pytest.raises(KeyboardInterrupt):
        Adopter(machine.sysfs, machine.run, interrupted).adopt(plan)
    assert machine.is_as_before


@pytest.mark.parametrize("program", ["dmsetup", "modprobe", "udevadm"])
def test_an_adoption_that_fails_is_undone(machine: AdoptMachine, program: str) -> None:
    plan = machine.plan()
    machine.failing.add(program)
    with refused(HostError, "program.failed"):
        machine.adopter().adopt(plan)
    machine.failing.clear()
    assert machine.is_as_before


# --- at boot -------------------------------------------------------------------------------------------------


def test_at_boot_it_is_composed_again(machine: AdoptMachine) -> None:
    machine.adopter().adopt(machine.plan())
    machine.boot()
    assert (machine.records, machine.is_composed, machine.volume) == (["composed"], True, machine.before)
    assert machine.adopter().assemble(UUID) == "bcache0", "a second event changes nothing"


def test_without_a_record_nothing_is_composed(machine: AdoptMachine) -> None:
    assert machine.adopter().assemble(UUID) == ""
    assert machine.adopter().assemble("../fstab") == ""
    assert machine.is_as_before


@pytest.mark.parametrize(
    ("change", "error", "code"),
    [
        (("sys/block/vdb/serial", "copy0123456789abcdef"), NotOursError, "volume.copy"),
        (("sys/block/vdb/size", "2048"), NotOursError, "volume.copy"),
        (("vdb", ""), HostError, "volume.missing"),
        (("vdh", ""), HostError, "head.missing"),
    ],
)
def test_at_boot_a_copy_or_what_is_not_there_is_not_composed(
    machine: AdoptMachine, change: tuple[str, str], error: type[ElastioError], code: str
) -> None:
    machine.adopter().adopt(machine.plan())
    name, text = change
    if text:
        machine.lay(name, text)
    elif name == "vdb":
        machine.found.clear()
    else:
        machine.sysfs.path("dev/vdh").write_bytes(bytes(16 * MIB))
    with refused(error, code):
        machine.boot()
    assert not machine.is_composed
    assert machine.slept == [POLL_S], "each look reads every disk"
    machine.adopter().release(record(machine), None)
    assert machine.records == [], "the volume can be used as it is"


def test_of_a_volume_and_its_copy_the_volume_is_composed_and_of_two_that_are_alike_none(machine: AdoptMachine) -> None:
    machine.adopter().adopt(machine.plan())
    machine.disk("vdc", 48, "copy0123456789abcdef", machine.volume)
    machine.found["vdc"] = machine.found["vdb"]
    machine.boot()
    assert machine.is_composed
    machine.lay("sys/block/vdc/serial", "volume0123456789abcd")
    with refused(NotOursError, "volume.ambiguous"):
        machine.boot()


def test_a_copy_of_the_head_or_another_head_is_not_composed(machine: AdoptMachine) -> None:
    machine.adopter().adopt(machine.plan())
    machine.disk("vdc", 48, "copy0123456789abcdef", machine.head)
    with refused(NotOursError, "head.ambiguous"):
        machine.boot()
    machine.sysfs.path("dev/vdc").write_bytes(bytes(16 * MIB))
    backing = record(machine).head.backing_uuid
    text = machine.sysfs.path(f"etc/elastio/adopted/{UUID}").read_text()
    machine.lay(f"etc/elastio/adopted/{UUID}", text.replace(backing, "another"))
    with refused(NotOursError, "head.other"):
        machine.boot()


def test_a_composed_device_that_shows_other_bytes_is_not_registered(machine: AdoptMachine) -> None:
    machine.adopter().adopt(machine.plan())
    dmsetup = machine._dmsetup

    def wrong(argv: list[str]) -> str:
        answer = dmsetup(argv)
        if argv[1] == "create":
            machine.spoil()
        return answer

    machine._dmsetup = wrong  # type: ignore[method-assign,assignment]
    with refused(NotOursError, "composed.differs"):
        machine.boot()
    assert not machine.is_composed


# --- what is not released ------------------------------------------------------------------------------------


def test_a_volume_in_use_or_with_a_cache_is_not_released(machine: AdoptMachine) -> None:
    machine.adopter().adopt(machine.plan())
    machine.mount("252:0")
    with refused(DeviceBusyError, "composed.busy"):
        machine.adopter().release(record(machine), None)
    machine.lay("proc/self/mountinfo", "")
    machine.lay("sys/block/dm-0/bcache/state", "dirty")
    with refused(NotOursError, "composed.cache"):
        machine.adopter().release(record(machine), None)
    assert (machine.records, machine.is_composed) == (["composed"], True)


def test_a_head_whose_superblock_names_a_cache_is_not_erased_at_boot_or_later(machine: AdoptMachine) -> None:
    """Somebody has attached a cache by hand, and it is missing: the volume may lack what is on it."""
    machine.adopter().adopt(machine.plan())
    flags = CONTENT_SECTOR * SECTOR + superblock.OFFSET + superblock.LAYOUT.size - 104
    with machine.sysfs.path("dev/vdh").open("r+b") as file:
        file.seek(flags)
        file.write((2 << 61).to_bytes(8, "little"))
    with refused(NotOursError, "release.cache"):
        machine.adopter().release(record(machine), None)
    assert any(machine.head[slot : slot + 8] != bytes(8) for slot in SLOTS)


# --- what may happen meanwhile ---------------------------------------------------------------------------------


def test_a_release_with_a_copy_beside_the_volume_is_refused(machine: AdoptMachine) -> None:
    """The mount by UUID that follows might take the copy."""
    machine.mount()
    machine.adopter().adopt(machine.plan("data"))
    machine.disk("vdc", 48, "restoredcopy01234567", machine.volume)
    machine.found["vdc"] = {"TYPE": "ext4", "UUID": UUID}
    with refused(NotOursError, "release.copy"):
        machine.adopter().release(record(machine), machine.place)
    assert (machine.records, machine.is_composed, machine.is_mounted) == (["composed"], True, True)


@pytest.mark.parametrize("change", ["filesystem", "data", "disk"])
def test_what_has_come_onto_the_head_since_the_plan_is_not_overwritten(machine: AdoptMachine, change: str) -> None:
    plan, precious = machine.plan(), b"PRECIOUS" * (LEAST_BYTES // 8)
    if change == "filesystem":
        machine.signatures["vdh"] = [{"type": "ext4"}]
    elif change == "data":
        machine.sysfs.path("dev/vdh").write_bytes(precious)
    else:
        machine.lay("sys/block/vdh/serial", "another0123456789abc")
    before = machine.head
    with pytest.raises((NotOursError, ElastioError)) as refusal:
        machine.adopter().adopt(plan)
    assert refusal.value.code in {"head.not_blank", "head.other"}
    assert (machine.head, machine.records, machine.is_composed) == (before, [], False)


def test_a_volume_that_does_not_come_holds_up_no_other_command(machine: AdoptMachine) -> None:
    machine.adopter().adopt(machine.plan())
    machine.power_off()
    machine.sysfs.path("dev/vdh").write_bytes(b"")
    held = []

    def wait(condition: Callable[[], bool], seconds: float) -> bool:
        with machine.sysfs.path(LOCK).open("r+") as lock:
            held.append((seconds, not try_lock(lock.fileno())))
        return condition()

    with refused(HostError, "head.missing"):
        Adopter(machine.sysfs, machine.run, wait, machine.slept.append).assemble(UUID)
    assert [is_held for seconds, is_held in held if seconds == APPEAR_S] == [False]


def test_a_volume_is_released_although_its_head_cannot_be_read(machine: AdoptMachine) -> None:
    machine.adopter().adopt(machine.plan())
    for name in ("dm-0", "bcache0"):
        shutil.rmtree(machine.sysfs.path(f"sys/block/{name}"))
    node = machine.sysfs.path("dev/vdh")
    node.unlink()
    node.mkdir()  # it can be opened, and not read
    machine.adopter().release(record(machine), None)
    assert (machine.records, machine.volume) == ([], machine.before)


def test_a_record_that_cannot_be_written_changes_nothing(machine: AdoptMachine) -> None:
    """Its name is too long for a temporary one."""
    plan = machine.plan()
    head = replace(plan.head, volume=replace(plan.head.volume, uuid="0" * 250))
    with refused(ElastioError, "record.unwritable"):
        machine.adopter().adopt(replace(plan, head=head, volume=head.volume))
    assert (machine.volume, machine.head) == (machine.before, bytes(LEAST_BYTES))
