"""What `elastio watch` has seen so far: the last status, and a point for each time that it asked. Pure.

`at_s` is the clock of the one who watches, `wall` that of the agent; only differences of the same clock are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from elastio.control.status import Status

# More than any terminal has columns.
MOST_POINTS = 600
# The time left of a flush is estimated from its speed over this time.
SPEED_S = 60.0
SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Point:
    """One question. `phase` SILENT: the agent did not answer, and nothing else is known."""

    at_s: float
    phase: str
    total_mb_s: float | None = None
    dirty_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Watched:
    """`status` is the last that the agent sent, at `seen_s`; `error` why there is none since, empty: there is one.

    The phase began at `phase_since` (wall clock); not `is_exact`: at that time or before.
    """

    status: Status
    points: tuple[Point, ...]
    seen_s: float
    phase_since: float
    is_exact: bool
    error: str = ""

    @classmethod
    def first(cls, status: Status, at_s: float, begun_wall: float | None) -> Watched:
        """After the first answer; `begun_wall`: when the phase began, None: not known."""
        since = status.wall if begun_wall is None else begun_wall
        return cls(status, (_point(status, at_s),), at_s, since, begun_wall is not None)

    def answered(self, status: Status, at_s: float, begun_wall: float | None) -> Watched:
        """After one more answer; `begun_wall` counts where the phase is another one than before."""
        points = (*self.points, _point(status, at_s))[-MOST_POINTS:]
        if phase_of(status) == phase_of(self.status):
            return replace(self, status=status, points=points, seen_s=at_s, error="")
        return replace(Watched.first(status, at_s, begun_wall), points=points)

    def silent(self, error: str, at_s: float) -> Watched:
        """After a question without an answer."""
        return replace(self, points=(*self.points, Point(at_s, SILENT))[-MOST_POINTS:], error=error)

    @property
    def flush_left_s(self) -> float | None:
        """How long the flush still takes at its speed of the last minute; None: no flush, or no speed is known."""
        if self.status.phase != "flushing":
            return None
        last = self.points[-1].at_s
        recent = takewhile(lambda p: p.phase == "flushing" and last - p.at_s <= SPEED_S, reversed(self.points))
        dirty = [(p.at_s, p.dirty_bytes) for p in recent if p.dirty_bytes is not None]
        if not dirty or dirty[0][1] == 0:
            return 0.0 if dirty else None
        (end_s, left), (begin_s, before) = dirty[0], dirty[-1]
        if before <= left or end_s <= begin_s:
            return None
        return left * (end_s - begin_s) / (before - left)


def phase_of(status: Status) -> str:
    """The phase as it is shown: that of an agent that has not read the kernel yet is `starting`."""
    return status.phase if status.recovered else "starting"


def _point(status: Status, at_s: float) -> Point:
    load, backing = status.load, status.backing
    return Point(at_s, phase_of(status), load.read_mb_s + load.write_mb_s, backing.dirty_bytes if backing else None)


def begun_wall(decisions: Sequence[Mapping[str, Any]], phase: str) -> float | None:
    """When the phase began, by the agent's last decisions (oldest first); None: before them, or they do not show it."""
    last = next((d for d in reversed(decisions) if d.get("from") != d.get("to")), None)
    if last is None or last.get("to") != phase or not isinstance(last.get("wall"), int | float):
        return None
    return float(last["wall"])
