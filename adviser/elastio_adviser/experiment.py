"""The three-way comparison: the same application on a slow volume, on a fast one, and on the adaptive device."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType

from elastio.core.cycle import Cycle
from elastio.core.policy import Policy
from elastio.strategy.spending import Caps
from elastio.units import GB, GIB, agbs
from elastio_adviser.checkpointing import CM1, LAMMPS, Checkpointing, Profile, run_static
from elastio_sim.clock import SimClock
from elastio_sim.faults import FaultPlan
from elastio_sim.kernel import KernelSettings
from elastio_sim.records import MemoryRecorder
from elastio_sim.run import Simulation, TimelinePoint
from elastio_sim.world import SimWorld, WorldSettings

# A few minutes of an application that dumps often: quick to run, quick to understand.
DEMO = Profile(compute_s=120, dump_bytes=2 * GB, iterations=3, initial_bytes=3 * GB)
EXPERIMENTS = MappingProxyType({"demo": DEMO, "cm1": CM1, "lammps": LAMMPS})


@dataclass(frozen=True, slots=True)
class Experiment:
    """What is compared. `faults` is a specification of `elastio_sim.faults` for the adaptive run."""

    profile: Profile = CM1
    backing_mb_s: float = 33.0
    cache_mb_s: float = 128.0
    size_bytes: int = 50 * GB
    initial_bytes: int = 10 * GIB
    inactivity_delay_s: float = 30.0
    seed: int = 0
    faults: str = "nothing"
    drain_mb_s: float | None = None  # in addition, to flush during a burst; None: as `backing_mb_s`

    def policy(self, backing_uuid: str) -> Policy:
        """The settings of the agent."""
        return Policy(
            backing_bandwidth_mb_s=self.backing_mb_s,
            cache_bandwidth_mb_s=self.cache_mb_s,
            drain_bandwidth_mb_s=self.backing_mb_s if self.drain_mb_s is None else self.drain_mb_s,
            inactivity_delay_s=self.inactivity_delay_s,
            initial_size_bytes=self.initial_bytes,
            backing_uuid=backing_uuid,
            caps=Caps(max_size_bytes=max(self.initial_bytes, Caps().max_size_bytes)),
        )


@dataclass(frozen=True, slots=True)
class Setup:
    """One of the three. `completion_s` excludes the initial dump; `agbs` includes it, and every cache until its end."""

    name: str
    completion_s: float
    agbs: float


@dataclass(frozen=True, slots=True)
class BoostResult:
    """One boost, from its decision to the end of its bill."""

    started_s: float
    size_bytes: int
    boosted_after_s: float | None
    held_s: float
    peak_dirty_bytes: int
    written_through_bytes: int
    agbs: float
    failure: str


@dataclass(frozen=True, slots=True)
class Comparison:
    slow: Setup
    fast: Setup
    adaptive: Setup
    cache_agbs: float
    phases: tuple[BoostResult, ...]
    lost_blocks: int
    volumes_left: int
    timeline: tuple[TimelinePoint, ...] = field(repr=False)


def compare(experiment: Experiment) -> Comparison:
    """Run all three. Raises ValueError for an invalid fault specification, TimeoutError if a run does not end."""
    slow = _static("static-slow", experiment, experiment.backing_mb_s)
    fast = _static("static-fast", experiment, experiment.cache_mb_s)
    recorder = MemoryRecorder()
    simulation = adaptive_run(experiment, recorder)
    world = simulation.world
    stats = world.workload.stats
    backing = agbs(experiment.backing_mb_s, experiment.size_bytes, stats.finished_s or 0.0)
    cache = world.provider.bill_agbs()
    return Comparison(
        slow,
        fast,
        Setup("adaptive", stats.completion_s or 0.0, backing + cache),
        cache,
        boosts_of(recorder, world.clock),
        len(world.lost()),
        world.volumes_left(),
        tuple(simulation.timeline),
    )


def adaptive_run(experiment: Experiment, recorder: MemoryRecorder) -> Simulation:
    """The application with the real agent, until it has ended and no volume is left."""
    kernel = KernelSettings(backing_mb_s=experiment.backing_mb_s, backing_bytes=experiment.size_bytes)
    load = Checkpointing(experiment.profile, experiment.size_bytes)
    world = SimWorld(WorldSettings(kernel=kernel, seed=experiment.seed), load, FaultPlan.parse(experiment.faults))
    simulation = Simulation(world, experiment.policy(kernel.backing_uuid), recorder=recorder, seed=experiment.seed)
    simulation.run_until(lambda: world.workload.done, _limit_s(experiment))
    simulation.run_until_settled(_limit_s(experiment))
    return simulation


def _limit_s(experiment: Experiment) -> float:
    """An hour, and four times what the slow volume would need."""
    profile = experiment.profile
    written = profile.initial_bytes + profile.iterations * profile.dump_bytes
    return 3600 + 4 * (
        profile.iterations * profile.compute_s + profile.tail_s + written / 1e6 / experiment.backing_mb_s
    )


def _static(name: str, experiment: Experiment, mb_s: float) -> Setup:
    run = run_static(experiment.profile, mb_s, experiment.size_bytes, experiment.seed)
    return Setup(name, run.completion_s, run.agbs)


def boosts_of(recorder: MemoryRecorder, clock: SimClock) -> tuple[BoostResult, ...]:
    """The boosts of a run that bought a volume; the bill of an open one ends now."""
    offset, wall = clock.wall() - clock.elapsed(), clock.wall()
    return tuple(_boost_of(c, offset, wall) for c in recorder.rows.values() if c.opened_wall is not None)


def _boost_of(cycle: Cycle, wall_offset: float, wall: float) -> BoostResult:
    """`wall_offset` is the wall clock at the start of the run."""
    opened = wall if cycle.opened_wall is None else cycle.opened_wall
    held = (wall if cycle.closed_wall is None else cycle.closed_wall) - opened
    boosted = cycle.times.boosted
    return BoostResult(
        started_s=cycle.started_wall - wall_offset,
        size_bytes=cycle.provisioned.size_bytes,
        boosted_after_s=None if boosted is None else boosted - cycle.started_at,
        held_s=held,
        peak_dirty_bytes=cycle.use.peak_dirty_bytes,
        written_through_bytes=cycle.use.written_through_bytes,
        agbs=agbs(cycle.provisioned.bandwidth_mb_s, cycle.provisioned.size_bytes, held),
        failure=str(cycle.failure or ""),
    )
