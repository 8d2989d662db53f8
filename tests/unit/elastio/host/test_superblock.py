"""bcache's superblock: read from bytes laid down by hand, and written as bcache-tools writes it."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path
from uuid import UUID

import pytest

from elastio.errors import HostError
from elastio.host.superblock import (
    LAYOUT,
    OFFSET,
    Role,
    Superblock,
    crc64,
    is_without_cache,
    parse,
    read,
    render,
    render_backing,
    write_cache,
)
from elastio.units import KIB, MIB
from tests.fixtures.errors import refused
from tests.fixtures.sysfs_tree import BACKING_UUID, SET_UUID, superblock_bytes
from tests.values import present


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
    assert parse(superblock_bytes(version, block_sectors=8)) == Superblock(
        role, BACKING_UUID, SET_UUID, 4096, 512 * KIB
    )


@pytest.mark.parametrize(
    "block",
    [
        *(superblock_bytes(version) for version in (2, 7, 2**63)),
        superblock_bytes(3, magic=bytes(16)),
        # It names its own sector: an image inside a file on the disk does not count.
        superblock_bytes(3)[:8] + (4096).to_bytes(8, "little") + superblock_bytes(3)[16:],
        *(superblock_bytes(3)[:length] for length in (0, 72, 193)),
    ],
)
def test_anything_else_is_not_a_superblock(block: bytes) -> None:
    assert parse(block) is None


def test_a_device_that_cannot_be_read_has_no_superblock(tmp_path: Path) -> None:
    assert read(tmp_path / "gone") is None
    assert read(tmp_path) is None  # reading a directory is refused


def test_reading_leaves_no_descriptor_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  a Path iterator holds a descriptor itself
    read(tmp_path)
    (tmp_path / "vdc").write_bytes(b"")
    read(tmp_path / "vdc")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


# --- writing ---------------------------------------------------------------------------------------------


def anything(descriptor: int) -> None:
    """Whatever is open is what was meant."""


def test_the_checksum_is_the_published_one() -> None:
    """CRC-64/WE, whose check value is that of the digits 1 to 9."""
    assert crc64(b"123456789") == 0x62EC59E3F1A4F00A


@pytest.mark.parametrize(
    ("size_mib", "block_bytes", "bucket_kib"), [(600, 512, 128), (10 * 1024, 4096, 512), (100, 512, 64), (64, 512, 4)]
)
def test_writes_what_make_bcache_writes(
    runs_programs: None, tmp_path: Path, size_mib: int, block_bytes: int, bucket_kib: int
) -> None:
    theirs, size_bytes = tmp_path / "theirs", size_mib * MIB
    theirs.touch()
    os.truncate(theirs, size_bytes)
    options = ["-w", str(block_bytes), "-b", str(bucket_kib * KIB)]
    subprocess.run(["make-bcache", "-C", *options, str(theirs)], check=True, capture_output=True, timeout=60)
    with theirs.open("rb") as file:
        written = file.read(4 * OFFSET)
    known = present(parse(written[OFFSET:]))
    sizes = {"size_bytes": size_bytes, "block_bytes": block_bytes, "bucket_bytes": bucket_kib * KIB}
    ours = render(UUID(known.uuid), UUID(known.set_uuid), **sizes)
    assert (bytes(OFFSET) + ours).ljust(len(written), b"\0") == written


@pytest.mark.parametrize("block_bytes", [512, 4096])
def test_writes_the_backing_device_that_make_bcache_writes(
    runs_programs: None, tmp_path: Path, block_bytes: int
) -> None:
    theirs = tmp_path / "theirs"
    theirs.touch()
    os.truncate(theirs, 64 * MIB)
    options = ["-w", str(block_bytes), "--data-offset", "2048"]
    subprocess.run(["make-bcache", "-B", *options, str(theirs)], check=True, capture_output=True, timeout=60)
    with theirs.open("rb") as file:
        written = file.read(4 * OFFSET)
    known = present(parse(written[OFFSET:]))
    names = (UUID(known.uuid), UUID(known.set_uuid))
    ours = render_backing(*names, block_bytes=block_bytes, data_offset_sectors=2048)
    assert (bytes(OFFSET) + ours).ljust(len(written), b"\0") == written
    assert is_without_cache(ours)


@pytest.mark.parametrize("state", [1, 2, 3])
def test_a_backing_device_that_had_a_cache_is_not_without_one(state: int) -> None:
    block = bytearray(render_backing(UUID(int=7), UUID(int=8), block_bytes=512, data_offset_sectors=2048))
    assert is_without_cache(bytes(block))
    flags = LAYOUT.size - struct.calcsize("<QQ64sQHHHHIHH")
    block[flags : flags + 8] = (state << 61).to_bytes(8, "little")
    assert present(parse(bytes(block))).role is Role.BACKING
    assert not is_without_cache(bytes(block))
    assert not is_without_cache(superblock_bytes(3))
    assert not is_without_cache(bytes(OFFSET))


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(b"old" * 10_000)
    write_cache(disk, UUID(int=7), anything, size_bytes=64 * MIB, block_bytes=4096, bucket_bytes=64 * KIB)
    found = present(read(disk))
    assert found.role is Role.CACHE
    assert (found.set_uuid, found.block_size_bytes, found.bucket_size_bytes) == (str(UUID(int=7)), 4096, 64 * KIB)
    assert disk.read_bytes()[:OFFSET] == bytes(OFFSET)


def test_every_device_has_a_name_of_its_own(tmp_path: Path) -> None:
    names = set()
    for number in range(3):
        disk = tmp_path / str(number)
        disk.touch()
        write_cache(disk, UUID(int=7), anything, size_bytes=64 * MIB, block_bytes=512, bucket_bytes=64 * KIB)
        found = read(disk)
        names.add(found.uuid if found else "")
    assert len(names - {""}) == 3


def test_a_disk_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with refused(HostError, "superblock.write"):
        write_cache(
            tmp_path / "none", UUID(int=7), anything, size_bytes=64 * MIB, block_bytes=512, bucket_bytes=64 * KIB
        )
