"""How long something has gone on that may not go on for ever: asked in every step of a run."""

from __future__ import annotations

from collections.abc import Callable

from elastio.core.drain import HELD_MB_S
from elastio.core.state import Phase
from elastio.sim.run import Simulation

# Who waits for a human so long waits for ever.
FOREVER_S = 100.0
# A faulted agent lifts what is shared with its next action, the guard what a dead one left; then a step of a second.
LEFT_S = 12.0


class HumanWatch:
    """Whether nothing but a human can go on, and has not been able to for a while."""

    def __init__(self, sim: Simulation, is_waiting: Callable[[], bool]) -> None:
        self._sim, self._is_waiting = sim, is_waiting
        self._since: float | None = None

    def is_stuck(self) -> bool:
        """Asked before every step."""
        now = self._sim.world.clock.elapsed()
        if self._sim.phase is not Phase.FAULTED or not self._is_waiting():
            self._since = None
            return False
        self._since = now if self._since is None else self._since
        return now - self._since > FOREVER_S


class ShareWatch:
    """Whether a limit by which cgroups share the device is where none may be. Asked after every step.

    `failing_s`: for how long calls of an agent to the kernel may fail meanwhile. The guard of a dead one needs none.
    """

    def __init__(self, sim: Simulation, failing_s: float = 0.0) -> None:
        self._sim, self._since, self._failing_s = sim, 0.0, failing_s

    def broken(self) -> str:
        """The rule that is broken, or an empty string."""
        sim, now = self._sim, self._sim.world.clock.elapsed()
        shares, agent = sim.world.kernel.shares, sim.agent
        if shares.stayed:
            return "a cache was attached, bypassed or detached while cgroups were limited"
        may_share = agent is not None and agent.policy.share_reserve is not None and sim.phase is not Phase.FAULTED
        self._since = now if may_share or shares.plan is None else self._since
        most_s = LEFT_S + (0.0 if agent is None else self._failing_s)
        return "a limit is left behind" if now - self._since > most_s else ""


class LimitWatch:
    """How long writes have been limited, and held back completely, while an agent lives."""

    def __init__(self, sim: Simulation) -> None:
        self._sim, self._starts = sim, sim.starts
        self._limited_since: float | None = None
        self._held_since: float | None = None

    def seconds(self) -> tuple[float, float]:
        """Asked after every step."""
        now = self._sim.world.clock.elapsed()
        limit = self._sim.world.kernel.bcache.write_limit_mb_s if self._sim.agent is not None else None
        if self._sim.starts != self._starts:
            self._starts, self._limited_since, self._held_since = self._sim.starts, None, None
        self._limited_since = None if limit is None else (self._limited_since or now)
        self._held_since = (self._held_since or now) if limit == HELD_MB_S else None
        limited, held = (0.0 if since is None else now - since for since in (self._limited_since, self._held_since))
        return limited, held
