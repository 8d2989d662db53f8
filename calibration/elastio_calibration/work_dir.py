"""The working directory of a calibration, below the directory that the user names."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elastio.units import GB
from elastio_calibration.errors import CalibrationError
from elastio_calibration.run_lock import run_lock

NAME = "elastio-calibration"
# The files of a writer, and those of fio. A killed calibration leaves them; they may be removed.
OURS = re.compile(r"writer-\d+|dataset\.\d+\.0")
SPARE = 1.05


class WorkDir:
    """`<directory>/elastio-calibration`. Removes only files passed to `add`, and those of a killed run."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME
        self._made: list[Path] = []

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run lock of the directory. Raises CalibrationError where another calibration has it."""
        with run_lock(self.path.parent):
            self._made = [path for path in self._found() if OURS.fullmatch(path.name)]
            self.clean()
            yield

    def check(self, dataset_bytes: int) -> None:
        """Raises CalibrationError where the dataset does not fit, or the directory has files of others."""
        found = self._found()
        if not all(OURS.fullmatch(path.name) for path in found):
            text = f"{self.path} is not empty: remove it if a calibration left it"
            raise CalibrationError(text, code="not_empty")
        free = shutil.disk_usage(self.path.parent).free + sum(path.lstat().st_blocks * 512 for path in found)
        if free < dataset_bytes * SPARE:
            text = f"{self.path.parent} has {free / GB:.2f} GB free, {dataset_bytes / GB:.2f} GB does not fit"
            raise CalibrationError(text, code="space")

    def make(self) -> None:
        """Create it. Raises CalibrationError."""
        try:
            self.path.mkdir(exist_ok=True)
        except OSError as error:
            raise CalibrationError(f"{self.path} cannot be created: {error.strerror or error}") from error

    def add(self, name: str) -> None:
        """Have `clean` remove this file."""
        self._made.append(self.path / name)

    def clean(self) -> None:
        """Remove the added files and the directory, where they exist. Raises CalibrationError."""
        try:
            for path in self._made:
                path.unlink(missing_ok=True)
            self._made.clear()
            if self.path.exists() and not self._found():
                self.path.rmdir()
        except OSError as error:
            raise CalibrationError(f"{self.path} cannot be removed: {error}") from error

    def _found(self) -> list[Path]:
        return list(self.path.iterdir()) if self.path.exists() else []
