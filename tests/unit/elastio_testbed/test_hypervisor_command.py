"""QEMU's command line: disks, ports, accelerator, kernel."""

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from elastio_testbed.hypervisor import Disk, HypervisorError
from elastio_testbed.hypervisor.qemu.accel import accelerator, has_virtualization
from elastio_testbed.hypervisor.qemu.command import PORTS, Hardware, Wiring, kernel_command_line, qemu_argv
from elastio_testbed.image import GuestImage

SERIAL = "vol0123456789abcdef0"


def argv_with(*disks: tuple[Disk, str], ports: Mapping[str, Path] = MappingProxyType({})) -> list[str]:
    cache = Path("/cache")
    image = GuestImage(cache / "root.ext4", cache / "vmlinuz", cache / "initrd", cache / "efi", "digest", "bookworm")
    wiring = Wiring(Path("/run/a,b/root.qcow2"), Path("/run/a,b/console"), 5, 6, ports)
    return qemu_argv(image, Hardware("tcg,thread=multi", 2, 768), wiring, disks)


def test_a_port_of_the_guest_writes_to_a_file_of_the_host() -> None:
    ports = {"org.elastio.records": Path("/run/a,b/records"), "org.elastio.triggers": Path("/run/triggers")}
    argv = argv_with(ports=ports)
    assert "file,id=out0,path=/run/a,,b/records,append=on" in values(argv, "-chardev")
    assert "virtserialport,chardev=out0,name=org.elastio.records" in values(argv, "-device")
    assert "virtserialport,chardev=out1,name=org.elastio.triggers" in values(argv, "-device")


def test_a_guest_that_reboots_ends_the_machine() -> None:
    assert "-no-reboot" in argv_with()


def values(argv: list[str], option: str) -> list[str]:
    return [value for name, value in itertools.pairwise(argv) if name == option]


def test_root_is_found_by_label_and_cloud_init_stays_off() -> None:
    words = kernel_command_line().split()
    assert "root=LABEL=elastio-root" in words
    assert "cloud-init=disabled" in words


def test_the_cached_root_is_never_a_writable_disk() -> None:
    files = [json.loads(node)["file"]["filename"] for node in values(argv_with(), "-blockdev")]
    assert files == ["/run/a,b/root.qcow2"]


def test_a_comma_in_the_directory_does_not_split_an_option() -> None:
    console = next(device for device in values(argv_with(), "-chardev") if device.startswith("file,"))
    assert "path=/run/a,,b/console," in console


def test_every_port_has_a_slot_and_chassis_of_its_own() -> None:
    ports = [device for device in values(argv_with(), "-device") if device.startswith("pcie-root-port")]
    assert len({port.split("chassis=")[1] for port in ports}) == len(ports) == len(PORTS) == 16


@pytest.mark.parametrize(("driver", "model"), [("virtio-blk", "virtio-blk-pci"), ("nvme", "nvme")])
def test_a_boot_disk_is_throttled_for_reads_and_writes_together(driver: str, model: str) -> None:
    disk = Disk(SERIAL, Path("/vol"), 64_000_000, 3000, "nvme" if driver == "nvme" else "virtio-blk")
    argv = argv_with((disk, "port3"))
    [group] = [json.loads(value) for value in values(argv, "-object")]
    node = json.loads(values(argv, "-blockdev")[-1])
    device = json.loads(values(argv, "-device")[-1])
    assert group["limits"] == {"bps-total": 64_000_000, "iops-total": 3000}
    assert (node["driver"], node["throttle-group"]) == ("throttle", group["id"])
    assert device["drive"] == node["node-name"]
    assert (device["driver"], device["serial"], device["bus"]) == (model, SERIAL, "port3")


def test_a_disk_without_limits_is_not_throttled() -> None:
    assert Disk(SERIAL, Path("/vol"), None).limits() == {"bps-total": 0, "iops-total": 0}


@pytest.mark.parametrize("serial", [SERIAL + "0", "vol-012", ""])
def test_a_serial_that_qemu_would_truncate_or_misread_is_refused(serial: str) -> None:
    with pytest.raises(HypervisorError):
        Disk(serial, Path("/vol"), None)


@pytest.mark.parametrize(
    ("flags", "able"), [("fpu vme vmx sse2", True), ("fpu svm", True), ("fpu hypervisor avmxx", False)]
)
def test_kvm_needs_a_processor_with_virtualization(flags: str, able: bool) -> None:
    assert has_virtualization(f"processor\t: 0\nflags\t\t: {flags}\nbugs\t\t: vmx\n") is able


def test_the_accelerator_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTIO_ACCEL", "kvm")
    assert accelerator() == "kvm"
    assert accelerator("tcg") == "tcg,thread=multi"
