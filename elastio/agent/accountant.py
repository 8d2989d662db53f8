"""Keeps the account of bursts: has cgroups looked at while the device is loaded, and writes what came of it.

Beside the loop: it decides nothing, and nothing waits for it. The looks run in a worker of their own, and are given up
if they take long. At rest the only thing that it does is to compare a number with the threshold, once a sample. What
fails is told once. A bug ends the account, and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from elastio.accounting.burst_accounts import AccountRow, Moves
from elastio.agent.loop import Agent
from elastio.config.sections import ProfileSection
from elastio.core.capacity import Capacity, capacity
from elastio.core.cycle import Cycle
from elastio.core.moved import Moved
from elastio.core.phase import Phase
from elastio.core.policy import Policy
from elastio.ports import WorkerPort
from elastio.strategy import learning, money
from elastio.strategy.bandwidth import Before, lesson_of
from elastio.strategy.load import utilization
from elastio.strategy.watched_bursts import UNSEEN_S, Load, Seen, Thresholds, Watch, WatchedBurst, with_load
from elastio.units import MB

# After a look that had no answer, the next one waits.
LOOK_TIMEOUT_S, PAUSE_S = 10.0, 60.0
# A burst that goes on is written so often: what a kill loses.
WRITE_EVERY_S = 60.0
# Different remarks that are told; they name cgroups, of which there may be any number over the years.
MOST_TOLD = 100

Keep = Callable[[Collection[AccountRow], Moves], None]
_log = logging.getLogger(__name__)


def lost(watch: Watch, seconds: float) -> Seen:
    """What a look without an answer has seen."""
    remark = "a look at the tasks of cgroups was given up: the kernel did not answer in time"
    return Seen(watch.begun_at, {}, (remark,), is_lost=True)


class Accountant:
    """One of an agent. `keep` writes rows; it logs what it cannot write, and raises nothing."""

    def __init__(self, worker: WorkerPort[Watch, Seen], keep: Keep, settings: ProfileSection) -> None:
        self.settings = settings
        self._worker, self._keep = worker, keep
        self._burst: WatchedBurst | None = None
        self._cached: WatchedBurst | None = None  # the same since its cache is there: only that part teaches
        self._token: str | None = None
        # What the cache of this burst offers to applications; 0: there was none; None: it left before the burst's end.
        self._boosted_mb_s: float | None = 0.0
        self._is_released = False  # that cache, or it was
        self._sampled_at = self._written_at = self._looks_from = self._asked_at = float("-inf")
        self._offset_s = 0.0  # wall clock minus CLOCK_BOOTTIME when the burst began: it names the rows
        self._moves: dict[tuple[str, str], Moved] = {}  # what is not written yet
        self._asked: Watch | None = None  # the last look
        self._told: set[str] = set()
        self._has_failed = False

    @property
    def is_watching(self) -> bool:
        """A burst goes on, or a look has not ended."""
        return self._burst is not None or self._worker.busy

    def step(self, agent: Agent, *, now: float, wall: float) -> None:
        """After each step of the agent: take what was seen, and have more looked at where there is a load."""
        if self._has_failed:
            self._worker.poll()  # a look that was asked for before: an answer that nobody takes keeps the loop awake
        self._guarded(lambda: self._step(agent, now, wall - now))

    def close(self, agent: Agent) -> None:
        """Write what is known of the burst that goes on, before a stop: another agent begins another one."""
        burst = self._burst
        if burst is not None or self._moves:
            self._guarded(lambda: self._write(agent, burst, is_over=True))

    def _guarded(self, work: Callable[[], None]) -> None:
        if self._has_failed:
            return
        try:
            work()
        except Exception:
            self._has_failed, self._burst = True, None
            _log.exception("no account of bursts is kept until the next start: a bug")

    def _step(self, agent: Agent, now: float, offset_s: float) -> None:
        seen = self._worker.poll()
        if seen is not None:
            self._take(agent, seen, now)
        sample = agent.last_sample
        if sample is None or sample.at <= self._sampled_at:
            if self._burst is not None and now - self._sampled_at > UNSEEN_S:  # the device is gone
                self._write(agent, self._burst, is_over=True)
                self._burst, self._cached, self._token, self._boosted_mb_s = None, None, None, 0.0
            return
        self._sampled_at = sample.at
        policy = learning.in_force(agent.policy, agent.state.memory)
        used = utilization(sample, policy) if self.settings.enabled else 0.0
        load = Load(sample.at, sample.seconds, used, round(sample.adaptive.total_mb_s * sample.seconds * MB))
        before = self._burst
        was_released, self._is_released = self._is_released, self._has_release(agent)
        is_new = self._is_released and not was_released
        self._burst, ended = with_load(before, load, _thresholds(policy), is_released=is_new)
        if ended is not None:
            self._write(agent, ended, is_over=True)
            self._teach(agent, ended)
            self._cached, self._token, self._boosted_mb_s = None, None, 0.0
        if self._burst is None:
            self._count(agent, now)
            return
        is_first = self._burst.begun_at != (before.begun_at if before else None)
        self._cached = self._with_cache(agent.state.cycle, load, policy, self._burst if is_first else None)
        if is_first:
            self._written_at, self._offset_s = now, offset_s
        elif now - self._written_at >= WRITE_EVERY_S:
            self._written_at = now
            self._write(agent, self._burst, is_over=False)
        if now >= self._looks_from:
            self._look(agent, self._burst, policy)

    def _take(self, agent: Agent, seen: Seen, now: float) -> None:
        for remark in seen.remarks:
            if remark not in self._told and len(self._told) < MOST_TOLD:
                self._told.add(remark)
                _log.warning("account of bursts: %s", remark)
        if self._burst is not None and self._burst.begun_at == seen.begun_at:
            self._burst = self._burst.plus(seen.groups)
            if self._cached is not None and self._asked_at >= self._cached.begun_at:
                self._cached = self._cached.plus(seen.groups)
        if seen.token is not None:
            for cgroup, moved in seen.moved.items():
                key = seen.token, cgroup
                self._moves[key] = moved.plus(self._moves.get(key, Moved()))
        if self._moves and seen.token != _token(agent):  # it has ended: its bill is divided soon
            self._keep_all(())
        self._looks_from = now + PAUSE_S if seen.is_lost else self._looks_from

    def _look(self, agent: Agent, burst: WatchedBurst, policy: Policy) -> None:
        backing = agent.view.backing if agent.view else None
        cycle, token = agent.state.cycle, _token(agent)
        if cycle is not None:
            self._token = token
            if self._boosted_mb_s is not None:
                is_boosted = cycle.times.boosted is not None
                self._boosted_mb_s = money.in_force(policy, cycle.choice).cache_bandwidth_mb_s if is_boosted else 0.0
        elif self._boosted_mb_s:
            self._boosted_mb_s = None
        if backing is None or backing.adaptive_name == "" or self._worker.busy:
            return
        # A flush may begin within the look, with the first write that the cache absorbs, and has its bandwidth then.
        rate_mb_s = max(policy.drain_bandwidth_mb_s, backing.flush_limit_mb_s or 0.0)
        found = capacity(agent.state, backing, agent.last_sample, policy, rate_mb_s)
        cap_mb_s = found.full_mb_s if isinstance(found, Capacity) else None
        self._ask(Watch(burst.begun_at, backing.adaptive_name, cap_mb_s, self.settings.cgroups, token))

    def _ask(self, watch: Watch) -> None:
        self._asked, self._asked_at = watch, self._sampled_at
        self._worker.submit(watch, LOOK_TIMEOUT_S)

    def _count(self, agent: Agent, now: float) -> None:
        """Have counted what was moved, once after a burst in a boost, and where a boost begins or ends without one."""
        asked, token = self._asked, _token(agent)
        known = None if asked is None else asked.token
        is_counted = token == known and (known is None or (asked is not None and asked.only_counts))
        backing = agent.view.backing if agent.view else None
        if (
            is_counted
            or not self.settings.enabled
            or backing is None
            or backing.adaptive_name == ""
            or self._worker.busy
            or now < self._looks_from
        ):
            return
        begun_at = now if asked is None else asked.begun_at
        patterns = self.settings.cgroups
        self._ask(Watch(begun_at, backing.adaptive_name, None, patterns, token, only_counts=True))

    def _has_release(self, agent: Agent) -> bool:
        """The boost of this burst is being released, or over: between two samples there is time for all of that."""
        is_releasing = agent.state.phase in (Phase.FLUSHING, Phase.DETACHING)
        return self._token is not None and (is_releasing or _token(agent) != self._token)

    def _with_cache(
        self, cycle: Cycle | None, load: Load, policy: Policy, begun: WatchedBurst | None
    ) -> WatchedBurst | None:
        """The part of the burst that had its cache, with this load: all of one that has just begun with it."""
        if self._cached is not None:
            return with_load(self._cached, load, _thresholds(policy)).current
        if cycle is None or cycle.times.boosted is None:
            return None
        return begun or WatchedBurst(load.at, load.at, load.at)

    def _teach(self, agent: Agent, burst: WatchedBurst) -> None:
        cached = self._cached
        if self._boosted_mb_s and cached is not None:
            begin, seconds = burst.begun_at + self._offset_s, cached.loaded_until - cached.begun_at
            before = Before(burst.loaded_until - burst.begun_at - seconds, burst.loaded_bytes - cached.loaded_bytes)
            found = lesson_of(begin, self._boosted_mb_s, cached.counted, seconds, cached.loaded_bytes, before)
            agent.burst = found or agent.burst

    def _write(self, agent: Agent, burst: WatchedBurst | None, *, is_over: bool) -> None:
        rows: list[AccountRow] = []
        if burst is not None:
            uuid = agent.policy.backing_uuid
            begin, end = burst.begun_at + self._offset_s, burst.loaded_until + self._offset_s
            rows = [
                AccountRow(uuid, begin, name, end, self._token, is_over, each) for name, each in burst.counted.items()
            ]
        if rows or self._moves:
            self._keep_all(rows)

    def _keep_all(self, rows: Collection[AccountRow]) -> None:
        moves, self._moves = self._moves, {}
        self._keep(rows, moves)


def _token(agent: Agent) -> str | None:
    """That of the boost that is there."""
    return agent.state.cycle.token if agent.state.cycle is not None else None


def _thresholds(policy: Policy) -> Thresholds:
    return Thresholds(policy.utilization_threshold, policy.release_threshold, policy.inactivity_delay_s)
