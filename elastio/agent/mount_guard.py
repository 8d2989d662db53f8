"""The mount guard: a file that keeps a device from being mounted while a cache may hold data that the device lacks.

The kernel starts a backing device whose superblock names no cache. If the journal shows that it had one (the disk may
have been restored from an older copy), only this file says so early enough at a boot: while it exists, a udev rule
hides the device from systemd, until the agent has scanned the kernel. The file is written before a volume is bought, so
that no application waits for it when the cache is attached. It is removed once the kernel shows the cache detached.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from elastio.config.paths import GUARDS
from elastio.core.actions import Action, CreateVolume, InstallCache, Outcome
from elastio.core.state import NO_COURSE, AgentState, Course, Phase
from elastio.errors import JournalError, UnsyncedError
from elastio.ports import Journal
from elastio.whole_file import sync_directory


def guard_needed(state: AgentState) -> bool | None:
    """True: the backing device may need a cache of this agent. False: it does not. None: unknown, keep the file."""
    cycle = state.cycle
    if not state.recovered or (state.phase is Phase.FAULTED and cycle is None):
        return None
    if cycle is None:
        return False
    if cycle.times.boosted is not None:
        return cycle.times.detached is None
    return None if state.phase is Phase.ATTACHING or cycle.may_have_served else False


class MountGuard:
    """The file of one backing device. Methods raise JournalError if it cannot be written or removed durably.

    It is removed after the record of why it is not needed any more: then the error is UnsyncedError.
    """

    def __init__(self, common_dir: Path, backing_uuid: str) -> None:
        self.path = common_dir / GUARDS / backing_uuid
        self._is_durable = False  # a file that is there may be one whose name could not be synced
        self._is_leaving = False  # it was removed, and that could not be synced

    def put(self, text: str) -> None:
        """Create the file, durably, unless this was done before. Only its name counts; `text` is for people."""
        if self._is_durable and self.path.is_file() and not self.path.is_symlink():
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self.path, flags, 0o640)
            try:
                os.write(descriptor, f"{text}\n".encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            sync_directory(self.path.parent)
            sync_directory(self.path.parent.parent)
            self._is_durable = True
        except OSError as error:
            raise JournalError(f"cannot write {self.path}: {error.strerror}") from error

    def clear(self) -> bool:
        """Remove the file; returns True if it existed, also where an earlier try had removed it and failed then."""
        self._is_durable = False
        if not (self.path.exists() or self._is_leaving):
            return False
        self._is_leaving = True
        try:
            self.path.unlink(missing_ok=True)
            sync_directory(self.path.parent)
        except OSError as error:
            raise UnsyncedError(f"cannot remove {self.path}: {error.strerror}") from error
        self._is_leaving = False
        return True


class GuardedJournal:
    """A `ports.Journal` that writes and removes the mount guard together with its records.

    `on_removed` is called when the guard was removed: from then on a device that was hidden may be used.
    """

    def __init__(self, journal: Journal, guard: MountGuard, on_removed: Callable[[], None]) -> None:
        self._journal, self._guard, self._on_removed = journal, guard, on_removed

    def intend(self, action: Action, state: AgentState, *, now: float, wall: float) -> None:
        """See `journal.Journal`. The guard is written first: no cache is attached without it."""
        if isinstance(action, CreateVolume | InstallCache):
            self._guard.put(f"cycle {state.cycle.token if state.cycle else 'unknown'}")
        self._journal.intend(action, state, now=now, wall=wall)

    def outcome(self, outcome: Outcome, *, now: float, wall: float) -> None:
        """See `journal.Journal`."""
        self._journal.outcome(outcome, now=now, wall=wall)

    def note(self, state: AgentState, *, now: float, wall: float) -> None:
        """See `journal.Journal`."""
        self._journal.note(state, now=now, wall=wall)

    def decision(
        self, before: Phase, state: AgentState, reason: str, *, now: float, wall: float, course: Course = NO_COURSE
    ) -> None:
        """See `journal.Journal`. The guard comes first and goes last: a needless one costs time, a missing one data."""
        is_needed = guard_needed(state)
        if is_needed:
            self._guard.put(f"volume {state.cycle.volume_id if state.cycle else 'unknown'}")
        self._journal.decision(before, state, reason, now=now, wall=wall, course=course)
        if is_needed is False and self._guard.clear():
            self._on_removed()
