"""A guest that QEMU boots for real, with the packaged kernel and initramfs, and a disk of EC2's kind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from elastio_testbed.hypervisor import QEMU, Disk, Machine, VirtualMachine
from elastio_testbed.image import build_guest_image
from tests.e2e.guests import BOOT_DISK, BOOT_S, COMMAND_S, HOT_DISK, MB, UNPLUG_S, device_of, measured_s, shell, volume

pytestmark = pytest.mark.guest


@pytest.fixture(scope="module")
def vm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    folder = tmp_path_factory.mktemp(QEMU)
    boot_disk = Disk(BOOT_DISK, volume(folder, BOOT_DISK), 100 * MB)
    with VirtualMachine(build_guest_image(), disks=[boot_disk], directory=folder / "vm", resumes=False) as machine:
        machine.start(BOOT_S)
        yield machine


def test_boots_debians_cloud_kernel_from_the_labelled_root(vm: Machine) -> None:
    assert vm.agent.check(["uname", "-r"], timeout_s=COMMAND_S).endswith("-cloud-amd64")
    root = shell(vm, "findmnt -n -o SOURCE /")
    assert shell(vm, f"e2label {root}") == "elastio-root"


def test_the_initramfs_holds_the_modules_options(vm: Machine) -> None:
    # bcache may be loaded before the root is mounted, and its cutoffs can be set only then.
    listed = shell(vm, "lsinitramfs /initrd.img")
    assert "lib/modprobe.d/elastio.conf" in listed
    assert "bcache.ko" in listed


def test_an_nvme_disk_is_plugged_limited_and_unplugged(vm: Machine, tmp_path: Path) -> None:
    vm.plug(HOT_DISK, volume(tmp_path, HOT_DISK), bytes_per_second=8 * MB, driver="nvme")
    device = device_of(vm.agent, HOT_DISK)
    assert device.startswith("/dev/nvme")
    # 25 MB; QEMU allows a burst of a tenth of a second.
    assert measured_s(vm, ["dd", "if=/dev/zero", f"of={device}", "bs=1M", "oflag=direct", "count=24"]) > 2.5
    vm.unplug(HOT_DISK, UNPLUG_S)
    assert HOT_DISK not in shell(vm, "lsblk -n -o SERIAL")
