"""What does not work now, by its source, and since when. Without I/O.

A trouble begins with an error and ends when the same thing works, or when the agent no longer needs it: a release that
failed twice is no news once its volume is gone. An action that has to find its instant (`NOT_YET`) fails now and then
in a normal flush; it is a trouble from its third failure in a row on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import get_args

from elastio.core.actions import Action
from elastio.core.state import AgentState, Phase
from elastio.ports import Reporter

# The codes of errors that say only: not at this instant. See `elastio.host.throttle`.
NOT_YET = frozenset({"device.not_drained"})
PATIENCE = 3

# Actions of a boost until its cache is attached: why the last one failed is news until one succeeds.
ACQUIRE = frozenset({"CreateVolume", "AttachVolume", "WriteTombstone", "InstallCache"})
# Actions that an agent without a cycle needs while the device runs.
AT_REST = frozenset(
    {"Identify", "ListForBacking", "ListVolumes", "PollNotice", "RemoveTombstone", "SetShares", "TuneBacking"}
)
# All others are of a cycle, or make the device run.
OF_CYCLE = frozenset(kind.__name__ for kind in get_args(Action)) - ACQUIRE - AT_REST


@dataclass(frozen=True, slots=True)
class Trouble:
    """`source`: an action's class name, or what else failed. `since_wall`: when it first failed with this text."""

    source: str
    text: str
    since_wall: float
    times: int = 1
    patience: int = 1

    @property
    def is_shown(self) -> bool:
        """It has failed often enough to be told."""
        return self.times >= self.patience


@dataclass(slots=True)
class Troubles:
    """Current errors, the most recent last. Each is reported once.

    `wall` returns seconds since the epoch.
    """

    wall: Callable[[], float]
    reporter: Callable[[], Reporter]
    _current: dict[str, Trouble] = field(default_factory=dict)

    def failed(self, source: str, text: str, code: str = "") -> None:
        """Note an error of this source."""
        patience = PATIENCE if code in NOT_YET else 1
        before = self._current.pop(source, None)
        now = Trouble(source, text, self.wall(), patience=patience)
        if before is not None and (before.text == text or (now.patience > 1 and before.patience > 1)):
            now = replace(before, times=before.times + 1, patience=patience)
        self._current[source] = now
        was_told = before is not None and before.is_shown and before.text == now.text
        if now.is_shown and not was_told:
            self.reporter().failed(text, wall=self.wall())

    def works(self, *sources: str) -> None:
        """Note that these work, or are not needed any more."""
        for source in sources:
            trouble = self._current.pop(source, None)
            if trouble is not None and trouble.is_shown:
                self.reporter().works_again(trouble.text, wall=self.wall())

    @property
    def sources(self) -> tuple[str, ...]:
        """What fails now."""
        return tuple(self._current)

    @property
    def last(self) -> Trouble | None:
        """The one that failed last, of those that are shown; None: everything works."""
        return next((t for t in reversed(self._current.values()) if t.is_shown), None)


def no_longer_needed(sources: Iterable[str], state: AgentState, *, is_running: bool) -> tuple[str, ...]:
    """Those of the sources that the agent does not need to work any more. `is_running`: the adaptive device runs."""
    is_at_rest = state.recovered and state.phase is Phase.IDLE and state.cycle is None and is_running
    over = ACQUIRE if state.phase is Phase.BOOSTING else OF_CYCLE if is_at_rest else frozenset()
    limits = {"LimitWrites"} if state.backoff_of("LimitWrites").tries else set()
    shares = set() if state.backoff_of("SetShares").tries else {"SetShares"}
    return tuple(s for s in sources if (s in over and s not in limits) or s in shares)
