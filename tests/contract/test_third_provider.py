"""A third provider, written by `docs/how-to/write-a-provider.md`, is found and used like the shipped ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from elastio_shelf import identity

from elastio import registry
from elastio.core.model import VolumeSpec
from elastio.errors import ConfigError
from elastio.units import GIB
from tests.fixtures.errors import refused

HOW_TO = Path(__file__).parents[2] / "docs/how-to/write-a-provider.md"
TOY = Path(__file__).parent / "toy"
SETTINGS = {"machine": "box-1"}


def test_doctor_runs_its_checks(tmp_path: Path) -> None:
    provider = registry.open_provider("shelf", {**SETTINGS, "folder": str(tmp_path)}, "uuid")
    for bandwidth_mb_s, passes in ((100.0, True), (1e6, False)):
        found = registry.run_checks("shelf", provider, VolumeSpec(2 * GIB, bandwidth_mb_s))
        assert [(name, ok) for name, ok, _ in found] == [("shelf", passes)]


def test_init_detects_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "MARKER", tmp_path / "shelf")
    assert not identity.detect()
    (tmp_path / "shelf").touch()
    assert identity.detect()


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({}, "provider.shelf.folder"),
        ({"folder": "", "machine": "m"}, "provider.shelf.folder"),
        ({"folder": "f", "machine": "m", "x": 1}, "provider.shelf.x"),
    ],
)
def test_wrong_setting_names_its_key(settings: dict[str, object], key: str) -> None:
    with refused(ConfigError, key):
        registry.open_provider("shelf", settings, "uuid")


def test_every_example_of_the_how_to_is_the_code_that_is_tested() -> None:
    """A block that begins with `# FILE` is a verbatim part of that file."""
    blocks = re.findall(r"```\w*\n# (\S+)\n(.*?)```", HOW_TO.read_text(), re.DOTALL)
    assert len(blocks) >= 4
    for name, text in blocks:
        known = (TOY / name).read_text()
        for part in text.split("    # ...\n"):
            assert part.strip("\n") in known, f"{name}: {part}"
