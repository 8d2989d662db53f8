"""From a volume of the API to a disk of a virtual machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from elastio_testbed.ec2.errors import SettingError

# File systems and QEMU want whole blocks; every GiB of a scaled world must be some.
_BLOCK_BYTES = 4096


class DiskBridge(Protocol):
    """The hot-plug side of a hypervisor, one per virtual machine. Every method raises when it failed."""

    def plug(self, serial: str, path: Path, *, bytes_per_second: int, iops: int | None) -> None:
        """Show the raw file at `path` to the guest as a disk with that serial and those limits."""

    def unplug(self, serial: str, timeout_s: float) -> None:
        """Take the disk away. Raises when the guest did not let go of it in time: the disk is still there."""


@dataclass(frozen=True)
class Scale:
    """How much smaller the disks of the laboratory are than the API says.

    `gib_bytes` real bytes stand behind one GiB of the API, `mib_s_bytes` real bytes/s behind one MiB/s. The
    API's answers and limits stay those of EC2. Raises SettingError when a GiB would not be whole 4 KiB blocks.
    """

    gib_bytes: int = 2**30
    mib_s_bytes: int = 2**20

    def __post_init__(self) -> None:
        if self.gib_bytes <= 0 or self.gib_bytes % _BLOCK_BYTES:
            raise SettingError(f"gib_bytes must be a multiple of {_BLOCK_BYTES}, got {self.gib_bytes}")
        if self.mib_s_bytes <= 0:
            raise SettingError(f"mib_s_bytes must be positive, got {self.mib_s_bytes}")

    def size_bytes(self, size_gib: int) -> int:
        """Real bytes behind a volume of `size_gib`."""
        return size_gib * self.gib_bytes

    def bytes_per_second(self, throughput_mib_s: int) -> int:
        """Real bytes per second behind `throughput_mib_s`."""
        return throughput_mib_s * self.mib_s_bytes


def serial_of(volume_id: str) -> str:
    """The disk serial of a volume: its id without the hyphen, 20 characters, as EBS's NVMe disks have it."""
    return volume_id.replace("-", "")
