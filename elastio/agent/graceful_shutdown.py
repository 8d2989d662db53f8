"""The agent's end after a signal: at once, or after the flush that `shutdown.on_stop` asks for."""

from __future__ import annotations

from elastio.agent.loop import Agent
from elastio.core.inhibition import stop_reason
from elastio.core.model import Request, RequestKind
from elastio.core.observation import Answer
from elastio.core.state import InhibitionReason
from elastio.ports import Clock

# Time-out of the decision on the stop; an agent that does not decide must still end.
ANSWER_S = 10.0


class GracefulShutdown:
    """One stop of one agent: call `ask` once, then `exit_reason` after every step."""

    def __init__(self, agent: Agent, clock: Clock) -> None:
        self._agent, self._clock = agent, clock
        self._give_up_at = clock.now() + ANSWER_S
        self._is_answered = False

    def ask(self) -> None:
        """Request the stop. A shutdown of the machine that has been prepared already needs no second request."""
        inhibition = self._agent.state.inhibition
        if inhibition is not None and inhibition.reason in (InhibitionReason.SHUTDOWN, InhibitionReason.NOTICE):
            self._is_answered = True
            return

        def answered(answer: Answer) -> None:
            self._is_answered = True

        self._agent.request(Request(RequestKind.STOP), answered)

    def exit_reason(self) -> str:
        """Why the daemon may end now; empty: it may not yet."""
        now = self._clock.now()
        if not self._is_answered:
            return "no decision was made in time" if now >= self._give_up_at else ""
        return stop_reason(self._agent.state, now)
