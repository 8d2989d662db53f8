"""Fold what was seen into the state: outcomes of actions, the kernel's view, throughput.

Outcomes only supply what a look cannot (an id, an error text); what *is* comes from looking.
"""

from __future__ import annotations

from dataclasses import replace

from elastio import governor, thrift
from elastio.actions import (
    AttachVolume,
    CreateVolume,
    DeleteVolume,
    DescribeVolume,
    DetachCacheSet,
    FormatCache,
    Formatted,
    Identify,
    Lane,
    LimitWrites,
    ListVolumes,
    LookForNotice,
    MakeDurable,
    MarkVolume,
    Outcome,
    ReleaseCacheDisk,
    StartWithoutCache,
    TuneBacking,
    Verdict,
    is_read,
    lane_of,
)
from elastio.model import (
    BackingView,
    Bought,
    CacheMode,
    CacheState,
    HostView,
    Identity,
    NoticeView,
    Sample,
    Volume,
    VolumeState,
)
from elastio.observation import Observation
from elastio.policy import Policy, watch_load
from elastio.state import AgentState, Cycle, LoadWatch, Pace, Phase, verb
from elastio.units import MB

# A call that changes something is repeated only after this long: what was asked for may take a while to show.
SETTLE_S = 5.0
RETRY_FIRST_S = 1.0
RETRY_MOST_S = 60.0
LOOK_FIRST_S = 0.2
LOOK_GROWTH = 1.3
LOOK_MOST_S = 3.0
# What did not show after so many looks (about two minutes) is looked for less often: a cloud's API is shared.
PATIENT_LOOKS = 40
PATIENT_ASKS = 4
LOOK_LATER_S = 30.0
# Delays grow no more after so many tries; a power of some thousand tries would be no float.
MANY_TRIES = 16
# A volume that was never shown and still is not after this long does not exist.
VISIBLE_WITHIN_S = 60.0
# The clocks of a cloud and of a machine that keeps its time differ by less.
CLOCKS_AGREE_S = 5.0


def fold(state: AgentState, obs: Observation, policy: Policy) -> AgentState:
    """The state with everything in `obs` taken into account; no decision yet."""
    for outcome in obs.outcomes:
        state = _fold_outcome(state, outcome, obs, policy)
    if obs.sample is not None:
        state = _fold_sample(state, obs.sample, obs.host, policy)
    if obs.host is None:
        return state
    if obs.host.backing is None or not obs.host.backing.running:
        state = replace(state, load=LoadWatch())  # without a device there are no samples, and the last one is no load
    if state.cycle is not None:
        state = replace(state, cycle=_fold_host(state.cycle, obs.host, state.phase, obs.wall))
    if obs.host.backing is None:
        return state
    state = _forget_outlived(state, obs.host.backing)
    # Not before it is known whether this is the device that the cycle was on.
    return remember_outlived(state, obs.host.backing) if state.recovered else state


def _fold_sample(state: AgentState, sample: Sample, host: HostView | None, policy: Policy) -> AgentState:
    backing = host.backing if host else None
    state = replace(state, load=watch_load(state.load, sample, policy))
    if state.cycle is not None:
        state = replace(state, cycle=thrift.watch(state.cycle, state.load, sample, policy))
    if _shows_no_cache_yet(state, sample):
        return replace(state, flush_mb_s=governor.first_pace(policy))
    state = replace(state, flush_mb_s=governor.pace(sample, backing, policy))
    pressed = governor.pressed_mb_s(sample, backing, policy)
    if state.cycle is None or state.phase is not Phase.BOOSTING or pressed <= 0:
        return state
    more = int(pressed * sample.seconds * MB)
    return replace(state, cycle=replace(state.cycle, pressed_bytes=state.cycle.pressed_bytes + more))


def _shows_no_cache_yet(state: AgentState, sample: Sample) -> bool:
    """The sample begins before the cache was there: what it shows of the backing volume is over."""
    boosted = state.cycle.marks.boosted if state.cycle else None
    return state.phase is Phase.ATTACHING or (boosted is not None and sample.at - sample.seconds < boosted)


# --- outcomes --------------------------------------------------------------------------------------------


def _fold_outcome(state: AgentState, outcome: Outcome, obs: Observation, policy: Policy) -> AgentState:
    if isinstance(outcome.action, ListVolumes):
        return _fold_list(state, outcome, obs, policy)
    if isinstance(outcome.action, Identify):
        return _fold_identity(state, outcome, obs)
    if isinstance(outcome.action, LookForNotice):
        return _fold_notice(state, outcome, obs, policy)
    if isinstance(outcome.action, TuneBacking) or (isinstance(outcome.action, StartWithoutCache) and not state.cycle):
        return replace(state, tune_pace=_next_pace(state.tune_pace, outcome, obs))
    if outcome.action == LimitWrites(None):
        return replace(state, limit_pace=_next_pace(state.limit_pace, outcome, obs))
    return state if state.cycle is None else _fold_of_cycle(state, state.cycle, outcome, obs)


def _fold_of_cycle(state: AgentState, cycle: Cycle, outcome: Outcome, obs: Observation) -> AgentState:
    asked = cycle.paced(outcome.action)
    cycle = cycle.with_pace(outcome.action, _next_pace(asked, outcome, obs))
    counts = not is_read(outcome.action) and not isinstance(outcome.action, MarkVolume)
    if counts and outcome.verdict is Verdict.DONE and asked.tries < PATIENT_ASKS:
        cycle = cycle.with_pace(verb("DescribeVolume"), Pace())  # something changed: look at once again
    if outcome.verdict is Verdict.DONE:
        cycle = _fold_done(cycle, outcome, obs)
    elif outcome.verdict is Verdict.REFUSED and not isinstance(outcome.action, MarkVolume):
        cycle = replace(cycle, failure=outcome.error) if state.phase is Phase.ATTACHING else cycle
    elif isinstance(outcome.action, CreateVolume):
        cycle = replace(cycle, doubt_at=obs.now)
    return replace(state, cycle=cycle)


def _fold_notice(state: AgentState, outcome: Outcome, obs: Observation, policy: Policy) -> AgentState:
    """Without an answer the last one holds: a notice does not end because a metadata service is slow."""
    view = outcome.value if isinstance(outcome.value, NoticeView) else None
    if view is None or policy.notice_poll_s is None:
        pace = _next_pace(state.notice_pace, outcome, obs)
        return replace(
            state, notice_pace=replace(pace, again_at=max(pace.again_at, obs.now + (policy.notice_poll_s or 0)))
        )
    again_at = obs.now + policy.notice_poll_s if view.supported else float("inf")
    return replace(state, notice=view.notice, notice_pace=Pace(0, again_at))


def _fold_identity(state: AgentState, outcome: Outcome, obs: Observation) -> AgentState:
    if isinstance(outcome.value, Identity):
        return replace(state, identity=outcome.value)
    return replace(state, identity_pace=Pace(state.identity_pace.tries + 1, obs.now + RETRY_MOST_S, outcome.error))


def _next_pace(pace: Pace, outcome: Outcome, obs: Observation) -> Pace:
    tries = pace.tries
    if is_read(outcome.action):
        # Successes and failures are counted apart: the first failure after many good looks is a first one.
        tries = tries if bool(pace.error) == bool(outcome.error) else 0
        delay = _look_delay_s(tries) if outcome.verdict is Verdict.DONE else _retry_delay_s(tries)
        return Pace(tries + 1, obs.now + delay * (0.75 + 0.5 * obs.jitter), outcome.error)
    if outcome.verdict is Verdict.DONE:
        return _settling(tries if not pace.error else 0, outcome, obs)
    return Pace(tries + 1, obs.now + _retry_delay_s(tries) * (0.5 + 0.5 * obs.jitter), outcome.error)


def _look_delay_s(tries: int) -> float:
    if tries >= PATIENT_LOOKS:
        return LOOK_LATER_S
    return min(LOOK_FIRST_S * LOOK_GROWTH ** min(tries, MANY_TRIES), LOOK_MOST_S)


def _retry_delay_s(tries: int) -> float:
    return min(RETRY_FIRST_S * 2.0 ** min(tries, MANY_TRIES), RETRY_MOST_S)


def _settling(tries: int, outcome: Outcome, obs: Observation) -> Pace:
    """Writes to /sys are done when they return; a cloud call and bcache's detach are only accepted.

    What was accepted and does not show is asked for again, ever more seldom.
    """
    if lane_of(outcome.action) is not Lane.CLOUD and not isinstance(outcome.action, DetachCacheSet):
        return Pace(0, obs.now)
    return Pace(tries + 1, obs.now + min(SETTLE_S * 1.5 ** min(tries, MANY_TRIES), RETRY_MOST_S))


def _fold_done(cycle: Cycle, outcome: Outcome, obs: Observation) -> Cycle:
    match outcome.action:
        case CreateVolume() if isinstance(outcome.value, Bought):
            return replace(adopt(cycle, outcome.value.volume, obs), quote=outcome.value.quote)
        case DescribeVolume():
            return _fold_describe(cycle, outcome.value if isinstance(outcome.value, Volume) else None, obs)
        case AttachVolume():
            return cycle.marked(asked=obs.now)
        case FormatCache() if isinstance(outcome.value, Formatted):
            done = replace(cycle, cache_set=outcome.value.cache_set)
            return done.marked(formatted=obs.now - outcome.value.register_s, registered=obs.now)
        case MarkVolume():
            return replace(cycle, mark=outcome.action.mark)
        case ReleaseCacheDisk():
            return cycle.marked(durable=obs.now, released=obs.now)
        case MakeDurable():
            return cycle.marked(durable=obs.now)
        case DeleteVolume():
            return cycle.bill_closed(obs.now).marked(deleted=obs.now)
    return cycle


def adopt(cycle: Cycle, volume: Volume, obs: Observation) -> Cycle:
    """Bind the cycle to its volume. The bill runs from the cloud's own creation time."""
    opened = cycle.opened_wall if cycle.opened_wall is not None else _opened_wall(cycle, volume, obs)
    return replace(
        cycle, volume_id=volume.id, serial=volume.serial, volume=volume, doubt_at=None, opened_wall=opened
    ).marked(created=obs.now)


def _opened_wall(cycle: Cycle, volume: Volume, obs: Observation) -> float:
    """The cloud's time, unless our clock contradicts it: then the decision to buy, as we count."""
    latest = cycle.wall_at(obs.now)
    agree = cycle.started_wall - CLOCKS_AGREE_S <= volume.created_wall <= latest + CLOCKS_AGREE_S
    return min(volume.created_wall, latest) if agree else cycle.started_wall


def _fold_describe(cycle: Cycle, volume: Volume | None, obs: Observation) -> Cycle:
    if volume is not None:
        return replace(cycle, volume=volume, seen=True)
    created = cycle.marks.created
    invisible_yet = not cycle.seen and created is not None and obs.now - created < VISIBLE_WITHIN_S
    if cycle.volume is None or invisible_yet:
        return cycle
    return replace(cycle, volume=replace(cycle.volume, state=VolumeState.GONE)).bill_closed(obs.now)


def _fold_list(state: AgentState, outcome: Outcome, obs: Observation, policy: Policy) -> AgentState:
    pace = _next_pace(state.list_pace, outcome, obs)
    if outcome.verdict is not Verdict.DONE or not isinstance(outcome.value, tuple):
        return replace(state, list_pace=pace)
    volumes = tuple(v for v in outcome.value if v.backing_uuid == policy.backing_uuid)
    state = replace(state, owned=volumes, list_pace=pace, listed_at=obs.now)
    cycle = state.cycle
    if cycle is None:
        return state
    ours = next((v for v in volumes if v.token == cycle.token), None)
    if ours is None:
        return state
    adopted = adopt(cycle, ours, obs) if cycle.volume_id is None else replace(cycle, volume=ours)
    return replace(state, cycle=replace(adopted, seen=True))


# --- the kernel ------------------------------------------------------------------------------------------


def _fold_host(cycle: Cycle, host: HostView, phase: Phase, wall: float) -> Cycle:
    cycle = _based(cycle, host)
    disk = host.disk(cycle.serial)
    if disk is not None and phase is Phase.ATTACHING:
        cycle = cycle.marked(appeared=host.at)
    backing = host.backing
    if backing is None or cycle.cache_set is None or backing.cache_set != cycle.cache_set:
        return _without(cycle, host, phase)
    if cycle.marks.detached is not None or cycle.marks.durable is not None:
        # It is there again: whatever said that it had left, or held nothing, is void.
        cycle = replace(cycle, marks=replace(cycle.marks, detached=None, durable=None, released=None))
    if backing.cache_mode is CacheMode.WRITEBACK:
        cycle = cycle.marked(boosted=host.at)
    if backing.cache_mode is CacheMode.NONE:
        cycle = cycle.marked(bypassed=host.at)
    in_use = 0 if backing.available_percent is None else 100 - backing.available_percent
    return replace(
        cycle,
        dirty_bytes=backing.dirty_bytes,
        dirty_wall=wall,
        dirty_boot=host.boot_id,
        is_index_dirty=backing.state is CacheState.CLEAN and backing.dirty_bytes > 0,
        peak_dirty_bytes=max(cycle.peak_dirty_bytes, backing.dirty_bytes),
        peak_in_use_percent=max(cycle.peak_in_use_percent, in_use),
        cutoff_percent=backing.cutoff_percent or cycle.cutoff_percent,
        evicted_bytes=max(cycle.evicted_bytes, (backing.overflow_bytes or 0) - (cycle.overflow_base or 0)),
    )


def _without(cycle: Cycle, host: HostView, phase: Phase) -> Cycle:
    """Its cache is not in front, or not any more. At a boot it may be the cache that comes late."""
    backing = host.backing
    if backing is not None and backing.outlives_cache and cycle.is_index_dirty:
        # After a power cut: what the superblock calls clean is what the kernel went by when it let the cache go.
        return replace(cycle, is_disputed=True)
    needs_none = backing is not None and (backing.state is CacheState.NO_CACHE or backing.outlives_cache)
    left = phase is Phase.DETACHING and cycle.may_have_served and needs_none
    return cycle.marked(detached=host.at) if left else cycle


def remember_outlived(state: AgentState, backing: BackingView) -> AgentState:
    """Remember what the kernel shows until the next cache only, and forgets at a boot.

    While a cache is being attached the kernel shows the same.
    """
    cycle, named = state.cycle, backing.named_set
    if not backing.outlives_cache or named is None:
        return state
    is_coming = state.phase is Phase.ATTACHING and cycle is not None and cycle.marks.boosted is None
    return state if is_coming and cycle is not None and named == cycle.cache_set else replace(state, outlived=named)


def _forget_outlived(state: AgentState, backing: BackingView) -> AgentState:
    started = state.outlived != "" and backing.state is CacheState.INCONSISTENT
    renewed = backing.cache_set is not None and backing.cache_set != state.outlived
    if not (started or renewed or backing.state is CacheState.NO_CACHE):
        return state
    return replace(state, outlived="", is_stale_accepted=state.is_stale_accepted or started)


def _based(cycle: Cycle, host: HostView) -> Cycle:
    """The kernel counts from its boot on, the cycle from its beginning: what was there before is not its own."""
    shown = host.backing.overflow_bytes if host.backing else None
    if shown is None or (cycle.overflow_base is not None and cycle.overflow_base <= shown):
        return cycle
    return replace(cycle, overflow_base=shown if cycle.overflow_base is None else 0)  # 0: it was booted anew
