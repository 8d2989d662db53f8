"""A scenario in which the agent dies at a given point while something fails, and what must be true afterwards."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from elastio.accounting.recorder import CostRecorder
from elastio.agent.adviser import LearnedForecaster, forecast_terms
from elastio.agent.narration import EventLog
from elastio.config.sections import ProfileSection
from elastio.core.model import CacheMode, VolumeSpec, VolumeState, VolumeTag
from elastio.core.state import FaultKind, Phase
from elastio.strategy.learned import ForecastTerms
from elastio.units import GIB, agbs
from elastio_sim.run import Simulation
from elastio_sim.workload import Trace
from elastio_sim.world import SimWorld, WorldSettings
from tests.beside import Neighbour
from tests.fixtures.memory_ledger import MemoryLedger
from tests.moved import Operator, die_dirty
from tests.simulated import KERNEL, QUIET, edited

from .known_bursts import remember_bursts
from .scenarios import DOWN_S, FEW_BLOCKS, LIMIT_S, Scenario
from .watches import CapWatch, HumanWatch, LimitWatch, ShareWatch, SpeedWatch
from .way import WayWatch

logging.getLogger("elastio").addHandler(logging.NullHandler())  # everything is told, and nobody listens

# Writes are limited for no longer than a flush of a full cache takes, and not at all soon after the end.
LIMITED_S, LET_GO_S = 300.0, 5.0
# Writes are held back completely for moments only: before a disk is expected, and while a cache is put on or taken off.
HELD_S = 4.0
# A load is over when a sample has shown it.
SHOWN_S = 2.0
# Statements are written durably: on a disk, that would be waited for.
FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None
# Beyond a cap, what a release takes longer than predicted: a step that is repeated after a death, and a detach that
# waits for an instant without requests.
BEYOND_S = 30.0
# Bills are looked for up to here, whatever was done to the time of day.
TOMORROW_S = 86_400.0


class AgentKilled(BaseException):
    """Nothing in the agent may catch this, as nothing can catch SIGKILL."""


class CrashPoint:
    """Counts the points that a run passes and does something at the one that is `armed`; it strikes once."""

    def __init__(self, armed: int | None = None, strike: Callable[[str], None] | None = None) -> None:
        self.armed, self.passed = armed, list[str]()
        self.strike = strike or self.kill

    @staticmethod
    def kill(point: str) -> None:
        raise AgentKilled(point)

    def __call__(self, point: str) -> None:
        self.passed.append(point)
        if self.armed == len(self.passed) - 1:
            self.armed = None
            self.strike(point)


def is_at_rest(sim: Simulation) -> bool:
    """The agent is idle, has asked the cloud, and the world knows of no volume: nobody's own word is taken for it."""
    state = sim.state
    is_idle = sim.agent is not None and state.recovered and state.phase is Phase.IDLE and state.cycle is None
    is_idle = is_idle and state.memory.awaited is None and not state.memory.expected
    return is_idle and state.listed is not None and sim.world.volumes_left() == 0


def is_held_back(sim: Simulation) -> bool:
    """Applications may not do what they want."""
    kernel = sim.world.kernel
    return kernel.bcache.write_limit_mb_s is not None or kernel.holds_writes


def has_bared(world: SimWorld) -> bool:
    """A power cut now would lose something because writes bypass the cache: a clean copy goes with the first of them.

    What somebody else's hand did to the cache is forgiven.
    """
    bcache = world.kernel.bcache
    is_bypassed = bcache.cache is not None and bcache.mode is CacheMode.NONE and not bcache.is_forgiven
    return is_bypassed and bool(world.lost(power_cut=True))


def is_tagged_clean(world: SimWorld) -> bool:
    """The volume that serves as the cache, dirty or not: a janitor who finds it without its machine may delete it."""
    disk = world.kernel.cache_disk()
    volumes = world.provider.existing()
    return disk is not None and any(v.serial == disk.serial and v.tag is VolumeTag.CLEAN for v in volumes)


def has_fault(sim: Simulation, kind: FaultKind) -> bool:
    return sim.state.fault is not None and sim.state.fault.kind is kind


def is_left_to_a_human(sim: Simulation) -> bool:
    """A clean cache was torn off, and the machine booted before anybody looked: its volume, or the device, is newer.

    Or somebody took the cache off by hand, or the cloud broke the volume with the only copy, and the agent keeps it.
    Or the disk was swapped, unseen, for one without a cache during the detach: the clean cache was released, and the
    disk, which is back, still names it.
    """
    if sim.world.lost():
        return False
    cycle, kernel = sim.state.cycle, sim.world.kernel
    broken = any(v.state is VolumeState.ERROR for v in sim.world.provider.existing())
    if broken and sim.phase is Phase.FAULTED and has_fault(sim, FaultKind.CACHE_MISSING):
        return True
    if kernel.was_detached_by_hand and sim.phase is Phase.FAULTED and sim.world.volumes_left() == 1:
        return True
    waits = not kernel.bcache.running and not kernel.bcache.sb_dirty
    if kernel.was_swapped_unseen and waits and has_fault(sim, FaultKind.CACHE_MISSING):
        return True
    in_doubt = sim.phase is Phase.FAULTED and cycle is not None and (cycle.may_lack_data or waits)
    return in_doubt and cycle is not None and cycle.serial in kernel.away and kernel.boots > 0


class Run:
    """One run of a scenario, checked after every step."""

    def __init__(self, scenario: Scenario, crash_point: CrashPoint, statements: Path) -> None:
        """`statements`: the directory of those, where caps are shared."""
        self.scenario, self.acts, self.crash_point = scenario, list(scenario.acts), crash_point
        load = Trace(scenario.load, scenario.blocks * KERNEL.block_bytes, KERNEL.block_bytes)
        shared = statements if scenario.policy.caps.shared else None
        kernel = replace(KERNEL, is_adopted=scenario.adopted)
        settings = WorldSettings(kernel=kernel, seed=3, tariff=scenario.tariff, statements=shared)
        self.world = SimWorld(settings, load)
        if scenario.orphan:
            self.world.provider.create("forgotten", VolumeSpec(GIB, 80), {})
            self.world.advance(5.0)  # a new volume is not listed at once
        moved = die_dirty(self.world, scenario.policy) if scenario.moved else None
        self.ledger = MemoryLedger()
        self.recorder = CostRecorder(self.ledger, KERNEL.backing_uuid)
        self.sim = Simulation(
            self.world,
            scenario.policy,
            recorder=self.recorder,
            point=crash_point,
            forecaster=LearnedForecaster(self.recorder.past, self._forecast_terms),
            reporter=EventLog(KERNEL.backing_uuid),
        )
        self.sim.edited = edited(scenario.policy)
        self.beside = self._neighbour() if scenario.beside else None
        self.caps = CapWatch(self.sims, scenario.policy.caps)
        self.ledger.lock_while(self.sim.is_ledger_locked)
        if scenario.learned_s is not None:
            remember_bursts(self.ledger, self.world.clock.wall() + scenario.learned_s)
        self.limit, self.limited_s, self.held_s = LimitWatch(self.sim), LIMITED_S, HELD_S
        self.shares, self.speed = ShareWatch(self.sim), SpeedWatch(self.sim)
        if scenario.policy.bandwidth is not None:
            self.sim.keep_accounts(self.recorder.keep_accounts, ProfileSection())
        self.sim.on_step = self.check
        self.most_volumes = self.deaths = 0
        self.may_fault, self.was_seen_to_fail = scenario.moved, False
        self.human = HumanWatch(self.sim, self.needs_a_human)
        self.way = WayWatch(self.sim, scenario.load)
        self.operator = None if moved is None else Operator(self.sim, moved, self.way)

    def _neighbour(self) -> Neighbour:
        load = Trace(self.scenario.beside, FEW_BLOCKS * KERNEL.block_bytes, KERNEL.block_bytes)
        return Neighbour(self.sim, self.scenario.policy, load, seed=4)

    @property
    def sims(self) -> tuple[Simulation, ...]:
        return (self.sim,) if self.beside is None else (self.sim, self.beside.sim)

    def _forecast_terms(self) -> ForecastTerms | None:
        agent = self.sim.agent
        return None if agent is None else forecast_terms(agent, None)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.ledger.close()

    def check(self) -> None:
        if self.beside is not None:
            self.beside.keep_up()
        assert not self.world.lost(), f"{len(self.world.lost())} blocks are lost: {self.sim.standing()}"
        harm = self.world.kernel.bcache.harm()
        assert not harm, f"{harm}: {self.sim.standing()}"
        assert not self.sim.state.is_stopped, f"a decision broke a rule: {self.sim.standing()}"
        assert not self.world.is_only_copy_unplugged(), f"the only copy was unplugged: {self.sim.standing()}"
        assert not has_bared(self.world), f"bypassed before it was durable: {self.sim.standing()}"
        assert not is_tagged_clean(self.world), f"a cache is tagged clean: {self.sim.standing()}"
        limited, held = self.limit.seconds()
        assert limited < self.limited_s, f"writes stay limited: {self.sim.standing()}"
        assert held < self.held_s, f"writes stay held back: {self.sim.standing()}"
        broken = self.way.broken() or self.shares.broken() or self.caps.broken() or self.speed.broken()
        assert not broken, f"{broken}: {self.sim.standing()}"
        assert not self.world.kernel.could_be_mounted_alone(), f"without its cache: {self.sim.standing()}"
        left = self.world.volumes_left()
        if self.operator is not None:
            self.operator.ask()
        self.most_volumes = max(self.most_volumes, left)
        assert self.most_volumes <= self.scenario.volumes, self.sim.standing()
        assert self.may_fault or self.sim.phase is not Phase.FAULTED, self.sim.standing()
        if not left:
            assert not self.world.lost(power_cut=True), f"released before it was durable: {self.sim.standing()}"
            assert not self.world.kernel.would_wait(), f"its superblock was not durable: {self.sim.standing()}"

    def run(self, die: Callable[[], None]) -> None:
        """To the end of the scenario, or to where only a human goes on; `die` is called when the crash_point is hit."""
        while True:
            try:
                self._run()
            except AgentKilled:
                self.deaths += 1
                die()
            else:
                return

    def _run(self) -> None:
        if self.sim.agent is None:
            self.sim.start_agent()  # it died in a step of an act that had stopped it
        while self.acts:
            condition, act = self.acts[0]
            self._until(partial(condition, self.sim))
            if self.human.is_stuck():
                return
            self.acts.pop(0)
            act(self.sim)
        ends_at = sum(s.seconds for s in self.scenario.load if s is not QUIET)
        self.sim.run_until(lambda: self.world.clock.elapsed() > ends_at + SHOWN_S, LIMIT_S)
        self._until(lambda: all(map(is_at_rest, self.sims)) and self.recorder.unrecorded == 0)
        self.sim.run_for(LET_GO_S)

    def _until(self, condition: Callable[[], bool]) -> None:
        self.sim.run_until(lambda: condition() or self.human.is_stuck(), LIMIT_S)

    def check_at_rest(self, late_s: float, *, is_clock_known: bool = True) -> None:
        """Nothing is left, nothing is lost, and the bill is known: too late by at most `late_s`, never too small."""
        assert self.world.volumes_left() == 0
        assert not is_held_back(self.sim), "applications are held back at rest"
        assert not self.world.lost(power_cut=True), "something was released before it was durable"
        kernel = self.world.kernel
        assert kernel.bcache.superblock.needed_set in (None, self.sim.state.failed_clean_set)
        assert not kernel.has_tombstone or kernel.bcache.sb_set, "a tombstone stays"
        wall = self.world.clock.wall()
        ends = [cycle.closed_wall for cycle in self.ledger.cycles(0.0, wall + TOMORROW_S) if cycle.opened_wall]
        assert None not in ends, "a bill runs on for ever"
        assert len(ends) == len(self.world.provider.volumes), "a volume has no bill"
        if not is_clock_known:
            return
        claimed, real = self.ledger_agbs(), self.world.provider.bill_agbs()
        specs = [volume.spec for volume in self.world.provider.volumes.values()]
        per_s = max((agbs(spec.bandwidth_mb_s, spec.size_bytes, 1.0) for spec in specs), default=1.0)
        beyond = self.caps.beyond_s()
        assert beyond <= BEYOND_S + late_s, f"{beyond:.0f} s beyond the cap"
        late = (claimed - real) / per_s
        assert -1.0 / per_s <= late <= late_s, f"the ledger is {late:.2f} s late, {late_s:.2f} s are allowed"

    def needs_a_human(self) -> bool:
        return self.may_fault and not self.was_seen_to_fail and is_left_to_a_human(self.sim)

    def kill(self) -> None:
        self.sim.start_agent()

    def kill_and_wait(self) -> None:
        """What was under way goes on while nobody looks."""
        self.sim.kill_agent()
        self.sim.run_for(DOWN_S)
        self.sim.start_agent()

    def power_cut(self) -> None:
        self.sim.power_cut()

    def lose_cache_at_boot(self) -> None:
        """The cache disk dies before the agent has looked."""
        self.sim.power_cut()
        self.world.vanish()

    def lose_cache_unseen(self) -> None:
        """The device goes on without a clean one for a while, and waits for it after the boot."""
        self.sim.kill_agent()
        self.world.vanish()
        self.world.advance(DOWN_S)
        self.sim.power_cut()

    def lose_cache_seen(self) -> None:
        """An agent sees its cache fail, clean, and the power is cut afterwards: what it knew, nobody has to tell."""
        self.sim.start_agent()
        self.world.vanish()
        self.sim.run_for(DOWN_S)
        self.was_seen_to_fail = self.sim.state.failed_clean_set != "" and self.sim.phase is not Phase.FAULTED
        self.sim.power_cut()

    def ledger_agbs(self) -> float:
        tomorrow = self.world.clock.wall() + TOMORROW_S
        return sum(c.agbs(0.0, tomorrow) for c in self.ledger.cycles(0.0, tomorrow))

    def decisions(self) -> list[str]:
        records = (json.loads(line) for line in self.sim.lines)
        return [f"{r['now']:.1f} {r['from']} -> {r['to']}: {r['reason']}" for r in records if r["kind"] == "decision"]
