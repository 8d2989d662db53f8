"""One agent per device."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elastio.errors import HostError, LockedError
from elastio.host.locks import AGENT_RUNS, lock_device, require_no_agent
from tests.fixtures.errors import refused
from tests.fixtures.other_agent import other_agent


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


def test_an_agent_that_runs_is_told_from_a_child_of_one_that_was_killed(tmp_path: Path) -> None:
    with other_agent(tmp_path, "uuid") as agent:
        with refused(LockedError, AGENT_RUNS):
            lock_device(tmp_path, "uuid")
        with refused(LockedError, AGENT_RUNS):
            require_no_agent(tmp_path, "uuid")
        require_no_agent(tmp_path, "other")
        agent.kill()
        with refused(LockedError, "agent.child"):
            lock_device(tmp_path, "uuid")
        require_no_agent(tmp_path, "uuid")


def test_who_only_asks_keeps_no_agent_from_starting_and_makes_no_file(tmp_path: Path) -> None:
    require_no_agent(tmp_path, "uuid")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "uuid.lock").write_text("")
    require_no_agent(tmp_path, "uuid")
    os.close(lock_device(tmp_path, "uuid"))


def test_what_cannot_be_looked_at_is_no_agent(tmp_path: Path) -> None:
    (tmp_path / "uuid.lock").symlink_to(tmp_path / "elsewhere")
    require_no_agent(tmp_path, "uuid")
    require_no_agent(tmp_path / "uuid.lock", "uuid")
