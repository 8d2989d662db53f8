"""Whatever happens to an agent, in whatever order: nothing is lost, nothing is bought twice, and it comes to rest."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from elastio.core.model import RequestKind
from elastio_sim.faults import FaultMode, ScheduledFault
from elastio_sim.workload import constant

from .schedule import Schedule
from .storm import Storm

# What an operator may ask of a running agent.
REQUESTS = st.sampled_from((RequestKind.BOOST, RequestKind.FLUSH, RequestKind.PAUSE, RequestKind.RESUME))


class AgentRules(RuleBasedStateMachine):
    """One machine under an agent. `Storm.check` runs after every step that it makes."""

    @initialize(seed=st.integers(0, 10_000), faults=st.integers(0, 6))
    def begin(self, seed: int, faults: int) -> None:
        self.storm = Storm(Schedule.random(seed, faults, 0, 0))
        self.load(0.0)

    @rule(mb_s=st.sampled_from((0.0, 0.0, 5.0, 8.0, 40.0, 90.0)))
    def load(self, mb_s: float) -> None:
        self.storm.world.workload = constant(mb_s)

    @rule(seconds=st.sampled_from((0.3, 1.0, 3.0, 8.0, 20.0)))
    def time_passes(self, seconds: float) -> None:
        self.storm.sim.run_for(seconds)

    @rule()
    def agent_is_killed(self) -> None:
        self.storm.happen("kill")

    @rule(seconds=st.sampled_from((5.0, 120.0)))
    def agent_stands_still(self, seconds: float) -> None:
        self.storm.sim.happen(ScheduledFault("0", FaultMode.STOP, seconds))

    @rule()
    def children_are_killed(self) -> None:
        self.storm.sim.happen(ScheduledFault("0", FaultMode.KILL_CHILD))

    @rule()
    def power_is_cut(self) -> None:
        self.storm.happen("power_cut")

    @rule()
    def cache_disk_vanishes(self) -> None:
        self.storm.world.vanish()

    @rule(seconds=st.sampled_from((-7200.0, -30.0, 30.0, 86_400.0)))
    def wall_clock_jumps(self, seconds: float) -> None:
        self.storm.world.clock.jump_wall(seconds)

    @rule(kind=REQUESTS)
    def operator_asks(self, kind: RequestKind) -> None:
        self.storm.sim.ask(kind, limit_s=300.0)

    def teardown(self) -> None:
        if not hasattr(self, "storm"):
            return
        self.storm.world.workload = constant(0.0)
        self.storm.settle()


def test_comes_to_rest_after_anything_in_any_order() -> None:
    steps = max(10, settings.default.stateful_step_count // 2) if settings.default else 15
    chosen = settings(deadline=None, stateful_step_count=steps)
    run_state_machine_as_test(AgentRules, settings=chosen)
