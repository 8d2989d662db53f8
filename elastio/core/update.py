"""Fold what was seen into the state: outcomes of actions, the scan of the kernel, throughput. Pure.

An outcome supplies only what a scan or a poll cannot show, such as an ID or an error.
"""

from __future__ import annotations

from dataclasses import replace

from elastio.core import actions, capacity, model
from elastio.core.cycle import NO_BACKOFF, Backoff, CacheUse, Cycle, Failure, FailureKind, Trigger
from elastio.core.policy import Policy
from elastio.core.polling import PATIENT_TRIES, RETRY_MOST_S, VISIBLE_WITHIN_S, next_backoff, with_next_poll
from elastio.core.recovery import remember_failed_clean
from elastio.core.state import AgentState, Listed, Observation, Phase
from elastio.strategy.memory import Memory
from elastio.strategy.situation import Wish
from elastio.units import MB

SLOWER, EARLIER = 1.25, 0.75
# While a volume is being deleted, or is left to an operator, the volumes are listed at this interval.
LEAVING_S = 60.0
# The clocks of a cloud and of a machine with a synchronized clock differ by less than this.
CLOCKS_AGREE_S = 5.0


def fold(state: AgentState, obs: Observation, policy: Policy) -> AgentState:
    """The state with everything in `obs` folded in. Decides nothing."""
    for outcome in obs.outcomes:
        state = _fold_outcome(state, outcome, obs, policy)
    if obs.host is None:
        return state
    cycle = None if state.cycle is None else _fold_host(state.cycle, obs.host, state, obs.wall)
    if cycle is not state.cycle:
        state = replace(state, cycle=cycle)
    if obs.host.backing is None:
        return state
    state = _forget_failed_clean(state, obs.host.backing)
    # Before recovery it is not known whether this is the cycle's device.
    return remember_failed_clean(state, obs.host.backing) if state.recovered else state


def with_wish(state: AgentState, memory: Memory, obs: Observation, wish: Wish) -> AgentState:
    """The state after `review`, with the writeback rate, and with what was flushed at applications' expense."""
    sample, cycle = obs.sample, state.cycle
    if cycle is not None and wish.choice not in (None, cycle.choice):
        cycle = replace(cycle, choice=wish.choice)
    if sample is None:
        is_same = memory is state.memory and cycle is state.cycle
        return state if is_same else replace(state, memory=memory, cycle=cycle)
    if cycle is not None and wish.forced_mb_s > 0:
        more = int(wish.forced_mb_s * sample.seconds * MB)
        use = replace(cycle.use, forced_writeback_bytes=cycle.use.forced_writeback_bytes + more)
        cycle = replace(cycle, use=use)
    return replace(state, memory=memory, cycle=cycle, flush_mb_s=wish.flush_mb_s)


def intended(state: AgentState, action: actions.Action, now: float) -> AgentState:
    """The state to be recorded with the intent of `action`: from then on the cache may serve, or may be detached."""
    cycle = state.cycle
    if cycle is None:
        return state
    match action:
        case actions.InstallCache():
            return replace(state, cycle=cycle.stamped(installing=now))
        case actions.DetachCacheSet():
            return replace(state, cycle=cycle.stamped(detaching=now))
        case actions.TagVolume():
            return replace(state, cycle=replace(cycle, tag=model.VolumeTag.UNKNOWN))  # until it is acknowledged
        case _:
            return state  # the journal records the action; a list, a poll or a scan shows its effect


# --- outcomes --------------------------------------------------------------------------------------------


def _fold_outcome(state: AgentState, outcome: actions.Outcome, obs: Observation, policy: Policy) -> AgentState:
    if isinstance(outcome.action, actions.ListVolumes):
        return _fold_list(state, outcome, obs, policy)
    if isinstance(outcome.action, actions.Identify):
        return _fold_identity(state, outcome, obs)
    if isinstance(outcome.action, actions.PollNotice):
        return _fold_notice(state, outcome, obs, policy)
    if isinstance(outcome.action, actions.TuneBacking) or (
        isinstance(outcome.action, actions.StartWithoutCache) and not state.cycle
    ):
        return state.with_backoff("TuneBacking", next_backoff(state.backoff_of("TuneBacking"), outcome, obs))
    if isinstance(outcome.action, actions.SetShares):
        return capacity.after_shares(state, outcome.action, outcome, obs)
    if outcome.action == actions.LimitWrites(None) or isinstance(outcome.action, actions.RemoveTombstone):
        return state.with_backoff(outcome.action, next_backoff(state.backoff_of(outcome.action), outcome, obs))
    return state if state.cycle is None else _fold_of_cycle(state, state.cycle, outcome, obs)


def _fold_of_cycle(state: AgentState, cycle: Cycle, outcome: actions.Outcome, obs: Observation) -> AgentState:
    asked = cycle.backoff_of(outcome.action)
    cycle = cycle.answered(outcome, next_backoff(asked, outcome, obs))
    counts = not actions.is_read(outcome.action) and not isinstance(outcome.action, actions.TagVolume)
    if counts and outcome.kind is actions.OutcomeKind.DONE and asked.tries < PATIENT_TRIES:
        cycle = cycle.with_backoff("DescribeVolume", NO_BACKOFF)  # something changed: poll at once
    if outcome.kind is actions.OutcomeKind.DONE:
        cycle = with_next_poll(_fold_done(cycle, outcome, obs), state.create_s, obs)
    elif outcome.kind is actions.OutcomeKind.REFUSED:
        if state.phase is Phase.ATTACHING:
            cycle = replace(cycle, failure=Failure(_why_refused(outcome), outcome.error))
    elif isinstance(outcome.action, actions.CreateVolume):
        cycle = replace(cycle, create_unconfirmed_at=obs.now)
    return replace(state, cycle=cycle, create_s=_shortest_create_s(state, cycle))


def _why_refused(outcome: actions.Outcome) -> FailureKind:
    """A purchase that shared caps refuse is no failure of this device. Its code is the key of the cap."""
    if isinstance(outcome.action, actions.CreateVolume) and outcome.code.startswith("caps."):
        return FailureKind.CAPPED
    return FailureKind.QUOTA if outcome.is_quota else FailureKind.ERROR


def _fold_notice(state: AgentState, outcome: actions.Outcome, obs: Observation, policy: Policy) -> AgentState:
    """The state after a poll for a notice. Without an answer the last notice stays: a service may only be slow."""
    view = outcome.value if isinstance(outcome.value, model.NoticeView) else None
    if view is None or policy.notice_poll_s is None:
        backoff = next_backoff(state.backoff_of("PollNotice"), outcome, obs)
        retry_at = max(backoff.retry_at, obs.now + (policy.notice_poll_s or 0))
        return state.with_backoff(outcome.action, replace(backoff, retry_at=retry_at))
    retry_at = obs.now + policy.notice_poll_s if view.supported else float("inf")
    return replace(state.with_backoff(outcome.action, Backoff(0, retry_at)), notice=view.notice)


def _fold_identity(state: AgentState, outcome: actions.Outcome, obs: Observation) -> AgentState:
    if isinstance(outcome.value, model.Identity):
        return replace(state, identity=outcome.value)
    tries = state.backoff_of("Identify").tries + 1
    return state.with_backoff(outcome.action, Backoff(tries, obs.now + RETRY_MOST_S, outcome.error))


def _fold_done(cycle: Cycle, outcome: actions.Outcome, obs: Observation) -> Cycle:
    match outcome.action:
        case actions.CreateVolume() if isinstance(outcome.value, model.Purchase):
            return replace(adopt(cycle, outcome.value.volume, obs), quote=outcome.value.quote)
        case actions.DescribeVolume():
            return _fold_describe(cycle, outcome.value if isinstance(outcome.value, model.Volume) else None, obs)
        case actions.AttachVolume():
            return cycle.stamped(asked=obs.now)
        case actions.InstallCache() if isinstance(outcome.value, str):
            return replace(cycle, cache_set=outcome.value)
        case actions.TagVolume():
            return replace(cycle, tag=outcome.action.tag)
        case actions.ReleaseCacheDisk():
            return cycle.stamped(durable=obs.now, released=obs.now)
        case actions.MakeDurable():
            return cycle.stamped(durable=obs.now)
        case actions.DeleteVolume():
            return cycle.bill_closed(obs.now).stamped(deleted=obs.now)
        case _:
            return cycle  # a poll, a list or a scan shows the effect


def adopt(cycle: Cycle, volume: model.Volume, obs: Observation) -> Cycle:
    """The cycle bound to its volume. The bill begins at the creation time that the cloud shows."""
    opened = cycle.opened_wall if cycle.opened_wall is not None else _opened_wall(cycle, volume, obs)
    return replace(
        cycle,
        volume_id=volume.id,
        serial=volume.serial,
        volume=volume,
        tag=volume.tag,
        create_unconfirmed_at=None,
        opened_wall=opened,
    ).stamped(created=obs.now)


def _opened_wall(cycle: Cycle, volume: model.Volume, obs: Observation) -> float:
    """When the bill begins: at the cloud's creation time; at the decision, if this machine's clock contradicts that."""
    latest = cycle.wall_at(obs.now)
    agree = cycle.started_wall - CLOCKS_AGREE_S <= volume.created_wall <= latest + CLOCKS_AGREE_S
    return min(volume.created_wall, latest) if agree else cycle.started_wall


def _fold_describe(cycle: Cycle, volume: model.Volume | None, obs: Observation) -> Cycle:
    if volume is not None:
        # A volume that the cloud does not know yet counts as deleted: one that shows now was not.
        cycle = replace(cycle if volume.state.is_gone else cycle.bill_reopened(), volume=volume, seen=True)
        if volume.state is model.VolumeState.CREATING:
            return replace(cycle, unready_at=obs.now)
        is_made = volume.state is model.VolumeState.AVAILABLE and cycle.times.asked is None
        return cycle.stamped(available=obs.now) if is_made and cycle.trigger is not Trigger.ORPHAN else cycle
    created = cycle.times.created
    invisible_yet = not cycle.seen and created is not None and obs.now - created < VISIBLE_WITHIN_S
    if cycle.volume is None or invisible_yet:
        return cycle
    return replace(cycle, volume=replace(cycle.volume, state=model.VolumeState.GONE)).bill_closed(obs.now)


def _fold_list(state: AgentState, outcome: actions.Outcome, obs: Observation, policy: Policy) -> AgentState:
    backoff = next_backoff(state.backoff_of("ListVolumes"), outcome, obs)
    if outcome.kind is not actions.OutcomeKind.DONE or not isinstance(outcome.value, tuple):
        return state.with_backoff(outcome.action, backoff)
    volumes = tuple(v for v in outcome.value if v.backing_uuid == policy.backing_uuid)
    others = tuple(v for v in outcome.value if v.backing_uuid != policy.backing_uuid)
    cycle = state.cycle
    ours = next((v for v in volumes if cycle is not None and cycle.is_of(v)), None)
    # Jitter separates machines that were started together. What is being deleted, or hinders boosts, is listed soon.
    is_left = any(v.tag is not model.VolumeTag.CLEAN and v.id not in state.given_up for v in volumes if v is not ours)
    is_soon = is_left or any(v.state is model.VolumeState.DELETING for v in volumes)
    every_s = min(policy.reconcile_interval_s, LEAVING_S) if is_soon else policy.reconcile_interval_s
    listed = Listed(obs.now, obs.now + every_s * (0.75 + 0.5 * obs.jitter))
    state = replace(state.with_backoff(outcome.action, backoff), owned=volumes, others=others, listed=listed)
    if cycle is None or ours is None:
        return state
    adopted = adopt(cycle, ours, obs) if cycle.volume_id is None else replace(cycle, volume=ours)
    return replace(state, cycle=replace(adopted, seen=True))


# --- the kernel ------------------------------------------------------------------------------------------


def _fold_host(cycle: Cycle, host: model.HostView, state: AgentState, wall: float) -> Cycle:
    cycle = _with_counter_base(cycle, host)
    disk = host.disk(cycle.serial)
    if disk is not None and state.phase is Phase.ATTACHING:
        cycle = cycle.stamped(appeared=host.at)
    if disk is not None and cycle.times.installing is not None and cycle.times.boosted is None:
        # The answer may be lost; the set on this volume can only be the one that was made there, by the last try.
        cycle = replace(cycle, cache_set=disk.cache_set or disk.superblock or cycle.cache_set)
    backing = host.backing
    if backing is None or not cycle.is_attached_to(backing):
        return _without_cache_set(cycle, host, state)
    if cycle.backing_serial is None:
        cycle = replace(cycle, backing_serial=backing.disk_serial)
    if any(at is not None for at in (cycle.times.detached, cycle.times.durable, cycle.times.failed_clean)):
        cycle = cycle.came_back()
    if backing.cache_mode is model.CacheMode.WRITEBACK:
        cycle = cycle.stamped(boosted=host.at)
    if backing.cache_mode is model.CacheMode.NONE:
        cycle = cycle.stamped(bypassed=host.at)
    return replace(
        cycle,
        use=_with_use(cycle.use, backing),
        dirty_bytes=backing.dirty_bytes,
        dirty_wall=wall,
        dirty_boot=host.boot_id,
        is_index_dirty=backing.state is model.CacheState.CLEAN and backing.dirty_bytes > 0,
    )


def _with_use(use: CacheUse, backing: model.BackingView) -> CacheUse:
    in_use = 0 if backing.available_percent is None else 100 - backing.available_percent
    through = (backing.overflow_bytes or 0) - (use.overflow_base or 0)
    return replace(
        use,
        peak_dirty_bytes=max(use.peak_dirty_bytes, backing.dirty_bytes),
        peak_in_use_percent=max(use.peak_in_use_percent, in_use),
        cutoff_percent=backing.cutoff_percent or use.cutoff_percent,
        written_through_bytes=max(use.written_through_bytes, through),
    )


def _without_cache_set(cycle: Cycle, host: model.HostView, state: AgentState) -> Cycle:
    """The cycle when its cache set is not attached: not yet, or no longer. After a boot the cache may just be late.

    See `recovery` for when "no cache" is believed. Otherwise the volume may hold data that is nowhere else.
    """
    backing = host.backing
    if backing is None or backing.cache_set is not None or backing.waits_for_cache:
        return cycle
    if cycle.times.released is not None or not cycle.may_have_served:
        return cycle
    if not cycle.is_on(backing):
        return replace(cycle, may_lack_data=True)
    if backing.lost_clean_cache:
        return _failed_clean(cycle, host, state)
    if backing.state is not model.CacheState.NO_CACHE:
        return cycle
    if not cycle.may_have_left:
        return replace(cycle, may_lack_data=True)
    return cycle.stamped(detached=host.at) if state.phase is Phase.DETACHING else cycle


def _failed_clean(cycle: Cycle, host: model.HostView, state: AgentState) -> Cycle:
    """The cycle when the kernel stopped its cache as clean, by a superblock that may be wrong: see `recovery`."""
    if cycle.is_index_dirty:
        return replace(cycle, may_lack_data=True)
    if not state.recovered:
        return cycle  # `recovery` first checks whether the cache was last seen in this boot
    cycle = cycle.stamped(failed_clean=host.at) if cycle.times.boosted is not None else cycle
    return cycle.stamped(detached=host.at) if state.phase is Phase.DETACHING else cycle


def _forget_failed_clean(state: AgentState, backing: model.BackingView) -> AgentState:
    """The state without a failed clean set that the superblock no longer names."""
    started = state.failed_clean_set != "" and backing.state is model.CacheState.INCONSISTENT
    renewed = backing.cache_set is not None and backing.cache_set != state.failed_clean_set
    if state.failed_clean_set == "" or not (started or renewed or backing.state is model.CacheState.NO_CACHE):
        return state
    return replace(state, failed_clean_set="", is_stale_accepted=state.is_stale_accepted or started)


def _with_counter_base(cycle: Cycle, host: model.HostView) -> Cycle:
    """The cycle with the value that the kernel's counter had when it began; the counter starts again at a boot."""
    shown, base = host.backing.overflow_bytes if host.backing else None, cycle.use.overflow_base
    if shown is None or (base is not None and base <= shown):
        return cycle
    return replace(cycle, use=replace(cycle.use, overflow_base=shown if base is None else 0))  # 0: there was a boot


def _shortest_create_s(state: AgentState, cycle: Cycle) -> float | None:
    """The shortest recent time, in seconds, in which the cloud created a volume; None: not known yet.

    A poll shows only that a volume became ready since the last one. One that was ready at the first poll may have been
    so for long, so the next one is polled earlier. The time may also grow, because clouds become slower.
    """
    created, available = cycle.times.created, cycle.times.available
    is_news = state.cycle is not None and state.cycle.times.available is None
    if created is None or available is None or not is_news:
        return state.create_s
    if cycle.unready_at is None:
        return EARLIER * (available - created)
    took_s = (cycle.unready_at + available) / 2 - created
    return took_s if state.create_s is None else min(took_s, SLOWER * state.create_s)
