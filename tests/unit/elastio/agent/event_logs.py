"""The log events of a simulated agent: what it told while it ran, and what its journal tells afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.agent.event_reader import Narrator
from elastio.agent.log_events import EventKind, LogEvent
from elastio.agent.narration import Moment, error, narrate
from elastio.core.state import AgentState, Decision
from elastio_sim.run import Simulation
from tests.simulated import POLICY

DEVICE = POLICY.backing_uuid


class Told:
    """`ports.Reporter` that keeps the log events."""

    def __init__(self) -> None:
        self.events: list[LogEvent] = []

    def decided(self, before: AgentState, decision: Decision, *, now: float, wall: float) -> None:
        state, at = decision.state, Moment(now, wall, DEVICE)
        self.events += narrate(before.cycle, state.cycle, state.phase, decision.reason, decision.course, at)

    def failed(self, text: str, *, wall: float) -> None:
        self.events.append(error(text, wall=wall, device=DEVICE))

    def works_again(self, text: str, *, wall: float) -> None:
        self.events.append(error(text, wall=wall, device=DEVICE, is_over=True))

    def of(self, *kinds: EventKind) -> list[LogEvent]:
        return [event for event in self.events if event.kind in kinds]


def read(sim: Simulation) -> list[LogEvent]:
    """The log events that the journal holds."""
    narrator = Narrator()
    return [event for record in sim.journal.records() for event in narrator.take(record)]


def kinds(events: list[LogEvent]) -> list[str]:
    return [event.kind.label for event in events]


def assert_the_same(told: list[LogEvent], read: list[LogEvent]) -> None:
    """The events are equal, and their times with the precision of the journal."""
    assert [replace(event, wall=0.0) for event in told] == [replace(event, wall=0.0) for event in read]
    assert [event.wall for event in told] == pytest.approx([event.wall for event in read], abs=0.1)
