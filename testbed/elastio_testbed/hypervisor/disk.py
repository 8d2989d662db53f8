"""A throttled disk, and its objects in QEMU.

The command line and QMP use the same three objects: a throttle group, a block node that throttles reads and writes
together, and a device on a hot-plug port.
"""

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from elastio_testbed.hypervisor.errors import HypervisorError

Driver = Literal["virtio-blk", "nvme"]
# The limit of virtio-blk; NVMe allows longer serials.
MAX_SERIAL_CHARACTERS = 20
_DEVICES: dict[Driver, str] = {"virtio-blk": "virtio-blk-pci", "nvme": "nvme"}
# An fsync of the guest ends in the host's page cache. That survives a power cut, which ends QEMU only.
CACHE = {"direct": False, "no-flush": True}
FLUSHED = {"direct": False, "no-flush": False}


class Power(Protocol):
    """Serves disks over NBD, and may lose writes that the guest has not flushed."""

    def plug(self, path: Path) -> Path:
        """Serve the raw file and return the NBD socket. Raises HypervisorError."""

    def unplug(self, path: Path) -> None:
        """Stop serving the file, if it is served."""


@dataclass(frozen=True)
class Disk:
    """A raw file with limits that apply to the sum of reads and writes.

    `bytes_per_second` and `iops` are None where there is no limit. The guest finds the disk by `serial`. `socket` is
    the NBD socket that serves the file; None: QEMU opens the file.
    """

    serial: str
    path: Path
    bytes_per_second: int | None
    iops: int | None = None
    driver: Driver = "virtio-blk"
    socket: Path | None = None

    def __post_init__(self) -> None:
        if not self.serial.isalnum() or len(self.serial) > MAX_SERIAL_CHARACTERS:
            raise HypervisorError(
                f"the serial {self.serial!r} is invalid: use letters and digits, at most {MAX_SERIAL_CHARACTERS}"
            )

    @property
    def device_id(self) -> str:
        return f"disk-{self.serial}"

    @property
    def node_name(self) -> str:
        # QEMU allows 31 characters.
        return f"node-{self.serial}"

    @property
    def dead_name(self) -> str:
        return f"dead-{self.serial}"

    @property
    def group_id(self) -> str:
        return f"throttle-{self.serial}"

    def limits(self) -> dict[str, int]:
        """The limits as QEMU's ThrottleLimits, where 0 means none."""
        return {"bps-total": self.bytes_per_second or 0, "iops-total": self.iops or 0}

    def throttle_group(self) -> dict[str, Any]:
        return {"qom-type": "throttle-group", "id": self.group_id, "limits": self.limits()}

    def block_node(self) -> dict[str, Any]:
        return {
            "driver": "throttle",
            "node-name": self.node_name,
            "throttle-group": self.group_id,
            "discard": "unmap",
            "cache": CACHE if self.socket is None else FLUSHED,
            "file": self._file_node(),
        }

    def _file_node(self) -> dict[str, Any]:
        if self.socket is None:
            return {"driver": "file", "filename": str(self.path), "discard": "unmap", "cache": CACHE}
        return {"driver": "nbd", "server": {"type": "unix", "path": str(self.socket)}, "cache": FLUSHED}

    def dead_node(self, size_bytes: int) -> dict[str, Any]:
        """A node of the disk's size on which every request fails with EIO."""
        return {
            "driver": "blkdebug",
            "node-name": self.dead_name,
            "image": {"driver": "null-co", "size": size_bytes},
            "inject-error": [{"event": "none", "errno": errno.EIO}],
        }

    def device(self, port: str) -> dict[str, Any]:
        return {
            "driver": _DEVICES[self.driver],
            "id": self.device_id,
            "drive": self.node_name,
            "serial": self.serial,
            "bus": port,
        }
