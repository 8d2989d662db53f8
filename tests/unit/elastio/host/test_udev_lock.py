"""udev does not work on a device while a cache is attached to it."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest

from elastio.errors import DeviceBusyError, HostError
from elastio.host.bcache import BcacheHost
from elastio.host.locks import LOCK_S, locked
from tests.fixtures.errors import refused
from tests.fixtures.sysfs_tree import CACHE_BYTES, SERIAL, Tree


def at_once(condition: Callable[[], bool], seconds: float) -> bool:
    assert seconds == LOCK_S
    return condition()


def is_free(node: Path) -> bool:
    with node.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@pytest.fixture
def node(tmp_path: Path) -> Path:
    made = tmp_path / "bcache0"
    made.touch()
    return made


def test_the_lock_is_held_inside_and_not_after(node: Path) -> None:
    with locked(node, at_once):
        assert not is_free(node)
    assert is_free(node)


def test_the_lock_is_released_when_what_it_guards_fails(node: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(node, at_once):
        raise ZeroDivisionError
    assert is_free(node)


def test_a_lock_of_another_program_is_waited_for(node: Path) -> None:
    with node.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        with refused(DeviceBusyError, "node.locked"), locked(node, at_once):
            raise AssertionError("it was entered")


def test_a_node_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HostError), locked(tmp_path / "gone", at_once):
        raise AssertionError("it was entered")


def test_nothing_is_attached_while_another_program_has_the_device_locked(tree: Tree, host: BcacheHost) -> None:
    host.tune_backing()
    tree.cache_disk()
    node = tree.kernel.root / "dev/bcache0"
    with node.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with refused(DeviceBusyError, "node.locked"):
            host.install_cache(SERIAL, CACHE_BYTES, flush_mb_s=0.0)
    assert "attach" not in [name.rsplit("/", 1)[-1] for name, _ in tree.kernel.writes]
    host.install_cache(SERIAL, CACHE_BYTES, flush_mb_s=0.0)
    assert "attach" in [name.rsplit("/", 1)[-1] for name, _ in tree.kernel.writes]
