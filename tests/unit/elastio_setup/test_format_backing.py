"""A blank volume is formatted as a backing device; anything else is refused."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from elastio.core.model import Serial
from elastio.errors import DeviceBusyError, ElastioError, HostError, NotOursError
from elastio.host.blockdev import Disk
from elastio.host.heads import serialize
from elastio.host.superblock import UNREADABLE
from elastio.host.sysfs import Sysfs
from elastio_setup.format_backing import (
    APPEAR_S,
    UDEV_S,
    CreatedDevice,
    VerifiedDevice,
    first_data,
    format_backing,
    verify,
)
from tests.fixtures.errors import refused
from tests.fixtures.heads import HEAD

UUID = "58c00623-0529-4a44-9474-dabb02496928"
MADE = f"UUID:\t\t\t{UUID}\nSet UUID:\t\tcf27dac6-c1bd-4c85-a068-6a68530f3690\nversion:\t\t4\nblock_size:\t\t1\n"
CLEAN = '{\n   "signatures": [\n\n   ]\n}\n'
EXT4 = '{"signatures": [{"device": "vdz", "offset": "0x438", "type": "ext4", "uuid": "u", "label": null}]}'


class RegistersApart(Sysfs):
    """Keeps what this process has written itself."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.written: list[str] = []

    def write(self, name: str, value: str | int) -> None:
        self.written.append(name)
        super().write(name, value)


class Host:
    """A /sys with one blank disk vdz, a device node for it, and the programs' recorded answers."""

    def __init__(self, root: Path) -> None:
        self.sysfs = RegistersApart(root)
        self.node = root / "dev" / "vdz"
        self.node.parent.mkdir(parents=True)
        self.node.touch()
        os.truncate(self.node, 1024**3)
        self.lay("sys/block/vdz/dev", "240:77")
        self.sysfs.path("sys/class/block").mkdir(parents=True)
        self.sysfs.path("sys/class/block/vdz").symlink_to("../../block/vdz")
        self.lay("proc/self/mountinfo", "22 1 254:1 / / rw - ext4 /dev/vda1 rw")
        self.lay("sys/class/block/vdz/ro", "0")
        self.lay("sys/class/block/vdz/size", str(2 * 1024 * 1024))
        self.lay("sys/class/block/vdz/queue/logical_block_size", "512")
        self.lay("sys/fs/bcache/register_quiet", "")
        self.answers = {"wipefs": CLEAN, "make-bcache": MADE, "modprobe": ""}
        self.ran: list[list[str]] = []
        self.after_make: Callable[[], None] = self.appear
        self.now = 0.0
        self.at_sleep: Callable[[], None] = lambda: None

    def lay(self, name: str, text: str) -> None:
        path = self.sysfs.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def appear(self, uuid: str = UUID) -> None:
        """What the kernel shows once the device is registered."""
        self.lay("sys/class/block/vdz/bcache/backing_dev_uuid", uuid)
        self.sysfs.path("sys/class/block/vdz/bcache/dev").symlink_to("../../bcache3")

    def run(self, argv: Sequence[str], *, timeout_s: float) -> str:
        self.ran.append(list(argv))
        if argv[0] == "make-bcache":
            self.after_make()
        return self.answers[argv[0]]

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        until = self.now + seconds
        while not condition() and self.now < until:
            self.now += 0.1
            self.at_sleep()
        return condition()

    def verify(self) -> VerifiedDevice:
        return verify(self.node, self.sysfs, self.run)

    def create(self) -> CreatedDevice:
        return format_backing(self.verify(), self.sysfs, self.run, self.wait)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_blank_disk_passes(host: Host) -> None:
    assert host.verify() == VerifiedDevice(host.node, "vdz", 1024**3, 512)


@pytest.mark.parametrize(
    ("file", "text", "error", "code"),
    [
        (
            "proc/self/mountinfo",
            "36 22 240:77 / /mnt rw - ext4 /dev/vdz rw\n",
            DeviceBusyError,
            "device.mounted",
        ),
        (
            "proc/swaps",
            "Filename Type Size Used Priority\n/dev/vdz partition 1 0 -2\n",
            DeviceBusyError,
            "device.mounted",
        ),
        ("sys/class/block/vdz/vdz1/partition", "1", DeviceBusyError, "device.partitioned"),
        ("sys/class/block/vdz/holders/dm-0", "", DeviceBusyError, "device.held"),
        ("sys/class/block/vdz/bcache/state", "no cache", DeviceBusyError, "device.held"),
        ("sys/class/block/vdz/ro", "1", HostError, "device.read_only"),
        ("sys/class/block/vdz/partition", "1", NotOursError, "device.partition"),
        ("sys/class/block/vdz/size", "2048", HostError, "device.too_small"),
        ("wipefs", EXT4, NotOursError, "device.signature"),
        ("wipefs", "what?", HostError, "wipefs.output"),
    ],
)
def test_refuses_a_device_that_may_hold_or_serve_something(
    file: str, text: str, error: type[ElastioError], code: str, host: Host
) -> None:
    if file in host.answers:
        host.answers[file] = text
    else:
        host.lay(file, text)
    with refused(error, code):
        host.create()
    assert [argv[0] for argv in host.ran if argv[0] != "wipefs"] == []


@pytest.mark.parametrize("is_forced", [False, True])
@pytest.mark.parametrize("damage", [0, 1])
def test_the_head_of_an_adopted_volume_is_never_formatted(damage: int, is_forced: bool, host: Host) -> None:
    label = bytearray(serialize(HEAD))
    label[100] ^= damage
    with host.node.open("r+b") as file:
        file.write(label)
    with refused(NotOursError, "device.head"):
        verify(host.node, host.sysfs, host.run, is_forced=is_forced)


@pytest.mark.parametrize(("name", "code"), [("file", "device.type"), ("none", "device.missing")])
def test_refuses_what_is_not_a_block_device(name: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    with refused(HostError, code):
        verify(tmp_path / name, Sysfs(tmp_path))


@pytest.mark.parametrize("block_size", [512, 4096])
def test_writes_a_superblock_with_the_disks_own_block_size_and_an_aligned_offset(block_size: int, host: Host) -> None:
    host.lay("sys/class/block/vdz/queue/logical_block_size", str(block_size))
    assert host.create() == CreatedDevice(UUID, "bcache3")
    assert host.ran[1:] == [
        ["modprobe", "bcache"],
        ["make-bcache", "-B", "-w", str(block_size), "--data-offset", "2048", str(host.node)],
    ]
    assert host.sysfs.read("sys/fs/bcache/register_quiet") == ""


def test_registers_the_device_itself_when_udev_does_not(host: Host) -> None:
    def register() -> None:
        if host.sysfs.read("sys/fs/bcache/register_quiet") and not host.sysfs.exists("sys/class/block/vdz/bcache"):
            host.appear()

    host.after_make = lambda: None
    host.at_sleep = register
    assert host.create() == CreatedDevice(UUID, "bcache3")
    assert host.sysfs.read("sys/fs/bcache/register_quiet") == str(host.node)
    assert host.sysfs.written == []
    assert host.now >= UDEV_S


def test_fails_when_no_device_appears(host: Host) -> None:
    host.after_make = lambda: None
    with refused(HostError, "bcache.not_running"):
        host.create()
    assert host.now == pytest.approx(UDEV_S + APPEAR_S, abs=0.5)


def test_notices_another_devices_uuid(host: Host) -> None:
    host.after_make = lambda: host.appear("00000000-0000-0000-0000-000000000000")
    with refused(HostError, "bcache.other_uuid"):
        host.create()


def test_notices_a_make_bcache_that_prints_no_uuid(host: Host) -> None:
    host.answers["make-bcache"] = "done\n"
    with refused(HostError, "make_bcache.output"):
        host.create()


# --- what has no signature -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "size"),
    [(0, 4), (4096, 1), (1024**2, 1), (1024**3 - 1, 1), (300 * 1024**2, 8 * 1024**2)],
    ids=["the first bytes", "a superblock", "at 1 MiB", "the last byte", "in the middle"],
)
def test_data_without_a_signature_is_not_formatted(at: int, size: int, host: Host) -> None:
    with host.node.open("r+b") as device:
        device.seek(at)
        device.write(b"\x17" * size)
    with refused(NotOursError, "device.not_blank"):
        host.create()
    assert [argv[0] for argv in host.ran] == ["wipefs"]
    forced = verify(host.node, host.sysfs, host.run, is_forced=True)
    assert (forced.is_blank, "NOT blank" in forced.shown) == (False, True)


def test_another_place_is_read_each_time(tmp_path: Path) -> None:
    node = tmp_path / "vdz"
    node.touch()
    os.truncate(node, 2**30)
    with node.open("r+b") as device:
        device.seek(2**29)
        device.write(b"\x17" * (2 * 2**20))  # half of one part
    found = {first_data(Disk("vdz", Serial(""), 2**30, node), random.Random(seed)) is None for seed in range(20)}
    assert found == {True, False}


def test_a_link_to_the_node_is_read_as_well(host: Host) -> None:
    link = host.node.with_name("by-id")
    link.symlink_to(host.node)
    assert verify(link, host.sysfs, host.run).is_blank
    host.node.write_bytes(b"x")
    with refused(NotOursError, "device.not_blank"):
        verify(link, host.sysfs, host.run)


@pytest.mark.parametrize(("error", "code"), [(errno.EBUSY, "disk.open"), (errno.ENXIO, "disk.open")])
@pytest.mark.parametrize("is_forced", [False, True])
def test_what_is_open_exclusively_or_cannot_be_opened_is_refused_also_by_force(
    error: int, code: str, is_forced: bool, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def busy(path: os.PathLike[str] | str, flags: int, mode: int = 0o777) -> int:
        if str(path) == str(host.node) and flags & os.O_EXCL:
            raise OSError(error, os.strerror(error))
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", busy)
    with refused(DeviceBusyError, code):
        verify(host.node, host.sysfs, host.run, is_forced=is_forced)


@pytest.mark.parametrize("is_forced", [False, True])
def test_what_cannot_be_read_is_refused_also_by_force(
    is_forced: bool, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "preadv", broken)
    with refused(HostError, UNREADABLE):
        verify(host.node, host.sysfs, host.run, is_forced=is_forced)
