"""Waiting for a change in a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastio.errors import HostError
from elastio.host.inotify import DirectoryWatch
from tests.fixtures.errors import refused


@pytest.mark.parametrize("change", ["append", "create", "rename"])
def test_a_change_since_the_watch_began_is_seen(change: str, tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("one\n")
    (tmp_path / "fresh").write_text("one\n")
    with DirectoryWatch(tmp_path) as watch:
        if change == "append":
            with (tmp_path / "journal").open("a") as journal:
                journal.write("two\n")
        elif change == "create":
            (tmp_path / "new").touch()
        else:
            (tmp_path / "fresh").replace(tmp_path / "journal")
        watch.wait()


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with refused(HostError, "watch.directory"):
        DirectoryWatch(tmp_path / "nowhere")
