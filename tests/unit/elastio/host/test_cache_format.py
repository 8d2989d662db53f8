"""A superblock as bcache-tools writes it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from uuid import UUID

import pytest

from elastio.errors import HostError
from elastio.host import cache_format, superblock
from elastio.units import KIB, MIB


def test_the_checksum_is_the_published_one() -> None:
    """CRC-64/WE, whose check value is that of the digits 1 to 9."""
    assert cache_format.crc64(b"123456789") == 0x62EC59E3F1A4F00A


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
        written = file.read(4 * superblock.OFFSET)
    known = superblock.parse(written[superblock.OFFSET :])
    assert known is not None
    sizes = {"size_bytes": size_bytes, "block_bytes": block_bytes, "bucket_bytes": bucket_kib * KIB}
    ours = cache_format.render(UUID(known.uuid), UUID(known.set_uuid), **sizes)
    assert (bytes(superblock.OFFSET) + ours).ljust(len(written), b"\0") == written


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(b"old" * 10_000)
    cache_format.write(disk, UUID(int=7), size_bytes=64 * MIB, block_bytes=4096, bucket_bytes=64 * KIB)
    found = superblock.read(disk)
    assert found is not None
    assert found.role is superblock.Role.CACHE
    assert (found.set_uuid, found.block_size_bytes) == (str(UUID(int=7)), 4096)
    assert disk.read_bytes()[: superblock.OFFSET] == bytes(superblock.OFFSET)


def test_every_device_has_a_name_of_its_own(tmp_path: Path) -> None:
    names = set()
    for number in range(3):
        disk = tmp_path / str(number)
        disk.touch()
        cache_format.write(disk, UUID(int=7), size_bytes=64 * MIB, block_bytes=512, bucket_bytes=64 * KIB)
        found = superblock.read(disk)
        names.add(found.uuid if found else "")
    assert len(names - {""}) == 3


def test_a_disk_that_cannot_be_opened_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"cannot write a cache superblock on .*/none: No such file"):
        cache_format.write(tmp_path / "none", UUID(int=7), size_bytes=64 * MIB, block_bytes=512, bucket_bytes=64 * KIB)
