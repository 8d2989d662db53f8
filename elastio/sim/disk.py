"""A disk that can be plugged into the simulated machine. Its content survives unplugging."""

from __future__ import annotations

from dataclasses import dataclass

from elastio.core.model import CacheSetUuid, Serial
from elastio.errors import DeviceBusyError, NotOursError
from elastio.sim.block_versions import CacheContent


@dataclass(slots=True)
class SimDisk:
    """`signature`: what somebody else wrote on it ("ext4"). `holder`: who else uses it ("mount")."""

    serial: Serial
    size_bytes: int
    mb_s: float
    signature: str | None = None
    holder: str | None = None
    name: str = ""
    superblock: CacheSetUuid | None = None
    content: CacheContent | None = None
    registered: bool = False

    def wipe(self) -> None:
        """Erase superblock and content."""
        self.superblock, self.content, self.registered = None, None, False

    def check_free(self, size_bytes: int) -> None:
        """Raises NotOursError or DeviceBusyError unless it may be written to as a cache of `size_bytes`."""
        if self.size_bytes != size_bytes:
            raise NotOursError(f"disk {self.name} has {self.size_bytes} bytes, {size_bytes} were bought: left alone")
        if self.signature is not None:
            raise NotOursError(f"disk {self.name} carries {self.signature}: left alone")
        if self.holder is not None:
            raise DeviceBusyError(f"disk {self.name} is in use by {self.holder}")
