"""A machine in the test's folder, and the host adapter on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from elastio.host.bcache import BcacheHost
from tests.fixtures.sysfs_tree import BACKING_UUID, SET_UUID, Tree, build


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return build(tmp_path)


@pytest.fixture
def host(tree: Tree) -> BcacheHost:
    """What it waits for is there at once, or never."""

    def wait(condition: Callable[[], bool], seconds: float) -> bool:
        return condition()

    return BcacheHost(BACKING_UUID, tree.kernel, tree.programs, wait, lambda: UUID(SET_UUID))
