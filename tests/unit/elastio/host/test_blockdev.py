"""Disks are found by serial, and written to only when they are provably unused."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from elastio.core.model import Serial
from elastio.errors import HostError, NotOursError
from elastio.host import blockdev
from elastio.host.blockdev import (
    Disk,
    find,
    is_blank,
    is_same_serial,
    make_durable,
    require_unused,
    serial_of,
    signatures,
)
from elastio.host.heads import serialize
from elastio.units import KIB, MIB
from tests.fixtures.errors import refused
from tests.fixtures.heads import HEAD
from tests.fixtures.sysfs_tree import CACHE_BYTES, SERIAL, Tree
from tests.values import present


def disk(tree: Tree) -> Disk:
    return present(find(tree.kernel, SERIAL))


# --- serials -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "wanted", "same"),
    [
        ("vol0123456789abcdef0", "vol-0123456789abcdef0", True),  # EBS as NVMe shows it
        ("vol-0123456789abcdef0", "vol-0123456789abcdef0", True),
        ("3f8e6d0a-5c1b-4c7e-8", "3f8e6d0a-5c1b-4c7e-8a51-0d9a6b0c7f11", True),  # virtio cuts a Cinder id at 20
        ("  vol0123456789abcdef0 ", "vol-0123456789abcdef0", True),
        ("3f8e6d0a-5c1b-4c7e-8a51-0d9a6b0c7f11", "3f8e6d0a-5c1b-4c7e-8", True),  # virtio-scsi does not; 20 are wanted
        ("short", "short", True),
        ("vol0123456789abcdef1", "vol-0123456789abcdef0", False),
        ("vol012345", "vol-0123456789abcdef0", False),  # a beginning too short to prove anything
        ("", "vol-0123456789abcdef0", False),
        ("vol0123456789abcdef01", "vol-0123456789abcdef0", False),  # longer than the wanted one
        ("3f8e6d0a-5c1b-4c7e-9a51-0d9a6b0c7f11", "3f8e6d0a-5c1b-4c7e-8", False),
        ("QM00001", "vol-0123456789abcdef0", False),
    ],
)
def test_is_the_same_volume(shown: str, wanted: str, same: bool) -> None:
    assert is_same_serial(shown, wanted) is same


UUID_SERIAL = "0b6f4c1e-5d0c-4a57-9d55-6f3a4b1c2d3e"


@pytest.mark.parametrize("wanted", [UUID_SERIAL, UUID_SERIAL[:20]])
@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("vpd_pg80", b"\0\x80\0\x24" + UUID_SERIAL.encode()),
        ("vpd_pg80", b"\0\x80\0\x14" + UUID_SERIAL[:20].encode()),
        ("wwid", b"t10.QEMU    QEMU HARDDISK   " + UUID_SERIAL.encode() + b"\n"),
    ],
)
def test_finds_a_scsi_disk_by_what_it_answered(tree: Tree, file: str, shown: bytes, wanted: str) -> None:
    tree.kernel.block("sdb", CACHE_BYTES, "8:16")
    tree.kernel.lay(f"sys/block/sdb/device/{file}", "")
    tree.kernel.path(f"sys/block/sdb/device/{file}").write_bytes(shown)
    assert present(find(tree.kernel, Serial(wanted))).name == "sdb"


def test_two_scsi_disks_whose_serials_begin_alike_are_refused(tree: Tree) -> None:
    for name, last in (("sdb", "e"), ("sdc", "f")):
        tree.kernel.block(name, CACHE_BYTES, "8:16")
        tree.kernel.lay(f"sys/block/{name}/device/vpd_pg80", f"\0\x7f\0$%s{last}" % UUID_SERIAL[:-1])
    with pytest.raises(NotOursError):
        find(tree.kernel, Serial(UUID_SERIAL[:20]))


def test_a_world_wide_name_is_not_a_serial(tree: Tree) -> None:
    tree.kernel.block("sdb", CACHE_BYTES, "8:16")
    tree.kernel.lay("sys/block/sdb/device/wwid", "naa.600508b1001c5e0f3a2b4c5d6e7f8091")
    assert serial_of(tree.kernel, "sdb") is None


def test_a_hidden_path_of_an_nvme_disk_is_not_a_second_disk(tree: Tree) -> None:
    tree.cache_disk("nvme1n1", nvme=True)
    tree.cache_disk("nvme1c0n1", nvme=True)
    tree.kernel.lay("sys/block/nvme1c0n1/hidden", 1)
    tree.kernel.lay("sys/block/nvme1n1/hidden", 0)
    assert disk(tree).name == "nvme1n1"


def test_finds_a_virtio_disk_and_an_nvme_disk(tree: Tree) -> None:
    tree.cache_disk("vdc")
    tree.cache_disk("nvme1n1", "vol0fedcba9876543210", 2**30, nvme=True)
    assert find(tree.kernel, SERIAL) == Disk(
        "vdc", Serial(SERIAL.replace("-", "")), CACHE_BYTES, tree.kernel.path("dev/vdc")
    )
    nvme = present(find(tree.kernel, Serial("vol-0fedcba9876543210")))
    assert (nvme.name, nvme.size_bytes, nvme.node.name) == ("nvme1n1", 2**30, "nvme1n1")


@pytest.mark.parametrize("missing", ["serial", "size"])
def test_a_disk_that_is_being_removed_is_not_found(tree: Tree, missing: str) -> None:
    tree.cache_disk()
    tree.kernel.lay(f"sys/block/vdc/{missing}", "")
    assert find(tree.kernel, SERIAL) is None


# --- may it be touched? ------------------------------------------------------------------------------------


def check(tree: Tree, size_bytes: int = CACHE_BYTES) -> None:
    require_unused(tree.kernel, disk(tree), size_bytes=size_bytes, run=tree.programs)


def test_a_swap_area_on_another_disk_is_not(tree: Tree) -> None:
    tree.cache_disk()
    tree.kernel.lay("proc/swaps", "Filename\tType\n/dev/vdc1                partition\t1048572\t0\t-2")
    check(tree)


def test_a_disk_with_the_head_of_an_adopted_volume_is_not_touched(tree: Tree) -> None:
    """It has no signature that wipefs knows."""
    tree.cache_disk()
    with disk(tree).node.open("r+b") as file:
        file.write(serialize(HEAD))
    with refused(NotOursError, "disk.head"):
        check(tree)


@pytest.mark.parametrize(
    "answer", ["wipefs: nonsense", "[]", '{"signatures": [{"offset": "0x0"}]}', '{"signatures": 7}']
)
def test_a_disk_with_unreadable_signatures_is_not_touched(tree: Tree, answer: str) -> None:
    tree.cache_disk(content=b"what is this")

    def run(argv: Sequence[str], *, timeout_s: float) -> str:
        return answer

    with refused(HostError, "wipefs.output"):
        require_unused(tree.kernel, disk(tree), size_bytes=CACHE_BYTES, run=run)


@pytest.mark.runs_programs
def test_finds_signatures_with_the_real_wipefs(tmp_path: Path) -> None:
    image = tmp_path / "vdc"
    swap = bytes(1024) + struct.pack("<II", 1, 255)  # version, last page: union swap_header of the kernel
    image.write_bytes((swap.ljust(4086, b"\0") + b"SWAPSPACE2").ljust(2**20, b"\0"))
    of_image = Disk("vdc", SERIAL, 2**20, image)
    assert signatures(of_image) == ("swap",)
    blockdev.wipe(of_image)
    assert signatures(of_image) == ()


# --- in use, durable ---------------------------------------------------------------------------------------


def test_what_cannot_be_made_durable_is_an_error(tmp_path: Path) -> None:
    for node in (tmp_path / "gone", Path("/dev/null")):
        with refused(HostError, "fsync"):
            make_durable(node)


@pytest.mark.parametrize(
    ("offset", "is_found"),
    [
        (0, True),
        (64 * KIB + 64, True),
        (MIB, True),
        (-128 * KIB, True),
        (-64 * KIB, True),
        (-1, True),
        (2 * MIB, False),
    ],
    ids=["first byte", "btrfs", "VMFS", "md 0.9, at most", "md 0.9, at least", "last byte", "in between"],
)
def test_a_disk_is_blank_without_a_program_where_no_signature_can_be(tree: Tree, offset: int, is_found: bool) -> None:
    tree.cache_disk(size_bytes=8 * MIB)
    cache = disk(tree)
    with cache.node.open("r+b") as file:
        file.seek(offset, os.SEEK_SET if offset >= 0 else os.SEEK_END)
        file.write(b"!")
    assert is_blank(cache) is not is_found
    signatures(cache, tree.programs)
    assert bool(tree.programs.ran) is is_found


def test_a_disk_that_cannot_be_read_is_not_taken_for_blank(tree: Tree) -> None:
    tree.cache_disk()
    cache = disk(tree)
    cache.node.unlink()
    assert not is_blank(cache)


def test_a_disk_that_gives_less_than_was_asked_for_is_not_taken_for_blank(tree: Tree) -> None:
    tree.cache_disk(size_bytes=8 * MIB)
    cache = disk(tree)
    os.truncate(cache.node, 8 * MIB - 64 * KIB)
    assert not is_blank(cache)
