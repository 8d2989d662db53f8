"""What a disk with a volatile write cache holds: what it shows, and what outlives a power cut."""

from __future__ import annotations

import os
import random
import subprocess
from dataclasses import dataclass
from pathlib import Path

_COPY_S = 300.0


@dataclass(slots=True)
class Write:
    """One write; `is_done` once the guest was told so."""

    offset: int
    data: bytes
    is_done: bool = False


class Contents:
    """A raw file as it is shown to the guest, and beside it what was flushed.

    A flush makes durable what had been answered before it was asked for, as the specifications of disks have it, and
    nothing that was merely on its way. A cut keeps what is durable, and of the rest as much as a drawing of lots
    leaves: a disk may have written any part of its cache, in any order.
    """

    def __init__(self, path: Path) -> None:
        """Take the file as it is for durable. Raises OSError."""
        self.path, self.durable_path = path, path.with_name(f"{path.name}.durable")
        copy(path, self.durable_path)
        self._shown = os.open(path, os.O_RDWR)
        self._durable = os.open(self.durable_path, os.O_RDWR)
        self.size_bytes = os.fstat(self._shown).st_size
        self._volatile: list[Write] = []

    def close(self) -> None:
        """Close both files, and remove the second."""
        os.close(self._shown)
        os.close(self._durable)
        self.durable_path.unlink()

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._shown, length, offset)

    def write(self, offset: int, data: bytes) -> Write:
        """Show it from now on; the caller sets `is_done` when it answers."""
        os.pwrite(self._shown, data, offset)
        made = Write(offset, data)
        self._volatile.append(made)
        return made

    def answered(self) -> list[Write]:
        """What a flush that comes now has to make durable."""
        return [write for write in self._volatile if write.is_done]

    def make_durable(self, writes: list[Write]) -> None:
        """In the order in which they came."""
        gone = {id(write) for write in writes}
        for write in self._volatile:
            if id(write) in gone:
                os.pwrite(self._durable, write.data, write.offset)
        self._volatile = [write for write in self._volatile if id(write) not in gone]

    @property
    def volatile_bytes(self) -> int:
        """What a cut could take."""
        return sum(len(write.data) for write in self._volatile)

    def cut(self, target: Path, survival: float, lots: random.Random) -> int:
        """Write to `target` what a power cut leaves, each write that was not flushed with the probability `survival`.

        Returns the number of bytes that were lost. Raises OSError, or CalledProcessError.
        """
        copy(self.durable_path, target)
        lost = 0
        with target.open("r+b") as file:
            for write in self._volatile:
                if lots.random() < survival:
                    file.seek(write.offset)
                    file.write(write.data)
                else:
                    lost += len(write.data)
        return lost


def copy(source: Path, target: Path) -> None:
    """A copy as sparse as the source."""
    argv = ["cp", "--sparse=always", "--reflink=auto", str(source), str(target)]
    subprocess.run(argv, check=True, timeout=_COPY_S, capture_output=True)
