"""The interface between a volume of the API and a disk of a virtual machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class DiskBridge(Protocol):
    """Hot-plug of a hypervisor, one object per virtual machine. Every method raises when it fails."""

    def plug(self, serial: str, path: Path, *, bytes_per_second: int, iops: int | None) -> None:
        """Plug the raw file at `path` as a disk with that serial and those limits."""

    def unplug(self, serial: str, timeout_s: float) -> None:
        """Unplug the disk. Raises when the guest has not released it in time: the disk is still plugged."""


@dataclass(frozen=True)
class Scale:
    """The ratio between sizes of the API and of the laboratory's disks.

    One GiB of the API is `gib_bytes` real bytes, a multiple of the blocks of file systems and QEMU; one MiB/s is
    `mib_s_bytes` real bytes/s, and IOPS are fewer or more by as much. Responses and limits of the API remain those of
    EC2.
    """

    gib_bytes: int = 2**30
    mib_s_bytes: int = 2**20
