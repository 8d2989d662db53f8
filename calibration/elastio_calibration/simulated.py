"""A simulated target: the real agent on the simulator's kernel, cloud and clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace

from elastio.accounting.rows import CycleRow, StepDurations, row_of
from elastio.core.cycle import Cycle
from elastio.core.model import RequestKind
from elastio.core.policy import Policy
from elastio.errors import ElastioError
from elastio.strategy.spending import Caps
from elastio.units import GB, GIB
from elastio_adviser.checkpointing import Checkpointing, Profile
from elastio_calibration.errors import CalibrationError
from elastio_calibration.record import Header, SavedState
from elastio_calibration.schedule import WRITE, Point
from elastio_calibration.target import Labels, LedgerPosition, check_sizes, ending_with, header_of, prices_of
from elastio_sim.kernel import KernelSettings
from elastio_sim.records import MemoryRecorder
from elastio_sim.run import SAMPLE_S, Simulation
from elastio_sim.workload import Workload
from elastio_sim.world import SimWorld, WorldSettings

QUOTED_GIB = (1, 2, 4, 6, 8, 10, 12, 16, 24, 32, 64, 100)


@dataclass(frozen=True, slots=True)
class Machine:
    """The simulated kernel, cloud and host, and the agent's settings."""

    settings: WorldSettings
    policy: Policy
    sample_interval_s: float = SAMPLE_S


def machine(
    backing_mb_s: float = 33.0,
    cache_mb_s: float = 128.0,
    backing_bytes: int = 50 * GB,
    initial_bytes: int = 10 * GIB,
    inactivity_delay_s: float = 30.0,
) -> Machine:
    """The published machine on the simulator's cloud."""
    kernel = KernelSettings(backing_mb_s=backing_mb_s, backing_bytes=backing_bytes)
    policy = Policy(
        backing_bandwidth_mb_s=backing_mb_s,
        cache_bandwidth_mb_s=cache_mb_s,
        drain_bandwidth_mb_s=backing_mb_s,
        inactivity_delay_s=inactivity_delay_s,
        initial_size_bytes=initial_bytes,
        backing_uuid=kernel.backing_uuid,
        caps=Caps(max_size_bytes=max(initial_bytes, Caps().max_size_bytes)),
    )
    return Machine(WorldSettings(kernel=kernel), policy)


class SimulatedTarget:
    """A simulated machine without any other load. `scale`: the scale of the sizes, as a condition."""

    def __init__(self, simulated: Machine | None = None, scale: float = 1.0) -> None:
        simulated = simulated or machine()
        self.policy, self._sample_interval_s = simulated.policy, simulated.sample_interval_s
        self._labels = Labels("sim", "sim", scale=scale)
        self.recorder = MemoryRecorder()
        self.world = SimWorld(simulated.settings)
        self.simulation = Simulation(
            self.world,
            self.policy,
            recorder=self.recorder,
            sample_interval_s=simulated.sample_interval_s,
            seed=simulated.settings.seed,
        )
        self.simulation.run_until_settled()

    def header(self) -> Header:
        """See `Target`."""
        world = self.world
        size_bytes = world.settings.kernel.backing_bytes
        return header_of(
            self.policy,
            self._labels,
            kernel="simulated",
            cloud="sim",
            instance_type="simulated",
            sample_interval_s=self._sample_interval_s,
            backing_bytes=size_bytes,
            wall_s=world.clock.wall(),
            prices=prices_of(world.provider.quote, self.policy, size_bytes, [gib * GIB for gib in QUOTED_GIB]),
        )

    def locked(self) -> AbstractContextManager[None]:
        """See `Target`. Nobody else can use this machine."""
        return nullcontext()

    def check(self, points: Sequence[Point]) -> None:
        """See `Target`."""
        check_sizes(points, self.policy)

    def agent(self) -> SavedState:
        """See `Target`."""
        return SavedState(self.simulation.state.memory.learned_size_bytes, self.simulation.state.paused)

    def learn(self, size_bytes: int | None) -> None:
        """See `Target`."""
        self._ask(RequestKind.LEARN, self.policy.initial_size_bytes if size_bytes is None else size_bytes)

    def set_paused(self, paused: bool) -> None:
        """See `Target`."""
        self._ask(RequestKind.PAUSE if paused else RequestKind.RESUME)

    def _ask(self, kind: RequestKind, size_bytes: int | None = None) -> None:
        answer = self.simulation.ask(kind, size_bytes)
        if not answer.accepted:
            raise CalibrationError(f"the simulated agent refused the request: {answer.text}")

    def wait_idle(self, limit_s: float) -> None:
        """See `Target`."""
        try:
            self.simulation.run_until_settled(limit_s)
        except TimeoutError as error:
            raise ElastioError(f"the simulated agent does not become idle: {error}") from error
        self.simulation.run_for(self.policy.cool_down_s + 2)

    @contextmanager
    def dataset(self, point: Point, limit_s: float) -> Iterator[float]:
        """See `Target`."""
        with ending_with(self.clean):
            yield self.write(point)

    def write(self, point: Point) -> float:
        """Seconds to write the dataset. The simulator has no other pattern."""
        if point.pattern != WRITE:
            raise CalibrationError(f"the simulator has no model of the pattern {point.pattern}", code="pattern")
        dump = Profile(0.0, point.dataset_bytes, 1)
        load = Checkpointing(dump, self.world.settings.kernel.backing_bytes)
        self.world.workload = load
        limit_s = 60 + 10 * point.dataset_bytes / 1e6 / self.policy.backing_bandwidth_mb_s
        self.simulation.run_until(lambda: load.done, limit_s)
        return load.stats.dumps[0].seconds

    def clean(self) -> None:
        """End the application."""
        self.world.workload = Workload()

    def position(self) -> LedgerPosition:
        """See `Target`."""
        return LedgerPosition(self.world.clock.wall(), self.world.clock.elapsed())

    def boosts_since(self, position: LedgerPosition) -> tuple[CycleRow, ...]:
        """See `Target`. Nobody sets a simulated clock."""
        return tuple(_row(c) for c in self.recorder.rows.values() if c.started_wall >= position.wall_s)


def _row(cycle: Cycle) -> CycleRow:
    times = cycle.times
    steps = StepDurations(
        boost_s=None if times.boosted is None else times.boosted - cycle.started_at,
        attached_s=None if times.boosted is None or times.detached is None else times.detached - times.boosted,
    )
    peak, through = cycle.use.peak_in_use_percent, cycle.use.written_through_bytes
    return replace(row_of(cycle), steps=steps, peak_in_use_percent=peak, written_through_bytes=through)
