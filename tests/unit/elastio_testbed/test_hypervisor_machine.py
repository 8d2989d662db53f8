"""The machine with a real QEMU whose guest only halts, so it never releases a disk."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from elastio_testbed.cuts.power import PowerStrip
from elastio_testbed.hypervisor import Disk, GuestHoldsDisk, GuestTimeout, HypervisorError, VirtualMachine
from elastio_testbed.hypervisor.qemu.stored import VARIABLE
from elastio_testbed.image import GuestImage
from tests.unit.elastio_testbed.halting_guest import halting_image

pytestmark = pytest.mark.runs_programs

SERIAL = "vol0123456789abcdef0"
OTHER = "vol0123456789abcdef1"


@pytest.fixture(autouse=True)
def no_stored_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a guest cannot be stored, as no agent in it answers."""
    monkeypatch.setenv(VARIABLE, "no")


@pytest.fixture
def image(tmp_path: Path) -> GuestImage:
    return halting_image(tmp_path)


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    return make_volume(tmp_path / "volume")


@pytest.fixture
def vm(image: GuestImage, tmp_path: Path) -> Iterator[VirtualMachine]:
    with VirtualMachine(image, directory=tmp_path / "vm", memory_mib=64, cpus=1) as machine:
        with pytest.raises(GuestTimeout):
            machine.start(0.3)
        yield machine


def make_volume(path: Path) -> Path:
    with path.open("wb") as file:
        file.truncate(8 << 20)
    return path


def test_a_guest_that_does_not_boot_runs_until_the_context_is_left(image: GuestImage, tmp_path: Path) -> None:
    port = tmp_path / "records"
    with VirtualMachine(image, memory_mib=64, ports={"org.elastio.records": port}) as vm:
        with pytest.raises(GuestTimeout):
            vm.start(0.1)
        assert vm.alive
        assert port.read_bytes() == b"", "the file of a port exists from the start"
    assert not vm.alive


def test_a_qemu_that_does_not_start_is_an_error(image: GuestImage) -> None:
    with VirtualMachine(image, accel="nonsense") as vm:
        with pytest.raises(HypervisorError):
            vm.start(5)
        assert not vm.alive


def test_a_serial_is_plugged_once_and_not_with_another_file(vm: VirtualMachine, volume: Path, tmp_path: Path) -> None:
    vm.plug(SERIAL, volume, bytes_per_second=64_000_000)
    vm.plug(SERIAL, volume, bytes_per_second=64_000_000)
    with pytest.raises(HypervisorError):
        vm.plug(SERIAL, make_volume(tmp_path / "other"), bytes_per_second=64_000_000)
    assert vm.files() == {SERIAL: volume}


def test_a_refused_plug_changes_nothing(vm: VirtualMachine, volume: Path, tmp_path: Path) -> None:
    with pytest.raises(HypervisorError):
        vm.plug(SERIAL, tmp_path / "missing", bytes_per_second=64_000_000)
    assert vm.disks() == ()
    vm.plug(SERIAL, volume, bytes_per_second=64_000_000)
    assert vm.disks() == (SERIAL,)


def test_a_machine_on_a_power_strip_takes_its_disks_from_there(image: GuestImage, volume: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with PowerStrip() as strip, VirtualMachine(image, disks=[Disk(OTHER, volume, None)], power=strip) as vm:
        with pytest.raises(GuestTimeout):
            vm.start(0.3)
        with pytest.raises(HypervisorError):
            vm.plug(SERIAL, missing, bytes_per_second=64_000_000)
        make_volume(missing)
        vm.plug(SERIAL, missing, bytes_per_second=64_000_000)
        assert vm.files() == {OTHER: volume, SERIAL: missing}
        assert vm.limits() == {OTHER: None, SERIAL: 64_000_000}
        strip.cut({path: tmp_path / f"{path.name}.cut" for path in (volume, missing)}, survival=1, seed=1)
        vm.kill()
        vm.unplug(SERIAL, 1)
        with pytest.raises(KeyError):
            strip.cut({missing: tmp_path / "again"}, survival=1, seed=1)
    assert (tmp_path / "volume.cut").stat().st_size == volume.stat().st_size


def test_a_plug_without_a_free_port_is_refused(vm: VirtualMachine, tmp_path: Path) -> None:
    for index in range(16):
        vm.plug(f"vol{index}", make_volume(tmp_path / f"volume{index}"), bytes_per_second=1_000_000)
    with pytest.raises(HypervisorError):
        vm.plug("vol16", make_volume(tmp_path / "volume16"), bytes_per_second=1_000_000)


def test_a_disk_that_the_guest_does_not_release_stays_plugged(vm: VirtualMachine, volume: Path) -> None:
    vm.plug(SERIAL, volume, bytes_per_second=64_000_000)
    with pytest.raises(GuestHoldsDisk):
        vm.unplug(SERIAL, 0.3)
    assert vm.disks() == (SERIAL,)


def test_the_file_of_a_pulled_disk_is_closed_at_once(vm: VirtualMachine, volume: Path) -> None:
    vm.plug(SERIAL, volume, bytes_per_second=64_000_000)
    # QEMU locks its files: a second disk on this file proves that the first has closed it.
    with pytest.raises(HypervisorError):
        vm.plug(OTHER, volume, bytes_per_second=64_000_000)
    with pytest.raises(GuestHoldsDisk):
        vm.pull(SERIAL, 0.3)
    vm.plug(OTHER, volume, bytes_per_second=64_000_000)
    assert vm.disks() == (SERIAL, OTHER)


def test_disks_stay_plugged_after_a_power_cut(vm: VirtualMachine, volume: Path) -> None:
    vm.plug(SERIAL, volume, bytes_per_second=64_000_000)
    vm.set_limit(SERIAL, 16_000_000, 100)
    vm.kill()
    assert not vm.alive
    assert vm.disks() == (SERIAL,)
    with pytest.raises(GuestTimeout):
        vm.start(0.3)
    # The disk is part of the running machine: QEMU does not accept its names twice.
    with pytest.raises(GuestHoldsDisk):
        vm.unplug(SERIAL, 0.3)


def test_a_pulled_disk_is_absent_after_a_restart_and_can_be_unplugged_once(vm: VirtualMachine, volume: Path) -> None:
    vm.plug(SERIAL, volume, bytes_per_second=64_000_000)
    with pytest.raises(GuestHoldsDisk):
        vm.pull(SERIAL, 0.3)
    vm.kill()
    assert vm.disks() == ()
    vm.unplug(SERIAL, 1)
    with pytest.raises(HypervisorError):
        vm.unplug(SERIAL, 1)


def test_a_guest_that_ignores_the_power_button_is_killed(vm: VirtualMachine) -> None:
    assert vm.shutdown(0.3) is False
    assert not vm.alive
    assert vm.await_off(0.3) is True


def test_a_machine_that_is_off_forgets_an_unplugged_disk_and_has_no_agent(image: GuestImage, volume: Path) -> None:
    with VirtualMachine(image, disks=[Disk(SERIAL, volume, None)]) as vm:
        vm.unplug(SERIAL, 1)
        assert vm.disks() == ()
        with pytest.raises(HypervisorError):
            _ = vm.agent


def test_a_disk_that_is_unplugged_while_power_comes_back_leaves_the_machine_that_boots_with_it(
    image: GuestImage, volume: Path
) -> None:
    """The guest, which only halts, does not release it: the disk is still plugged, in QEMU as in the machine's list."""
    with VirtualMachine(image, disks=[Disk(SERIAL, volume, None)]) as vm, ThreadPoolExecutor() as pool:
        started = pool.submit(vm.start, 1.0)
        while not vm.is_starting and not started.done():
            pass
        with pytest.raises(GuestHoldsDisk):
            vm.unplug(SERIAL, 0.5)
        assert vm.disks() == (SERIAL,)
        with pytest.raises(GuestTimeout):
            started.result()


def test_a_port_is_forwarded_while_the_machine_runs_and_refused_if_it_is_taken(vm: VirtualMachine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(HypervisorError):
            vm.forward(taken.getsockname()[1], 9100)
        port = taken.getsockname()[1]
    vm.forward(port, 9100)
    with socket.create_connection(("127.0.0.1", port), 10):
        vm.kill()
    with pytest.raises(HypervisorError):
        vm.forward(port, 9100)


def test_an_unplug_ends_with_the_power_and_does_not_touch_the_machine_that_boots_next(
    vm: VirtualMachine, volume: Path
) -> None:
    vm.plug(SERIAL, volume, bytes_per_second=64_000_000)
    with ThreadPoolExecutor() as pool:
        # QEMU refuses the second request while the first is pending: the unplug then asks again and again.
        unplug = pool.submit(vm.unplug, SERIAL, 30)
        with pytest.raises(TimeoutError):
            unplug.result(3.5)
        vm.kill()
        with pytest.raises(GuestTimeout):
            vm.start(0.3)
        with pytest.raises(HypervisorError) as raised:
            unplug.result(5)
    assert raised.type is not GuestHoldsDisk
    assert vm.disks() == (SERIAL,)
