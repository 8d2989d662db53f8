"""Write a dataset as dd does: 1 MiB at a time with an fsync at the end, by one or several writers at once.

A pace imitates an application that produces its data slowly. It matters even above the bandwidth of the volume: the
kernel keeps the first data in memory, the longer the more slowly it arrives.
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
    """Writes below `directory`.

    `pace_mb_s`: the limit for all writers together; 0: no limit. `sleep` None: a wait that an interruption ends.
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
        # The same random block each time: it does not compress, and takes no time to produce.
        self._block = os.urandom(block_bytes)

    def write(self, dataset_bytes: int) -> float:
        """Seconds from the first write to the return of the last fsync. Raises CalibrationError.

        After an interruption, or where one writer fails, the others stop after their present block.
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
        except BaseException:  # also an interruption: the pool waits for its threads
            stop.set()
            raise
        return self._now() - began

    def written_bytes(self, dataset_bytes: int) -> int:
        """Bytes that `write` writes: whole blocks, equally many for each writer."""
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

    def _wait_until(self, produced_at: float, stop: threading.Event) -> None:
        """Wait until the application would have produced the block."""
        early_s = produced_at - self._now() if self._block_s else 0.0
        if early_s > 0:
            (self._sleep or stop.wait)(early_s)
