"""A storm: load, faults, scheduled faults, deaths and requests of one schedule, and what must hold all the while."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

from elastio.accounting.ledger import Ledger
from elastio.agent.adviser import HindsightAdviser
from elastio.agent.narration import EventLog
from elastio.config.sections import ProfileSection
from elastio.core.model import Forecast, RequestKind, VolumeTag
from elastio.core.policy import Policy
from elastio.core.state import Phase
from elastio.strategy.memory import SpeedBounds
from elastio.units import GIB
from elastio_sim.clock import SimClock
from elastio_sim.faults import SWAPS, FaultMode, FaultPlan
from elastio_sim.run import KeptRecorder, Simulation
from elastio_sim.workload import Segment, Trace
from elastio_sim.world import SimWorld, WorldSettings
from tests import simulated
from tests.beside import Neighbour
from tests.crash.crashes import (
    BEYOND_S,
    HELD_S,
    LIMITED_S,
    SHOWN_S,
    has_bared,
    is_at_rest,
    is_held_back,
    is_left_to_a_human,
)
from tests.crash.watches import CapWatch, HumanWatch, LimitWatch, ShareWatch, SpeedWatch
from tests.crash.way import WayWatch
from tests.moved import FIRST_LOAD, Operator, die_dirty
from tests.simulated import KERNEL, PROMPT_READERS, by_money, edited

from .schedule import Schedule, draw_load

POLICY = replace(
    simulated.POLICY,
    initial_size_bytes=GIB,
    reconcile_interval_s=120,
    tags_volumes=True,
    notice_poll_s=5.0,
    detach_throttle_after_s=10.0,
)
BOUNDS = SpeedBounds(40.0, 20.0, 50.0, 0.2)
CALM_S = 3000.0
HOLD_S = 30.0
DOWN_S = 20.0
# Written down here once more: what is checked is not asked.
ALLOWED = frozenset(
    {
        *((phase, Phase.FAULTED) for phase in Phase if phase is not Phase.FAULTED),
        (Phase.IDLE, Phase.ATTACHING),
        (Phase.IDLE, Phase.DETACHING),
        (Phase.ATTACHING, Phase.BOOSTING),
        (Phase.ATTACHING, Phase.IDLE),
        (Phase.ATTACHING, Phase.DETACHING),
        (Phase.ATTACHING, Phase.FLUSHING),  # an order to flush that comes with the end of the attach
        (Phase.BOOSTING, Phase.FLUSHING),
        (Phase.BOOSTING, Phase.DETACHING),
        (Phase.FLUSHING, Phase.BOOSTING),
        (Phase.FLUSHING, Phase.DETACHING),
        (Phase.DETACHING, Phase.FLUSHING),
        (Phase.DETACHING, Phase.IDLE),
    }
)
# A bill's end is seen within two looks of a second, unless what the schedule tells delays the look: a call without
# an answer until its time-out, another failure until it is asked again, nobody there.
SEEN_S = 2.0
MUTE_S = 75.0
FAILED_S = 10.0
MUTE = frozenset({FaultMode.HANG, FaultMode.LATE_SUCCESS})
AWAY = frozenset({FaultMode.STOP, FaultMode.KILL, FaultMode.DISK_FULL, FaultMode.LOCKED, *SWAPS})
FOREVER_S = 1e9
OTHER_SEED = 10_007
# A death may repeat a step of a release.
DEATHS, STEP_AGAIN_S = frozenset({"kill", "down", "power_cut", "stop", "shutdown"}), 20.0
# A database, or a file of checkpoints, writes the same blocks again and again; a log never does.
FEW_BLOCKS, MANY_BLOCKS = 24, 12_000


class Wild:
    """A forecaster that is wrong about everything until the storm is over."""

    def __init__(self, schedule: Schedule, clock: SimClock) -> None:
        self._draw, self._clock, self._until = Random(schedule.seed), clock, schedule.horizon_s

    def forecast(self, now: float, wall: float) -> Forecast | None:
        draw = self._draw
        if self._clock.elapsed() > self._until or draw.random() < 0.2:
            return None
        begins_at = now + draw.choice((0.0, draw.uniform(0, 60), draw.uniform(-20, 90), math.inf, math.nan))
        return Forecast(begins_at, draw.choice((-1, 0, int(draw.uniform(0, 8e9)))), draw.uniform(0.7, 1))


def _under_cap(policy: Policy, schedule: Schedule, *, is_shared: bool) -> Policy:
    if schedule.cap is None:
        return policy
    return replace(policy, caps=schedule.cap.caps(policy.bought_bandwidth_mb_s, is_shared=is_shared))


def _as_drawn(policy: Policy, schedule: Schedule) -> Policy:
    policy = replace(policy, share_reserve=(), share_latency=PROMPT_READERS) if schedule.shares else policy
    return replace(policy, bandwidth=BOUNDS) if schedule.learns else policy


def _settings(schedule: Schedule, statements: Path | None) -> WorldSettings:
    kernel = replace(KERNEL, is_adopted=schedule.adopted)
    return WorldSettings(kernel=kernel, seed=schedule.seed, statements=statements)


class Storm:
    """One run. `check` holds after every step whatever happens; `settle` ends it."""

    def __init__(
        self,
        schedule: Schedule,
        recorder: KeptRecorder | None = None,
        *,
        policy: Policy = POLICY,
        statements: Path | None = None,
    ) -> None:
        self.schedule = schedule
        policy = _under_cap(policy, schedule, is_shared=schedule.beside and statements is not None)
        self.plan = FaultPlan.parse(schedule.faults)
        span = (FEW_BLOCKS if schedule.rewrites else MANY_BLOCKS) * KERNEL.block_bytes
        self.load = (*FIRST_LOAD, *schedule.load) if schedule.moved else schedule.load
        load = Trace((*self.load, Segment(FOREVER_S, 0)), span, KERNEL.block_bytes)
        self.world = SimWorld(_settings(schedule, statements), load)
        self.moved = moved = die_dirty(self.world, policy) if schedule.moved else None
        self.world.faults.begin(self.plan)
        policy = _as_drawn(policy, schedule)
        self.sim = Simulation(
            self.world,
            by_money(policy) if schedule.money else policy,
            recorder=recorder,
            seed=schedule.seed,
            forecaster=Wild(schedule, self.world.clock) if schedule.wild else None,
            adviser=HindsightAdviser() if schedule.money else None,
            reporter=EventLog(KERNEL.backing_uuid),
        )
        if schedule.learns:
            self.sim.keep_accounts(lambda rows, moves: None, ProfileSection())
        self.sim.edited = edited(self.sim.policy)
        self.beside = self._neighbour(policy) if schedule.beside else None
        self._seen = (self.sim.starts, False, self.sim.phase)
        self._human = HumanWatch(self.sim, partial(is_left_to_a_human, self.sim))
        self._limit, self._failing_s = LimitWatch(self.sim), self.late_s() - self.full_s()
        self._shares, self._speed = ShareWatch(self.sim, self._failing_s), SpeedWatch(self.sim)
        self._way = WayWatch(self.sim, self.load, is_clock_known=not self._is_clock_wrong())
        self.operator = None if moved is None else Operator(self.sim, moved, self._way)
        self.caps = CapWatch(self.sims, self.sim.policy.caps, self._failing_s)
        self.sim.on_step = self.check

    def _neighbour(self, policy: Policy) -> Neighbour:
        """The other device's load is drawn by the same rules. If the machine has one slot, one device has a cache."""
        seed = self.schedule.seed + OTHER_SEED
        load = Trace((*draw_load(Random(seed)), Segment(FOREVER_S, 0)), block_bytes=KERNEL.block_bytes)
        return Neighbour(self.sim, policy, load, seed, slots=1 + seed % 2)

    @property
    def sims(self) -> tuple[Simulation, ...]:
        return (self.sim,) if self.beside is None else (self.sim, self.beside.sim)

    def check(self) -> None:
        """What must never happen, after every step."""
        if self.beside is not None:
            self.beside.keep_up()
        if self.operator is not None:
            self.operator.ask()
        left = self.world.volumes_left()
        assert not self.world.lost(), f"{len(self.world.lost())} blocks are lost: {self._where()}"
        harm = self.world.kernel.bcache.harm()
        assert not harm, f"{harm}: {self._where()}"
        assert not self.sim.state.is_stopped, f"a decision broke a rule: {self._where()}"
        assert not self.world.is_only_copy_unplugged(), f"the only copy was unplugged: {self._where()}"
        assert not self.is_unmarked(), f"dirty data on a volume that is not tagged so: {self._where()}"
        assert not has_bared(self.world), f"bypassed before it was durable: {self._where()}"
        assert not self._shares.broken(), f"{self._shares.broken()}: {self._where()}"
        limited, held = self._limit.seconds()
        assert limited < LIMITED_S + self._failing_s, f"writes stay limited: {self._where()}"
        assert held < HELD_S + self._failing_s, f"writes stay held back: {self._where()}"
        broken = self._way.broken() or self.caps.broken() or self._speed.broken()
        assert not broken, f"{broken}: {self._where()}"
        assert not self.world.kernel.could_be_mounted_alone(), f"without its cache: {self._where()}"
        assert left <= 1, f"two volumes: {self._where()}"
        if not left:
            assert not self.world.lost(power_cut=True), f"released before it was durable: {self._where()}"
            assert not self.world.kernel.would_wait(), f"released before its superblock was durable: {self._where()}"
        self._check_transition()

    def is_unmarked(self) -> bool:
        """Whoever finds the volume without its machine would delete it."""
        disk = self.world.kernel.cache_disk()
        if disk is None or not self.world.kernel.bcache.dirty_bytes:
            return False
        return not any(v.serial == disk.serial and v.tag is VolumeTag.DIRTY for v in self.world.provider.existing())

    def _where(self) -> str:
        return f"{self.schedule} # at {self.world.clock.elapsed():.1f}: {self.sim.standing()}"

    def _check_transition(self) -> None:
        starts, recovered, before = self._seen
        state = self.sim.state
        self._seen = (self.sim.starts, state.recovered, state.phase)
        if not recovered or starts != self.sim.starts or before in (state.phase, Phase.FAULTED):
            return
        by_way_of_idle = (before, Phase.IDLE) in ALLOWED and (Phase.IDLE, state.phase) in ALLOWED
        assert (before, state.phase) in ALLOWED or by_way_of_idle, f"{before} to {state.phase}: {self._where()}"

    def run(self) -> None:
        for happening in self.schedule.happenings:
            self.sim.run_for(max(0.0, happening.at_s - self.world.clock.elapsed()))
            self.happen(happening.kind)
        self.sim.run_for(max(0.0, self.schedule.horizon_s + 10 - self.world.clock.elapsed()))
        self.settle()

    def happen(self, kind: str) -> None:
        if kind == "kill":
            self.sim.start_agent()
        elif kind in ("down", "stop"):
            if kind == "stop" and self.sim.agent is not None:
                self.sim.request(RequestKind.SHUTDOWN)
                self.sim.step()
            self.sim.kill_agent()
            self.sim.run_for(DOWN_S)
            if self.sim.agent is None:
                self.sim.start_agent()
        elif kind == "power_cut":
            self.sim.power_cut()
        elif self.sim.agent is not None:
            # By root, who accepts what `resume` may lose: a fault that only that ends must not end the run.
            self.sim.request(RequestKind(kind), seconds=HOLD_S, accepts_loss=kind == "resume")

    def _is_over(self) -> bool:
        """A load waits while its device does: it may end long after the storm, and has pauses of its own."""
        is_done = self.world.workload.elapsed_s > sum(s.seconds for s in self.load) + SHOWN_S
        return (all(map(is_at_rest, self.sims)) and is_done) or self._human.is_stuck()

    def settle(self) -> None:
        """The load is over and nothing fails any more: all of it must come to rest by itself."""
        self._come_to_rest()
        self.sim.run_for(60)
        self._come_to_rest()  # an order of the last moment may have begun another cycle
        if is_left_to_a_human(self.sim):
            return
        assert not is_held_back(self.sim), f"applications are held back at rest: {self._where()}"
        assert self.world.volumes_left() == 0, self._where()
        kernel = self.world.kernel
        assert not kernel.has_tombstone or kernel.bcache.sb_set, f"a tombstone stays: {self._where()}"
        self._check_caps()
        assert not self.world.lost(power_cut=True), self._where()

    def _come_to_rest(self) -> None:
        try:
            self.sim.run_until(self._is_over, CALM_S + self.away_s())
        except TimeoutError as error:
            raise AssertionError(f"{self.schedule} # {error}") from error

    # --- the bill --------------------------------------------------------------------------------------------

    def check_ledger(self, ledger: Ledger) -> None:
        """Every volume has its bill, from its purchase to its deletion; too late by what was in the way, never less."""
        rows = {c.token: c for c in ledger.cycles(0.0, FOREVER_S * 10) if c.opened_wall is not None}
        for volume in self.world.provider.volumes.values():
            row = rows.get(volume.token)
            assert row is not None, f"volume {volume.id} has no bill: {self._where()}"
            if volume.deleted_at is None:
                continue  # kept for a human
            assert row.opened_wall is not None
            assert row.closed_wall is not None, f"the bill of {volume.id} runs on for ever: {self._where()}"
            late_s = (row.closed_wall - row.opened_wall) - (volume.deleted_at - volume.created_at)
            text = f"the bill of {volume.id} is {late_s:.2f} s too long, {self.late_s():.0f} s may be: {self._where()}"
            assert self._is_clock_wrong() or -0.01 <= late_s <= self.late_s(), text

    def _check_caps(self) -> None:
        """Beyond a cap is only what volumes cost while nobody could release them."""
        deaths = sum(h.kind in DEATHS for h in self.schedule.happenings)
        may_s = BEYOND_S * len(self.sims) + deaths * (BEYOND_S + STEP_AGAIN_S) + self.failing_s() + self.caps.kept_s
        may_s += self._taken_over_s()
        beyond = self.caps.beyond_s()
        text = f"{beyond:.0f} s beyond the cap, {may_s:.0f} s may be: {self._where()}"
        assert self._is_clock_wrong() or beyond <= may_s, text

    def _taken_over_s(self) -> float:
        """For how long the volume is billed that another machine had bought, and that no cap could spare."""
        if self.moved is None:
            return 0.0
        volume = self.world.provider.volumes[self.moved]
        lasted_s = (volume.deleted_at or self.world.clock.elapsed()) - volume.created_at
        return self.world.provider.account.tariff.billed_s(lasted_s)

    def _is_clock_wrong(self) -> bool:
        return any(a.kind is FaultMode.WALL_JUMP for a in self.plan.scheduled)

    def away_s(self) -> float:
        """How long scheduled faults keep the agent from its work."""
        return sum(a.seconds for a in self.plan.scheduled if a.kind in AWAY)

    def full_s(self) -> float:
        """How long nothing can be written down."""
        return sum(a.seconds for a in self.plan.scheduled if a.kind is FaultMode.DISK_FULL)

    def failing_s(self) -> float:
        """For how long calls fail, and scheduled faults keep the agent from its work."""
        late = 0.0
        for fault in self.plan.faults:
            late += (MUTE_S if fault.kind in MUTE else FAILED_S) * max(1, fault.calls)
        return late + FAILED_S * len(self.plan.scheduled) + self.away_s()

    def late_s(self) -> float:
        """By how much the end of a bill may be seen too late."""
        return SEEN_S + self.failing_s() + (FAILED_S + DOWN_S) * len(self.schedule.happenings)
