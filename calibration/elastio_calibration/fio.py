"""I/O patterns other than sequential writes, run by fio: `read`, `mixed` and `random`, on files laid out before.

fio is a Debian package; the pattern `write` does not need it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elastio.errors import HostError
from elastio.host.commands import Run, run
from elastio.units import GB, MIB
from elastio_calibration.errors import CalibrationError
from elastio_calibration.schedule import WRITE
from elastio_calibration.work_dir import WorkDir

# The limit for one run, however slow the device.
TIMEOUT_S = 4 * 3600.0
# The least share of the dataset that must be moved: each process moves whole blocks.
LEAST_MOVED = 0.98


@dataclass(frozen=True, slots=True)
class Kind:
    """fio's `rw` and its block size."""

    rw: str
    block_bytes: int


KINDS: Mapping[str, Kind] = {
    "read": Kind("read", MIB),
    "mixed": Kind("readwrite", MIB),
    "random": Kind("randrw", MIB // 64),
}
PATTERNS = (WRITE, *KINDS)


class Fio:
    """Runs in the working directory below `directory`; `work_dir.clean` removes the files."""

    def __init__(self, directory: Path, jobs: int, run: Run = run) -> None:
        self.work_dir, self._jobs, self._run = WorkDir(directory), jobs, run

    def lay_out(self, dataset_bytes: int) -> None:
        """Write the files that `run` needs. Raises CalibrationError."""
        self.work_dir.make()
        for number in range(self._jobs):
            self.work_dir.add(f"dataset.{number}.0")
        self._fio(Kind("write", MIB), dataset_bytes)

    def run(self, pattern: str, dataset_bytes: int) -> float:
        """Seconds to move `dataset_bytes`, reads and writes together, including the fsync. Raises CalibrationError."""
        return self._fio(KINDS[pattern], dataset_bytes)

    def _fio(self, kind: Kind, dataset_bytes: int) -> float:
        share = max(1, round(dataset_bytes / MIB / self._jobs)) * MIB
        argv = [
            *("fio", "--name=dataset", f"--directory={self.work_dir.path}"),
            *(f"--size={share}", f"--numjobs={self._jobs}"),
            # Threads: forked processes would survive when an interrupted calibration kills fio.
            *(f"--rw={kind.rw}", f"--bs={kind.block_bytes}", "--ioengine=psync", "--thread"),
            *("--end_fsync=1", "--fallocate=none", "--randrepeat=0", "--output-format=json"),
        ]
        try:
            text = self._run(argv, timeout_s=TIMEOUT_S)
        except HostError as error:
            raise CalibrationError(f"{kind.rw} could not be measured: {error}") from error
        return seconds_of(text, share * self._jobs)


def seconds_of(text: str, expected_bytes: int) -> float:
    """Seconds of the run by fio's JSON. Raises CalibrationError where the run failed or moved too little."""
    jobs = _jobs(text)
    try:
        moved = sum(int(job[way]["io_bytes"]) for job in jobs for way in ("read", "write"))
        seconds = max(float(job["job_runtime"]) for job in jobs) / 1000
        failed = [job["error"] for job in jobs if job["error"]]
    except (KeyError, TypeError, ValueError) as error:
        raise CalibrationError(f"the output of fio cannot be read: {error}") from error
    if failed:
        raise CalibrationError(f"fio reports error {failed[0]}")
    if moved < LEAST_MOVED * expected_bytes or seconds <= 0:
        raise CalibrationError(
            f"fio moved {moved / GB:.3g} of {expected_bytes / GB:.3g} GB in {seconds:g} s: this is not a measurement"
        )
    # Whole blocks were moved; return the time for exactly this dataset.
    return seconds * expected_bytes / moved


def _jobs(text: str) -> list[dict[str, Any]]:
    """fio may print warnings before its JSON."""
    try:
        jobs: list[dict[str, Any]] = json.loads(text[text.index("{") :])["jobs"]
    except (ValueError, KeyError, TypeError) as error:
        raise CalibrationError(f"the output of fio is not JSON with jobs: {error}") from error
    return jobs
