"""A physical volume is adopted while its group is not active, and LVM never sees it beside its adaptive device."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from elastio.errors import ConfigError, DeviceBusyError, ElastioError, HostError, NotOursError
from elastio.host import recompose
from elastio.host.blockdev import run_wipefs
from elastio.host.commands import run
from elastio.host.heads import BLOCK_BYTES
from elastio.host.tombstone import INTRODUCTION
from elastio.units import MIB, SECTOR
from elastio_setup import adopted_record
from elastio_setup.adopted_record import Step
from elastio_setup.adopted_volume import probe
from tests.fixtures.errors import refused

from .adopt_machine import UUID, AdoptMachine, PowerCutError
from .tombstones import record, shown

MOST_CHANGES = 20
GROUP = {"vg_name": "my-pool", "vg_attr": "wz--n-", "pv_count": "1"}
ON_IT = ("/dev/my-pool/data", "/dev/mapper/my--pool-data")


@dataclass
class PhysicalMachine(AdoptMachine):
    """vdb is a physical volume. `group`: what `pvs` shows. `hidden`: LVM's filter lets bcache devices not through."""

    found: dict[str, dict[str, str]] = field(default_factory=lambda: {"vdb": {"TYPE": "LVM2_member", "UUID": UUID}})
    group: dict[str, str] = field(default_factory=lambda: dict(GROUP))
    hidden: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.lay("usr/sbin/lvm", "")
        self.lay("etc/fstab", f"{ON_IT[0]} /data ext4 defaults,nofail 0 2\n")

    def run(self, argv: Sequence[str], *, timeout_s: float) -> str:
        if argv[0] == "pvs" and argv[0] not in self.failing:
            name = Path(argv[1]).name
            if self.volume.startswith(INTRODUCTION.encode()) == (name == "vdb") or (self.hidden and name != "vdb"):
                raise HostError("`pvs` failed (5): no physical volume", code="program.failed")
            return json.dumps({"report": [{"pv": [{"pv_name": argv[1], **self.group}]}]})
        if argv[0] in ("pvck", "vgck") and argv[0] not in self.failing:
            return ""
        return super().run(argv, timeout_s=timeout_s)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PhysicalMachine:
    """Each write that is durable is a change, before which the power may be cut."""
    found, pwritev = PhysicalMachine(tmp_path), os.pwritev

    def written(descriptor: int, buffers: list[bytes], at: int) -> int:
        found.change()
        return pwritev(descriptor, buffers, at)

    monkeypatch.setattr(os, "fsync", lambda _: found.change())
    monkeypatch.setattr(os, "pwritev", written)
    return found


def is_covered(machine: PhysicalMachine) -> bool:
    """The tombstone is there, and nothing of the first sectors."""
    piece = machine.volume[:BLOCK_BYTES]
    return piece.startswith(INTRODUCTION.encode()) and piece[SECTOR:] == bytes(BLOCK_BYTES - SECTOR)


def is_adopted(machine: PhysicalMachine) -> bool:
    there = (machine.records, machine.is_composed, is_covered(machine)) == (["composed"], True, True)
    return there and shown(machine) == machine.before


# --- adopted, composed, released -----------------------------------------------------------------------------------


def test_the_tombstone_is_there_from_the_adoption_to_the_release(machine: PhysicalMachine) -> None:
    machine.adopter().adopt(machine.plan())
    assert is_adopted(machine)
    assert machine.volume[BLOCK_BYTES:] == machine.before[BLOCK_BYTES:]
    assert recompose.has_tombstone(machine.sysfs, "dm-0") is None, "nobody is asked to remove it"
    machine.boot()
    assert is_adopted(machine)
    machine.adopter().release(record(machine), None)
    assert machine.is_as_before


@pytest.mark.parametrize(("is_boot", "action"), [(True, "add"), (False, "change")])
def test_lvm_activates_by_itself_what_a_boot_has_released(machine: PhysicalMachine, is_boot: bool, action: str) -> None:
    """It acts upon what is added alone. After a command the operator activates the group."""
    machine.adopter().adopt(machine.plan())
    machine.ran.clear()
    if is_boot:
        adopted_record.save(machine.sysfs, replace(record(machine), step=Step.RELEASING))
        machine.boot()
    else:
        machine.adopter().release(record(machine), None)
    assert machine.records == []
    triggers = [argv for argv in machine.ran if argv[:2] == ["udevadm", "trigger"]]
    assert triggers[-1][2] == f"--action={action}"


@pytest.mark.parametrize("point", range(MOST_CHANGES))
def test_after_a_power_cut_while_adopting_or_releasing_it_is_composed_or_as_before(
    machine: PhysicalMachine, point: int
) -> None:
    for work in (
        lambda: machine.adopter().adopt(machine.plan()),
        lambda: machine.adopter().release(record(machine), None),
    ):
        machine.changes, machine.cut_at = 0, point
        try:
            work()
        except PowerCutError:
            machine.boot()
        machine.cut_at = -1
        assert is_adopted(machine) or machine.is_as_before
        if machine.is_as_before and not machine.records:
            machine.adopter().adopt(machine.plan())


def test_a_group_that_was_activated_meanwhile_is_not_composed(machine: PhysicalMachine) -> None:
    plan = machine.plan()
    machine.lay("sys/block/vdb/holders/dm-9", "")
    with refused(DeviceBusyError, "adopt.used"):
        machine.adopter().adopt(plan)
    assert machine.is_as_before


def test_where_lvm_does_not_use_the_adaptive_device_it_is_as_before(machine: PhysicalMachine) -> None:
    machine.hidden = True
    with refused(HostError, "group.hidden"):
        machine.adopter().adopt(machine.plan())
    assert machine.is_as_before


def test_without_its_tombstone_it_is_not_composed_and_the_saved_piece_is_kept(machine: PhysicalMachine) -> None:
    """Somebody has overwritten it: the label is on the head alone."""
    machine.adopter().adopt(machine.plan())
    machine.power_off()
    with machine.sysfs.path("dev/vdb").open("r+b") as file:
        file.write(bytes(BLOCK_BYTES))
    before = machine.head
    with refused(NotOursError, "tombstone.missing"):
        machine.boot()
    assert (machine.head, machine.is_composed) == (before, False)


# --- what is not adopted -------------------------------------------------------------------------------------------


def grouped(**values: str) -> Callable[[PhysicalMachine], None]:
    return lambda machine: machine.group.update(values)


def table(line: str, name: str = "fstab") -> Callable[[PhysicalMachine], None]:
    return lambda machine: machine.lay(f"etc/{name}", f"{line}\n")


def failing(program: str) -> Callable[[PhysicalMachine], None]:
    return lambda machine: machine.failing.add(program)


def active(machine: PhysicalMachine) -> None:
    machine.lay("sys/block/vdb/holders/dm-9", "")
    machine.lay("sys/block/dm-9/dm/uuid", "LVM-1")


REFUSALS: dict[str, tuple[Callable[[PhysicalMachine], object], type[ElastioError], str]] = {
    "no lvm2": (lambda m: m.sysfs.path("usr/sbin/lvm").unlink(), HostError, "adopt.files"),
    "active": (active, DeviceBusyError, "adopt.used"),
    "in no group": (grouped(vg_name=""), NotOursError, "group.none"),
    "a group on two": (grouped(pv_count="2"), NotOursError, "group.spread"),
    "read-only": (grouped(vg_attr="rz--n-"), NotOursError, "group.other"),
    "exported": (grouped(vg_attr="wzx-n-"), NotOursError, "group.other"),
    "partial": (grouped(vg_attr="wz-pn-"), NotOursError, "group.other"),
    "shared": (grouped(vg_attr="wz--ns"), NotOursError, "group.other"),
    "damaged headers": (failing("pvck"), NotOursError, "adopt.damaged"),
    "damaged metadata": (failing("vgck"), HostError, "program.failed"),
    "no nofail": (table(f"{ON_IT[0]} /data ext4 defaults 0 2"), ConfigError, "fstab.nofail"),
    "no nofail, by device-mapper": (table(f"{ON_IT[1]} /data ext4 defaults 0 2"), ConfigError, "fstab.nofail"),
    "crypttab without nofail": (table(f"safe {ON_IT[1]} none luks", "crypttab"), ConfigError, "fstab.nofail"),
    "swap": (table(f"{ON_IT[0]} none swap nofail 0 0"), ConfigError, "adopt.fstab"),
    "the root": (table(f"{ON_IT[1]} / ext4 nofail 0 1"), ConfigError, "adopt.fstab"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refuses_what_is_not_proved(machine: PhysicalMachine, name: str) -> None:
    prepare, error, code = REFUSALS[name]
    prepare(machine)
    with refused(error, code):
        machine.plan()
    assert machine.is_as_before


@pytest.mark.parametrize("source", ["/dev/mapper/my--pool--x-data", "/dev/my-pools/data", "/dev/mapper/my-pool--data"])
def test_a_line_of_another_group_is_its_own_affair(machine: PhysicalMachine, source: str) -> None:
    table(f"{source} /data ext4 defaults 0 2")(machine)
    assert machine.plan().volume.uuid == UUID


def test_a_physical_volume_on_a_logical_volume_is_refused(machine: PhysicalMachine) -> None:
    machine.disk("dm-3", 64, "", machine.volume)
    machine.lay("sys/block/dm-3/dm/uuid", f"LVM-{'a' * 64}")
    machine.link("sys/block/dm-3/slaves/vdb", "../../vdb")
    machine.found = {"dm-3": machine.found["vdb"]}
    with refused(NotOursError, "adopt.virtual"):
        machine.plan("dev/dm-3")


# --- with the real programs ----------------------------------------------------------------------------------------


def label(sector: int) -> bytes:
    """The first sectors of a physical volume, with its label in one of the first four (lib/label/label.h)."""
    content = (32).to_bytes(4, "little") + b"LVM2 001" + UUID.replace("-", "").encode()
    summed = content.ljust(SECTOR - 20, b"\0")
    checksum = zlib.crc32(summed, 0xF597A6CF ^ 0xFFFFFFFF) ^ 0xFFFFFFFF
    begin = b"LABELONE" + sector.to_bytes(8, "little") + checksum.to_bytes(4, "little")
    return bytes(sector * SECTOR) + begin + summed


@pytest.mark.runs_programs
@pytest.mark.parametrize("sector", range(4))
def test_nobody_recognizes_it_while_it_is_adopted(machine: PhysicalMachine, sector: int) -> None:
    node = machine.sysfs.path("dev/vdb")
    with node.open("r+b") as file:
        file.truncate(4 * MIB)
        file.write(label(sector))
    machine.lay("sys/block/vdb/size", str(4 * MIB // SECTOR))
    machine.before = machine.volume

    def is_recognized() -> bool:
        return probe(machine.sysfs, "vdb", run) != {} or run_wipefs(node, run) != ()

    assert is_recognized()
    machine.adopter().adopt(machine.plan())
    assert not is_recognized()
    machine.boot()
    assert not is_recognized()
    machine.adopter().release(record(machine), None)
    assert machine.is_as_before
    assert is_recognized()
