"""`elastio config check`: prints what was read, or what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastio.config.text import render
from elastio.control.exit_codes import Exit

from .conftest import Golden, Shell
from .machine import GIVEN, UUID, backing, lay

pytestmark = pytest.mark.usefixtures("toy")


def test_config_check_prints_what_was_read(elastio: Shell, tmp_path: Path, golden: Golden) -> None:
    backing(tmp_path / "root")
    elastio("init", *GIVEN)
    lay(tmp_path, **{"elastio.toml.d__a.toml": "[cache]\nmax_size_gib = 20\n"})
    result = elastio("config", "check")
    assert result.exit_code == Exit.OK
    golden("config_check.txt", result.stdout)


@pytest.mark.parametrize(
    "text",
    [
        "[device]\nbandwith_mb_s = 1\n",
        render({"device.backing_uuid": UUID, "device.bandwidth_mb_s": 60, "cache.bandwidth_mb_s": 128,
                "provider.name": "azure"}),
    ],
)  # fmt: skip
def test_config_check_refuses_in_one_sentence(text: str, elastio: Shell, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(text)
    result = elastio("config", "check", str(other))
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (Exit.CONFIG, "", 1)
