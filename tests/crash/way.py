"""What an agent has promised on the way, and must keep whatever fails: read from its journal, after every step."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from elastio.core.detection import Event
from elastio.core.model import RequestKind
from elastio.core.state import Phase
from elastio_sim.faults import SHARED_CAPS
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment

# Whoever flushes or pauses, and a load that costs too much, ends a boost for good.
ORDERS = frozenset({RequestKind.FLUSH, RequestKind.PAUSE})
ENDS = frozenset({Event.CAP_REACHED, Event.FILLED_UP})
# Volumes in a row that never become a cache, until somebody resumes.
MOST_WASTED = 8


class WayWatch:
    """Whether a boost that was ended goes on with the same volume, and whether another is bought where none may be."""

    def __init__(self, sim: Simulation, load: Sequence[Segment], *, is_clock_known: bool = True) -> None:
        """`is_clock_known`: nobody sets the time of day, so a day with a cap lasts longer than the run.

        A boost that ended because statements could not be read or written may be followed by another one.
        """
        self._sim, self.is_clock_known = sim, is_clock_known
        self._ends_at = tuple(accumulate(segment.seconds for segment in load))
        self._read, self._starts = 0, sim.starts
        self._ended: dict[str, str] = {}  # by what, for each token
        self._capped_at: int | None = None  # volumes that had been bought by then
        self._wasted = self._wasted_at = 0  # volumes in a row, and how many had been bought by then
        self._filled_at: tuple[int, int] | None = None  # the same, and under which load

    def ends(self, token: str, why: str) -> None:
        """No boost goes on with the volume of this cycle."""
        self._ended[token] = why

    def broken(self) -> str:
        """The promise that is broken, asked after every step; empty: none is."""
        lines = self._sim.lines
        self._read = min(self._read, len(lines))  # a power cut takes what was not durable
        new, self._read = lines[self._read :], len(lines)
        for line in new:
            if b'"kind":"decision"' in line and (told := self._decided(json.loads(line))):
                return told
        if self._sim.starts != self._starts:
            self._starts, self._filled_at = self._sim.starts, None  # what fills a cache is not remembered
        return self._bought()

    def _decided(self, record: dict[str, Any]) -> str:
        course, cycle = record.get("course") or {}, record["cycle"] or {}
        token = cycle.get("token", "")
        orders = [order["kind"] for order in course.get("orders", ())]
        for order in orders:
            self._ordered(order, token)
        for seen in course.get("transitions", ()):
            if seen["event"] in ENDS:
                self._ended[token] = seen["event"]
            if seen["is_capped"] and seen["event"] != Event.BOOST_CAPPED:
                self._capped_at = self._volumes()
            if seen["event"] == Event.CACHE_ATTACHED:
                self._wasted = 0
            if seen["event"] == Event.BOOST_ABANDONED and cycle.get("volume_id"):
                self._wasted, self._wasted_at = self._wasted + 1, self._volumes()
            if seen["event"] == Event.FILLED_UP:
                self._filled_at = (self._volumes(), self._load())
        if record["to"] == Phase.BOOSTING and token in self._ended:
            return f"boosts again with the same volume after {self._ended[token]}"
        return ""

    def _ordered(self, order: str, token: str) -> None:
        if order in ORDERS:
            self._ended[token] = order
        if order == RequestKind.BOOST or (order == RequestKind.RESUME and self._ended.get(token) == RequestKind.PAUSE):
            self._ended.pop(token, None)
        if order == RequestKind.RESUME:
            self._capped_at, self._wasted = None, 0

    def _bought(self) -> str:
        volumes = self._volumes()
        is_remembered = self.is_clock_known and not any(f.kind in SHARED_CAPS for _, f in self._sim.world.happened)
        if is_remembered and self._capped_at is not None and volumes > self._capped_at:
            return "another volume is bought after a cap has ended a boost"
        if self._wasted >= MOST_WASTED and volumes > self._wasted_at:
            return f"another volume is bought after {MOST_WASTED} that never became a cache"
        if self._filled_at is not None and self._filled_at[1] == self._load():
            return "another volume is bought for the load that filled one" if volumes > self._filled_at[0] else ""
        self._filled_at = None
        return ""

    def _volumes(self) -> int:
        return len(self._sim.world.provider.volumes)

    def _load(self) -> int:
        """Which segment of the load runs."""
        return bisect_left(self._ends_at, self._sim.world.workload.elapsed_s)
