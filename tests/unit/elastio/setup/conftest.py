"""Disks are files here, which are read directly, and written whole."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(in_memory: Path) -> Path:
    return in_memory
