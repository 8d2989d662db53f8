"""A backing device that was made blank is left: its data becomes a partition, byte for byte, also after a kill.

The filesystem is mounted read-only, so that all of the data can be compared, not only the files on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from elastio_testbed.hypervisor import define_machine
from elastio_testbed.image import build_guest_image
from elastio_testbed.machine import new_disk
from elastio_testbed.scratch import scratch_folder
from tests.operator.test_adopt import BOOT_S, DISKS, REACHED, SIZES, STOPPED_AT, Adopted

pytestmark = pytest.mark.guest

MAKE = {"ext4": "mkfs.ext4 -q", "xfs": "mkfs.xfs -q -f", "btrfs": "mkfs.btrfs -q -f"}
READ_ONLY = {"ext4": "ro", "xfs": "ro,norecovery", "btrfs": "ro"}
REGISTER = "udevadm trigger --settle --action=change --name-match=$V"
FORMAT = {"1 MiB": "elastio device create $V --force --yes", "8 KiB": f"make-bcache -B $V && {REGISTER}"}
BCACHE = "B=/dev/$(ls /sys/block | grep bcache)"
# The first line of its block on the page.
RELEASE = "systemctl disable --now elastiod                         # after `elastio pause` and `elastio flush --wait`"
KEY = "echo secret | cryptsetup -q --key-file -"


class Created(Adopted):
    """$V is the volume, $P its partition, and $B the adaptive device. `where`: what fstab's filesystem is made on."""

    def format(self, offset: str) -> None:
        self.run(f"umount /data; cryptsetup close safe; {BCACHE}; echo 1 > /sys/block/${{B##*/}}/bcache/stop; sleep 1")
        self.shell(
            "wipefs -qa $P; wipefs -qa $V; dd if=/dev/zero of=$V bs=1M count=4 status=none; blockdev --rereadpt $V"
        )
        self.shell(f"udevadm settle; {FORMAT[offset]}")

    def fill(self, filesystem: str, where: str) -> None:
        """A filesystem with some files, and what is to be compared with."""
        self.shell(f"{BCACHE}; {MAKE[filesystem]} {where} && mkdir -p /data && mount {where} /data")
        self.shell("cp -r /usr/lib/x86_64-linux-gnu/perl-base /data/ && sync && umount /data; udevadm settle")
        line = f"UUID=$(blkid -p -s UUID -o value {where}) /data auto {READ_ONLY[filesystem]},nofail 0 0"
        self.shell(f"{BCACHE}; sed -i '/data/d' /etc/fstab && echo {line} >> /etc/fstab; systemctl daemon-reload")
        self.shell("mountpoint -q /data || mount /data")
        self.files = self.sums()
        self.image = self.shell(f"{BCACHE}; umount /data; dd if=$B bs=1M iflag=direct status=none | sha256sum")
        self.shell("mountpoint -q /data || mount /data; dd if=$V of=/root/front bs=8k count=1 status=none && sync")

    def restore(self) -> None:
        """The state before the release."""
        self.shell("umount /data; dd if=/root/front of=$V bs=8k count=1 conv=fsync status=none; blockdev --rereadpt $V")
        self.run("udevadm settle; ls /sys/block | grep -q bcache || echo $V > /sys/fs/bcache/register")
        self.shell("udevadm settle; mountpoint -q /data || mount /data || mountpoint -q /data")

    def is_released(self) -> bool:
        return self.shell("wipefs --no-act --noheadings --output TYPE $V") == "dos"

    def require_data(self) -> None:
        """On the partition or on the adaptive device, whichever is there."""
        assert self.shell("echo 3 > /proc/sys/vm/drop_caches; true") == ""
        assert self.sums() == self.files
        self.require_image("B=$(findmnt -no SOURCE /data)")

    def require_image(self, device: str) -> None:
        raw = f"{device}; umount /data; dd if=$B bs=1M iflag=direct status=none | sha256sum"
        assert self.shell(raw) == self.image
        self.shell("mountpoint -q /data || mount /data || mountpoint -q /data")

    def require_released(self) -> None:
        assert self.is_released()
        assert self.shell("ls /sys/block | grep bcache; true") == ""
        self.require_image("B=$P")


@pytest.fixture(scope="module")
def guest() -> Iterator[Created]:
    with scratch_folder("elastio-release-") as name:
        folder = Path(name)
        disks = [new_disk(folder, serial, size) for serial, size in SIZES.items()]
        image = build_guest_image(extra=("lvm2", "cryptsetup-bin", "btrfs-progs"))
        with define_machine(image, disks=disks, directory=folder / "vm", memory_mib=768) as vm:
            vm.start(BOOT_S)
            program = resources.files("elastio_testbed.guest").joinpath("stopped_at.py").read_bytes()
            vm.agent.write_file(STOPPED_AT, program)
            yield Created(vm, f"{DISKS}; P=${{V}}1")


@pytest.mark.parametrize(("filesystem", "offset"), [("ext4", "1 MiB"), ("xfs", "8 KiB"), ("btrfs", "1 MiB")])
def test_the_data_is_on_the_partition_also_after_a_power_cut(guest: Created, filesystem: str, offset: str) -> None:
    guest.format(offset)
    guest.fill(filesystem, "$B")
    assert guest.run("elastio device release $V --yes")[0] == 1, "it is mounted"
    guest.follow(RELEASE)
    guest.require_data()
    guest.require_released()
    guest.cut()
    guest.require_data()
    guest.require_released()


def test_killed_before_any_change_it_goes_on_or_is_what_it_was_and_no_boot_is_needed(guest: Created) -> None:
    guest.format("1 MiB")
    guest.fill("ext4", "$B")
    number = 0
    while guest.stop_before(number, "device release /data --yes"):
        guest.shell(f"kill -9 $(cat {REACHED})")
        if not guest.is_released():
            guest.run("umount /data; elastio device release $V --yes")
        guest.run("udevadm settle; mountpoint -q /data || mount /data")
        guest.require_mounted()
        guest.require_data()
        guest.require_released()
        guest.restore()
        number += 1
    assert number > 5, "it has as many changes at least"
    guest.require_released()


def test_luks_is_left_closed_and_opened_on_the_partition(guest: Created) -> None:
    guest.format("1 MiB")
    guest.shell(f"{BCACHE}; {KEY} luksFormat --pbkdf-force-iterations 1000 --pbkdf pbkdf2 $B && {KEY} open $B safe")
    guest.fill("ext4", "/dev/mapper/safe")
    assert guest.run("elastio device release $V --yes")[0] == 1, "it is open"
    guest.shell("umount /data; cryptsetup close safe; elastio device release $V --yes")
    guest.shell(f"{KEY} open $P safe && udevadm settle; mountpoint -q /data || mount /data || mountpoint -q /data")
    assert guest.sums() == guest.files
    guest.shell("umount /data; cryptsetup close safe")
    assert guest.shell("dd if=$P bs=1M iflag=direct status=none | sha256sum") == guest.image
