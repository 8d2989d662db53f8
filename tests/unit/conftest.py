"""Directories of unit tests are in memory: thousands of small files, and databases, wait for the disk else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes says nothing on a busy machine.
settings.register_profile("unit", deadline=None)
settings.load_profile("unit")
# They come first, so that no processor waits for one of them at the end.
LONGEST = ("tests/unit/pages/", "tests/unit/elastio_testbed/optimum/")


@pytest.fixture
def tmp_path(in_memory: Path) -> Path:
    return in_memory


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))
