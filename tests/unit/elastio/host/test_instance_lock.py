"""One agent per device."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elastio.errors import HostError, LockedError
from elastio.host.locks import lock_device


def test_a_second_agent_is_refused_until_the_first_has_gone(tmp_path: Path) -> None:
    first = lock_device(tmp_path / "run", "uuid")
    with pytest.raises(LockedError):
        lock_device(tmp_path / "run", "uuid")
    os.close(first)
    os.close(lock_device(tmp_path / "run", "uuid"))


def test_another_device_has_its_own_lock(tmp_path: Path) -> None:
    first, second = lock_device(tmp_path, "one"), lock_device(tmp_path, "two")
    os.close(first)
    os.close(second)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one.lock", "two.lock"]


def test_a_refusal_leaves_no_descriptor_open(tmp_path: Path) -> None:
    first = lock_device(tmp_path, "uuid")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  a Path iterator holds a descriptor itself
    with pytest.raises(LockedError):
        lock_device(tmp_path, "uuid")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    os.close(first)


def test_a_place_where_no_lock_can_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError):
        lock_device(tmp_path / "file", "uuid")
