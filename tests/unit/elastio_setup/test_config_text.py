"""The file that `init` writes: complete or not at all, and never over another one without --force."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from elastio.config.text import toml, write
from elastio.errors import ConfigError
from tests.fixtures.errors import refused
from tests.fixtures.synced import syncs


def test_replaces_a_file_only_if_asked_to(tmp_path: Path) -> None:
    path = tmp_path / "made" / "elastio.toml"
    write(path, "first", replace=False)
    with refused(ConfigError, "file.exists"):
        write(path, "second", replace=False)
    assert path.read_text() == "first"
    write(path, "third", replace=True)
    assert path.read_text() == "third"
    assert [p.name for p in path.parent.iterdir()] == ["elastio.toml"]


def test_a_file_is_synced_before_it_takes_the_name_and_everybody_may_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, mask = tmp_path / "elastio.toml", os.umask(0o077)
    try:
        seen = syncs(monkeypatch)
        write(path, "text", replace=False)
    finally:
        os.umask(mask)
    assert seen == ["elastio.toml.new", "elastio.toml.new -> elastio.toml"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.mark.parametrize(("value", "text"), [('a"b\\c', '"a\\"b\\\\c"'), (60.0, "60"), (0.3, "0.3"), (7, "7")])
def test_writes_values_as_toml(value: object, text: str) -> None:
    assert toml(value) == text
