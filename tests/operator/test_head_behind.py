"""A volume that was enlarged has its head behind its filesystem."""

from __future__ import annotations

import os

import pytest

from elastio.units import MIB
from elastio_testbed.adoption import RECOGNIZE
from tests.operator.test_adopt import (
    BOOT_S,
    DISKS,
    SIZES,
    SMALL,
    SMALL_DISKS,
    TOMBSTONE,
    VOLUME,
    Adopted,
    end_before_each_change,
)
from tests.operator.test_adopt import guest as guest  # noqa: PLC0414  the fixture

pytestmark = pytest.mark.guest

MORE = 64 * MIB
# XFS is not made smaller than 300 MB.
CASES = {"ext4": (SMALL, 96 * MIB), "xfs": (VOLUME, 300 * MIB), "btrfs": (SMALL, 112 * MIB)}
UUID = "$(ls /etc/elastio/adopted)"
# Somebody does it by hand; systemd does not compose it again.
TAKE_APART = """\
umount /data; systemctl mask --runtime elastio-compose@.service; M=$(dmsetup ls | grep -o '^elastio-[^[:space:]]*')
B=/sys/block/$(basename $(readlink -f /dev/mapper/$M))/bcache; echo 1 > $B/stop; while test -e $B; do sleep 0.2; done
dmsetup remove --retry $M"""
UNMASK = "systemctl unmask --runtime elastio-compose@.service"


def shortened(guest: Adopted, filesystem: str) -> Adopted:
    serial, length = CASES[filesystem]
    assert length + 16 * MIB <= SIZES[serial]
    guest.clear()
    nodes = DISKS if serial == VOLUME else SMALL_DISKS
    found = Adopted(guest.vm, nodes.replace("O=--head=$H", "O="), length=length, folder=guest.folder)
    found.clear()
    found.run(f"dd if=/dev/zero of=$V bs=1M seek={length // MIB} conv=fsync")  # to its end
    found.make(filesystem)
    return found


def left_behind(adopted: Adopted) -> str:
    """How many bytes behind the filesystem are not zeros."""
    return adopted.shell(f"tail -c +{adopted.length + 1} $V | tr -d '\\0' | wc -c")


def enlarge(adopted: Adopted, serial: str) -> None:
    """As a cloud does."""
    assert adopted.vm.shutdown(BOOT_S), adopted.vm.console_tail()
    disk = adopted.folder / f"{serial}.img"
    os.truncate(disk, disk.stat().st_size + MORE)
    adopted.vm.start(BOOT_S)
    adopted.require_mounted()


@pytest.mark.parametrize("filesystem", CASES)
def test_it_is_adopted_composed_after_a_cut_and_released(guest: Adopted, filesystem: str) -> None:
    found = shortened(guest, filesystem)
    assert "become the head" in found.shell("elastio device adopt /data --dry-run")
    found.adopt()
    found.require_same(is_composed=True)
    assert found.run(f"blkid -p -O {found.length} $V")[0] != 0, "the head alone looks like nothing"
    assert found.run("echo $V > /sys/fs/bcache/register")[0] != 0
    found.shell(f"{TOMBSTONE} write")
    assert found.shell(RECOGNIZE) == ""
    found.cut()
    found.require_same(is_composed=True, has_tombstone=True)
    found.shell(f"{TOMBSTONE} remove")
    found.require_same(is_composed=True)
    found.release()
    found.require_same(is_composed=False)
    assert left_behind(found) == "0"


@pytest.mark.parametrize("command", ["adopt", "release"])
def test_it_outlives_a_killed_command(guest: Adopted, command: str) -> None:
    found = shortened(guest, "ext4")
    end_before_each_change(found, command, "kill")
    if found.is_composed():
        found.release()
    assert left_behind(found) == "0"


def test_a_volume_that_is_enlarged_again_is_composed_also_without_its_record(guest: Adopted) -> None:
    found = shortened(guest, "ext4")
    found.adopt()
    enlarge(found, SMALL)
    found.require_same(is_composed=True)
    found.shell(f"{TOMBSTONE} write && {TAKE_APART} && rm -r /etc/elastio/adopted && {UNMASK}")
    found.shell("elastio device compose --head $V && udevadm settle; mountpoint -q /data || mount /data")
    found.shell(f"{TOMBSTONE} remove")
    found.require_same(is_composed=True)
    found.release()
    found.require_same(is_composed=False)


def test_a_filesystem_that_has_grown_over_the_head_is_not_composed_and_not_written_to(guest: Adopted) -> None:
    found = shortened(guest, "ext4")
    found.adopt()
    found.shell(f"{TAKE_APART} && mount -o rw $V /mnt && resize2fs $V")
    found.shell("dd if=/dev/urandom of=/mnt/more bs=1M count=8 conv=fsync && umount /mnt")
    before = found.shell("sha256sum < $V")
    code, said = found.run(f"{UNMASK}; elastio device compose {UUID}")
    assert code != 0
    assert "enlarged over the place of its head" in said
    found.shell(f"elastio device release {UUID} --yes")
    assert found.shell("umount /data 2>/dev/null; sha256sum < $V") == before
    found.shell("e2fsck -fn $V; mount /data")
    assert not found.is_composed()
