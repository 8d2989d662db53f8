"""The agent's way out after a signal: at once, or after the flush that `shutdown.on_stop` asks for."""

from __future__ import annotations

from elastio.agent.loop import Agent
from elastio.core.inhibition import stop_reason
from elastio.core.model import Request, RequestKind
from elastio.core.observation import Answer
from elastio.core.state import InhibitionReason
from elastio.ports import Clock

# For the decision on the stop itself; a loop that does not come to one must still end.
ANSWER_S = 10.0


class GracefulShutdown:
    """One stop of one agent. Ask once, then look after every step whether it is over."""

    def __init__(self, agent: Agent, clock: Clock) -> None:
        self._agent, self._clock = agent, clock
        self._give_up_at = clock.now() + ANSWER_S
        self._is_answered = False

    def ask(self) -> None:
        """A shutdown of the machine that was prepared is not prepared anew."""
        hold = self._agent.state.inhibition
        if hold is not None and hold.reason in (InhibitionReason.SHUTDOWN, InhibitionReason.NOTICE):
            self._is_answered = True
            return

        def answered(answer: Answer) -> None:
            self._is_answered = True

        self._agent.request(Request(RequestKind.STOP), answered)

    def is_over(self) -> str:
        """Why the daemon may end now, or an empty string."""
        now = self._clock.now()
        if not self._is_answered:
            return "no decision was made in time" if now >= self._give_up_at else ""
        return stop_reason(self._agent.state, now)
