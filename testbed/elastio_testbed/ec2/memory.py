"""A bridge without a virtual machine, for tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_GATE_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class MemoryDisk:
    """A plugged disk: its size when it was plugged, and its limits."""

    size_bytes: int
    bytes_per_second: int | None
    iops: int | None


class MemoryBridge:
    """A DiskBridge that records its disks.

    `disks` by serial. `gate`: while it is not set, calls wait (30 s at most). `keeps_disks`: the guest does not
    release its disks. `broken`: plug fails. Concurrent calls for one serial raise RuntimeError.
    """

    def __init__(self) -> None:
        self.disks: dict[str, MemoryDisk] = {}
        self.keeps_disks = False
        self.broken = False
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.unplug_timeouts_s: list[float] = []
        self._lock = threading.Lock()
        self._busy: set[str] = set()

    def plug(self, serial: str, path: Path, *, bytes_per_second: int, iops: int | None) -> None:
        """Record the disk. Raises OSError when `broken` or without the file, ValueError when already plugged."""
        with self._one_call(serial):
            if self.broken:
                raise OSError(f"no free slot for {serial}")
            if serial in self.disks:
                raise ValueError(f"{serial} is already plugged")
            self.disks[serial] = MemoryDisk(path.stat().st_size, bytes_per_second, iops)

    def unplug(self, serial: str, timeout_s: float) -> None:
        """Remove the disk. Raises TimeoutError while `keeps_disks`, KeyError when it is not plugged."""
        with self._one_call(serial):
            self.unplug_timeouts_s.append(timeout_s)
            if self.keeps_disks:
                raise TimeoutError(f"the guest has not released {serial}")
            del self.disks[serial]

    @contextmanager
    def _one_call(self, serial: str) -> Iterator[None]:
        with self._lock:
            if serial in self._busy:
                raise RuntimeError(f"concurrent calls for {serial}")
            self._busy.add(serial)
        try:
            self.entered.set()
            if not self.gate.wait(_GATE_TIMEOUT_S):
                raise TimeoutError("the gate was not opened")
            yield
        finally:
            with self._lock:
                self._busy.discard(serial)
