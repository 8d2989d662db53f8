"""Passes the requests of the control socket to the agent, and its answers back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from elastio import __version__
from elastio.agent.journal import read, read_with_older
from elastio.agent.loop import Agent
from elastio.agent.status_builder import RuntimeInfo, status_of
from elastio.control.protocol import DEFAULT_DECISIONS, Message, Reply, accepted, fields_of, refused
from elastio.control.status import Status
from elastio.core.model import Request, RequestKind
from elastio.core.state import Answer


class RequestHandler:
    """The handler of the control server (`elastio.control.server.Handler`)."""

    def __init__(
        self, agent: Agent, journal: Path, started_at: float, asked_by: Callable[[], int | None] = lambda: None
    ) -> None:
        """`asked_by` returns the uid of the client whose request is being handled; None: not known."""
        self._agent, self._journal, self._started_at = agent, journal, started_at
        self._asked_by = asked_by

    def handle(self, message: Message, reply: Reply) -> None:
        """Reply to `status` and `why` at once, and to every other request after the agent's next decision."""
        match message["command"]:
            case "status":
                reply(accepted(status=self.status().to_json()))
            case "why":
                reply(accepted(decisions=decisions(self._journal, message.get("count", DEFAULT_DECISIONS))))
            case command:

                def answered(answer: Answer) -> None:
                    reply(accepted(answer.text) if answer.accepted else refused(answer.text, answer.code))

                request = Request(RequestKind(command), **fields_of(message), asked_by=self._asked_by())
                self._agent.request(request, answered)

    def status(self) -> Status:
        """The status document as of now."""
        agent = self._agent
        around = RuntimeInfo(
            version=__version__,
            started_at=self._started_at,
            identity=agent.state.identity,
            host=agent.view,
            sample=agent.last_sample,
            host_responsive=agent.host_responsive,
            last_error=agent.last_error,
            last_error_wall=None if agent.troubles.last is None else agent.troubles.last.since_wall,
            cloud_error=agent.cloud_error,
        )
        return status_of(agent.state, agent.snapshot(), agent.policy, around)


def decisions(journal: Path, count: int) -> list[dict[str, Any]]:
    """The last decisions, oldest first, each with the first action that followed it.

    The older file is large, and is read only if the newer one has fewer decisions.
    """
    found = decisions_in(read(journal), count)
    return found if len(found) == count else decisions_in(read_with_older(journal), count)


def decisions_in(records: Iterable[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """The last decisions of these records, like `decisions`."""
    found: deque[dict[str, Any]] = deque(maxlen=count)
    for record in records:
        if record.get("kind") == "decision":
            found.append({**{k: record.get(k) for k in ("wall", "from", "to", "reason")}, "action": ""})
        elif record.get("kind") == "intent" and found and not found[-1]["action"]:
            found[-1]["action"] = record.get("action", "")
    return list(found)
