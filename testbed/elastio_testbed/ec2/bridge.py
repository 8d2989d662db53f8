"""The interface between a volume of the API and a disk of a virtual machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from elastio_testbed.ec2.errors import SettingError

# File systems and QEMU need whole blocks; a GiB of a scaled endpoint must be a multiple of them.
_BLOCK_BYTES = 4096


class DiskBridge(Protocol):
    """Hot-plug of a hypervisor, one object per virtual machine. Every method raises when it fails."""

    def plug(self, serial: str, path: Path, *, bytes_per_second: int, iops: int | None) -> None:
        """Plug the raw file at `path` as a disk with that serial and those limits."""

    def unplug(self, serial: str, timeout_s: float) -> None:
        """Unplug the disk. Raises when the guest has not released it in time: the disk is still plugged."""


@dataclass(frozen=True)
class Scale:
    """The ratio between sizes of the API and of the laboratory's disks.

    One GiB of the API is `gib_bytes` real bytes, one MiB/s is `mib_s_bytes` real bytes/s. Responses and limits of
    the API remain those of EC2. Raises SettingError when a GiB is not a multiple of 4 KiB.
    """

    gib_bytes: int = 2**30
    mib_s_bytes: int = 2**20

    def __post_init__(self) -> None:
        if self.gib_bytes <= 0 or self.gib_bytes % _BLOCK_BYTES:
            raise SettingError(f"gib_bytes must be a multiple of {_BLOCK_BYTES}, got {self.gib_bytes}")
        if self.mib_s_bytes <= 0:
            raise SettingError(f"mib_s_bytes must be positive, got {self.mib_s_bytes}")

    def size_bytes(self, size_gib: int) -> int:
        """Real bytes of a volume of `size_gib`."""
        return size_gib * self.gib_bytes

    def bytes_per_second(self, throughput_mib_s: int) -> int:
        """Real bytes per second of `throughput_mib_s`."""
        return throughput_mib_s * self.mib_s_bytes


def serial_of(volume_id: str) -> str:
    """The serial of a volume's disk: its id without the hyphen, 20 characters, as on EBS's NVMe disks."""
    return volume_id.replace("-", "")
