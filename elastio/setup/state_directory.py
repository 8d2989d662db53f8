"""Whether the state directory is still needed: the question before the agent is removed from a machine.

The agent need not run, and no configuration is read. The last record of the journal says whether a cycle is open: a
volume that may still be billed and may hold data that is nowhere else. The mount guard's files say which devices may
need their cache. Both are kept until the agent has seen the volume deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elastio.agent.journal import open_cycle, read
from elastio.config.paths import GUARDS, JOURNAL
from elastio.errors import JournalError


@dataclass(frozen=True, slots=True)
class Needed:
    """Why the state directory must be kept. `volume`: the cache volume's id, or empty if it is not known."""

    volume: str = ""
    guarded: tuple[str, ...] = ()  # UUIDs of backing devices whose cache may hold what the device does not

    def __str__(self) -> str:
        """The end of a sentence, for operators."""
        volume = f"cache volume {self.volume}" if self.volume else "a cache volume"
        devices = f" of backing device {', '.join(self.guarded)}" if self.guarded else ""
        return f"{volume}{devices} is not released: it may be billed, and may hold data that is nowhere else"


def why_needed(state_dir: Path) -> Needed | None:
    """Why `state_dir` must be kept; None: it may be removed. Raises JournalError if it cannot be read."""
    cycle = open_cycle(read(state_dir / JOURNAL))
    guarded = _guarded(state_dir / GUARDS)
    if cycle is None and not guarded:
        return None
    volume = cycle.get("volume_id") if isinstance(cycle, Mapping) else None
    return Needed(str(volume or ""), guarded)


def _guarded(folder: Path) -> tuple[str, ...]:
    try:
        return tuple(sorted(path.name for path in folder.iterdir()))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise JournalError(f"cannot read {folder}: {error.strerror}", code="guards.unreadable") from error
