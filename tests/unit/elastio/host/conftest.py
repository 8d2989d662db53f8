"""A machine in the test's folder, and the host adapter on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from elastio.host import throttle
from elastio.host.bcache import BcacheHost
from elastio.host.guard import Guard
from tests.fixtures.sysfs_tree import BACKING_UUID, SET_UUID, Tree, build


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return build(tmp_path)


@pytest.fixture
def watch(tree: Tree) -> Iterator[Guard]:
    found = Guard(partial(throttle.release, tree.kernel))
    yield found
    found.dismiss()


@pytest.fixture
def host(tree: Tree) -> Iterator[BcacheHost]:
    """What it waits for is there at once, or never."""

    def wait(condition: Callable[[], bool], seconds: float) -> bool:
        return condition()

    found = BcacheHost(BACKING_UUID, tree.kernel, tree.programs, wait, lambda: UUID(SET_UUID))
    yield found
    found.guard.dismiss()
