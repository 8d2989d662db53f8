"""A storm: random load, faults, accidents, kills, power cuts and requests, all drawn from one seed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from elastio.machine import TRANSITIONS
from elastio.model import Forecast, RequestKind, VolumeState
from elastio.policy import Policy
from elastio.sim.clock import SimClock
from elastio.sim.faults import FaultPlan
from elastio.sim.kernel import KernelSettings
from elastio.sim.run import Simulation
from elastio.sim.workload import Stretch, Trace
from elastio.sim.world import SimWorld, WorldSettings
from elastio.state import Phase
from elastio.units import GIB, MIB

KERNEL = KernelSettings(backing_mb_s=20, block_bytes=4 * MIB)
POLICY = Policy(
    backing_bandwidth_mb_s=20,
    cache_bandwidth_mb_s=80,
    inactivity_delay_s=4,
    initial_size_bytes=GIB,
    reconcile_s=120,
    backing_uuid=KERNEL.backing_uuid,
)
HORIZON_S = 150
CALM_S = 3000.0
HAPPENINGS = ("kill", "down", "power_cut", "boost", "flush", "pause", "resume")
ALLOWED = frozenset((before, after) for (before, _), after in TRANSITIONS.items())


@dataclass(frozen=True)
class Happening:
    at_s: float
    kind: str


def draw_load(draw: Random) -> tuple[Stretch, ...]:
    """Bursts and pauses; quiet in the end, so that everything can come to rest."""
    stretches = []
    left = float(HORIZON_S)
    while left > 0:
        seconds = draw.uniform(2, 25)
        busy = draw.random() < 0.5
        stretches.append(Stretch(seconds, draw.uniform(5, 90) if busy else 0.0, draw.choice((0.0, 0.0, 10.0))))
        left -= seconds
    return (*stretches, Stretch(1e9, 0))


class Wild:
    """A forecaster that is wrong about everything until the storm is over."""

    def __init__(self, seed: int, clock: SimClock) -> None:
        self._draw, self._clock = Random(seed), clock

    def forecast(self, now: float, wall: float) -> Forecast | None:
        draw = self._draw
        if self._clock.elapsed() > HORIZON_S or draw.random() < 0.2:
            return None
        begins_at = now + draw.choice((0.0, draw.uniform(0, 60), draw.uniform(-20, 90), math.inf, math.nan))
        return Forecast(begins_at, draw.choice((-1, 0, int(draw.uniform(0, 8e9)))), draw.uniform(0.7, 1))


class Storm:
    """One run. `check` holds after every step whatever happens; `settle` ends it."""

    def __init__(self, seed: int, faults: int, accidents: int, happenings: int, *, wild: bool = False) -> None:
        draw = Random(seed)
        plan = FaultPlan.random(seed, faults, accidents, HORIZON_S)
        load = Trace(draw_load(draw), block_bytes=KERNEL.block_bytes)
        self.world = SimWorld(WorldSettings(kernel=KERNEL, seed=seed), load, plan)
        self.happenings = sorted(
            (Happening(draw.uniform(0, HORIZON_S), draw.choice(HAPPENINGS)) for _ in range(happenings)),
            key=lambda h: h.at_s,
        )
        forecaster = Wild(seed, self.world.clock) if wild else None
        self.sim = Simulation(self.world, POLICY, seed=seed, forecaster=forecaster)
        self._seen = (self.sim.starts, False, self.sim.phase)
        self.sim.on_step = self.check
        self.told = f"seed {seed}: {plan.story()}; " + ", ".join(f"{h.kind} at {h.at_s:.1f}" for h in self.happenings)

    def check(self) -> None:
        """What must never happen, after every step."""
        where = f"{self.told} | at {self.world.clock.elapsed():.1f}: {self.sim.standing()}"
        assert not self.world.lost(), f"{len(self.world.lost())} blocks are lost: {where}"
        assert self.world.volumes_left() <= 1, f"two volumes: {where}"
        if not self.world.volumes_left():
            assert not self.world.lost(power_cut=True), f"released before it was durable: {where}"
        self._check_transition(where)

    def _check_transition(self, where: str) -> None:
        starts, recovered, before = self._seen
        state = self.sim.state
        self._seen = (self.sim.starts, state.recovered, state.phase)
        if not recovered or starts != self.sim.starts or before in (state.phase, Phase.FAULTED):
            return
        by_way_of_idle = (before, Phase.IDLE) in ALLOWED and (Phase.IDLE, state.phase) in ALLOWED
        assert (before, state.phase) in ALLOWED or by_way_of_idle, f"{before} to {state.phase}: {where}"

    def run(self) -> None:
        for happening in self.happenings:
            self.sim.run_for(max(0.0, happening.at_s - self.world.clock.elapsed()))
            self.happen(happening.kind)
        self.sim.run_for(max(0.0, HORIZON_S + 10 - self.world.clock.elapsed()))
        self.settle()

    def happen(self, kind: str) -> None:
        if kind == "kill":
            self.sim.start_agent()
        elif kind == "down":
            self.sim.kill_agent()
            self.sim.run_for(20)
            if self.sim.agent is None:
                self.sim.start_agent()
        elif kind == "power_cut":
            self.sim.power_cut()
        else:
            assert self.sim.agent is not None
            self.sim.request(RequestKind(kind))

    def needs_a_human(self) -> bool:
        """The cloud broke the volume that holds the only copy: it is kept, and the agent says so."""
        kept = self.world.provider.existing()
        broken = any(v.state is VolumeState.ERROR for v in kept) and not self.world.lost()
        return broken and self.sim.phase is Phase.FAULTED and "missing" in self.sim.state.fault

    def settle(self) -> None:
        """The load is over and nothing fails any more: all of it must come to rest by itself."""
        try:
            self.sim.run_until_settled(CALM_S)
        except TimeoutError as error:
            if self.needs_a_human():
                return
            raise AssertionError(f"{self.told} | {error}") from error
        self.world.advance(60)
        assert self.world.volumes_left() == 0, self.told
        assert not self.world.lost(power_cut=True), self.told
