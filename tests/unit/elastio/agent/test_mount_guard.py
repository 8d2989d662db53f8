"""The guard is there exactly while a cache may hold what the backing device does not."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.agent.journal import NOBODY
from elastio.agent.mount_guard import GuardedJournal, MountGuard, guard_needed
from elastio.config.paths import GUARDS
from elastio.core.actions import CreateVolume, InstallCache, Outcome, OutcomeKind
from elastio.core.cycle import Timestamps
from elastio.core.model import VolumeSpec
from elastio.core.state import AgentState, Phase
from elastio.errors import JournalError, UnsyncedError
from elastio_sim.records import MemoryJournal
from tests.fixtures.synced import syncs
from tests.values import NOW, SERIAL, WALL, cycle, state

BOOSTED = cycle(times=Timestamps(boosted=NOW))
DETACHED = cycle(times=Timestamps(boosted=NOW, detached=NOW))
BUY = CreateVolume("token", VolumeSpec(1, 1.0), 1)
INSTALL = InstallCache(SERIAL, 1, None)


@pytest.mark.parametrize(
    ("of", "out"),
    [
        (state(Phase.IDLE), False),
        (state(Phase.ATTACHING, cycle(cache_set=None)), None),
        (state(Phase.DETACHING, cycle(cache_set=None)), False),
        (state(Phase.DETACHING, cycle(times=Timestamps(installing=NOW))), None),
        (state(Phase.BOOSTING, BOOSTED), True),
        (state(Phase.FLUSHING, BOOSTED), True),
        (state(Phase.DETACHING, BOOSTED), True),
        (state(Phase.FAULTED, BOOSTED), True),
        (state(Phase.DETACHING, DETACHED), False),
        (state(Phase.FAULTED), None),
        (replace(state(Phase.IDLE), recovered=False), None),
    ],
)
def test_a_cache_is_out_from_its_attachment_to_its_proven_end(of: AgentState, out: bool | None) -> None:
    assert guard_needed(of) is out


@pytest.fixture
def guard(tmp_path: Path) -> MountGuard:
    return MountGuard(tmp_path, "uuid")


def decide(journal: GuardedJournal, of: AgentState) -> None:
    journal.decision(Phase.IDLE, of, "because", now=NOW, wall=WALL)


def test_the_guard_and_its_end_are_durable(guard: MountGuard, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = syncs(monkeypatch)
    guard.put("cycle 1")
    guard.clear()
    folder = guard.path.parent
    assert seen == [guard.path.name, folder.name, folder.parent.name, folder.name]


def test_is_written_before_the_cache_is_attached_and_removed_when_it_is_off(guard: MountGuard, tmp_path: Path) -> None:
    lines: list[bytes] = []
    uncovered: list[int] = []
    journal = GuardedJournal(MemoryJournal(lines, "boot", NOBODY), guard, lambda: uncovered.append(len(lines)))
    attaching = state(Phase.ATTACHING, cycle())
    assert not guard.path.exists()
    journal.intend(BUY, attaching, now=NOW, wall=WALL)
    assert guard.path == tmp_path / "attached" / "uuid"
    decide(journal, attaching)
    assert guard.path.exists()
    journal.intend(INSTALL, attaching, now=NOW, wall=WALL)
    assert guard.path.exists()
    journal.outcome(Outcome(INSTALL, OutcomeKind.DONE), now=NOW, wall=WALL)
    decide(journal, state(Phase.BOOSTING, BOOSTED))
    journal.note(state(Phase.BOOSTING, BOOSTED), now=NOW, wall=WALL)
    decide(journal, state(Phase.FAULTED))
    assert guard.path.exists()
    assert uncovered == []
    decide(journal, state(Phase.DETACHING, DETACHED))
    decide(journal, state(Phase.IDLE))
    assert not guard.path.exists()
    assert uncovered == [len(lines) - 1]  # once, and after its record


def test_no_cache_is_attached_without_it(guard: MountGuard, tmp_path: Path) -> None:
    (tmp_path / "attached").write_text("in the way")
    lines: list[bytes] = []
    journal = GuardedJournal(MemoryJournal(lines, "boot", NOBODY), guard, lambda: None)
    with pytest.raises(JournalError):
        journal.intend(INSTALL, state(Phase.ATTACHING, cycle()), now=NOW, wall=WALL)
    assert lines == []


def test_no_record_says_that_a_cache_is_out_before_the_guard_is_there(guard: MountGuard, tmp_path: Path) -> None:
    (tmp_path / GUARDS).write_text("not a folder")
    lines: list[bytes] = []
    with pytest.raises(JournalError) as error:
        decide(
            GuardedJournal(MemoryJournal(lines, "boot", NOBODY), guard, lambda: None), state(Phase.BOOSTING, BOOSTED)
        )
    assert (lines, isinstance(error.value, UnsyncedError)) == ([], False)


def test_a_guard_that_cannot_be_removed_stays_after_the_record_that_it_is_not_needed(
    guard: MountGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: Path, *, missing_ok: bool) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    guard.put("cycle 1")
    monkeypatch.setattr(Path, "unlink", fails)
    lines: list[bytes] = []
    with pytest.raises(UnsyncedError):
        decide(GuardedJournal(MemoryJournal(lines, "boot", NOBODY), guard, lambda: None), state(Phase.IDLE))
    assert len(lines) == 1


def test_a_guard_whose_removal_could_not_be_synced_is_removed_once_more(
    guard: MountGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    guard.put("cycle 1")
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fails)
        with pytest.raises(UnsyncedError):
            guard.clear()
    assert [guard.clear(), guard.clear()] == [True, False]


def test_a_link_is_not_followed(guard: MountGuard, tmp_path: Path) -> None:
    guard.path.parent.mkdir()
    guard.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(JournalError):
        guard.put("volume")
    assert not (tmp_path / "elsewhere").exists()


def test_a_guard_whose_name_could_not_be_synced_is_not_taken_for_one(
    guard: MountGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, sync = [False], os.fsync

    def fails_once(descriptor: int) -> None:
        if not synced[0] and stat.S_ISDIR(os.fstat(descriptor).st_mode):
            synced[0] = True
            raise OSError(errno.EIO, "Input/output error")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fails_once)
    with pytest.raises(JournalError):
        guard.put("cycle")
    directories = list[int]()
    monkeypatch.setattr(os, "fsync", directories.append)
    guard.put("cycle")
    assert len(directories) == 3, "the file, its directory, and that of the guards"
    guard.put("cycle")
    assert len(directories) == 3
    again = MountGuard(guard.path.parents[1], guard.path.name)
    again.put("cycle")
    assert len(directories) == 6, "another process may have left it"
