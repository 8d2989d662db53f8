"""bcache's superblock, from bytes laid down by hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elastio.host.superblock import OFFSET, Role, Superblock, parse, read
from tests.fixtures.sysfs_tree import BACKING_UUID, SET_UUID, superblock_bytes


@pytest.mark.parametrize(
    ("version", "role"),
    [
        (0, Role.CACHE),
        (3, Role.CACHE),
        (5, Role.CACHE),
        (1, Role.BACKING),
        (4, Role.BACKING),
        (6, Role.BACKING),
    ],
)
def test_reads_role_uuids_and_block_size(version: int, role: Role) -> None:
    assert parse(superblock_bytes(version, block_sectors=8)) == Superblock(role, BACKING_UUID, SET_UUID, 4096)


@pytest.mark.parametrize("version", [2, 7, 2**63])
def test_a_version_that_is_not_known_is_no_superblock(version: int) -> None:
    assert parse(superblock_bytes(version)) is None


def test_another_magic_is_no_superblock() -> None:
    assert parse(superblock_bytes(3, magic=bytes(16))) is None


def test_a_copy_that_lies_elsewhere_is_no_superblock() -> None:
    """It names its own sector: an image inside a file on the disk does not count."""
    block = bytearray(superblock_bytes(3))
    block[8:16] = (4096).to_bytes(8, "little")
    assert parse(bytes(block)) is None


@pytest.mark.parametrize("length", [0, 72, 193])
def test_a_short_read_is_no_superblock(length: int) -> None:
    assert parse(superblock_bytes(3)[:length]) is None


def test_reads_it_4_kib_into_the_device(tmp_path: Path) -> None:
    device = tmp_path / "vdc"
    device.write_bytes(bytes(OFFSET) + superblock_bytes(3))
    found = read(device)
    assert found is not None
    assert (found.role, found.set_uuid) == (Role.CACHE, SET_UUID)


def test_sees_what_was_written_since_the_last_read(tmp_path: Path) -> None:
    device = tmp_path / "vdc"
    device.write_bytes(bytes(OFFSET) + superblock_bytes(3))
    assert read(device) is not None
    with device.open("r+b") as file:
        file.seek(OFFSET)
        file.write(bytes(OFFSET))
    assert read(device) is None


def test_a_device_smaller_than_its_place_has_none(tmp_path: Path) -> None:
    device = tmp_path / "vdc"
    device.write_bytes(superblock_bytes(3)[:100])
    assert read(device) is None


def test_a_device_that_is_not_there_or_cannot_be_read_has_none(tmp_path: Path) -> None:
    assert read(tmp_path / "gone") is None
    assert read(tmp_path) is None  # reading a directory is refused


def test_reading_leaves_no_descriptor_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  a Path iterator holds a descriptor itself
    read(tmp_path)
    (tmp_path / "vdc").write_bytes(b"")
    read(tmp_path / "vdc")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
