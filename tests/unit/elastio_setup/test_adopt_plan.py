"""What is not proved is not adopted: every refusal changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID as Uuid

import pytest

from elastio.errors import ConfigError, DeviceBusyError, ElastioError, HostError, NotOursError
from elastio.host.heads import serialize
from elastio.host.superblock import OFFSET, render_backing
from elastio.units import MIB
from elastio_setup.adopt_contents import PROGRAMS
from elastio_setup.adopt_plan import RULES_FILE, UNIT, plan
from tests.fixtures.errors import refused
from tests.fixtures.heads import HEAD

from .adopt_machine import ROOT, UUID, AdoptMachine


@pytest.fixture
def machine(tmp_path: Path) -> AdoptMachine:
    return AdoptMachine(tmp_path)


def on(machine: AdoptMachine, device: str, at: int, data: bytes) -> None:
    with machine.sysfs.path(f"dev/{device}").open("r+b") as file:
        file.seek(at)
        file.write(data)


def superblock(machine: AdoptMachine) -> None:
    on(machine, "vdb", OFFSET, render_backing(Uuid(int=1), Uuid(int=2), block_bytes=512, data_offset_sectors=2048))


def copy(machine: AdoptMachine) -> None:
    machine.disk("vdc", 48, "copy0123456789abcdef", machine.volume)
    machine.found["vdc"] = machine.found["vdb"]


def filesystem(kind: str) -> Callable[[AdoptMachine], None]:
    return lambda machine: machine.found["vdb"].update(TYPE=kind)


def opened(machine: AdoptMachine) -> None:
    machine.lay("sys/block/vdb/holders/dm-9", "")
    machine.lay("sys/block/dm-9/dm/uuid", "CRYPT-LUKS2-1")
    machine.lay("sys/block/dm-9/dm/name", "safe")


def crypt_mounted(machine: AdoptMachine) -> None:
    machine.lay("etc/crypttab", f"safe UUID={UUID} none luks,nofail\n")
    machine.lay("etc/fstab", "/dev/mapper/safe /data ext4 defaults 0 2\n")


def laid(name: str, text: str) -> Callable[[AdoptMachine], None]:
    return lambda machine: machine.lay(name, text)


def without(name: str) -> Callable[[AdoptMachine], None]:
    return lambda machine: machine.sysfs.path(name).unlink()


REFUSALS: dict[str, tuple[Callable[[AdoptMachine], object], type[ElastioError], str]] = {
    "no rules": (without(f"usr/lib/udev/rules.d/{RULES_FILE}"), HostError, "adopt.files"),
    "no unit": (without(f"usr/lib/systemd/system/{UNIT}"), HostError, "adopt.files"),
    "no dmsetup": (without("usr/sbin/dmsetup"), HostError, "adopt.files"),
    "a kernel that loses data": (
        laid("proc/sys/kernel/version", "#1 SMP Debian 5.4.9-1 (2020-01-02)"),
        HostError,
        "adopt.kernel",
    ),
    "a kernel that completes twice": (
        laid("proc/sys/kernel/version", "#1 SMP Debian 6.1.159-1 (2026-01-02)"),
        HostError,
        "adopt.kernel",
    ),
    "a member of a RAID": (filesystem("linux_raid_member"), NotOursError, "adopt.filesystem"),
    "swap": (filesystem("swap"), NotOursError, "adopt.filesystem"),
    "no filesystem, or several": (lambda m: m.found.clear(), NotOursError, "adopt.filesystem"),
    "bcache": (superblock, NotOursError, "adopt.bcache"),
    "registered": (laid("sys/block/vdb/bcache/state", "clean"), NotOursError, "adopt.bcache"),
    "a head": (lambda m: on(m, "vdb", 0, serialize(HEAD)), NotOursError, "adopt.is_head"),
    "read-only": (laid("sys/block/vdb/ro", "1"), HostError, "device.read_only"),
    "no serial": (laid("sys/block/vdb/serial", ""), NotOursError, "adopt.serial"),
    "partitioned": (laid("sys/block/vdb/vdb1/partition", "1"), DeviceBusyError, "adopt.used"),
    "held, as a path of multipath is": (laid("sys/block/vdb/holders/dm-9", ""), DeviceBusyError, "adopt.used"),
    "opened": (opened, DeviceBusyError, "adopt.used"),
    "swapped to": (laid("proc/swaps", "Filename\n/dev/vdb partition 1 0 -2\n"), DeviceBusyError, "adopt.used"),
    "mounted": (lambda m: m.mount(), DeviceBusyError, "adopt.mounted"),
    "a copy is there": (copy, NotOursError, "adopt.copy"),
    "a UUID that is no name of a file": (lambda m: m.found["vdb"].update(UUID="../x"), NotOursError, "adopt.uuid"),
    "damaged": (lambda m: m.failing.add("e2fsck"), NotOursError, "adopt.damaged"),
    "dirty journal": (lambda m: setattr(m, "dump", "features: needs_recovery"), NotOursError, "adopt.journal"),
    "fstab names the device": (laid("etc/fstab", "/dev/vdb /data ext4 defaults 0 2\n"), ConfigError, "adopt.fstab"),
    "crypttab names the device": (laid("etc/crypttab", "safe /dev/vdb none nofail\n"), ConfigError, "adopt.fstab"),
    "crypttab lacks nofail": (laid("etc/crypttab", f"safe UUID={UUID} none\n"), ConfigError, "fstab.nofail"),
    "opened in the initramfs": (
        laid("etc/crypttab", f"# c\nsafe UUID={UUID} none nofail,initramfs\n"),
        ConfigError,
        "adopt.fstab",
    ),
    "a line that scans the device": (
        laid("etc/fstab", f"UUID={UUID} /data btrfs nofail,device=/dev/vdb 0 0\n"),
        ConfigError,
        "adopt.fstab",
    ),
    "what is opened is mounted without nofail": (
        crypt_mounted,
        ConfigError,
        "fstab.nofail",
    ),
    "the head is held": (laid("sys/block/vdh/holders/dm-9", ""), DeviceBusyError, "head.used"),
    "the head is small": (laid("sys/block/vdh/size", str(15 * MIB // 512)), HostError, "head.small"),
    "the head is read-only": (laid("sys/block/vdh/ro", "1"), HostError, "head.small"),
    "the head has large blocks": (laid("sys/block/vdh/queue/logical_block_size", "4096"), HostError, "head.small"),
    "the head is taken": (lambda m: on(m, "vdh", 0, serialize(HEAD)), NotOursError, "head.taken"),
    "the head has data": (lambda m: on(m, "vdh", 100, b"data"), NotOursError, "head.not_blank"),
    "the head has a signature": (
        lambda m: m.signatures.update(vdh=[{"type": "ext4"}]),
        NotOursError,
        "head.not_blank",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refuses_what_is_not_proved(machine: AdoptMachine, name: str) -> None:
    prepare, error, code = REFUSALS[name]
    prepare(machine)
    before = (machine.volume, machine.head)
    with refused(error, code):
        machine.plan()
    assert (machine.volume, machine.head, machine.records, machine.changes) == (*before, [], 0)


@pytest.mark.parametrize(
    ("uuid", "code"),
    [
        ("mpath-36001405", "adopt.virtual"),
        ("CRYPT-LUKS2-1", "adopt.virtual"),
        (f"LVM-{'a' * 64}-cow", "adopt.virtual"),
        (f"LVM-{'a' * 64}", ""),
    ],
)
def test_of_device_mapper_only_a_logical_volume_is_adopted(machine: AdoptMachine, uuid: str, code: str) -> None:
    machine.disk("dm-3", 64, "", machine.volume)
    machine.lay("sys/block/dm-3/dm/uuid", uuid)
    machine.lay("sys/block/dm-3/dm/name", "safe")
    machine.link("sys/block/dm-3/slaves/vdb", "../../vdb")
    machine.found = {"dm-3": machine.found["vdb"]}
    if code:
        with refused(NotOursError, code):
            machine.plan("dev/dm-3")
    else:
        volume = machine.plan("dev/dm-3").volume
        assert (volume.mapped, volume.serial) == (uuid, "volume0123456789abcd"), "with the serial of the disk below"


@pytest.mark.parametrize(
    ("target", "head", "error", "code"),
    [
        ("dev/none", "dev/vdh", HostError, "device.missing"),
        ("etc/fstab", "dev/vdh", HostError, "device.type"),
        ("dev/vdb", None, ConfigError, "adopt.head"),
        ("dev/vdb", "dev/vdb", ConfigError, "head.same"),
        ("data", "dev/vdh", ConfigError, "adopt.not_mounted"),
    ],
)
def test_refuses_what_is_not_named_well(
    machine: AdoptMachine, target: str, head: str | None, error: type[ElastioError], code: str
) -> None:
    with refused(error, code):
        machine.plan(target, head)


def test_a_mount_point_needs_a_line_in_fstab_by_uuid_and_no_other_mount(machine: AdoptMachine) -> None:
    machine.mount()
    assert machine.plan("data").place == machine.place
    machine.lay("etc/fstab", "")
    with refused(ConfigError, "adopt.fstab"):
        machine.plan("data")
    machine.lay(
        "proc/self/mountinfo", f"{machine.sysfs.read('proc/self/mountinfo')}\n37 22 240:16 / /mnt rw - ext4 x rw"
    )
    with refused(DeviceBusyError, "adopt.used"):
        machine.plan("data")


def test_the_root_and_a_filesystem_without_a_device_are_refused(machine: AdoptMachine) -> None:
    machine.lay("proc/self/mountinfo", f"{ROOT}36 22 0:44 / {machine.place} rw - zfs pool/data rw\n")
    with refused(NotOursError, "adopt.filesystem"):
        machine.plan("data")

    with refused(NotOursError, "adopt.root"):
        plan(Path("/"), None, machine.sysfs, machine.run)


@pytest.mark.parametrize("source", ["PARTUUID=p-01", "LABEL=data", 'LABEL="data"'])
def test_a_line_by_partition_or_label_is_refused_and_one_by_link_to_the_uuid_is_not(
    machine: AdoptMachine, source: str
) -> None:
    for folder, name in (("by-partuuid", "p-01"), ("by-label", "data"), ("by-uuid", UUID)):
        machine.link(f"dev/disk/{folder}/{name}", "../../vdb")
    machine.lay("etc/fstab", f"/dev/disk/by-uuid/{UUID} /data ext4 nofail 0 2\n")
    assert machine.plan().volume.uuid == UUID
    machine.lay("etc/fstab", f"{source} /data ext4 defaults 0 2\n")
    with refused(ConfigError, "adopt.fstab"):
        machine.plan()


def test_xfs_is_checked_by_its_own_programs(machine: AdoptMachine) -> None:
    machine.found["vdb"]["TYPE"] = "xfs"
    machine.dump = "    log tail: 2 head: 2 state: <CLEAN>"
    assert machine.plan().volume.filesystem == "xfs"
    machine.dump = "    log tail: 2 head: 9 state: <DIRTY>"
    with refused(NotOursError, "adopt.journal"):
        machine.plan()
    machine.dump = "<CLEAN>"
    machine.failing.add("xfs_repair")
    with refused(NotOursError, "adopt.damaged"):
        machine.plan()


@pytest.mark.parametrize(("kind", "program"), [(kind, one) for kind, several in PROGRAMS.items() for one in several])
@pytest.mark.parametrize("is_at_boot", [False, True])
def test_without_the_programs_that_check_it_it_is_refused_before_it_is_unmounted_or_the_machine_booted(
    machine: AdoptMachine, kind: str, program: str, is_at_boot: bool
) -> None:
    machine.found["vdb"]["TYPE"] = kind
    machine.mount()
    without(f"usr/sbin/{program}")(machine)
    with refused(HostError, "adopt.files"):
        plan(machine.place, machine.sysfs.path("dev/vdh"), machine.sysfs, machine.run, is_at_boot=is_at_boot)


def test_an_adoption_that_was_begun_is_not_begun_again(machine: AdoptMachine) -> None:
    found = machine.plan()
    machine.adopter().adopt(found)
    with refused(DeviceBusyError, "adopt.begun"):
        machine.adopter().adopt(found)
    machine.power_off()  # composed, its volume is in use
    machine.disk("vdj", 96, "head9123456789abcdef", bytes(16 * MIB))
    with refused(NotOursError, "adopt.begun"):
        machine.plan("dev/vdb", "dev/vdj")


@pytest.mark.parametrize(
    "line", ["UUID={uuid} {place} ext4 defaults 0 2", "UUID={uuid} {place} ext4", "{place}/x /srv none bind"]
)
def test_a_line_of_fstab_without_nofail_is_refused(machine: AdoptMachine, line: str) -> None:
    """The boot would wait for the head, and end in the emergency shell; so it would for what is mounted from there."""
    own = machine.sysfs.read("etc/fstab")
    machine.lay("etc/fstab", f"{own}\n{line.format(uuid=UUID, place=machine.place)}\n")
    with refused(ConfigError, "fstab.nofail"):
        machine.plan()


def test_a_line_without_options_that_names_the_device_is_refused(machine: AdoptMachine) -> None:
    machine.lay("etc/fstab", "/dev/vdb /data ext4\n")
    with refused(ConfigError, "adopt.fstab"):
        machine.plan()
