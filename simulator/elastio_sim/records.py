"""Journal and cost recorder of a simulated agent, in memory. They outlive the agent, as files do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC
from pathlib import Path
from typing import Any

from elastio.accounting.report import periods
from elastio.accounting.rows import CycleRow, MonthToDate, row_of, spend_since, spent_between
from elastio.accounting.shared_caps import Change, SharedCaps
from elastio.agent.journal import Journal, Owner
from elastio.agent.memory import Remembered, recall
from elastio.core.cycle import Cycle
from elastio.core.model import Sample
from elastio.core.state import AgentState
from elastio.errors import LedgerError
from elastio.strategy.spending import Limits, Spend, Statement
from elastio_sim.faults import FaultMode

IN_MEMORY = Path("the simulated journal")


class MemoryJournal(Journal):
    """The journal without a disk. `lines` belongs to the machine, so that a new agent continues where one ended."""

    def __init__(self, lines: list[bytes], boot_id: str, owner: Owner) -> None:
        super().__init__(IN_MEMORY, boot_id, owner)
        self.lines = lines
        self.durable_lines = len(lines)
        self._sequence = len(lines)

    def open(self) -> None:
        """There is nothing to open."""

    def _write(self, line: bytes, *, durable: bool) -> None:
        self.lines.append(line)
        if durable:
            self.durable_lines = len(self.lines)

    def power_cut(self) -> None:
        """Drop the lines that are not durable."""
        del self.lines[self.durable_lines :]

    def records(self) -> Iterator[dict[str, Any]]:
        return (json.loads(line) for line in self.lines)

    def remember(self, *, now: float, wall: float) -> Remembered:
        return recall(self.records(), self.path, now=now, wall=wall, boot_id=self.boot_id, owner=self.owner)


@dataclass(frozen=True)
class SpoiltCaps(SharedCaps):
    """The statements of the machine's agents, while a fault of SHARED_CAPS lasts."""

    lasts: Callable[[FaultMode], bool] = lambda _: False

    def others(self) -> tuple[Statement, ...]:
        if self.lasts(FaultMode.UNREADABLE):
            raise LedgerError("a statement cannot be read (simulated)", code="shared.unreadable")
        return SharedCaps.others(self)

    def put(
        self, change: Change, limits: Limits | None, wall: float, wait_s: float = 0.0, *, renews: bool = False
    ) -> str:
        if self.lasts(FaultMode.UNWRITABLE):
            raise LedgerError("the statement cannot be written (simulated)", code="shared.unwritable")
        return SharedCaps.put(self, change, limits, wall, wait_s, renews=renews)


class MemoryRecorder:
    """`ports.Recorder` without a file: the newest state of every cycle, and the size that was learned."""

    def __init__(self) -> None:
        self.rows: dict[str, Cycle] = {}
        self.learned_bytes: int | None = None
        self._month = MonthToDate(lambda since, until: spent_between(since, until, self._known()))

    def record_cycle(self, cycle: Cycle, *, now: float, wall: float) -> None:
        self.rows[self._name_of(cycle)] = cycle
        self._month.recorded(cycle)

    def _name_of(self, cycle: Cycle) -> str:
        """Of a purchase that was carried out twice, the second volume has a row by its ID, as in the ledger."""
        known = self.rows.get(cycle.token, cycle).volume_id
        return cycle.token if cycle.volume_id is None or known in (None, cycle.volume_id) else cycle.volume_id

    def recall(self, bought: Iterable[tuple[Cycle, float]]) -> None:
        """Nothing is ever missing here."""

    def learned(self, size_bytes: int) -> None:
        self.learned_bytes = size_bytes

    def listed(self, names: frozenset[str], *, wall: float, others: Iterable[tuple[Cycle, float]] = ()) -> None:
        """No volume disappears here without an agent. Of a purchase that is known only the end of the bill changes."""
        for cycle, _ in others:
            name = self._name_of(cycle)
            self.rows[name] = replace(self.rows.get(name, cycle), closed_wall=None)
            self._month.recorded(self.rows[name])

    def sampled(self, sample: Sample, state: AgentState, *, now: float, wall: float) -> None:
        """No history is kept; see `Simulation.timeline`."""

    def learned_size(self) -> int | None:
        """Bytes that past cycles taught to buy; None: nothing yet."""
        return self.learned_bytes

    def spend(self, *, wall: float) -> Spend:
        """Since midnight UTC, and in the month."""
        day, month = periods(wall, UTC)
        spent = spend_since(day.since_wall, wall, self._known())
        return replace(self._month.with_month(spent, month.since_wall, day.since_wall), day=day, this_month=month)

    def _known(self) -> list[CycleRow]:
        return [row_of(c) for c in self.rows.values()]
