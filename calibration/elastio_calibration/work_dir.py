"""The folder in the user's directory that holds what a calibration writes, and goes with it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elastio.units import GB
from elastio_calibration.errors import CalibrationError
from elastio_calibration.run_lock import run_lock

FOLDER = "elastio-calibration"
# The files of a writer, and those of fio. Left behind by a calibration that was killed, they are nobody's.
OURS = re.compile(r"writer-\d+|dataset\.\d+\.0")
SPARE = 1.05


class WorkDir:
    """`<directory>/elastio-calibration`. Only what was `added` is ever removed, and what a killed run left."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FOLDER
        self._made: list[Path] = []

    @contextmanager
    def locked(self) -> Iterator[None]:
        """The directory is this calibration's alone. Raises CalibrationError where another one has it."""
        with run_lock(self.path.parent):
            self._made = [path for path in self._found() if OURS.fullmatch(path.name)]
            self.clean()
            yield

    def check(self, dataset_bytes: int) -> None:
        """Raises CalibrationError where the filesystem has no room for it, or the folder holds what is not ours."""
        found = self._found()
        if not all(OURS.fullmatch(path.name) for path in found):
            text = f"{self.path} is not empty: remove it if it is left over from a calibration"
            raise CalibrationError(text, code="not_empty")
        free = shutil.disk_usage(self.path.parent).free + sum(path.lstat().st_blocks * 512 for path in found)
        if free < dataset_bytes * SPARE:
            text = f"{self.path.parent} has {free / GB:.2f} GB free, {dataset_bytes / GB:.2f} GB does not fit"
            raise CalibrationError(text, code="space")

    def make(self) -> None:
        """Raises OSError where the directory takes no folder."""
        self.path.mkdir(exist_ok=True)

    def add(self, name: str) -> None:
        """This file is made by this calibration."""
        self._made.append(self.path / name)

    def clean(self) -> None:
        """Remove what was added; nothing there is fine. Raises CalibrationError where it cannot be removed."""
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
