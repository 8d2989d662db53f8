"""A bootable disk image for clouds: the guest's root with a UEFI boot loader, built without loop devices."""

import tempfile
from pathlib import Path

from elastio_testbed.image.build import build_guest_image
from elastio_testbed.image.tools import run

_MIB = 1 << 20
# Partitions start at 1 MiB, which is aligned on every cloud's storage; the last MiB holds the backup table.
_ESP_START_MIB, _ESP_MIB = 1, 64
_ROOT_START_MIB = _ESP_START_MIB + _ESP_MIB
_TIMEOUT_S = 600


def build_cloud_image(path: Path, *, suite: str | None = None) -> None:
    """Write a bootable qcow2 (GPT, UEFI) with the guest's root to `path`, replacing an existing file.

    cloud-init configures the machine and grows the root partition to the volume. The image boots with UEFI only; on
    EC2 register it with boot mode `uefi`. Raises ImageError; then `path` was not changed.
    """
    guest = build_guest_image(suite=suite)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="elastio-cloud-", dir=path.parent) as work:
        disk, esp, finished = (Path(work) / name for name in ("disk.raw", "esp.raw", "disk.qcow2"))
        _make_esp(esp, guest.bootloader)
        root_mib = guest.root.stat().st_size // _MIB
        _make_partitions(disk, root_mib)
        _copy_into(disk, esp, _ESP_START_MIB)
        _copy_into(disk, guest.root, _ROOT_START_MIB)
        run(["qemu-img", "convert", "-c", "-O", "qcow2", str(disk), str(finished)], timeout_s=_TIMEOUT_S)
        finished.replace(path)


def _make_esp(esp: Path, bootloader: Path) -> None:
    with esp.open("wb") as image:
        image.truncate(_ESP_MIB * _MIB)
    run(["mformat", "-i", str(esp), "-F", "-v", "ESP", "::"], timeout_s=_TIMEOUT_S)
    run(["mmd", "-i", str(esp), "::/EFI", "::/EFI/BOOT"], timeout_s=_TIMEOUT_S)
    # The default path of UEFI firmware on a disk without a boot entry.
    run(["mcopy", "-i", str(esp), str(bootloader), "::/EFI/BOOT/BOOTX64.EFI"], timeout_s=_TIMEOUT_S)


def _make_partitions(disk: Path, root_mib: int) -> None:
    with disk.open("wb") as image:
        image.truncate((_ROOT_START_MIB + root_mib + 1) * _MIB)
    esp = ["-n", f"1:{_ESP_START_MIB}M:+{_ESP_MIB}M", "-t", "1:ef00", "-c", "1:ESP"]
    root = ["-n", f"2:{_ROOT_START_MIB}M:+{root_mib}M", "-t", "2:8304", "-c", "2:root"]
    run(["sgdisk", *esp, *root, str(disk)], timeout_s=_TIMEOUT_S)


def _copy_into(disk: Path, part: Path, start_mib: int) -> None:
    argv = ["dd", f"if={part}", f"of={disk}", "bs=1M", f"seek={start_mib}", "conv=sparse,notrunc", "status=none"]
    run(argv, timeout_s=_TIMEOUT_S)
