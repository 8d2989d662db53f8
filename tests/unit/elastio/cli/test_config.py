"""`elastio config check`: what was read, or the one sentence that says what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastio.config.text import render

from .conftest import Shell
from .machine import GIVEN, UUID, backing, lay

pytestmark = pytest.mark.usefixtures("toy")


def test_config_check_says_what_was_read(elastio: Shell, tmp_path: Path) -> None:
    backing(tmp_path / "root")
    elastio("init", *GIVEN)
    lay(tmp_path, **{"elastio.toml.d__a.toml": "[cache]\nmax_size_gib = 20\n"})
    result = elastio("config", "check")
    assert result.exit_code == 0
    assert f"{tmp_path}/elastio.toml is valid with 1 drop-in\n" in result.stdout
    assert "caches of 1 to 20 GiB at 128.5 MB/s from toy" in result.stdout


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[device]\nbandwith_mb_s = 1\n", "device.bandwith_mb_s is not a setting: did you mean bandwidth_mb_s?"),
        (render({"device.backing_uuid": UUID, "device.bandwidth_mb_s": 60, "cache.bandwidth_mb_s": 128,
                 "provider.name": "azure"}), "provider.name is 'azure' and no such provider is installed"),
    ],
)  # fmt: skip
def test_config_check_refuses_in_one_sentence(text: str, sentence: str, elastio: Shell, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(text)
    result = elastio("config", "check", str(other))
    assert result.exit_code == 3
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1
