"""The capacity: how many MB/s the volumes give to applications now, and why; when cgroups share it. Pure.

It is the bandwidth limit of the volume that serves, less what the flush takes of it. It follows the phase and the
writeback rate, so that what is shared among applications and what the governor flushes is never the same bandwidth.

With a cache, two volumes serve, and what a MB of applications costs each depends on what they do: bcache writes an
index and a journal beside their data, a read that misses does not use the cache volume unless it is kept there, and
small requests reach the cache volume's limit of requests long before that of its bandwidth. So the costs are measured,
by what the volumes have done (`_done_mb_s`), and the capacity is what the volume gives that is exhausted first. What
little a quiet device does says little of what a busy one would: below BUSY of a limit the measured costs count in part,
and the usual ones for the rest.

It is what cgroups share. Nothing is shared while the agent is faulted, limits all writes so that a flush ends, cannot
record what it does, or does not know the capacity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from elastio.core.actions import Outcome, OutcomeKind, SetFlush, SetShares
from elastio.core.cycle import NO_BACKOFF, Backoff, Cycle
from elastio.core.model import BackingView, Sample
from elastio.core.policy import LIMITED, Policy
from elastio.core.polling import NextAction, ask, next_backoff
from elastio.core.shares import SharePlan
from elastio.core.state import AgentState, Observation, Phase
from elastio.units import KIB, MB

# What a MB of applications usually costs the cache volume, in MB, with its index and journal: large writes, Linux 6.1.
USUAL_COST = 1.066
# No request of the cache volume carries more of the index and the journal, in MB, in the mean.
INDEX_MB = 8 * KIB / MB
# From this share of a limit on, what is measured counts in full.
BUSY = 0.5
# What applications keep of it beside any flush: the scheduler of the disk serves both.
LEAST = LIMITED


class LimitedBy(StrEnum):
    """What limits applications."""

    BACKING = "backing volume"
    CACHE = "cache volume"
    REQUESTS = "IOPS of the cache volume"


# The share of these that can be used: a queue that is to form in the VM must not form at the volume. What a MB costs
# the cache volume is followed in steps of 3 %, which leaves some of its bandwidth free by itself. How many requests a
# MB takes varies by a tenth from second to second: bcache writes its index when it has to, and the kernel merges.
USABLE = {LimitedBy.BACKING: 0.97, LimitedBy.CACHE: 0.98, LimitedBy.REQUESTS: 0.92}
OF_BACKING = USABLE[LimitedBy.BACKING]


class Unknown(StrEnum):
    """Why there is no capacity to tell: the end of a sentence for operators."""

    STARTING = "the agent has not read the kernel yet"
    FAULTED = "the agent is faulted, see `elastio status`"
    NOT_RUNNING = "the kernel does not show that the adaptive device runs"
    FORCED = "the agent limits all writes, so that the flush ends"
    FOREIGN = "a cache is attached that the agent did not buy"


@dataclass(frozen=True, slots=True)
class Capacity:
    """`mb_s` is for reads and writes of all applications together.

    `bandwidth_mb_s` is that of the volume which limits them (0: its IOPS do), `flush_mb_s` the most that the flush
    takes of it. `missed`: the share (0 to 1) of applications' bytes that the backing volume moves although there is a
    cache.
    """

    mb_s: float
    limited_by: LimitedBy
    bandwidth_mb_s: float
    flush_mb_s: float = 0.0
    missed: float = 0.0

    @property
    def full_mb_s(self) -> float:
        """At what the volume is full: the share of it that is left free belongs to who divides the rest."""
        return self.mb_s / USABLE[self.limited_by]


def capacity(
    state: AgentState,
    backing: BackingView | None,
    sample: Sample | None,
    policy: Policy,
    flush_mb_s: float | None = None,
) -> Capacity | Unknown:
    """What applications can have now.

    `backing` None: the kernel does not show the device, or does not answer. `policy` is the one in force, with the
    bandwidth that a backing volume with credits has now. `flush_mb_s`: what a flush with a rate is taken to use,
    whether it has begun or not; None: what it uses.
    """
    if not state.recovered:
        return Unknown.STARTING
    if state.phase is Phase.FAULTED:
        return Unknown.FAULTED
    if backing is None or not backing.running:
        return Unknown.NOT_RUNNING
    if backing.write_limit_mb_s is not None:
        return Unknown.FORCED
    flush = _flush_mb_s(backing, sample, policy, flush_mb_s)
    slow_mb_s = _left(LimitedBy.BACKING, policy.backing_bandwidth_mb_s, flush)
    if backing.cache_set is None or backing.is_bypassed:
        return Capacity(slow_mb_s, LimitedBy.BACKING, policy.backing_bandwidth_mb_s, flush)
    if state.cycle is None:
        return Unknown.FOREIGN
    return _cached(state.cycle, backing, slow_mb_s, flush, sample, policy)


def _cached(
    cycle: Cycle, backing: BackingView, slow_mb_s: float, flush: float, sample: Sample | None, policy: Policy
) -> Capacity:
    """With a cache: what the volume gives that is exhausted first."""
    recent = (sample.recent or sample) if sample else None
    moved_mb_s = _done_mb_s(recent)
    bandwidth_mb_s, missed = cycle.provisioned.bandwidth_mb_s, _missed(recent)
    fast_mb_s, iops = _left(LimitedBy.CACHE, bandwidth_mb_s, flush), cycle.provisioned.iops
    found = [_of(LimitedBy.CACHE, fast_mb_s, bandwidth_mb_s, moved_mb_s, USUAL_COST, _on_cache(recent))]
    if missed:
        found.append(_of(LimitedBy.BACKING, slow_mb_s, policy.backing_bandwidth_mb_s, moved_mb_s, 0.0, missed))
    if iops and recent:
        of_flush, of_applications = _requests(recent)
        # A flush with a rate yields IOPS: where applications can use them, its next rate is 0.
        usable = _left(LimitedBy.REQUESTS, iops, of_flush if backing.flush_full_speed else 0.0)
        found.append(_of(LimitedBy.REQUESTS, usable, 0.0, moved_mb_s, 0.0, of_applications))
    least = min(found, key=lambda each: each.mb_s)
    return replace(least, flush_mb_s=flush, missed=missed)


def _of(
    by: LimitedBy, usable: float, bandwidth_mb_s: float, moved_mb_s: float, usual: float, measured: float
) -> Capacity:
    """What applications can have of this limit, which a MB of them costs so much of.

    Nothing of a limit of 0, as a volume has it whose bandwidth the cloud does not say.
    """
    if usable <= 0:
        return Capacity(0.0, by, bandwidth_mb_s)
    part = min(1.0, moved_mb_s * measured / (BUSY * usable))
    cost = part * measured + (1 - part) * usual
    return Capacity(usable / cost if cost > 0 else math.inf, by, bandwidth_mb_s)


def _on_cache(sample: Sample | None) -> float:
    """MB of the cache volume for a MB of applications, without the flush; 0 where they have moved nothing."""
    done_mb_s = _done_mb_s(sample)
    return _cache_mb_s(sample) / done_mb_s if sample and done_mb_s > 0 else 0.0


def _requests(sample: Sample) -> tuple[float, float]:
    """Those of the flush in a second, and those for a MB of applications."""
    of_flush, done_mb_s = _flush_iops(sample), _done_mb_s(sample)
    return (of_flush, (sum(sample.cache_iops) - of_flush) / done_mb_s) if done_mb_s > 0 else (0.0, 0.0)


def _flush_iops(sample: Sample) -> float:
    """Requests of the flush to the cache volume in a second; its reads are taken to be as large as all."""
    reads, _ = sample.cache_iops
    return reads * sample.flushed_mb_s / sample.cache.read_mb_s if sample.cache.read_mb_s > 0 else 0.0


def _left(limit: LimitedBy, most: float, flush: float) -> float:
    """What is left of this limit for applications beside the flush: MB/s, or requests a second."""
    usable = USABLE[limit] * most
    return max(LEAST * usable, usable - flush)


def _flush_mb_s(backing: BackingView, sample: Sample | None, policy: Policy, taken_mb_s: float | None) -> float:
    """The most that the flush takes of each volume now, in MB/s. One without a rate has idle I/O class, and yields.

    bcache may exceed its rate for some seconds: it makes up for up to 2.5 s in which it had less to flush than that
    (drivers/md/bcache/util.c: bch_next_delay). Then what was measured counts.
    """
    is_idle = backing.dirty_bytes == 0 and taken_mb_s is None
    if backing.cache_set is None or not backing.writeback_running or is_idle:
        return 0.0
    if backing.flush_full_speed:
        return policy.backing_bandwidth_mb_s
    limit, measured = backing.flush_limit_mb_s, sample.flushed_mb_s if sample else 0.0
    uses_mb_s = 0.0 if limit is None else max(limit, measured)
    return min(policy.backing_bandwidth_mb_s, uses_mb_s if taken_mb_s is None else taken_mb_s)


def _missed(sample: Sample | None) -> float:
    """The share (0 to 1) of applications' bytes that the backing volume moved.

    These are reads that miss, and writes that a full cache does not absorb.
    """
    done_mb_s = _done_mb_s(sample)
    return min(1.0, _backing_mb_s(sample) / done_mb_s) if sample and done_mb_s > 0 else 0.0


def _done_mb_s(sample: Sample | None) -> float:
    """What the volumes have done of applications' requests.

    The kernel counts a request of the adaptive device when it begins (drivers/md/bcache/request.c: bio_start_io_acct),
    and one of a volume when it has ended. Buffered writes begin requests of many MB, some hundred MB at once. But what
    was done has passed at least one volume, and what passed the cache volume, but for index and journal, was done.
    """
    if sample is None:
        return 0.0
    begun_mb_s, cached_mb_s = sample.adaptive.total_mb_s, _cache_mb_s(sample)
    requests = sum(sample.cache_iops) - _flush_iops(sample)
    if cached_mb_s <= 0 or requests <= 0:
        return begun_mb_s
    least = (cached_mb_s - INDEX_MB * requests) / USUAL_COST
    return max(least, min(begun_mb_s, cached_mb_s + _backing_mb_s(sample)))


def _cache_mb_s(sample: Sample) -> float:
    """What the cache volume moved, without the flush."""
    return sample.cache.total_mb_s - sample.flushed_mb_s


def _backing_mb_s(sample: Sample) -> float:
    """What the backing volume moved, without the flush."""
    return sample.backing.read_mb_s + max(0.0, sample.backing.write_mb_s - sample.flushed_mb_s)


# Two changes of what cgroups share are at least so far apart, and so large: each rewrites most limits. With a sample
# each second it is every second one. One to less than this part is due at once: until then the volume is full, and
# nobody has its share.
SHARE_S, CHANGE, MUCH_LESS = 1.8, 0.03, 0.9
# How many requests a MB takes depends on whether a queue stands at the volume: of small writes 117 with one, and 80
# right after it was drained (Linux 6.1). A capacity of that would let the next one form. So a rise by less than this
# factor, of what IOPS limit, is approached in steps; a larger one is that of another load.
OTHER_LOAD, RISE = 1.5, 1.06
# What no machine gets without a boot is asked for once; then, so that no state has an end that never comes, once a day.
NEVER_SHARED = frozenset({"cgroup.version", "cgroup.controller", "cgroup.no_limits"})
NEVER_S = 86_400.0
SHARED = frozenset({Phase.IDLE, Phase.ATTACHING, Phase.BOOSTING, Phase.FLUSHING, Phase.DETACHING})


def share_step(state: AgentState, obs: Observation, policy: Policy) -> NextAction:
    """The action that shares the capacity of now, or ends that; nothing where what is in force is near enough."""
    backing = obs.backing
    if backing is None:
        return NextAction()
    wanted = _wanted_plan(state, obs, backing, policy)
    if wanted is None:
        free = backing.shared_mb_s is not None
        # At once after a change, and later after a failure.
        backoff = state.backoff_of("SetShares") if state.backoff_of("SetShares").error else NO_BACKOFF
        return ask(backoff, SetShares(None), obs, "") if free else NextAction()
    if not _is_change(wanted, state, obs, backing):
        return NextAction()
    last = state.backoff_of("SetShares")
    is_urgent = not last.error and wanted.capacity_mb_s < MUCH_LESS * (backing.shared_mb_s or 0.0)
    return ask(NO_BACKOFF if is_urgent else last, SetShares(wanted), obs, "")


def beside(plan: NextAction, shares: NextAction) -> tuple[NextAction, NextAction]:
    """Both, the plan without a writeback rate if shares are to change: that is wanted in the next decision as well.

    What a MB costs is known only in the decision that a sample begins. Else a load for which the rate changes with each
    sample would never get the shares that it needs.
    """
    is_rate = isinstance(plan.action, SetFlush) and shares.action is not None
    return (replace(plan, action=None) if is_rate else plan), shares


def _wanted_plan(state: AgentState, obs: Observation, backing: BackingView, policy: Policy) -> SharePlan | None:
    if policy.share_reserve is None or state.phase not in SHARED or state.is_stopped or not obs.can_record:
        return None
    found = capacity(state, backing, obs.sample, policy)
    if isinstance(found, Unknown) or found.mb_s <= 0:
        return None
    return SharePlan(_risen(found, backing.shared_mb_s or 0.0), policy.share_reserve, policy.share_latency)


def _risen(found: Capacity, in_force_mb_s: float) -> float:
    """What is to be shared instead of what is in force (0: nothing is)."""
    is_step = found.limited_by is LimitedBy.REQUESTS and found.mb_s < OTHER_LOAD * in_force_mb_s
    return min(found.mb_s, RISE * in_force_mb_s) if is_step else found.mb_s


def _is_change(wanted: SharePlan, state: AgentState, obs: Observation, backing: BackingView) -> bool:
    in_force = backing.shared_mb_s
    if in_force is None or wanted != replace(state.share_plan, capacity_mb_s=wanted.capacity_mb_s):
        return True
    # Without a sample it is not known what a MB costs.
    return obs.sample is not None and abs(wanted.capacity_mb_s - in_force) > CHANGE * in_force


def after_shares(state: AgentState, action: SetShares, outcome: Outcome, obs: Observation) -> AgentState:
    """The state after an answer to `SetShares`. The next change is not due at once: what a MB costs varies."""
    if outcome.code in NEVER_SHARED:
        return state.with_backoff(action, Backoff(1, obs.now + NEVER_S, outcome.error))
    if outcome.kind is not OutcomeKind.DONE:
        return state.with_backoff(action, next_backoff(state.backoff_of("SetShares"), outcome, obs))
    state = state.with_backoff(action, Backoff(0, obs.now + SHARE_S))
    return replace(state, share_plan=action.plan or state.share_plan)
