"""How long something has gone on that may not go on for ever: asked in every step of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from elastio.core.actions import HELD_MB_S
from elastio.core.cycle import Trigger
from elastio.core.state import Phase
from elastio.strategy.bandwidth import KEPT
from elastio.strategy.spending import Caps
from elastio_sim.faults import FaultMode
from elastio_sim.run import Simulation
from elastio_sim.shares import GUARD_S
from tests.spending import beyond_s, is_worth

ROUNDING = 1 + 1e-6
# Who waits for a human so long waits for ever.
FOREVER_S = 100.0
# A faulted agent lifts what is shared with its next action, the guard what a dead one left; then a step of a second.
LEFT_S = 12.0
# What a dead agent left goes in any case, also where another one was there at once.
ORPHANED_S = GUARD_S + 1.0
# A boost without a reservation ends with the next decision, and so does one that begins with a start.
UNCOVERED_S = 4.0
# The release of another device takes longer than predicted.
RESERVED_BEYOND_S = 30.0


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
        self._orphaned_since = 0.0

    def broken(self) -> str:
        """The rule that is broken, or an empty string."""
        sim, now = self._sim, self._sim.world.clock.elapsed()
        shares, agent = sim.world.kernel.shares, sim.agent
        if shares.stayed:
            return "a cache was attached, bypassed or detached while cgroups were limited"
        may_share = agent is not None and agent.policy.share_reserve is not None and sim.phase is not Phase.FAULTED
        self._since = now if may_share or shares.plan is None else self._since
        self._orphaned_since = self._orphaned_since if shares.is_orphaned else now
        if now - self._orphaned_since > ORPHANED_S:
            return "a limit of a dead agent is left behind"
        most_s = LEFT_S + (0.0 if agent is None else self._failing_s)
        return "a limit is left behind" if now - self._since > most_s else ""


class CapWatch:
    """What agents have bought beyond their caps, and for how long faulted ones kept volumes.

    Each has the same caps; where they are shared, the bills of all count together, no boost goes on for longer than its
    bill is reserved, and no more is reserved than the caps leave. `failing_s`: how long what an agent does may fail.
    """

    def __init__(self, sims: Sequence[Simulation], caps: Caps, failing_s: float = 0.0) -> None:
        self._sims, self._caps, self.failing_s = sims, caps, failing_s
        self._seen_at, self.kept_s, self._unwritable_s = 0.0, 0.0, 0.0
        self._uncovered_s = dict.fromkeys(sims, 0.0)

    def broken(self) -> str:
        """The rule that is broken, asked after every step, or an empty string."""
        before, self._seen_at = self._seen_at, self._sims[0].world.clock.elapsed()
        for sim in self._sims:
            if not sim.world.volumes_left():
                continue
            if sim.phase is Phase.FAULTED:
                self.kept_s += self._seen_at - before
            elif sim.lasts(FaultMode.DISK_FULL):  # nothing is released that cannot be written down
                self._unwritable_s += self._seen_at - before
        if not self._caps.shared or any(f.kind is FaultMode.WALL_JUMP for _, f in self._sims[0].world.happened):
            return ""  # a clock that was set says nothing
        reserved = {sim.world.provider: _reserved_s(sim) for sim in self._sims}
        for sim, ahead_s in zip(self._sims, reserved.values(), strict=True):
            self._uncovered_s[sim] = self._uncovered_s[sim] + self._seen_at - before if ahead_s < 0 else 0.0
        if max(self._uncovered_s.values()) > UNCOVERED_S + self.failing_s:
            return "a boost goes on beyond its reservation"
        may_s = RESERVED_BEYOND_S + self.failing_s + self.kept_s + self._unwritable_s
        is_too_much = beyond_s(self._caps, reserved) > may_s
        return "more is reserved than a shared cap leaves" if is_too_much else ""

    def beyond_s(self) -> float:
        """See `spending.beyond_s`."""
        clouds = [sim.world.provider for sim in self._sims]
        together = [clouds] if self._caps.shared else [[cloud] for cloud in clouds]
        return max(beyond_s(self._caps, dict.fromkeys(some, 0.0)) for some in together)


def _reserved_s(sim: Simulation) -> float:
    """For how long the bill of a boost is still reserved; 0: nobody boosts, or could write down that it ends."""
    is_away = sim.agent is None or sim.lasts(FaultMode.DISK_FULL)
    if sim.account is None or is_away or sim.phase is not Phase.BOOSTING:
        return 0.0
    own = sim.account.own()
    return own.reserved.until_wall - sim.world.clock.wall() if own is not None and own.reserved is not None else -1.0


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


class SpeedWatch:
    """Whether a cache was bought that is faster than the last bursts were worth, or than is allowed: asked after every
    step. What a burst was worth is B* by its definition: a doubling from there on saves more than the stop gain.
    """

    def __init__(self, sim: Simulation) -> None:
        self._sim, self._token = sim, ""

    def broken(self) -> str:
        """The rule that is broken, or an empty string."""
        state, policy = self._sim.state, self._sim.policy
        cycle, bounds = state.cycle, policy.bandwidth
        if bounds is None or cycle is None or cycle.token == self._token or cycle.trigger is Trigger.ORPHAN:
            return ""
        self._token = cycle.token
        mb_s = cycle.spec.bandwidth_mb_s - policy.drain_bandwidth_mb_s
        if mb_s > bounds.most_mb_s * ROUNDING:
            return f"a cache of {mb_s:.1f} MB/s was bought, and {bounds.most_mb_s:.1f} are allowed"
        last = () if state.memory.bandwidth is None else state.memory.bandwidth.lessons[-KEPT:]
        if not last or mb_s <= bounds.least_mb_s * ROUNDING:
            return ""
        is_moved = mb_s <= sum(b.moved_mb for b in last) / sum(b.seconds for b in last) * ROUNDING
        is_right = is_moved or is_worth(mb_s, bounds.stop_gain, last)
        return "" if is_right else f"a cache of {mb_s:.1f} MB/s was bought, which is above B*"
