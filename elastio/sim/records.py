"""What a simulated agent writes down, kept in memory: its journal and its recorder outlive it, as files do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

from elastio.accounting.report import day_start
from elastio.agent.journal import Journal, Owner
from elastio.agent.memory import Memory, recall
from elastio.core.cycle import Cycle, Trigger
from elastio.core.model import Sample, Spend
from elastio.core.state import AgentState
from elastio.units import agbs

IN_MEMORY = Path("the simulated journal")


class MemoryJournal(Journal):
    """The journal without a disk. `lines` belongs to the machine, so a new agent goes on where the old one ended."""

    def __init__(self, lines: list[bytes], boot_id: str, owner: Owner) -> None:
        super().__init__(IN_MEMORY, boot_id, owner)
        self.lines = lines
        self.durable_lines = len(lines)
        self._sequence = len(lines)

    def open(self) -> None:
        """Nothing to open."""

    def _write(self, line: bytes, *, durable: bool) -> None:
        self.lines.append(line)
        if durable:
            self.durable_lines = len(self.lines)

    def power_cut(self) -> None:
        """Forget what was written and not yet on the disk."""
        del self.lines[self.durable_lines :]

    def records(self) -> Iterator[dict[str, Any]]:
        """See `journal.read`."""
        return (json.loads(line) for line in self.lines)

    def remember(self, *, now: float, wall: float) -> Memory:
        """See `memory.remember`."""
        return recall(self.records(), self.path, now=now, wall=wall, boot_id=self.boot_id, owner=self.owner)


class MemoryRecorder:
    """`ports.Recorder` without a file: the newest row of every cycle, and the size that was learned."""

    def __init__(self) -> None:
        self.rows: dict[str, Cycle] = {}
        self.learned_bytes: int | None = None

    def record_cycle(self, cycle: Cycle, *, now: float, wall: float) -> None:
        """See `ports.Recorder`."""
        self.rows[cycle.token] = cycle

    def learned(self, size_bytes: int) -> None:
        """See `ports.Recorder`."""
        self.learned_bytes = size_bytes

    def listed(self, tokens: frozenset[str], *, wall: float) -> None:
        """See `ports.Recorder`. Nothing disappears here without the cycle being told."""

    def sampled(self, sample: Sample, state: AgentState, *, now: float, wall: float) -> None:
        """See `ports.Recorder`. The history is not kept here: `Simulation.timeline` is."""

    def learned_size(self) -> int | None:
        """Bytes that past cycles taught to buy; None: nothing yet."""
        return self.learned_bytes

    def spend(self, *, wall: float) -> Spend:
        """Since midnight UTC. No prices here: `currency` stays 0."""
        since = day_start(wall, UTC)
        begun = [c for c in self.rows.values() if c.started_wall >= since and c.trigger is not Trigger.ORPHAN]
        return Spend(sum(1 for c in begun if c.volume_id), sum(_agbs(c, since, wall) for c in self.rows.values()))


def _agbs(cycle: Cycle, since: float, wall: float) -> float:
    if cycle.opened_wall is None:
        return 0.0
    until = wall if cycle.closed_wall is None else cycle.closed_wall
    seconds = max(0.0, until - max(since, cycle.opened_wall))
    return agbs(cycle.provisioned.bandwidth_mb_s, cycle.provisioned.size_bytes, seconds)
