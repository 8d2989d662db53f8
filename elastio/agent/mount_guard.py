"""A file that says, before anything is mounted, that a cache may hold what the backing device does not.

The kernel starts a backing device whose superblock names no cache. If the journal knows better (the disk was restored
from an older copy, for example) nobody but this file says so early enough: a udev rule keeps the device from systemd
while it is there, until the agent has looked. It is written before a volume is bought, so that no application waits for
it when the cache is attached, and removed once the kernel has shown that the cache is off.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from elastio.agent.journal import make_names_durable
from elastio.config.paths import GUARDS
from elastio.core.actions import Action, CreateVolume, InstallCache, Outcome
from elastio.core.state import AgentState, Phase
from elastio.errors import JournalError
from elastio.ports import Journal


def is_out(state: AgentState) -> bool | None:
    """Whether a cache of this agent may be needed by the backing device; None: not known, leave the file as it is."""
    cycle = state.cycle
    if not state.recovered or (state.phase is Phase.FAULTED and cycle is None):
        return None
    if cycle is None:
        return False
    if cycle.times.boosted is not None:
        return cycle.times.detached is None
    return None if state.phase is Phase.ATTACHING or cycle.may_have_served else False


class MountGuard:
    """The file of one backing device. Raises JournalError where it cannot be written or removed durably."""

    def __init__(self, state_dir: Path, backing_uuid: str) -> None:
        self.path = state_dir / GUARDS / backing_uuid

    def put(self, text: str) -> None:
        """There is no need to write it twice: only its name counts, the text is for people."""
        if self.path.is_file() and not self.path.is_symlink():
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
            make_names_durable(self.path.parent)
        except OSError as error:
            raise JournalError(f"cannot write {self.path}: {error.strerror}") from error

    def clear(self) -> bool:
        """Whether there was one."""
        if not self.path.exists():
            return False
        try:
            self.path.unlink()
            make_names_durable(self.path.parent)
        except OSError as error:
            raise JournalError(f"cannot remove {self.path}: {error.strerror}") from error
        return True


class GuardedJournal:
    """A `ports.Journal` that keeps the guard in step with what it writes down.

    `uncover` is called when the guard was removed: a device that was kept back may be used from then on.
    """

    def __init__(self, journal: Journal, guard: MountGuard, uncover: Callable[[], None]) -> None:
        self._journal, self._guard, self._uncover = journal, guard, uncover

    def intend(self, action: Action, state: AgentState, *, now: float, wall: float) -> None:
        """See `journal.Journal`. The guard first: no cache is attached without it."""
        if isinstance(action, CreateVolume | InstallCache):
            self._guard.put(f"cycle {state.cycle.token if state.cycle else 'unknown'}")
        self._journal.intend(action, state, now=now, wall=wall)

    def outcome(self, outcome: Outcome, *, now: float, wall: float) -> None:
        """See `journal.Journal`."""
        self._journal.outcome(outcome, now=now, wall=wall)

    def note(self, state: AgentState, *, now: float, wall: float) -> None:
        """See `journal.Journal`."""
        self._journal.note(state, now=now, wall=wall)

    def decision(self, before: Phase, state: AgentState, reason: str, *, now: float, wall: float) -> None:
        """See `journal.Journal`. The record first: a guard without a reason costs time, the reverse data."""
        self._journal.decision(before, state, reason, now=now, wall=wall)
        out = is_out(state)
        if out:
            self._guard.put(f"volume {state.cycle.volume_id if state.cycle else 'unknown'}")
        elif out is False and self._guard.clear():
            self._uncover()
