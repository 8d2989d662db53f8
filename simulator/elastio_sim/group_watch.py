"""What the agent sees of the tasks of two simulated cgroups: the one that writes and the one that reads.

The same readings as `host.group_watch` makes of /proc, ten a second while a look goes on, and the same arithmetic on
them. Each cgroup has one task. It is in state D while its request is in flight or held back, and runs otherwise: the
simulated application computes while it does not wait. Nothing is known of a cgroup before it has moved something in the
burst, so nothing during the first look, where a real machine may show some. As there, delay accounting is off, and a
look may hang.
"""

from __future__ import annotations

from collections.abc import Callable

from elastio.core.moved import Moved
from elastio.strategy.account import Limit, Totals, cap_in, totals_of
from elastio.strategy.waits import DiskCount, Instant, sample_of
from elastio.strategy.watched_bursts import Seen, Watch
from elastio.units import KIB
from elastio_sim.flows import Load
from elastio_sim.kernel import SimKernel
from elastio_sim.shares import READERS, WRITERS

LOOK_S, READING_S, LIST_S = 1.0, 0.1, 5.0
# `agent.daemon` ends the process that looks at rest.
REST_S = 60.0
REQUEST_BYTES = 512 * KIB
ROUNDING_S = 1e-6

Lost = Callable[[Watch, float], Seen]


class SimGroupWatch:
    """`ports.WorkerPort` of looks. `gone`: cgroups that were removed. `hangs`: the next look has no answer."""

    def __init__(self, kernel: SimKernel, load: Callable[[], Load], lost: Lost) -> None:
        self._kernel, self._load, self._lost = kernel, load, lost
        self.gone: set[str] = set()
        self.hangs = False
        self.looks = 0
        self._watch: Watch | None = None
        self._begun_at = self._deadline = 0.0
        self._burst: float | None = None
        self._first: dict[str, int] = {}
        self._since: dict[str, float] = {}
        self._instants: dict[str, list[Instant]] = {}
        self._listed: dict[str, int] = {}
        self._listed_at = float("-inf")
        self._steps: dict[str, Moved] = {}
        self._token: str | None = None
        self._steps_token: str | None = None
        self._busy_s, self._busy_at, self._busy_moved = 0.0, 0.0, 0

    @property
    def busy(self) -> bool:
        return self._watch is not None

    @property
    def trouble(self) -> str:
        return ""

    def submit(self, job: Watch, timeout_s: float) -> None:
        """Raises RuntimeError while busy."""
        if self.busy:
            raise RuntimeError("a look goes on")
        now = self._kernel.clock.now()
        if now - self._begun_at > REST_S:
            self._burst = None  # the child was ended at rest, and the next one knows nothing
        self._watch, self._begun_at, self._deadline = job, now, now + timeout_s
        self.looks += 1
        if self._burst != job.begun_at:
            is_same_boost = self._burst is not None and job.token is not None and job.token == self._token
            self._steps, self._steps_token = {}, job.token
            if is_same_boost:
                self._count(job.token)
            self._burst, self._first, self._token = job.begun_at, self._moved(), job.token
            self._since, self._listed, self._listed_at = dict.fromkeys(self._first, now), self._first, now
        elif job.only_counts or job.token != self._token or now - self._listed_at >= LIST_S:
            self._count(job.token)
        self._instants = {}
        self.observe()

    def poll(self) -> Seen | None:
        watch, now = self._watch, self._kernel.clock.now()
        if watch is None or now + ROUNDING_S < self._ends_at(watch):
            return None
        self.observe()
        self._watch = None
        if self.hangs:
            self.hangs, self._burst = False, None  # the next child knows nothing
            return self._lost(watch, now - self._begun_at)
        remarks = [f"the cgroup {name} is gone: its account ends there" for name in self._since if name in self.gone]
        self._since = {name: at for name, at in self._since.items() if name not in self.gone}
        found = {name: self._totals(watch, name) for name in self._since if name in self._instants}
        steps, self._steps = self._steps, {}
        groups = {name: totals for name, totals in found.items() if totals is not None}
        return Seen(watch.begun_at, groups, tuple(remarks), token=self._steps_token, moved=steps)

    def next_event_at(self) -> float | None:
        return None if self._watch is None else self._ends_at(self._watch)

    def _ends_at(self, watch: Watch) -> float:
        if self.hangs:
            return self._deadline
        return self._begun_at + (READING_S if watch.only_counts else LOOK_S)

    def abandon(self) -> None:
        """The agent was killed."""
        self._watch, self._burst = None, None

    def observe(self) -> None:
        """Time has passed: read the tasks, if a look goes on and the next reading is due."""
        now, moved = self._kernel.clock.now(), sum(self._moved().values())
        waits = self._waits()
        if moved != self._busy_moved or any(waits.values()):
            self._busy_s += now - self._busy_at
        self._busy_at, self._busy_moved = now, moved
        if self._watch is None:
            return
        written = self._kernel.traffic.adaptive.written
        disk = DiskCount(moved, moved // REQUEST_BYTES, self._busy_s, written)
        for name, is_waiting in waits.items():
            if self._moved()[name] == self._first[name]:
                self._since[name] = now
            instants = self._instants.setdefault(name, [])
            is_due = not instants or now - instants[-1].at >= READING_S - ROUNDING_S
            if is_due and name not in self.gone and self._moved()[name] != self._first[name]:
                instants.append(Instant(now, int(not is_waiting), int(is_waiting), disk, {}))

    def _totals(self, watch: Watch, name: str) -> Totals | None:
        instants = self._instants[name]
        sample = sample_of(instants)
        if sample is None:
            return None
        share = self._kernel.shares.limits.get(name)
        limits = [] if share is None else [Limit(name, share, share)]
        until, since = instants[-1].at, self._since[name]
        self._since[name] = until
        return totals_of(sample, cap_in(sample, watch.cap_mb_s, limits)).standing_for(until - since)

    def _count(self, token: str | None) -> None:
        """What was moved since the last time is of the boost that was there."""
        now = self._moved()
        steps = {name: now[name] - self._listed[name] for name in now if name not in self.gone}
        self._steps = {n: Moved(step, 0) if n == READERS else Moved(0, step) for n, step in steps.items() if step}
        self._steps_token, self._token = self._token, token
        self._listed, self._listed_at = now, self._kernel.clock.now()

    def _moved(self) -> dict[str, int]:
        traffic = self._kernel.traffic.adaptive
        return {WRITERS: traffic.written, READERS: traffic.read}

    def _waits(self) -> dict[str, bool]:
        kernel = self._kernel
        is_held = (kernel.holds_writes or not kernel.bcache.running) and self._load().idle_s() <= 0
        writes, reads = kernel.in_flight
        return {WRITERS: writes or is_held, READERS: reads}
