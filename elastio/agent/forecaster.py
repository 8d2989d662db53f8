"""The forecaster of the daemon: bursts that are expected from the ledger's past ones (`policy.ahead = "learned"`).

It computes for less than a millisecond, and reads the ledger only after that has changed. Where the ledger cannot be
read nothing is expected, and the load alone decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from elastio.agent.loop import Agent
from elastio.core.model import Forecast, VolumeSpec
from elastio.core.policy import Ahead, Model, Policy
from elastio.strategy import ahead, caps, learning
from elastio.strategy.learned import Past, Situation, next_burst


@dataclass(frozen=True, slots=True)
class LearnedForecaster:
    """`ports.Forecaster`. `past` returns the bursts before a time (seconds since the epoch), `situation` what is now.

    `situation` None: nothing is to be expected now.
    """

    past: Callable[[float], Past]
    situation: Callable[[], Situation | None]

    def forecast(self, now: float, wall: float) -> Forecast | None:
        """See `ports.Forecaster`. Raises LedgerError as `past` does."""
        at = self.situation()
        expected = None if at is None else next_burst(self.past(wall), at, wall)
        return None if expected is None else replace(expected, begins_at=now + expected.begins_at - wall)


def situation_of(agent: Agent, waiting_per_hour: float | None) -> Situation | None:
    """None: forecasts are not asked for, a cache is there already, or the backing device was not seen yet."""
    backing = agent.view.backing if agent.view else None
    if agent.policy.ahead is not Ahead.LEARNED or agent.state.cycle is not None or backing is None:
        return None
    policy = learning.in_force(agent.policy, agent.state.memory)
    release_s = caps.release_s(agent.state.memory, agent.state.cycle, policy)
    times = agent.state.memory.attach_s, backing.size_bytes, waiting_per_hour, release_s
    return Situation(policy, *times, lambda burst: _spec_for(burst, agent, policy))


def _spec_for(burst: Forecast, agent: Agent, policy: Policy) -> VolumeSpec:
    """What the agent would buy ahead of this burst."""
    advice = agent.advice
    if policy.model is Model.MONEY and advice is not None and advice.plan is not None:
        return advice.plan.spec
    return VolumeSpec(ahead.size_for(burst, agent.state.memory, policy), policy.bought_bandwidth_mb_s)
