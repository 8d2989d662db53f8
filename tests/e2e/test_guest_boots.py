"""A real guest: it boots, disks are hot-plugged, and synced data survives a power cut."""

import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from elastio_testbed.hypervisor import (
    Disk,
    Driver,
    GuestAgent,
    GuestError,
    GuestTimeout,
    HypervisorError,
    VirtualMachine,
)
from elastio_testbed.image import build_guest_image

pytestmark = pytest.mark.guest

BOOT_DISK = "volaaaaaaaaaaaaaaaa0"
HOT_DISK = "vol0123456789abcdef0"
BOOT_S, COMMAND_S, UNPLUG_S = 300, 60, 30
MB = 1_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("machine")


@pytest.fixture(scope="module")
def vm(folder: Path) -> Iterator[VirtualMachine]:
    boot_disk = Disk(BOOT_DISK, volume(folder, BOOT_DISK), 100 * MB)
    with VirtualMachine(build_guest_image(), disks=[boot_disk], directory=folder / "vm", resumes=False) as machine:
        machine.start(BOOT_S)
        yield machine


@pytest.fixture
def hot_disk(vm: VirtualMachine, folder: Path) -> Iterator[Path]:
    """A file for HOT_DISK, which is unplugged after the test."""
    path = volume(folder, HOT_DISK)
    yield path
    if HOT_DISK in vm.disks():
        vm.unplug(HOT_DISK, UNPLUG_S)


def volume(folder: Path, name: str, size_mib: int = 512) -> Path:
    path = folder / name
    with path.open("wb") as file:
        file.truncate(size_mib << 20)
    return path


def device_of(agent: GuestAgent, serial: str) -> str:
    """Wait for the device node of the disk with that serial: at first it has no size or no node."""
    script = """cd /sys/block; for disk in *; do
        cat $disk/serial $disk/device/serial 2>/dev/null | grep -q "$0" || continue
        [ $(cat $disk/size) != 0 ] && [ -b /dev/$disk ] && echo /dev/$disk
    done; true"""
    deadline = time.monotonic() + COMMAND_S
    while time.monotonic() < deadline:
        device = agent.check(["sh", "-c", script, serial], timeout_s=COMMAND_S)
        if device:
            return device
    raise AssertionError(f"no disk {serial} in the guest")


def shell(vm: VirtualMachine, script: str) -> str:
    return vm.agent.check(["sh", "-c", script], timeout_s=COMMAND_S)


def test_boots_debians_cloud_kernel_from_the_labelled_root(vm: VirtualMachine) -> None:
    assert vm.agent.check(["uname", "-r"], timeout_s=COMMAND_S).endswith("-cloud-amd64")
    root = shell(vm, "findmnt -n -o SOURCE /")
    assert shell(vm, f"e2label {root}") == "elastio-root"


def test_the_initramfs_holds_the_modules_options(vm: VirtualMachine) -> None:
    # bcache may be loaded before the root is mounted, and its cutoffs can be set only then.
    listed = shell(vm, "lsinitramfs /initrd.img")
    assert "lib/modprobe.d/elastio.conf" in listed
    assert "bcache.ko" in listed


def test_bcache_absorbs_writes_up_to_the_cutoffs_of_modprobe_d(vm: VirtualMachine) -> None:
    device = device_of(vm.agent, BOOT_DISK)
    shell(vm, f"modprobe bcache && make-bcache -C {device}")
    script = "udevadm settle; grep -h . /sys/fs/bcache/*-*/internal/cutoff_writeback{,_sync}"
    cutoffs = vm.agent.check(["bash", "-c", script], timeout_s=COMMAND_S).split()
    shell(vm, f"echo 1 > /sys/block/{PurePosixPath(device).name}/bcache/set/stop")
    assert cutoffs == ["70", "70"]


def test_elastio_is_installed_and_waits_for_its_configuration(vm: VirtualMachine) -> None:
    assert vm.agent.check(["elastio", "--version"], timeout_s=COMMAND_S)
    show = "systemctl show elastiod -p UnitFileState -p ConditionResult -p ActiveState"
    assert set(shell(vm, show).split()) == {
        "UnitFileState=enabled",
        "ConditionResult=no",
        "ActiveState=inactive",
    }


@pytest.mark.parametrize("driver", ["virtio-blk", "nvme"])
def test_a_disk_is_plugged_limited_and_unplugged(vm: VirtualMachine, hot_disk: Path, driver: Driver) -> None:
    vm.plug(HOT_DISK, hot_disk, bytes_per_second=8 * MB, driver=driver)
    device = device_of(vm.agent, HOT_DISK)
    write = ["dd", "if=/dev/zero", f"of={device}", "bs=1M", "oflag=direct", "count=24"]
    # 25 MB each time; QEMU allows a burst of a tenth of a second.
    assert measured_s(vm, write) > 2.5
    vm.set_limit(HOT_DISK, 4 * MB)
    assert measured_s(vm, write) > 5
    vm.unplug(HOT_DISK, UNPLUG_S)
    assert HOT_DISK not in vm.disks()
    assert HOT_DISK not in shell(vm, "lsblk -n -o SERIAL")


def measured_s(vm: VirtualMachine, argv: list[str]) -> float:
    script = "s=$(date +%s.%N); \"$@\" 2>/dev/null; echo $(date +%s.%N) $s | awk '{print $1 - $2}'"
    return float(vm.agent.check(["sh", "-c", script, "sh", *argv], timeout_s=COMMAND_S))


def test_files_are_written_and_read_unchanged(vm: VirtualMachine) -> None:
    data = bytes(range(256)) * 10_000
    vm.agent.write_file("/etc/elastio-test/deep/file", data, 0o600)
    assert vm.agent.read_file("/etc/elastio-test/deep/file") == data
    assert shell(vm, "stat -c %a /etc/elastio-test/deep/file") == "600"


def test_a_program_gets_input_and_environment_and_returns_its_exit_code(vm: VirtualMachine) -> None:
    argv = ["sh", "-c", 'cat; echo "$NAME" >&2; exit 7']
    done = vm.agent.run(argv, timeout_s=COMMAND_S, env={"NAME": "value"}, input=b"in\0put")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"in\0put", b"value\n")
    assert vm.agent.run(["sh", "-c", "kill -9 $$"], timeout_s=COMMAND_S).returncode == -9


def test_a_program_that_hangs_is_killed_in_the_guest(vm: VirtualMachine) -> None:
    with pytest.raises(GuestTimeout):
        vm.agent.run(["sleep", "4321"], timeout_s=0.5)
    assert vm.agent.run(["pgrep", "-f", "sleep 4321"], timeout_s=COMMAND_S).returncode == 1


def test_a_program_that_is_not_there_is_an_error(vm: VirtualMachine) -> None:
    with pytest.raises(GuestError):
        vm.agent.run(["no-such-program"], timeout_s=COMMAND_S)


def test_synced_data_survives_a_power_cut(vm: VirtualMachine, hot_disk: Path) -> None:
    vm.plug(HOT_DISK, hot_disk, bytes_per_second=100 * MB)
    shell(vm, f"mkfs.ext4 -q {device_of(vm.agent, HOT_DISK)}")
    shell(vm, f"mount {device_of(vm.agent, HOT_DISK)} /mnt && echo kept > /mnt/file && sync /mnt/file")
    vm.kill()
    with pytest.raises(HypervisorError):
        _ = vm.agent
    assert vm.disks() == (BOOT_DISK, HOT_DISK)
    vm.start(BOOT_S)
    shell(vm, f"mount {device_of(vm.agent, HOT_DISK)} /mnt")
    assert shell(vm, "cat /mnt/file") == "kept"
    assert vm.shutdown(COMMAND_S) is True
    assert not vm.alive


def test_a_pulled_disk_fails_the_writes_in_flight(vm: VirtualMachine, hot_disk: Path) -> None:
    if not vm.alive:
        vm.start(BOOT_S)
    vm.plug(HOT_DISK, hot_disk, bytes_per_second=4 * MB)
    device = device_of(vm.agent, HOT_DISK)
    write = f"dd if=/dev/zero of={device} bs=1M oflag=direct 2> /run/dd.log"
    shell(vm, f"systemd-run --unit=writer --service-type=exec sh -c '{write}'")
    writes = f"awk '{{print $5}}' /sys/block/{device.removeprefix('/dev/')}/stat"
    shell(vm, f"for i in $(seq 300); do [ $({writes}) -gt 0 ] && exit 0; sleep 0.1; done; exit 1")
    vm.pull(HOT_DISK, UNPLUG_S)
    assert HOT_DISK not in vm.disks()
    shell(vm, "while systemctl -q is-active writer; do sleep 0.1; done")
    # EIO, or ENOSPC if the kernel has set the size to 0 by then.
    assert "error writing" in vm.agent.read_file("/run/dd.log").decode()
