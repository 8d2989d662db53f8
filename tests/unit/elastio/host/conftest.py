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
from elastio.host.sharer import Sharer
from tests.fixtures.shared_device import DB, SharedDevice
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


@pytest.fixture
def device(tree: Tree) -> SharedDevice:
    """DB (weight 200) reads 30 MB/s, and ETL (100) writes 28."""
    tree.kernel.path("run/elastio").mkdir(parents=True)
    made = SharedDevice(tree)
    made.loads[DB] = (30.0, 0.0)
    return made


@pytest.fixture
def sharer(tree: Tree, device: SharedDevice, watch: Guard) -> Sharer:
    return Sharer(tree.kernel, watch, device.now, device.sleep)
