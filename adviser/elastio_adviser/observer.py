"""Samples one block device and writes what it moved as a trace. Nothing of the machine is changed, no cloud is asked.

Each sample is written when it is taken, so that hours of them take no memory and an end by force loses none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from elastio.agent.sampler import Sampler
from elastio.core.model import HostView, Sample
from elastio.errors import HostError
from elastio.host.sysfs import Sysfs
from elastio.ports import Clock
from elastio.units import SECTOR

# `sim.traces.parse_csv` reads these as samples of known length.
HEADER = "begun_wall,seconds,read_mb_s,write_mb_s"
# Fields of /sys/class/block/NAME/stat: sectors read and written (Documentation/block/stat.rst).
READ_SECTORS, WRITTEN_SECTORS = 2, 6
Progress = Callable[[float, Sample], None]
"""Called with the seconds since the begin, and the newest sample."""


class BlockCounters:
    """`ports.Counters` of one block device that no agent drives; it takes the part of the adaptive device."""

    def __init__(self, name: str, sysfs: Sysfs) -> None:
        self._path, self._sysfs = f"sys/class/block/{name}/stat", sysfs

    def follow(self, view: HostView) -> None:
        """The device is always the same one."""

    def read(self) -> Mapping[str, tuple[int, int]]:
        """Raises HostError if the device is gone."""
        fields = self._sysfs.read(self._path).split()
        return {"adaptive": (int(fields[READ_SECTORS]) * SECTOR, int(fields[WRITTEN_SECTORS]) * SECTOR)}


@dataclass(frozen=True, slots=True)
class BlockDevice:
    """A block device as /sys shows it."""

    name: str
    size_bytes: int


def find_device(sysfs: Sysfs, device: str) -> BlockDevice:
    """The device of a path (links are followed) or of a name in /sys/class/block. Raises HostError."""
    name = Path(device).resolve().name if "/" in device else device
    size = sysfs.read_or(f"sys/class/block/{name}/size", "")
    if not name or not size.isdigit():
        raise HostError(
            f"{device} is not a block device of this machine: name one of /sys/class/block, such as "
            f"{' or '.join(_some(sysfs)) or 'vda'}",
            code="device.missing",
        )
    return BlockDevice(name, int(size) * SECTOR)


def _some(sysfs: Sysfs) -> list[str]:
    folder: Path = sysfs.path("sys/class/block")
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return [name for name in names if not name.startswith(("loop", "ram"))][:3]


@dataclass(frozen=True, slots=True)
class Observer:
    """Samples a device for `for_s` seconds, each `interval_s`. `sleep` waits for so many seconds."""

    device: BlockDevice
    sysfs: Sysfs
    clock: Clock
    sleep: Callable[[float], None]
    for_s: float
    interval_s: float

    def run(self, file: TextIO, progress: Progress) -> None:
        """Write the trace. Ends early if the device disappears.

        Raises HostError if its counters cannot be read at the begin, and what `sleep` raises when it is interrupted:
        the rows until then are written.
        """
        sampler = Sampler(BlockCounters(self.device.name, self.sysfs), self.interval_s)
        begin, wall = self.clock.now(), self.clock.wall()
        sampler.take(begin)
        file.write(f"{HEADER}\n")
        due = begin
        while (now := self.clock.now()) < begin + self.for_s - 1e-6:
            due = min(max(due + self.interval_s, now), begin + self.for_s)
            self.sleep(max(0.0, due - now))
            try:
                sample = sampler.take(self.clock.now())
            except HostError:  # the device is gone; what was seen until then counts
                return
            if sample is not None:
                since = sample.at - begin
                file.write(
                    f"{wall + since - sample.seconds:.6f},{sample.seconds:.6f},"
                    f"{sample.adaptive.read_mb_s:.6f},{sample.adaptive.write_mb_s:.6f}\n"
                )
                progress(since, sample)
