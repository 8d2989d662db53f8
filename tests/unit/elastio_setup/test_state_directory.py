"""What must not be removed with the agent: an open cycle, and a device that may need its cache."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from elastio.agent.journal import Journal
from elastio.agent.mount_guard import MountGuard
from elastio.config.paths import JOURNAL
from elastio.core.model import VolumeId
from elastio.core.state import AgentState, Phase
from elastio.errors import JournalError
from elastio_cli.state import Needed, given_up, why_needed
from tests.values import cycle

OPEN = AgentState(phase=Phase.BOOSTING, cycle=cycle())


def record(folder: Path, *states: AgentState) -> None:
    journal = Journal(folder / JOURNAL, "boot")
    journal.open()
    for state in states:
        journal.decision(Phase.IDLE, state, "because", now=1.0, wall=1.0)
    journal.close()


def test_a_directory_that_is_not_there_is_not_needed(tmp_path: Path) -> None:
    assert why_needed(tmp_path / "none") is None


def test_an_open_cycle_needs_the_journal_and_its_volume_is_named(tmp_path: Path) -> None:
    record(tmp_path, OPEN)
    assert why_needed(tmp_path) == Needed(volume=str(cycle().volume_id))


def test_an_unconfirmed_purchase_is_an_open_cycle(tmp_path: Path) -> None:
    record(tmp_path, replace(OPEN, cycle=cycle(volume_id=None, create_unconfirmed_at=1.0)))
    assert why_needed(tmp_path) == Needed()


def test_after_the_last_cycle_was_closed_nothing_is_needed(tmp_path: Path) -> None:
    record(tmp_path, OPEN, replace(OPEN, phase=Phase.IDLE, cycle=None))
    assert why_needed(tmp_path) is None


def test_a_device_that_may_need_its_cache_is_named_without_a_cycle(tmp_path: Path) -> None:
    record(tmp_path, replace(OPEN, phase=Phase.FAULTED, cycle=None))
    MountGuard(tmp_path, "uuid-1").put("volume vol-1")
    assert why_needed(tmp_path) == Needed(guarded=("uuid-1",), is_faulted=True)


def test_a_faulted_agent_without_a_cycle_may_have_found_a_volume_of_its_own(tmp_path: Path) -> None:
    faulted = replace(OPEN, phase=Phase.FAULTED, cycle=None)
    record(tmp_path, OPEN, faulted)
    assert why_needed(tmp_path) == Needed(is_faulted=True)
    record(tmp_path, replace(faulted, phase=Phase.IDLE))
    assert why_needed(tmp_path) is None


def test_volumes_that_were_given_up_are_named_and_keep_nobody(tmp_path: Path) -> None:
    assert given_up(tmp_path / "none") == ()
    record(tmp_path, replace(OPEN, phase=Phase.IDLE, cycle=None, given_up=(VolumeId("vol-1"), VolumeId("vol-2"))))
    assert (why_needed(tmp_path), given_up(tmp_path)) == (None, ("vol-1", "vol-2"))


def test_a_cycle_that_no_release_wrote_counts_as_open(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_text('{"phase":"idle","cycle":"from the future"}\n')
    assert why_needed(tmp_path) == Needed()


def test_an_incomplete_last_line_says_nothing(tmp_path: Path) -> None:
    record(tmp_path, OPEN)
    with (tmp_path / JOURNAL).open("a") as file:
        file.write('{"phase":"idle","cycle":null')
    assert why_needed(tmp_path) is not None


def test_what_cannot_be_read_is_not_taken_for_empty(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).mkdir()
    with pytest.raises(JournalError):
        why_needed(tmp_path)
