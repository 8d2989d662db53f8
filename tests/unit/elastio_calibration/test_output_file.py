"""Output files: written whole, through symbolic links, and never over a file that must be kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elastio_calibration.errors import CalibrationError
from elastio_calibration.output_file import require_replaceable, write_atomic
from tests.fixtures.errors import refused
from tests.fixtures.synced import syncs


def test_replaces_a_file_and_leaves_no_temporary_one(tmp_path: Path) -> None:
    for text in ("first", "second"):
        write_atomic(tmp_path / "p.json", text)
        assert (tmp_path / "p.json").read_text() == text
    assert [p.name for p in tmp_path.iterdir()] == ["p.json"]


def test_a_directory_that_is_missing_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError):
        write_atomic(tmp_path / "deep" / "p.json", "text")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_synced_before_it_takes_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = syncs(monkeypatch)
    write_atomic(tmp_path / "p.json", "text")
    assert seen == ["p.json.new", "p.json.new -> p.json"]


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_atomic(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "text"


@pytest.mark.parametrize("kind", ["pipe", "folder", "link to a pipe"])
def test_what_is_not_a_regular_file_is_not_replaced(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "p"
    if kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(tmp_path / "pipe")
        path = tmp_path / "pipe" if kind == "pipe" else path
        if kind != "pipe":
            path.symlink_to(tmp_path / "pipe")
    before = path.stat()
    with refused(CalibrationError, "not_regular"):
        write_atomic(path, "text")
    assert path.stat() == before


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CalibrationError):
        write_atomic(tmp_path / "file" / "p.json", "text")


@pytest.mark.parametrize("name", ["r", "../deep/r", "link"])
def test_what_must_be_kept_is_not_replaced_under_any_name(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    (folder / "r").write_text("record")
    (folder / "link").symlink_to("r")
    with refused(CalibrationError, "kept"):
        require_replaceable(folder / name, kept=folder / "r")
    require_replaceable(folder / "p", kept=folder / "r")
