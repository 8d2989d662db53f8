"""Where a head on the volume itself goes: behind what its filesystem uses, by the superblock; and where it does not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from elastio.errors import ConfigError, ElastioError, NotOursError
from elastio.host.commands import run
from elastio.host.heads import LEAST_BYTES
from elastio.host.tombstone import BTRFS_SUPERBLOCK
from elastio.units import GIB, KIB, MIB, SECTOR
from elastio_setup.head_behind import end_of
from tests.fixtures.errors import refused

from .adopt_machine import UUID, VOLUME_BYTES
from .grown_machine import BLOCKS, GrownMachine, ext4


@pytest.fixture
def machine(tmp_path: Path) -> GrownMachine:
    return GrownMachine(tmp_path)


# --- where there is no place ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "code"),
    [
        (lambda machine: machine.resize("vdb", VOLUME_BYTES + LEAST_BYTES - SECTOR), ConfigError, "adopt.head"),
        (lambda machine: machine.put(KIB, ext4(BLOCKS + 8)), ConfigError, "adopt.head"),
        (lambda machine: machine.put(KIB, bytes(KIB)), ConfigError, "adopt.head"),
        (lambda machine: machine.put(VOLUME_BYTES, b"?"), NotOursError, "head.not_blank"),
        (lambda machine: machine.put(VOLUME_BYTES + LEAST_BYTES - 1, b"?"), NotOursError, "head.not_blank"),
    ],
)
def test_without_a_place_that_is_free_it_is_refused(
    machine: GrownMachine, change: Callable[[GrownMachine], None], error: type[ElastioError], code: str
) -> None:
    change(machine)
    before = machine.volume
    with refused(error, code):
        machine.plan(head=None)
    assert (machine.volume, machine.records) == (before, [])


def test_a_place_that_cannot_be_read_is_refused(machine: GrownMachine) -> None:
    machine.lay("sys/block/vdb/size", str(GIB // SECTOR))
    os.truncate(machine.sysfs.path("dev/vdb"), VOLUME_BYTES + MIB)
    with refused(NotOursError, "head.not_blank"):
        machine.plan(head=None)


@pytest.mark.runs_programs
def test_what_would_be_recognized_as_something_else_where_the_device_ends_is_refused(
    machine: GrownMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The superblock of a RAID lies at the end: the volume is longer than that now, and the device would not be."""
    node, run_fake = machine.sysfs.path("dev/vdb"), machine.run
    run(["mkfs.ext4", "-q", "-F", "-b", "1024", "-U", UUID, str(node), str(BLOCKS - 60)], timeout_s=60)
    monkeypatch.setattr(machine, "run", lambda argv, **kw: (run if argv[0] == "blkid" else run_fake)(argv, **kw))
    at = VOLUME_BYTES // SECTOR - 16
    block = bytearray(KIB)
    for place, value in ((0, 0xA92B4EFC), (4, 1), (16, 1), (144, at)):
        block[place : place + 4] = value.to_bytes(4, "little")
    block[216:220] = (sum(int.from_bytes(block[n : n + 4], "little") for n in range(0, 256, 4))).to_bytes(4, "little")
    assert machine.plan(head=None).head.first_sector == VOLUME_BYTES // SECTOR
    machine.put(at * SECTOR, bytes(block))
    before = machine.volume
    with refused(NotOursError, "head.recognized"):
        machine.plan(head=None)
    assert (machine.volume, machine.records) == (before, [])


# --- how long a filesystem is --------------------------------------------------------------------------------------


@pytest.mark.runs_programs
@pytest.mark.parametrize(
    ("filesystem", "command", "length"),
    [
        ("ext4", ["mkfs.ext4", "-q", "-b", "1024", "-O", "^64bit"], 3 * MIB),
        ("ext4", ["mkfs.ext4", "-q", "-b", "4096", "-O", "64bit"], 5 * MIB),
        ("btrfs", ["mkfs.btrfs", "-q"], 128 * MIB),
    ],
)
def test_a_filesystem_is_as_long_as_what_it_was_made_on(
    tmp_path: Path, filesystem: str, command: list[str], length: int
) -> None:
    node = tmp_path / "node"
    node.touch()
    os.truncate(node, length)
    run([*command, str(node)], timeout_s=60)
    os.truncate(node, 2 * length)
    assert end_of(node, filesystem) == length


@pytest.mark.parametrize(
    ("filesystem", "at", "block", "length"),
    [
        ("ext4", KIB, ext4((1 << 32) + 5, is_64bit=True, log_block=2), ((1 << 32) + 5) * 4 * KIB),
        ("ext4", KIB, ext4((1 << 32) + 5, log_block=2), 5 * 4 * KIB),
        ("xfs", 0, b"XFSB\0\0\x10\0" + (1 << 33).to_bytes(8), (1 << 33) * 4 * KIB),
        ("xfs", 0, b"XFSB\0\0\x10\0" + (1 << 33).to_bytes(8) + (1 << 20).to_bytes(8), None),
        ("xfs", 0, b"?FSB\0\0\x10\0" + (1 << 33).to_bytes(8), None),
        ("btrfs", BTRFS_SUPERBLOCK, b"\0" * 0x40 + b"?HRfS_M", None),
        ("crypto_LUKS", 0, b"LUKS\xba\xbe", None),
    ],
)
def test_what_says_its_size_says_it_in_its_superblock(
    tmp_path: Path, filesystem: str, at: int, block: bytes, length: int | None
) -> None:
    node = tmp_path / "node"
    node.write_bytes((bytes(at) + block).ljust(MIB, b"\0"))
    assert end_of(node, filesystem) == length
