"""A station without a machine: the simulator's kernel and cloud under the real agent. Simulated time, so: seconds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime

from elastio import __version__
from elastio.core.cycle import Cycle
from elastio.core.model import RequestKind, VolumeSpec
from elastio.core.policy import Caps, Policy
from elastio.errors import ElastioError
from elastio.sim.kernel import KernelSettings
from elastio.sim.records import MemoryRecorder
from elastio.sim.run import SAMPLE_S, Simulation
from elastio.sim.workload import Checkpointing, Profile, Workload
from elastio.sim.world import SimWorld, WorldSettings
from elastio.units import GB, GIB
from elastio_calibration.errors import CalibrationError
from elastio_calibration.measurement import Conditions, Price, Prices
from elastio_calibration.record import Header
from elastio_calibration.schedule import WRITE, Wanted
from elastio_calibration.station import Boost, Mark, check_sizes

QUOTED_GIB = (1, 2, 4, 6, 8, 10, 12, 16, 24, 32, 64, 100)


@dataclass(frozen=True, slots=True)
class Machine:
    """What is simulated: kernel, cloud and host, and the agent's settings."""

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
    """The published machine, and the simulator's own cloud."""
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


class SimulatedStation:
    """A simulated machine that does nothing but what is measured. `scale`: of the sizes, as a condition."""

    def __init__(self, simulated: Machine | None = None, scale: float = 1.0) -> None:
        simulated = simulated or machine()
        self.policy, self._sample_interval_s = simulated.policy, simulated.sample_interval_s
        self._scale = scale
        self.books = MemoryRecorder()
        self.world = SimWorld(simulated.settings)
        self.simulation = Simulation(
            self.world,
            self.policy,
            recorder=self.books,
            sample_interval_s=simulated.sample_interval_s,
            seed=simulated.settings.seed,
        )
        self.simulation.run_until_settled()

    def header(self) -> Header:
        """See `Station`."""
        policy, kernel = self.policy, self.world.settings.kernel
        conditions = Conditions(
            kernel="simulated",
            cloud="sim",
            instance_type="simulated",
            backing_type="sim",
            cache_type="sim",
            backing_mb_s=kernel.backing_mb_s,
            cache_mb_s=policy.cache_bandwidth_mb_s,
            utilization_threshold=policy.utilization_threshold,
            inactivity_delay_s=policy.inactivity_delay_s,
            sample_interval_s=self._sample_interval_s,
            scale=self._scale,
            drain_mb_s=policy.drain_bandwidth_mb_s,
        )
        made = datetime.fromtimestamp(self.world.clock.wall(), UTC).isoformat(timespec="seconds")
        return Header(conditions, kernel.backing_bytes, made, f"elastio {__version__}", self._prices())

    def _prices(self) -> Prices:
        quote, mb_s = self.world.provider.quote, self.policy.cache_bandwidth_mb_s
        slow = quote(VolumeSpec(self.world.settings.kernel.backing_bytes, self.policy.backing_bandwidth_mb_s))
        fast = quote(VolumeSpec(self.world.settings.kernel.backing_bytes, mb_s))
        caches = [quote(VolumeSpec(gib * GIB, self.policy.bought_bandwidth_mb_s)) for gib in QUOTED_GIB]
        return Prices(
            currency=slow.currency,
            source=slow.price_source,
            minimum_s=slow.minimum_s,
            slow_per_hour=slow.price_per_hour,
            fast_per_hour=fast.price_per_hour,
            caches=tuple(Price(q.spec.size_bytes, q.price_per_hour) for q in caches),
        )

    def claimed(self) -> AbstractContextManager[None]:
        """See `Station`: nobody else knows this machine."""
        return nullcontext()

    def check(self, points: Sequence[Wanted]) -> None:
        """See `Station`."""
        check_sizes(points, self.policy)

    def learned_bytes(self) -> int | None:
        return self.simulation.state.learned_size_bytes

    def initial_bytes(self) -> int:
        return self.policy.initial_size_bytes

    def is_paused(self) -> bool:
        return self.simulation.state.paused

    def learn(self, size_bytes: int) -> None:
        self._ask(RequestKind.LEARN, size_bytes)

    def pause(self) -> None:
        self._ask(RequestKind.PAUSE)

    def resume(self) -> None:
        self._ask(RequestKind.RESUME)

    def _ask(self, kind: RequestKind, size_bytes: int | None = None) -> None:
        answer = self.simulation.ask(kind, size_bytes)
        if not answer.accepted:
            raise CalibrationError(f"the simulated agent refused: {answer.text}")

    def rest(self, limit_s: float) -> None:
        """See `Station`."""
        try:
            self.simulation.run_until_settled(limit_s)
        except TimeoutError as error:
            raise ElastioError(f"the simulated agent does not come to rest: {error}") from error
        self.simulation.run_for(self.policy.cool_down_s + 2)

    def prepare(self, wanted: Wanted, limit_s: float) -> None:
        """See `Station`. Nothing: only writes are known."""

    def write(self, wanted: Wanted) -> float:
        """See `Station`. The simulated application writes; other patterns it does not know."""
        if wanted.pattern != WRITE:
            raise CalibrationError(f"the simulator measures writes, not {wanted.pattern}")
        dump = Profile(0.0, wanted.dataset_bytes, 1)
        load = Checkpointing(dump, self.world.settings.kernel.backing_bytes)
        self.world.workload = load
        limit_s = 60 + 10 * wanted.dataset_bytes / 1e6 / self.policy.backing_bandwidth_mb_s
        self.simulation.run_until(lambda: load.done, limit_s)
        return load.stats.dumps[0].seconds

    def clean(self) -> None:
        self.world.workload = Workload()

    def mark(self) -> Mark:
        return Mark(len(self.books.rows))

    def boosts_since(self, mark: Mark) -> tuple[Boost, ...]:
        """See `Station`. Nobody sets a simulated clock."""
        return tuple(_boost(c) for c in list(self.books.rows.values())[int(mark.at) :])

    def now(self) -> float:
        return self.world.clock.elapsed()


def _boost(cycle: Cycle) -> Boost:
    opened, closed, marks = cycle.opened_wall, cycle.closed_wall, cycle.times
    held_s = 0.0 if opened is None or closed is None else closed - opened
    attached = None if marks.boosted is None or marks.detached is None else marks.detached - marks.boosted
    return Boost(
        sold_bytes=cycle.provisioned.size_bytes,
        held_s=held_s,
        attached_s=attached,
        boost_s=None if marks.boosted is None else marks.boosted - cycle.started_at,
        peak_in_use_percent=cycle.peak_in_use_percent,
        written_through_bytes=cycle.written_through_bytes,
        failure=str(cycle.failure or ""),
    )
