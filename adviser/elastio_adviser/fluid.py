"""A trace on one volume, with or without a cache, as flows of bytes. Pure.

Theory of operation. The replay of the real agent (`whatif`) takes half a minute for a day; months of many volumes, and
volumes with credits, need less. Here bytes are a fluid: between two events all rates are constant. An event is the end
of a demand, a phase that ends, a cache that is full or clean, and credits that reach zero or the reserve. Each turn of
`_Run._advance` goes to the next one.

A demand arrives evenly over its seconds. What the volume cannot take waits as backlog, and the next demand begins when
it is gone: a closed loop, as in `replay`. Reads come from the backing volume; only writes use the cache. Reads that a
cache would serve are therefore counted too slow.

The agent is reduced to what costs time and money: it sees a high load after a sample, buys and attaches in `attach_s`,
absorbs until the cutoff, flushes with what the backing volume and its credits leave, releases after the inactivity
delay once nothing is dirty, waits longer and longer after useless boosts, and learns the next size from the last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from elastio.core.policy import Policy
from elastio.strategy.credits import CreditBucket
from elastio.strategy.learning import in_steps, next_size
from elastio.units import MB, agbs
from elastio_adviser.experiment import BoostResult
from elastio_adviser.replay import Demand

SAMPLE_S = 1.0
# From the decision to an attached cache, and from a clean cache to a deleted volume: means of the simulated cloud.
ATTACH_S = 5.5
RELEASE_S = 5.0
# With the shipped options of the module; see docs/explanation/sizing.md, also for useless boosts: after three of them
# a load that resembles theirs waits, and twice as long each time, up to the limit.
CUTOFF = 0.70
USELESS_S, USELESS_FREE, USELESS_WAIT_S, USELESS_MOST_S = 3.0, 3, 300.0, 4 * 3600.0
LIKE = 1.25
EPSILON_BYTES = 1.0
EPSILON_S = 1e-9


@dataclass(frozen=True, slots=True)
class Served:
    """`least_credits`: the smallest share of a full bucket; 1 where the volume has none."""

    completion_s: float
    boosts: tuple[BoostResult, ...] = ()
    least_credits: float = 1.0


def serve(wanted: Sequence[Demand], bucket: CreditBucket, policy: Policy | None = None, full: bool = True) -> Served:
    """The demands on a volume with this bucket, which begins full or empty. `policy`: of the agent; None: no agent."""
    run = _Run(bucket, policy, bucket.capacity_bytes if full else 0.0)
    for demand in wanted:
        run.take(demand)
    completion_s = run.at
    run.settle()
    return Served(completion_s, tuple(run.boosts), run.least_credits)


def is_sustained(wanted: Sequence[Demand], bucket: CreditBucket, seconds: float) -> bool:
    """Whether the credits earned in `seconds` pay for the demands: else the bucket is empty in the long run."""
    return sum(d.moved_bytes for d in wanted) <= bucket.base_mb_s * MB * seconds


class _Phase(Enum):
    IDLE = auto()
    ATTACHING = auto()
    ATTACHED = auto()
    RELEASING = auto()


@dataclass(slots=True)
class _Boost:
    """The boost under way. Bytes, and times since the begin of the run."""

    started_s: float
    size_bytes: int
    attached_s: float = 0.0
    dirty: float = 0.0
    peak: float = 0.0
    through: float = 0.0
    moved: float = 0.0
    busy_s: float = 0.0
    high_s: float = 0.0  # the longest stretch of high load before it was attached


@dataclass(slots=True)
class _Rates:
    """MB/s: written and read by applications, written to the cache, flushed."""

    write: float
    read: float
    absorbed: float = 0.0
    flush: float = 0.0


class _Run:
    """The state between two events."""

    def __init__(self, bucket: CreditBucket, policy: Policy | None, balance: float) -> None:
        self.at = 0.0
        self.boosts: list[BoostResult] = []
        self.least_credits = balance / bucket.capacity_bytes if bucket.capacity_bytes else 1.0
        self._bucket, self._policy, self._balance = bucket, policy, balance
        self._phase, self._until = _Phase.IDLE, math.inf
        self._boost: _Boost | None = None
        self._learned: int | None = None
        self._high_s = self._low_s = 0.0
        self._may_at = 0.0
        self._useless = 0
        self._useless_high_s = 0.0

    def take(self, demand: Demand) -> None:
        """Serve one demand to its end."""
        left_s = demand.seconds
        pace_w = demand.write_bytes / MB / left_s if left_s > 0 else 0.0
        pace_r = demand.read_bytes / MB / left_s if left_s > 0 else 0.0
        wait_w, wait_r = (0.0, 0.0) if left_s > 0 else (demand.write_bytes, demand.read_bytes)
        while left_s > EPSILON_S or wait_w > EPSILON_BYTES or wait_r > EPSILON_BYTES:
            arriving = left_s > EPSILON_S
            in_w, in_r = (pace_w, pace_r) if arriving else (0.0, 0.0)
            rates = self._rates(
                math.inf if wait_w > EPSILON_BYTES else in_w, math.inf if wait_r > EPSILON_BYTES else in_r
            )
            seconds = left_s if arriving else math.inf
            seconds = min(seconds, _until_gone(wait_w, rates.write - in_w), _until_gone(wait_r, rates.read - in_r))
            seconds = self._advance(rates, seconds)
            left_s -= seconds
            wait_w = max(0.0, wait_w + (in_w - rates.write) * MB * seconds)
            wait_r = max(0.0, wait_r + (in_r - rates.read) * MB * seconds)

    def settle(self) -> None:
        """Let the agent end its boost, without load."""
        while self._phase is not _Phase.IDLE:
            self._advance(self._rates(0.0, 0.0), math.inf)

    # --- rates -------------------------------------------------------------------------------------------------

    def _rates(self, want_w: float, want_r: float) -> _Rates:
        """What flows now. Infinite: as much as the volume takes."""
        most = self._bucket.available_mb_s(self._balance)
        boost, policy = self._boost, self._policy
        if boost is None or policy is None or self._phase is not _Phase.ATTACHED:
            read = min(want_r, max(most / 2, most - want_w))
            return _Rates(min(want_w, most - read), read)
        read = min(want_r, most)
        can_flush = self._bucket.flush_mb_s(self._balance, read)
        if boost.dirty >= self._room(boost) - EPSILON_BYTES:
            write = min(want_w, can_flush)
            return _Rates(write, read, write, can_flush)
        absorbed = min(want_w, policy.cache_bandwidth_mb_s)
        is_high = (absorbed + read) >= policy.utilization_threshold * policy.backing_bandwidth_mb_s
        spare = policy.bought_bandwidth_mb_s - absorbed
        flush = min(can_flush, spare, policy.drain_bandwidth_mb_s if is_high else math.inf)
        if boost.dirty <= EPSILON_BYTES:
            flush = min(flush, absorbed)
        return _Rates(absorbed, read, absorbed, flush)

    def _room(self, boost: _Boost) -> float:
        return CUTOFF * boost.size_bytes

    # --- time --------------------------------------------------------------------------------------------------

    def _advance(self, rates: _Rates, most_s: float) -> float:
        """Go to the next event, at most `most_s` away. Returns the seconds that passed."""
        moved = rates.read + (rates.flush if self._phase is _Phase.ATTACHED else rates.write)
        bucket, boost = self._bucket, self._boost
        seconds = min(
            most_s,
            bucket.lasts_s(self._balance, moved),
            bucket.lasts_s(self._balance, moved, bucket.reserve_bytes),
            self._until - self.at,
            self._until_decision(rates),
        )
        if boost is not None and self._phase is _Phase.ATTACHED:
            grows = (rates.absorbed - rates.flush) * MB
            if grows > 0:
                seconds = min(seconds, max(EPSILON_S, (self._room(boost) - boost.dirty) / grows))
            elif grows < 0:
                seconds = min(seconds, max(EPSILON_S, boost.dirty / -grows))
        seconds = max(0.0, seconds)
        self._account(rates, moved, seconds)
        self._decide()
        return seconds

    def _account(self, rates: _Rates, moved: float, seconds: float) -> None:
        self.at += seconds
        self._balance = self._bucket.after(self._balance, moved, seconds)
        if 0 < self._balance < EPSILON_BYTES:
            self._balance = 0.0
        if self._bucket.capacity_bytes:
            self.least_credits = min(self.least_credits, self._balance / self._bucket.capacity_bytes)
        level = self._level(rates)
        self._high_s = self._high_s + seconds if level > 0 else 0.0
        self._low_s = self._low_s + seconds if level < 0 else 0.0
        boost = self._boost
        if boost is not None and self._phase is _Phase.ATTACHING:
            boost.high_s = max(boost.high_s, self._high_s)
        if boost is not None and self._phase is _Phase.ATTACHED:
            if boost.dirty >= self._room(boost) - EPSILON_BYTES:
                boost.through += rates.absorbed * MB * seconds
            boost.dirty = max(0.0, boost.dirty + (rates.absorbed - rates.flush) * MB * seconds)
            boost.peak = max(boost.peak, boost.dirty)
            if level >= 0:
                boost.moved += (rates.write + rates.read) * MB * seconds
                boost.busy_s += seconds

    def _level(self, rates: _Rates) -> int:
        """1: the load is high, -1: it is over, 0: between the thresholds."""
        policy = self._policy
        if policy is None:
            return -1
        used = (rates.write + rates.read) / policy.backing_bandwidth_mb_s
        if used >= policy.utilization_threshold:
            return 1
        return -1 if used < policy.release_threshold else 0

    def _until_decision(self, rates: _Rates) -> float:
        """Seconds until the load has been high, or over, for long enough."""
        policy = self._policy
        if policy is None:
            return math.inf
        level = self._level(rates)
        if self._phase is _Phase.IDLE and level > 0:
            return max(EPSILON_S, self._wait_s(policy))
        if self._phase is _Phase.ATTACHED and level < 0 and self._low_s < policy.inactivity_delay_s:
            return policy.inactivity_delay_s - self._low_s
        return math.inf

    def _wait_s(self, policy: Policy) -> float:
        """How much longer the load must be high before a boost begins."""
        delay = max(SAMPLE_S, policy.trigger_delay_s) - self._high_s
        wait = self._may_at - self.at
        if self._useless >= USELESS_FREE:  # a load that is longer than the useless ones does not wait
            wait = min(wait, LIKE * self._useless_high_s + SAMPLE_S - self._high_s)
        return max(delay, wait)

    # --- the agent ---------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        policy, boost = self._policy, self._boost
        if policy is None:
            return
        is_due = self.at >= self._until - EPSILON_S
        if self._phase is _Phase.IDLE and self._high_s > 0 and self._wait_s(policy) <= EPSILON_S:
            self._boost = _Boost(self.at, next_size(self._learned, policy), high_s=self._high_s)
            self._phase, self._until = _Phase.ATTACHING, self.at + ATTACH_S
        elif boost is not None and self._phase is _Phase.ATTACHING and is_due:
            boost.attached_s = self.at
            self._phase, self._until = _Phase.ATTACHED, math.inf
            self._low_s = 0.0
        elif boost is not None and self._phase is _Phase.ATTACHED:
            is_over = self._low_s >= policy.inactivity_delay_s - EPSILON_S
            if is_over and boost.dirty <= EPSILON_BYTES:
                self._phase, self._until = _Phase.RELEASING, self.at + RELEASE_S
        elif boost is not None and is_due:
            self._close(boost, policy)

    def _close(self, boost: _Boost, policy: Policy) -> None:
        held = self.at - boost.started_s
        self.boosts.append(
            BoostResult(
                started_s=boost.started_s,
                size_bytes=boost.size_bytes,
                boosted_after_s=boost.attached_s - boost.started_s,
                held_s=held,
                peak_dirty_bytes=int(boost.peak),
                written_through_bytes=int(boost.through),
                agbs=agbs(policy.bought_bandwidth_mb_s, boost.size_bytes, held),
                failure="",
            )
        )
        self._learn(boost, policy)
        waits = self._useless >= USELESS_FREE
        wait = min(USELESS_MOST_S, USELESS_WAIT_S * 2.0 ** min(self._useless - USELESS_FREE, 20)) if waits else 0.0
        self._may_at = self.at + max(policy.cool_down_s, wait)
        self._boost, self._phase, self._until = None, _Phase.IDLE, math.inf
        self._high_s = 0.0

    def _learn(self, boost: _Boost, policy: Policy) -> None:
        """The next size, and whether this boost gained anything."""
        gained = boost.moved - policy.backing_bandwidth_mb_s * MB * boost.busy_s
        if gained < USELESS_S * policy.backing_bandwidth_mb_s * MB:
            self._useless += 1
            self._useless_high_s = max(self._useless_high_s, boost.high_s)
            if self._learned is not None:
                return
        else:
            self._useless, self._useless_high_s = 0, 0.0
        # Of what was written through, a larger cache would have flushed some meanwhile.
        kept = max(0.0, 1 - policy.drain_bandwidth_mb_s / policy.cache_bandwidth_mb_s)
        self._learned = in_steps((boost.peak + boost.through * kept) / CUTOFF * policy.headroom, policy)


def _until_gone(waiting_bytes: float, falls_mb_s: float) -> float:
    """Seconds until a backlog is gone."""
    if waiting_bytes <= EPSILON_BYTES or falls_mb_s <= 0:
        return math.inf
    return waiting_bytes / (falls_mb_s * MB)
