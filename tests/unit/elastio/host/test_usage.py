"""What is in use on a disk is found at any height, and what cannot be told counts as used."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from elastio.core.model import Serial
from elastio.errors import DeviceBusyError, HostError
from elastio.host import mounts
from elastio.host.blockdev import Disk, require_free
from elastio.host.failed_cache import find_unregistered_backing
from elastio.host.usage import GONE, Use, UseKind, described, holds, in_use, mounted_at, uses
from tests.fixtures import stacks
from tests.fixtures.stacks import MOUNTED, UNMOUNTED, Stack
from tests.fixtures.sysfs_tree import BACKING_BYTES, BACKING_UUID, Kernel, build


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return build(tmp_path).kernel


@pytest.mark.parametrize("stack", MOUNTED.values(), ids=MOUNTED)
def test_a_mount_is_found_whatever_lies_between(stack: Stack, kernel: Kernel) -> None:
    places = stack(kernel)
    assert mounted_at(kernel, "bcache0") == places
    assert [use.by for use in uses(kernel, "bcache0") if use.kind is UseKind.MOUNT] == places


@pytest.mark.parametrize("stack", [*MOUNTED.values(), *UNMOUNTED.values()], ids=[*MOUNTED, *UNMOUNTED])
def test_a_disk_below_what_is_in_use_is_in_use(stack: Stack, kernel: Kernel) -> None:
    assert uses(kernel, "bcache0") == ()
    stack(kernel)
    with pytest.raises(DeviceBusyError):
        require_free(kernel, Disk("bcache0", Serial(""), BACKING_BYTES, kernel.path("dev/bcache0")))


@pytest.mark.parametrize("stack", [*MOUNTED.values(), *UNMOUNTED.values()], ids=[*MOUNTED, *UNMOUNTED])
def test_another_disk_is_not(stack: Stack, kernel: Kernel) -> None:
    stack(kernel)
    assert mounted_at(kernel, "vda") == []
    assert uses(kernel, "vda") == ()


def test_swap_areas_are_found_through_a_mapping_and_as_files(kernel: Kernel) -> None:
    stacks.swap_on_lvm(kernel)
    assert [use.kind for use in uses(kernel, "bcache0")] == [UseKind.HOLDER, UseKind.SWAP]
    stacks.btrfs(kernel)
    kernel.lay("proc/swaps", f"{stacks.SWAPS}\n/data/swap\\040file file\t1048572\t0\t-2")
    assert [use.by for use in uses(kernel, "bcache0") if use.kind is UseKind.SWAP] == ["/data/swap file"]


def test_what_only_the_kernel_knows_counts_as_used(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """ZFS and mounts of containers show in no file, and an exclusive open fails."""
    assert in_use(kernel, "bcache0") == ()
    opened, refusal = os.open, list[int]()

    def busy(path: os.PathLike[str] | str, flags: int, mode: int = 0o777) -> int:
        if str(path).endswith("dev/bcache0"):
            assert flags & os.O_EXCL
            raise OSError(refusal[-1], os.strerror(refusal[-1]))
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", busy)
    for number in (errno.EBUSY, errno.EACCES, errno.EIO, *GONE):
        refusal.append(number)
        found = [use.kind for use in in_use(kernel, "bcache0")]
        assert found == ([] if number in GONE else [UseKind.UNKNOWN])


def test_a_mount_table_that_cannot_be_read_is_not_an_empty_one(kernel: Kernel) -> None:
    kernel.path("proc/self/mountinfo").unlink()
    with pytest.raises(HostError):
        uses(kernel, "bcache0")


def test_a_device_is_found_by_the_last_mount_of_the_longest_place(kernel: Kernel) -> None:
    stacks.mounts(
        kernel,
        "30 22 0:45 / /data rw - btrfs /dev/bcache0 rw",
        "31 22 254:48 / /data rw - ext4 /dev/vdd rw",
        "32 22 254:64 / /data2 rw - ext4 /dev/vde rw",
    )
    table = mounts.read(kernel)
    found = [mounts.below(table, path) for path in ("/data/a", "/data2/a", "/")]
    assert [mount and mount.number for mount in found] == ["254:48", "254:64", "254:1"]


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("0:45 / {} rw - btrfs /dev/bcache0 rw", True),
        ("0:45 / {} rw - btrfs /dev/vdd rw", False),
        ("0:45 / {} rw - zfs tank/state rw", None),
        ("0:45 / {} rw - tmpfs tmpfs rw", False),
    ],
)
def test_whether_a_folder_lies_on_the_device(line: str, answer: bool | None, kernel: Kernel, tmp_path: Path) -> None:
    stacks.mounts(kernel, f"30 22 {line.format(tmp_path)}")
    folder = tmp_path / "state"
    folder.mkdir()
    assert holds(kernel, "bcache0", folder) is answer


def test_a_backing_device_on_a_mounted_partition_is_not_registered_again(tmp_path: Path) -> None:
    tree = build(tmp_path, "vdb1")
    kernel = tree.kernel
    kernel.path(f"{tree.directory}/backing_dev_uuid").unlink()
    kernel.lay("sys/block/vdb/vdb1/dev", "254:17")
    assert find_unregistered_backing(kernel, BACKING_UUID) == "vdb1"
    stacks.mounts(kernel, "30 22 254:17 / /old rw - ext4 /dev/vdb1 rw")
    assert find_unregistered_backing(kernel, BACKING_UUID) == ""


@pytest.mark.parametrize(("uuid", "remedy"), [("CRYPT-LUKS2-1", "cryptsetup close safe"), ("LVM-1", "vgchange -an")])
def test_what_closes_a_use_is_named(uuid: str, remedy: str, kernel: Kernel) -> None:
    for name, text in (("uuid", uuid), ("name", "safe")):
        kernel.lay(f"sys/block/dm-9/dm/{name}", text)
    assert remedy in described(kernel, (Use(UseKind.HOLDER, "dm-9"),))
