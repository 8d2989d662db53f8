"""Bars: what measured figures of an experiment have to be, beside the published ones. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Asked:
    """How to run an experiment with bars. `scale`: of the time that each part takes."""

    scale: float
    bandwidth: float
    suite: str | None = None
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Bar:
    """`measured` None: nothing was measured, so the bar is missed. `published` None: no such figure was published."""

    name: str
    measured: float | None
    least: float | None = None
    most: float | None = None
    published: float | None = None

    @property
    def is_met(self) -> bool:
        if self.measured is None:
            return False
        return (self.least is None or self.measured >= self.least) and (self.most is None or self.measured <= self.most)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "is_met": self.is_met}


def missed(bars: Sequence[Bar]) -> tuple[Bar, ...]:
    """Those that are not met."""
    return tuple(bar for bar in bars if not bar.is_met)
