"""When a boost may begin, what the strategy sees of it, the cycle, and when writes are held back for its disk. Pure.

Theory of operation. A cache is attached while no write is in flight to the backing volume (see `host.throttle`). What
is in flight takes that volume's time: a filesystem submits requests of up to 8 MiB, some three at once, which is a
second and a half at 16 MB/s, and a fifth of a second at 125 MB/s. If writes are held back that long before the disk
appears, the backing volume works on at its full speed, and the attach need not wait. When the disk appears is known
from the last boosts; on a slow backing volume that is sooner than its volume has been created. Before the first one,
writes are held back when the cloud begins to attach the volume. If the disk does not appear, they go on at the backing
volume's pace after as much time as could have been gained.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import fields
from statistics import median

from elastio.core.cycle import Backoff, Cycle, Timestamps, Trigger
from elastio.core.model import BackingView, CacheState
from elastio.core.policy import NEARLY_FULL, Policy
from elastio.core.state import AgentState, Observation, Phase
from elastio.strategy.situation import BoostPlan, CycleView, DeviceView, Situation
from elastio.units import MB, MIB


def may_begin(state: AgentState, obs: Observation, policy: Policy) -> bool:
    """Whether a boost may begin by itself now. Whoever asks for something else is served first."""
    is_free = state.phase is Phase.IDLE and not (state.paused or state.orphans or obs.requests)
    return is_free and obs.now >= state.cool_until and not obstacle(state, obs, policy)


def obstacle(state: AgentState, obs: Observation, policy: Policy) -> str:
    """Why no boost can begin now, whoever asks for it; empty if one can."""
    if policy.buys_nothing:
        return policy.buys_nothing
    backing = obs.backing
    if backing is None or obs.host is None or not backing.running:
        return "the adaptive device is not running"
    if obs.host.unsupported:
        return obs.host.unsupported
    has_no_cache = backing.state in (CacheState.NO_CACHE, CacheState.INCONSISTENT) or backing.lost_clean_cache
    if backing.cache_set is not None or not has_no_cache:
        return "the backing device has a cache already"
    if state.inhibition is not None:
        return f"no boost may begin now ({state.inhibition.reason})"
    if state.owned is None:
        return "the cloud has not listed this agent's volumes yet"
    return ""


def situation_of(state: AgentState, obs: Observation, policy: Policy) -> Situation:
    """What the strategy sees of this decision."""
    host, who, cycle = obs.host, state.identity, state.cycle
    backing = host.backing if host else None
    is_held = state.paused or state.inhibition is not None
    limit_mb_s = who.bandwidth_limit_mb_s if who else None
    return Situation(
        now=obs.now,
        wall=obs.wall,
        settings=policy,
        phase=state.phase,
        phase_known=state.recovered,
        may_buy=state.recovered and may_begin(state, obs, policy),
        may_follow=not (is_held or policy.buys_nothing or (host is not None and host.unsupported)),
        is_held=is_held,
        failures=state.failures,
        has_device=host is None or (backing is not None and backing.running),
        device=None if host is None or backing is None else _device_view(host.at, backing, cycle, policy),
        cycle=None if cycle is None else cycle_view(cycle),
        instance_mb_s=math.inf if who is not None and limit_mb_s is None else limit_mb_s,
        sample=obs.sample,
        requests=obs.requests,
        spend=obs.spend,
        spend_at=obs.spend_at,
        forecast=obs.forecast,
        advice=obs.advice,
        burst=obs.burst,
    )


def _device_view(seen_at: float, backing: BackingView, cycle: Cycle | None, policy: Policy) -> DeviceView:
    return DeviceView(
        seen_at=seen_at,
        size_bytes=backing.size_bytes,
        dirty_bytes=backing.dirty_bytes,
        has_cache=backing.cache_set is not None,
        is_served=cycle is not None and cycle.is_attached_to(backing) and not backing.is_bypassed,
        is_nearly_full=_is_nearly_full(backing, policy),
    )


def _is_nearly_full(backing: BackingView, policy: Policy) -> bool:
    """Buckets in use are close to the cutoff, above which writes are no longer absorbed."""
    if backing.available_percent is None:
        return False
    cutoff = policy.cutoff * 100 if backing.cutoff_percent is None else backing.cutoff_percent
    return 100 - backing.available_percent >= NEARLY_FULL * cutoff


SEEN = tuple(field.name for field in fields(CycleView))


def cycle_view(cycle: Cycle) -> CycleView:
    """What the strategy sees of the cycle: each field of the view is one of the cycle, by its name."""
    return CycleView(**{name: getattr(cycle, name) for name in SEEN})


def new_cycle(plan: BoostPlan, state: AgentState, obs: Observation, policy: Policy) -> Cycle:
    """The cycle of this boost, as it begins with the decision."""
    backing = obs.backing
    start = obs.now + obs.jitter * policy.start_jitter_s
    return Cycle(
        token=_token(state, obs, policy),
        backing_serial=backing.disk_serial if backing else None,
        trigger=plan.trigger,
        spec=plan.spec,
        least_s=plan.least_s,
        choice=plan.choice,
        asked_by=plan.asked_by,
        started_at=obs.now,
        started_wall=obs.wall,
        times=Timestamps(crossed=plan.crossed_at, decided=obs.now),
        backoffs={"CreateVolume": Backoff(0, start)},
    )


def _token(state: AgentState, obs: Observation, policy: Policy) -> str:
    """A token for a purchase that no other machine uses.

    Machines from one image have the same backing UUID, and under a parallel application all decide in the same
    millisecond. The machine's identity makes the token unique; where it is unknown, the random part does.
    """
    whose = hashlib.sha256(f"{state.machine} {policy.backing_uuid}".encode()).hexdigest()[:12]
    return f"elastio-{whose}-{int(obs.wall * 1000):x}-{int(obs.jitter * 2**32):08x}"


IN_FLIGHT_BYTES = 24 * MIB
MOST_S = 2.0
# Measured times that are kept.
KEPT_TIMES = 8
# Once the disk is there, writes stay held back for two tries: the second one finds drained what the first waited for.
ATTACH_S = 10.0
# A disk that is so late may take any time.
PACED_S = 30.0


def drain_window(state: AgentState, policy: Policy) -> tuple[float, float] | None:
    """From when until when (CLOCK_BOOTTIME) a load's writes are held back for its disk; None: not before it appears."""
    cycle = state.cycle
    if state.phase is not Phase.ATTACHING or cycle is None or cycle.trigger is not Trigger.LOAD:
        return None
    drain_s = min(MOST_S, IN_FLIGHT_BYTES / (policy.backing_bandwidth_mb_s * MB))
    decided, asked = cycle.times.decided, cycle.times.asked
    if state.appear_s and decided is not None and cycle.times.created is not None:
        expected = decided + median(state.appear_s)
        return expected - drain_s, expected + drain_s
    return None if asked is None else (asked, asked + drain_s)


def is_being_attached(state: AgentState, obs: Observation) -> bool:
    """The disk has just appeared: if writes passed now, all that was held back would be in flight at the attach."""
    appeared = state.cycle.times.appeared if state.cycle is not None else None
    return state.phase is Phase.ATTACHING and appeared is not None and obs.now <= appeared + ATTACH_S


def with_appear_time(appear_s: tuple[float, ...], cycle: Cycle) -> tuple[float, ...]:
    """The last times with that of this cycle, from the decision until its disk appeared."""
    decided, appeared = cycle.times.decided, cycle.times.appeared
    return appear_s if decided is None or appeared is None else (*appear_s, appeared - decided)[-KEPT_TIMES:]
