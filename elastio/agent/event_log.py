"""Writes log events to the agent's log: one record each, with its priority and fields."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from elastio.agent.log_events import LogEvent, Priority, fields_of
from elastio.agent.narration import Moment, error, narrate
from elastio.core.observation import Decision
from elastio.core.state import AgentState
from elastio.host.journald import FIELDS, NOTICE

LEVELS: Mapping[Priority, int] = {
    Priority.ERR: logging.ERROR,
    Priority.WARNING: logging.WARNING,
    Priority.NOTICE: NOTICE,
    Priority.INFO: logging.INFO,
}

_log = logging.getLogger("elastio")


class EventLog:
    """`ports.Reporter`: tells the log. `device` is the backing UUID."""

    def __init__(self, device: str) -> None:
        self._device = device

    def decided(self, before: AgentState, decision: Decision, *, now: float, wall: float) -> None:
        """See `Reporter`. Most decisions produce no log event."""
        state = decision.state
        if before.cycle is state.cycle and not decision.reason:
            return
        at = Moment(now, wall, self._device)
        for event in narrate(before.cycle, state.cycle, state.phase, decision.reason, decision.course, at):
            write(event)

    def failed(self, text: str, *, wall: float) -> None:
        """See `Reporter`."""
        write(error(text, wall=wall, device=self._device))

    def works_again(self, text: str, *, wall: float) -> None:
        """See `Reporter`."""
        write(error(text, wall=wall, device=self._device, is_over=True))


def write(event: LogEvent) -> None:
    """One record of the log."""
    _log.log(LEVELS[event.kind.priority], "%s", event.message, extra={FIELDS: fields_of(event)})
