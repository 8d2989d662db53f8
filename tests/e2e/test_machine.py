"""The contract of a machine, for the chosen hypervisor: disks are hot-plugged, and synced data survives a power cut."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

import pytest

from elastio_testbed.hypervisor import (
    Disk,
    GuestError,
    GuestTimeout,
    HypervisorError,
    Machine,
    chosen_hypervisor,
    define_machine,
)
from elastio_testbed.image import build_guest_image
from elastio_testbed.machine import HOST_IN_GUEST
from tests.e2e.guests import (
    BOOT_DISK,
    BOOT_S,
    COMMAND_S,
    HOT_DISK,
    MB,
    UNPLUG_S,
    device_of,
    measured_s,
    register,
    shell,
    volume,
)

pytestmark = pytest.mark.guest

PORT = "org.elastio.test"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp(chosen_hypervisor())


@pytest.fixture(scope="module")
def defined(folder: Path) -> Iterator[Machine]:
    boot_disk = Disk(BOOT_DISK, volume(folder, BOOT_DISK), 100 * MB)
    with define_machine(
        build_guest_image(),
        disks=[boot_disk],
        directory=folder / "vm",
        ports={PORT: folder / "port"},
    ) as machine:
        yield machine


@pytest.fixture
def vm(defined: Machine) -> Machine:
    """The machine, running: a test may have left it off."""
    if not defined.alive:
        defined.start(BOOT_S)
    return defined


@pytest.fixture
def hot_disk(vm: Machine, folder: Path) -> Iterator[Path]:
    """A file for HOT_DISK, which is unplugged after the test."""
    path = volume(folder, HOT_DISK)
    yield path
    if HOT_DISK in vm.disks():
        vm.unplug(HOT_DISK, UNPLUG_S)


def test_bcache_absorbs_writes_up_to_the_cutoffs_of_modprobe_d(vm: Machine) -> None:
    device = device_of(vm.agent, BOOT_DISK)
    register(vm, device, "-C")
    script = "grep -h . /sys/fs/bcache/*-*/internal/cutoff_writeback{,_sync}"
    cutoffs = vm.agent.check(["bash", "-c", script], timeout_s=COMMAND_S).split()
    shell(vm, f"echo 1 > /sys/block/{PurePosixPath(device).name}/bcache/set/stop")
    assert cutoffs == ["70", "70"]


def test_elastio_is_installed_and_waits_for_its_configuration(vm: Machine) -> None:
    assert vm.agent.check(["elastio", "--version"], timeout_s=COMMAND_S)
    show = "systemctl show elastiod -p UnitFileState -p ConditionResult -p ActiveState"
    assert set(shell(vm, show).split()) == {
        "UnitFileState=enabled",
        "ConditionResult=no",
        "ActiveState=inactive",
    }


def test_a_disk_is_plugged_limited_and_unplugged(vm: Machine, hot_disk: Path) -> None:
    vm.plug(HOT_DISK, hot_disk, bytes_per_second=8 * MB)
    device = device_of(vm.agent, HOT_DISK)
    write = ["dd", "if=/dev/zero", f"of={device}", "bs=1M", "oflag=direct", "count=24"]
    # 25 MB each time; a burst of a tenth of a second passes.
    assert measured_s(vm, write) > 2.5
    vm.set_limit(HOT_DISK, 4 * MB)
    assert measured_s(vm, write) > 5
    assert 2 * 24 << 20 <= vm.moved_bytes(HOT_DISK) < 3 * 24 << 20
    assert vm.limits()[HOT_DISK] == 4 * MB
    # The kernel flushes a disk with a write cache only.
    assert shell(vm, f"cat /sys/block/{device.removeprefix('/dev/')}/queue/write_cache") == "write back"
    assert shell(vm, f"cat /sys/block/{device.removeprefix('/dev/')}/queue/optimal_io_size") == "0"
    vm.unplug(HOT_DISK, UNPLUG_S)
    assert HOT_DISK not in vm.disks()
    assert HOT_DISK not in shell(vm, "lsblk -n -o SERIAL")


def test_files_are_written_and_read_unchanged(vm: Machine) -> None:
    data = bytes(range(256)) * 10_000
    vm.agent.write_file("/etc/elastio-test/deep/file", data, 0o600)
    assert vm.agent.read_file("/etc/elastio-test/deep/file") == data
    assert shell(vm, "stat -c %a /etc/elastio-test/deep/file") == "600"


def test_a_program_gets_input_and_environment_and_returns_its_exit_code(vm: Machine) -> None:
    argv = ["sh", "-c", 'cat; echo "$NAME" >&2; exit 7']
    done = vm.agent.run(argv, timeout_s=COMMAND_S, env={"NAME": "value"}, input=b"in\0put")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"in\0put", b"value\n")
    assert vm.agent.run(["sh", "-c", "kill -9 $$"], timeout_s=COMMAND_S).returncode == -9


def test_a_program_that_hangs_is_killed_in_the_guest(vm: Machine) -> None:
    with pytest.raises(GuestTimeout):
        vm.agent.run(["sleep", "4321"], timeout_s=0.5)
    assert vm.agent.run(["pgrep", "-f", "sleep 4321"], timeout_s=COMMAND_S).returncode == 1


def test_a_program_that_is_not_there_is_an_error(vm: Machine) -> None:
    with pytest.raises(GuestError):
        vm.agent.run(["no-such-program"], timeout_s=COMMAND_S)


def test_a_plug_is_idempotent_and_a_serial_belongs_to_one_file(vm: Machine, hot_disk: Path, folder: Path) -> None:
    for _ in range(2):
        vm.plug(HOT_DISK, hot_disk, bytes_per_second=8 * MB)
    with pytest.raises(HypervisorError):
        vm.plug(HOT_DISK, volume(folder, "other"), bytes_per_second=8 * MB)
    assert vm.files()[HOT_DISK] == hot_disk
    device_of(vm.agent, HOT_DISK)


def test_the_guest_reaches_the_loopback_of_its_host(vm: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = f"exec 3<>/dev/tcp/{HOST_IN_GUEST}/{server.getsockname()[1]}; read -r -u 3 line; echo $line"
        shell(vm, f"systemd-run --unit=caller -p StandardOutput=file:/run/heard bash -c '{script}'")
        server.settimeout(COMMAND_S)
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"hello\n")
    shell(vm, "while systemctl -q is-active caller; do sleep 0.1; done")
    assert vm.agent.read_file("/run/heard") == b"hello\n"


def test_a_pulled_disk_fails_the_writes_in_flight(vm: Machine, hot_disk: Path) -> None:
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


def test_a_guest_that_reboots_is_off_until_it_is_started(vm: Machine) -> None:
    before = shell(vm, "cat /proc/sys/kernel/random/boot_id")
    with suppress(GuestError):  # the guest may be gone before it has answered
        shell(vm, "systemctl --no-block reboot")
    assert vm.await_off(COMMAND_S) is True
    assert not vm.alive
    vm.start(BOOT_S)
    assert shell(vm, "cat /proc/sys/kernel/random/boot_id") != before


def test_synced_data_and_what_a_port_took_survive_a_power_cut(vm: Machine, hot_disk: Path, folder: Path) -> None:
    for line in ("one", "two"):
        shell(vm, f"echo {line} > /dev/virtio-ports/{PORT}")
    vm.plug(HOT_DISK, hot_disk, bytes_per_second=100 * MB)
    shell(vm, f"mkfs.ext4 -q {device_of(vm.agent, HOT_DISK)}")
    shell(vm, f"mount {device_of(vm.agent, HOT_DISK)} /mnt && echo kept > /mnt/file && sync /mnt/file")
    vm.kill()
    assert (folder / "port").read_bytes() == b"one\ntwo\n"
    with pytest.raises(HypervisorError):
        _ = vm.agent
    assert vm.disks() == (BOOT_DISK, HOT_DISK)
    vm.start(BOOT_S)
    shell(vm, f"mount {device_of(vm.agent, HOT_DISK)} /mnt")
    assert shell(vm, "cat /mnt/file") == "kept"
    shell(vm, f"echo three > /dev/virtio-ports/{PORT}")
    assert (folder / "port").read_bytes() == b"one\ntwo\nthree\n"
    assert vm.shutdown(COMMAND_S) is True
    assert not vm.alive
