"""Write a dataset as dd does: 1 MiB at a time, an fsync at the end, by one or several writers at once.

An application that makes its data more slowly than the volume takes it is written like with a pace. That matters even
where the pace is above the volume's: the kernel keeps the first data back in memory, the longer the slower it comes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from elastio.units import MB, MIB
from elastio_calibration.errors import CalibrationError
from elastio_calibration.work_dir import WorkDir


class Writer:
    """Writes below `directory`. Raises CalibrationError, with the reason of the system, where that fails.

    `pace_mb_s`: of all writers together, never faster; 0: as fast as they can. `sleep` None: a wait that ends with an
    interruption.
    """

    def __init__(
        self,
        directory: Path,
        writers: int,
        block_bytes: int = MIB,
        pace_mb_s: float = 0.0,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self.work_dir = WorkDir(directory)
        self._writers, self._block_bytes = writers, block_bytes
        self._block_s = block_bytes * writers / MB / pace_mb_s if pace_mb_s else 0.0
        self._now, self._sleep = now, sleep
        # One block again and again: it does not compress, and making it costs no time while it is written.
        self._block = os.urandom(block_bytes)

    def write(self, dataset_bytes: int) -> float:
        """Seconds from the first write to the return of the last fsync. The data is new each time.

        Interrupted, or where one writer fails, the others end with the block that they are writing.
        """
        try:
            self.work_dir.make()
            with ThreadPoolExecutor(self._writers) as pool:
                return self._write(pool, max(1, round(dataset_bytes / self._block_bytes / self._writers)))
        except OSError as error:
            raise CalibrationError(f"{self.work_dir.path} cannot be written: {error.strerror or error}") from error

    def _write(self, pool: ThreadPoolExecutor, blocks: int) -> float:
        stop, began = threading.Event(), self._now()
        try:
            shares = [pool.submit(self._share, number, blocks, began, stop) for number in range(self._writers)]
            for share in as_completed(shares):
                share.result()
        except BaseException:  # an interruption too: the pool waits for its threads before anything else happens
            stop.set()
            raise
        return self._now() - began

    def written_bytes(self, dataset_bytes: int) -> int:
        """What `write` really writes: whole blocks, the same for each writer."""
        return max(1, round(dataset_bytes / self._block_bytes / self._writers)) * self._block_bytes * self._writers

    def _share(self, number: int, blocks: int, began: float, stop: threading.Event) -> None:
        name = f"writer-{number}"
        descriptor = os.open(self.work_dir.path / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self.work_dir.add(name)
        try:
            for index in range(blocks):
                self._wait_until(began + (index + 1) * self._block_s, stop)
                if stop.is_set():
                    return
                view = memoryview(self._block)
                while view:
                    view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _wait_until(self, made_at: float, stop: threading.Event) -> None:
        """A block is written when the application would have made it."""
        early_s = made_at - self._now() if self._block_s else 0.0
        if early_s > 0:
            (self._sleep or stop.wait)(early_s)
