"""The contents of a disk with a volatile write cache: what it shows, and what survives a power cut."""

from __future__ import annotations

import os
import random
import subprocess
from dataclasses import dataclass
from pathlib import Path

_COPY_S = 300.0


@dataclass(slots=True)
class Write:
    """One write; `is_done` once it was acknowledged to the guest."""

    offset: int
    data: bytes
    is_done: bool = False


class Contents:
    """A raw file as the guest sees it, and beside it a file with what was flushed.

    As disk specifications define it, a flush makes every write durable that was acknowledged before the flush was
    issued, and no write still in flight. A cut keeps what is durable, and a random part of the rest: a disk may have
    written any part of its cache in any order.
    """

    def __init__(self, path: Path) -> None:
        """The file is considered durable as it is. Raises OSError."""
        self.path, self.durable_path = path, path.with_name(f"{path.name}.durable")
        copy(path, self.durable_path)
        self._shown = os.open(path, os.O_RDWR)
        self._durable = os.open(self.durable_path, os.O_RDWR)
        self.size_bytes = os.fstat(self._shown).st_size
        self._volatile: list[Write] = []

    def close(self) -> None:
        """Close both files and delete the second."""
        os.close(self._shown)
        os.close(self._durable)
        self.durable_path.unlink()

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._shown, length, offset)

    def write(self, offset: int, data: bytes) -> Write:
        """Write data that is not durable yet. The caller sets `is_done` with the acknowledgement."""
        os.pwrite(self._shown, data, offset)
        made = Write(offset, data)
        self._volatile.append(made)
        return made

    def answered(self) -> list[Write]:
        """The writes that a flush issued now has to make durable."""
        return [write for write in self._volatile if write.is_done]

    def make_durable(self, writes: list[Write]) -> None:
        """Make these writes durable, in the order in which they were made."""
        gone = {id(write) for write in writes}
        for write in self._volatile:
            if id(write) in gone:
                os.pwrite(self._durable, write.data, write.offset)
        self._volatile = [write for write in self._volatile if id(write) not in gone]

    def cut(self, target: Path, survival: float, rng: random.Random) -> int:
        """Write to `target` what a power cut leaves: every unflushed write with the probability `survival`.

        Returns the number of bytes that were lost. Raises OSError, or CalledProcessError.
        """
        copy(self.durable_path, target)
        lost = 0
        with target.open("r+b") as file:
            for write in self._volatile:
                if rng.random() < survival:
                    file.seek(write.offset)
                    file.write(write.data)
                else:
                    lost += len(write.data)
        return lost


def copy(source: Path, target: Path) -> None:
    """Copy a file and keep its holes."""
    argv = ["cp", "--sparse=always", "--reflink=auto", str(source), str(target)]
    subprocess.run(argv, check=True, timeout=_COPY_S, capture_output=True)
