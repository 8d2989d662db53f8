"""The working directory: one calibration at a time, and files of others are kept."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from elastio_calibration.errors import CalibrationError
from elastio_calibration.run_lock import run_lock
from elastio_calibration.work_dir import WorkDir
from elastio_calibration.writer import Writer
from tests.fixtures.errors import refused


def left_behind(folder: Path, *names: str) -> Path:
    """The files of a killed calibration."""
    path = folder / "elastio-calibration"
    path.mkdir()
    for name in names:
        (path / name).write_bytes(b"x" * 8192)
    return path


def test_keeps_files_of_others(tmp_path: Path) -> None:
    path = left_behind(tmp_path, "writer-0", "writer-0.txt")
    with refused(CalibrationError, "not_empty"):
        WorkDir(tmp_path).check(1)
    with WorkDir(tmp_path).locked():
        assert [p.name for p in path.iterdir()] == ["writer-0.txt"]


def test_removes_the_files_of_a_killed_calibration(tmp_path: Path) -> None:
    path = left_behind(tmp_path, "writer-0", "writer-11", "dataset.0.0")
    folder = WorkDir(tmp_path)
    folder.check(1)
    with folder.locked():
        assert not path.exists()


def test_counts_the_space_of_such_files_as_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with refused(CalibrationError, "space"):
        WorkDir(tmp_path).check(5000)
    left_behind(tmp_path, "writer-0")
    WorkDir(tmp_path).check(5000)


def test_removes_only_what_it_made(tmp_path: Path) -> None:
    first, second = Writer(tmp_path, 1, block_bytes=4096), Writer(tmp_path, 1, block_bytes=4096)
    first.write(4096)
    with pytest.raises(CalibrationError):
        second.write(4096)
    second.work_dir.clean()
    assert [p.name for p in first.work_dir.path.iterdir()] == ["writer-0"]
    first.work_dir.clean()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError), run_lock(tmp_path / "missing"):
        pass
