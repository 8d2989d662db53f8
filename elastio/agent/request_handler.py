"""What the control socket asks, put before the agent, and its answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from elastio import __version__
from elastio.agent.journal import read, read_with_older
from elastio.agent.loop import Agent
from elastio.agent.status_builder import RuntimeInfo, status_of
from elastio.control.protocol import Message, accepted, refused
from elastio.control.server import Pending
from elastio.control.status import Status
from elastio.core.model import Request, RequestKind
from elastio.core.observation import Answer


class Requests:
    """`handle` of the control server. Answers of the core come at its next decision."""

    def __init__(self, agent: Agent, journal: Path, started_at: float) -> None:
        self._agent, self._journal, self._started_at = agent, journal, started_at
        self._resolve: Callable[[Pending, Message], None] = lambda pending, reply: None

    def answer_with(self, resolve: Callable[[Pending, Message], None]) -> None:
        """How a pending request gets its reply."""
        self._resolve = resolve

    def handle(self, message: Message) -> Message | Pending:
        match message["command"]:
            case "status":
                return accepted(status=self.status().to_json())
            case "why":
                return accepted(decisions=decisions(self._journal, int(message.get("count", 20))))
        request = Request(
            RequestKind(message["command"]),
            message.get("size_bytes"),
            message.get("seconds"),
            message.get("volume_id"),
            bool(message.get("accepts_loss")),
            bool(message.get("reboots")),
        )
        pending = Pending()

        def reply(answer: Answer) -> None:
            self._resolve(pending, accepted(answer.text) if answer.accepted else refused(answer.text))

        self._agent.request(request, reply)
        return pending

    def status(self) -> Status:
        agent = self._agent
        around = RuntimeInfo(
            version=__version__,
            started_at=self._started_at,
            identity=agent.state.identity,
            host=agent.view,
            sample=agent.last_sample,
            host_responsive=agent.host_responsive,
            last_error=agent.last_error,
            cloud_error=agent.cloud_error,
        )
        return status_of(agent.state, agent.snapshot(), agent.policy, around)


def decisions(journal: Path, count: int) -> list[dict[str, Any]]:
    """The last decisions, oldest first, each with the first action that followed it.

    The older file is large, and read only where the newer one does not hold so many.
    """
    found = decisions_in(read(journal), count)
    return found if len(found) == count else decisions_in(read_with_older(journal), count)


def decisions_in(records: Iterable[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """`decisions` of records that lie anywhere."""
    found: deque[dict[str, Any]] = deque(maxlen=count)
    for record in records:
        if record.get("kind") == "decision":
            found.append({**{k: record.get(k) for k in ("wall", "from", "to", "reason")}, "action": ""})
        elif record.get("kind") == "intent" and found and not found[-1]["action"]:
            found[-1]["action"] = record.get("action", "")
    return list(found)
