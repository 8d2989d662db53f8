"""Which processor a guest runs on.

Kernel and programs of a guest take turns: on several processors each turn would wake another one up, which costs more
than the work. So a guest has one, of its own while there are enough: it is locked as long as the guest runs, also
against guests of other processes.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import tempfile
from pathlib import Path
from typing import IO

_TURNS = itertools.count(os.getpid())


class Processor:
    """A processor of this machine that is taken until `release`. `number` is that of the kernel."""

    def __init__(self) -> None:
        numbers = sorted(os.sched_getaffinity(0))
        for number in numbers:
            file = (Path(tempfile.gettempdir()) / f"elastio-processor-{number}.lock").open("ab")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
                continue
            self.number, self._lock = number, file
            return
        self.number = numbers[next(_TURNS) % len(numbers)]

    _lock: IO[bytes] | None = None

    def release(self) -> None:
        """Give it back."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
