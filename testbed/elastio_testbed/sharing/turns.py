"""What two applications got of a device in each turn: windows, ratios, and whether they are as they should be. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from elastio.units import MB
from elastio_testbed.sharing.patterns import Pattern

# How long limits may take to follow a change of pattern; what is moved in it counts for nothing else.
SETTLE_S = 3.0
BAND = (1.90, 2.10)
# An application that gets this share of what it wants has it.
HAS_IT = 0.97


@dataclass(frozen=True, slots=True)
class Turn:
    """One pattern under one control. `windows`: MB/s of both applications, one window after the other.

    `flushed_mb_s`: what was flushed meanwhile, which uses the same volumes.
    """

    state: str
    control: str
    pattern: str
    windows: tuple[tuple[float, float], ...]
    wants_mb_s: tuple[float, float] | None = None
    flushed_mb_s: float = 0.0

    @property
    def mb_s(self) -> tuple[float, float]:
        """Of each application, a mean over all windows."""
        count = max(1, len(self.windows))
        first, second = (sum(each) / count for each in (zip(*self.windows, strict=True) if self.windows else ((), ())))
        return first, second

    @property
    def total_mb_s(self) -> float:
        """Of both applications and the flush."""
        return sum(self.mb_s) + self.flushed_mb_s

    def is_right(self, window: tuple[float, float]) -> bool:
        """Whether they share 2:1 or, where the sum fits, each has what it wants."""
        first, second = window
        if self.wants_mb_s is not None:
            return all(got >= HAS_IT * wanted for got, wanted in zip(window, self.wants_mb_s, strict=True))
        return second > 0 and BAND[0] <= first / second <= BAND[1]

    @property
    def right(self) -> int:
        """The number of windows that are right."""
        return sum(map(self.is_right, self.windows))

    def to_json(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "control": self.control,
            "pattern": self.pattern,
            "wants_mb_s": None if self.wants_mb_s is None else [round(mb_s, 2) for mb_s in self.wants_mb_s],
            "windows": [[round(mb_s, 2) for mb_s in window] for window in self.windows],
            "flushed_mb_s": round(self.flushed_mb_s, 2),
        }


def turn_of_json(found: Mapping[str, Any]) -> Turn:
    """The turn of a stored result."""
    wants = found["wants_mb_s"]
    return Turn(
        found["state"],
        found["control"],
        found["pattern"],
        tuple((first, second) for first, second in found["windows"]),
        None if wants is None else (wants[0], wants[1]),
        found.get("flushed_mb_s", 0.0),
    )


def windows(
    moved: Sequence[Mapping[int, int]], begins_s: float, ends_s: float, every_s: float, window_s: float
) -> tuple[tuple[float, float], ...]:
    """MB/s of each application in the whole windows of a turn, without its first SETTLE_S.

    `moved`: of each application bytes by interval of `every_s`, from the start of the run; times count from there, too.
    """
    each = round(window_s / every_s)
    first, last = round((begins_s + SETTLE_S) / every_s), round(ends_s / every_s)
    found = []
    for begin in range(first, last - each + 1, each):
        one, two = (sum(by.get(n, 0) for n in range(begin, begin + each)) / MB / (each * every_s) for by in moved)
        found.append((one, two))
    return tuple(found)


def mean_mb_s(moved: Mapping[int, int], begins_s: float, ends_s: float, every_s: float) -> float:
    """MB/s in a turn without its first SETTLE_S; times and intervals as in `windows`."""
    numbers = range(round((begins_s + SETTLE_S) / every_s), round(ends_s / every_s))
    return sum(moved.get(number, 0) for number in numbers) / MB / (len(numbers) * every_s)


def wanted_mb_s(pattern: Pattern, capacity_mb_s: float) -> tuple[float, float] | None:
    """What each application wants of this capacity; None: all."""
    return None if pattern.wants is None else (pattern.wants[0] * capacity_mb_s, pattern.wants[1] * capacity_mb_s)


def ratio(turns: Sequence[Turn]) -> float | None:
    """The median of the ratios of all windows; None: there are none in which the second application moved anything."""
    found = [first / second for turn in turns for first, second in turn.windows if second > 0]
    return median(found) if found else None


def share_right(turns: Sequence[Turn]) -> float | None:
    """The share of all windows that are right."""
    count = sum(len(turn.windows) for turn in turns)
    return sum(turn.right for turn in turns) / count if count else None


def total_over(turns: Sequence[Turn], others: Sequence[Turn]) -> float | None:
    """What was moved in these turns over what was moved in the others, per turn."""
    if not turns or not others or not any(turn.total_mb_s for turn in others):
        return None
    return _mean(turns) / _mean(others)


def _mean(turns: Sequence[Turn]) -> float:
    return sum(turn.total_mb_s for turn in turns) / len(turns)


def settled(turns: Sequence[Turn]) -> float | None:
    """The share of the changes from a turn to the next after which the first window, from SETTLE_S on, is right."""
    after = [turn for turn in turns[1:] if turn.windows]
    return sum(turn.is_right(turn.windows[0]) for turn in after) / len(after) if after else None
