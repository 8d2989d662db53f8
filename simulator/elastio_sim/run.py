"""The real loop on a simulated world: one agent that is stepped from event to event, killed and restarted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from elastio.accounting.shared_caps import SharedCaps
from elastio.agent.accountant import Accountant, Keep
from elastio.agent.accountant import lost as look_lost
from elastio.agent.cap_sharing import CapSharing
from elastio.agent.executor import Executor, lost
from elastio.agent.journal import Owner
from elastio.agent.loop import Agent, Serials, Workers
from elastio.agent.memory import bought, with_learned_size
from elastio.config.sections import ProfileSection
from elastio.core.actions import Action, Outcome
from elastio.core.cycle import Cycle
from elastio.core.model import HostView, Request, RequestKind
from elastio.core.policy import Policy
from elastio.core.state import NO_COURSE, AgentState, Answer, Course, Phase
from elastio.errors import ElastioError, JournalError, UnsyncedError
from elastio.ports import Adviser, Forecaster, Journal, NoReport, Recorder, Reporter
from elastio.units import MB
from elastio_sim.clock import SimWorker
from elastio_sim.faults import SHARED_CAPS, UNANNOUNCED_SWAPS, FaultMode, FaultPlan, ScheduledFault
from elastio_sim.group_watch import SimGroupWatch
from elastio_sim.records import MemoryJournal, MemoryRecorder, SpoiltCaps
from elastio_sim.world import SimWorld

# Steps are at least this long: an agent that always asked to be woken at once would stop the clock.
LEAST_STEP_S = 0.001
SAMPLE_S = 1.0
# Faults of the agent's files: for so many seconds.
LASTING = (FaultMode.DISK_FULL, FaultMode.LOCKED, *SHARED_CAPS)

Point = Callable[[str], None]
"""Called with a name wherever an agent may be killed: before and after every record, effect and outcome."""


class KeptRecorder(Recorder, Protocol):
    """A recorder with what a start needs beside it; see `accounting.recorder.CostRecorder`."""

    def learned_size(self) -> int | None: ...

    def recall(self, bought: Iterable[tuple[Cycle, float]]) -> None: ...


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """Throughput since the previous point, sizes now. `at_s` is simulated time."""

    at_s: float
    phase: Phase
    adaptive_mb_s: float
    backing_mb_s: float
    cache_mb_s: float
    cache_bytes: int
    dirty_bytes: int


class CrashPointJournal:
    """A journal with a crash point before and after every record. Its disk may be full."""

    def __init__(self, journal: Journal, point: Point, faults: FaultPlan, is_full: Callable[[], bool]) -> None:
        self._journal, self._point, self._faults, self._is_full = journal, point, faults, is_full

    @contextmanager
    def _record(self, name: str) -> Iterator[None]:
        self._point(f"before {name}")
        fault = self._faults.take("journal")
        is_unsynced = fault is not None and fault.kind is FaultMode.UNSYNCED
        if self._is_full() or (fault is not None and not is_unsynced):
            raise JournalError("cannot write the journal: No space left on device (simulated)")
        yield
        if is_unsynced:
            raise UnsyncedError("cannot write the journal: Input/output error (simulated)")
        self._point(f"after {name}")

    def intend(self, action: Action, state: AgentState, *, now: float, wall: float) -> None:
        with self._record(f"intent {type(action).__name__}"):
            self._journal.intend(action, state, now=now, wall=wall)

    def outcome(self, outcome: Outcome, *, now: float, wall: float) -> None:
        with self._record(f"outcome {type(outcome.action).__name__}"):
            self._journal.outcome(outcome, now=now, wall=wall)

    def note(self, state: AgentState, *, now: float, wall: float) -> None:
        if self._is_full():
            raise JournalError("cannot write the journal: No space left on device (simulated)")
        self._journal.note(state, now=now, wall=wall)

    def decision(
        self, before: Phase, state: AgentState, reason: str, *, now: float, wall: float, course: Course = NO_COURSE
    ) -> None:
        with self._record(f"decision {before} to {state.phase}"):
            self._journal.decision(before, state, reason, now=now, wall=wall, course=course)


def ignore(point: str) -> None:
    """The `Point` of a run in which no agent is killed."""


class Simulation:
    """A world and its agent. `agent` is None while none runs. Journal and recorder outlive it, as files do.

    So does the adviser: a real one reads the same bursts from the ledger again. `edited`: the policy of the
    configuration as an operator changes it and back, for a reload.
    """

    accountant: Accountant | None = None
    edited: Policy | None = None

    def __init__(
        self,
        world: SimWorld,
        policy: Policy,
        *,
        recorder: KeptRecorder | None = None,
        point: Point = ignore,
        forecaster: Forecaster | None = None,
        adviser: Adviser | None = None,
        reporter: Reporter | None = None,
        sample_interval_s: float = SAMPLE_S,
        seed: int = 1,
    ) -> None:
        self.world, self.policy = world, policy
        self.recorder: KeptRecorder = MemoryRecorder() if recorder is None else recorder
        self.point, self._forecaster = point, forecaster
        self._adviser, self._reporter = adviser, reporter or NoReport()
        self.lines: list[bytes] = []
        self.timeline: list[TimelinePoint] = []
        self.on_step: Callable[[], None] = lambda: None
        self.starts = 0
        self._interval, self._seed = sample_interval_s, seed
        self._recorded_at = 0.0
        self._moved: tuple[int, ...] = (0, 0, 0)
        self._boots = world.kernel.boots
        self._stopped_until = self._restart_at = float("-inf")
        self._until: dict[FaultMode, float] = {}  # when each of LASTING ends
        folder = world.settings.statements
        caps = None if folder is None else SpoiltCaps(folder, policy.backing_uuid, world.clock.wall, lasts=self.lasts)
        self.account: SharedCaps | None = caps
        world.on_agent = self.happen
        self._workers: tuple[SimWorker[Serials, HostView | str], SimWorker[Action, Outcome], SimWorker[Action, Outcome]]
        self.agent: Agent | None = None
        self.looks = SimGroupWatch(world.kernel, lambda: world.workload, look_lost)
        self._open_accountant: Callable[[], Accountant | None] = lambda: None
        self.journal = self._open_journal()
        self.start_agent()

    @property
    def state(self) -> AgentState:
        """The state of the agent that runs, or ran last."""
        return self._last.state

    @property
    def phase(self) -> Phase:
        return self._last.state.phase

    # --- life and death ------------------------------------------------------------------------------------

    def start_agent(self) -> None:
        """Start a new agent from the journal."""
        self.world.kernel.shares.is_orphaned = self.world.kernel.shares.plan is not None
        self.kill_agent()
        self._stopped_until = self._restart_at = float("-inf")
        self.starts += 1
        self.journal = self._open_journal()
        clock = self.world.clock
        memory = self.journal.remember(now=clock.now(), wall=clock.wall())
        self.recorder.recall(bought(self.journal.records(), self.journal.owner))
        self.agent = self._last = Agent(
            self.policy,
            with_learned_size(memory.state, self.recorder.learned_size()),
            workers=self._open_workers(),
            journal=CrashPointJournal(
                self.journal, self._pass, self.world.faults, partial(self.lasts, FaultMode.DISK_FULL)
            ),
            recorder=self.recorder,
            clock=clock,
            counters=self.world.counters,
            sample_interval_s=self._interval,
            seed=self._seed + self.starts,
        )
        self.world.counters.rights = lambda: self._last.policy.boost_rights
        self.agent.forecaster = self._forecaster
        self.agent.adviser = self._adviser
        self.agent.reporter = self._reporter
        self.accountant = self._open_accountant()
        if self.account is not None:
            self.agent.sharing = CapSharing(self.account)

    def _open_journal(self) -> MemoryJournal:
        """The journal, owned by the machine and the backing device of now."""
        kernel = self.world.kernel
        owner = Owner(self.policy.backing_uuid, kernel.settings.machine)
        return MemoryJournal(self.lines, kernel.boot_id, owner)

    def keep_accounts(self, keep: Keep, settings: ProfileSection) -> None:
        """From now on this agent and those after it keep the account of bursts."""
        self.world.on_tick = self.looks.observe
        self._open_accountant = lambda: Accountant(self.looks, keep, settings)
        self.accountant = self._open_accountant()

    def kill_agent(self) -> None:
        """SIGKILL. Calls under way continue, but nobody receives their answers."""
        if self.agent is not None:
            for worker in (*self._workers, self.looks):
                worker.abandon()
            self.agent = None
            self._stopped_until = float("-inf")

    def happen(self, fault: ScheduledFault) -> None:
        """Apply a fault of the agent."""
        until = self.world.clock.elapsed() + fault.seconds
        if fault.kind is FaultMode.STOP:
            self._stopped_until = until
        elif fault.kind is FaultMode.KILL:
            self.kill_agent()
            self._restart_at = until
        elif fault.kind in LASTING:
            self._until[fault.kind] = until
        elif fault.kind in UNANNOUNCED_SWAPS:
            self._swap_backing(fault)
        elif fault.kind is FaultMode.RELOAD and self.edited is not None:
            self.policy, self.edited = self.edited, self.policy
            if self.agent is not None:
                self.agent.policy = self.policy
        elif fault.kind is FaultMode.KILL_CHILD and self.agent is not None:
            self.world.kernel.shares.end()  # by the guard of the host worker
            for worker in self._workers:
                worker.lose()

    def _swap_backing(self, fault: ScheduledFault) -> None:
        """Only with a journal that knows of a cache can an agent tell such a copy from the disk."""
        clock = self.world.clock
        cycle = self.journal.remember(now=clock.now(), wall=clock.wall()).state.cycle
        if cycle is not None and cycle.times.boosted is not None:
            self.world.swap_backing(fault.seconds, fault.kind)

    def lasts(self, kind: FaultMode) -> bool:
        """This fault of LASTING is not over yet."""
        return self.world.clock.elapsed() < self._until.get(kind, float("-inf"))

    def is_ledger_locked(self) -> bool:
        """Somebody holds the write lock of the ledger."""
        return self.lasts(FaultMode.LOCKED)

    def power_cut(self) -> None:
        """The machine reboots, and a new agent starts."""
        self.world.power_cut()
        self._after_boot()

    def _after_boot(self) -> None:
        self.kill_agent()
        self.journal.power_cut()
        self._boots = self.world.kernel.boots
        self.start_agent()

    def _pass(self, name: str) -> None:
        self.point(name)

    def _open_workers(self) -> Workers:
        world = self.world
        executor = Executor(world.host, lambda: world.provider, lambda: world.meter.seconds, self.account)

        def scan(serials: Serials) -> HostView | str:
            try:
                return world.host.scan(serials)
            except ElastioError as error:
                return str(error)

        def carry_out(action: Action) -> Outcome:
            name = type(action).__name__
            self._pass(f"before {name}")
            outcome = executor.run(action)
            self._pass(f"after {name}")
            return replace(outcome, seconds=world.meter.seconds)

        scan_worker: SimWorker[Serials, HostView | str] = world.worker(
            scan, lambda _, s: f"no view of the kernel in {s:.0f} s"
        )
        cloud: SimWorker[Action, Outcome] = world.worker(carry_out, lost)
        host: SimWorker[Action, Outcome] = world.worker(carry_out, lost)
        self._workers = (scan_worker, cloud, host)
        return Workers(scan=scan_worker, cloud=cloud, host=host)

    # --- time ------------------------------------------------------------------------------------------------

    def step(self, most_s: float = SAMPLE_S) -> None:
        """Let the agent act, then let time pass until the next event, at most `most_s`."""
        clock = self.world.clock
        seconds = most_s
        if self.agent is None and float("-inf") < self._restart_at <= clock.elapsed():
            self.start_agent()
        if self.agent is not None and clock.elapsed() >= self._stopped_until:
            self.agent.step()
            now = clock.now()
            if self.accountant is not None:
                self.accountant.step(self.agent, now=now, wall=clock.wall())
            events = [at for worker in (*self._workers, self.looks) if (at := worker.next_event_at()) is not None]
            seconds = min(most_s, max(LEAST_STEP_S, min((self.agent.wake_at(), *events)) - now))
        is_attended = self.agent is not None and clock.elapsed() >= self._stopped_until
        self.world.kernel.shares.watch(clock.elapsed(), is_attended=is_attended)
        self.world.advance(seconds)
        self._record()
        if self.world.kernel.boots != self._boots:
            self._after_boot()
        self.on_step()

    def run_for(self, seconds: float) -> None:
        """Step for this long."""
        until = self.world.clock.elapsed() + seconds
        while (left := until - self.world.clock.elapsed()) > LEAST_STEP_S:
            self.step(min(left, SAMPLE_S))

    def run_until(self, condition: Callable[[], bool], limit_s: float) -> None:
        """Step until `condition` holds. Raises TimeoutError with `standing()` after `limit_s`."""
        until = self.world.clock.elapsed() + limit_s
        while not condition():
            if self.world.clock.elapsed() >= until:
                raise TimeoutError(f"not within {limit_s:g} s: {self.standing()}")
            self.step()

    def is_settled(self) -> bool:
        """True if the agent is idle and expects no burst, and the cloud has listed no volume of it since."""
        state = self._last.state
        idle = self.agent is not None and state.recovered and state.phase is Phase.IDLE
        expects = state.memory.awaited is not None or bool(state.memory.expected)
        return idle and not expects and state.listed is not None and not state.orphans

    def run_until_settled(self, limit_s: float = 1800.0) -> None:
        """Step until the agent has nothing left to do. Raises TimeoutError after `limit_s`."""
        self.run_until(self.is_settled, limit_s)

    def standing(self) -> str:
        """Phase, wait and fault of the agent in one line."""
        state, agent = self._last.state, self._last
        said = [str(state.phase), state.waiting_for, str(state.fault or ""), agent.last_error]
        return "; ".join(s for s in said if s) + f"; {self.world.volumes_left()} volumes are left"

    # --- the operator ----------------------------------------------------------------------------------------

    def request(self, kind: RequestKind, size_bytes: int | None = None, **fields: Any) -> list[Answer]:
        """Send a request. The answer is added to the list, unless the agent dies. Raises RuntimeError without one."""
        answers: list[Answer] = []
        if self.agent is None:
            raise RuntimeError("no agent runs")
        self.agent.request(Request(kind, size_bytes, **fields), answers.append)
        return answers

    def ask(self, kind: RequestKind, size_bytes: int | None = None, limit_s: float = 60.0, **fields: Any) -> Answer:
        """Send a request and step until it is answered."""
        answers = self.request(kind, size_bytes, **fields)
        self.run_until(lambda: bool(answers), limit_s)
        return answers[0]

    # --- records ---------------------------------------------------------------------------------------------

    def _record(self) -> None:
        kernel, now = self.world.kernel, self.world.clock.elapsed()
        seconds = now - self._recorded_at
        if seconds < self._interval:
            return
        traffic, before = kernel.traffic, self._moved
        self._moved = tuple(t.read + t.written for t in (traffic.adaptive, traffic.backing, traffic.cache))
        self._recorded_at = now
        adaptive, backing, cache = (
            max(0, new - old) / seconds / MB for new, old in zip(self._moved, before, strict=True)
        )
        disk = kernel.cache_disk()
        size = disk.size_bytes if disk else 0
        self.timeline.append(TimelinePoint(now, self.phase, adaptive, backing, cache, size, kernel.bcache.dirty_bytes))
