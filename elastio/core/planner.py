"""The next safe action of each phase: one function per phase, called at every decision. Pure.

Nothing here blocks: what cannot be done now is left out, and `wake_at` says when to decide again.
"""

from __future__ import annotations

from dataclasses import replace

from elastio.core import actions, boosting, capacity, release
from elastio.core.cycle import Cycle
from elastio.core.model import BackingView, CacheMode, DiskView, VolumeState, VolumeTag
from elastio.core.policy import LIMITED, NOTHING, Policy, is_change
from elastio.core.polling import NextAction, ask, first, poll_volume, tag_volume
from elastio.core.release import detaching
from elastio.core.state import AgentState, Observation, Phase
from elastio.errors import InvariantError
from elastio.units import MB, format_size

# Requests are held back once this many seconds of flushing are left; until then, the shortest time between two scans.
LAST_S, POLL_S = 0.5, 0.2
# A flush is overdue after this multiple of the time that it would take without new writes, plus the slack.
OVERDUE, SLACK_S = 2.0, 10.0

# Where the depth of queues follows the load.
DEEP = frozenset({Phase.IDLE, Phase.BOOSTING, Phase.FLUSHING})


def next_action(state: AgentState, obs: Observation, policy: Policy) -> NextAction:
    """At most one action: the next one that is safe in the current phase, and what is waited for.

    Settings that the kernel lost come first (it loses most of them at a reboot): some of them make writeback safe.
    """
    plan = _next_action(state, obs, policy)
    plan = _or_read(plan, _depth_step(state, obs))
    plan = _or_read(*capacity.beside(plan, capacity.share_step(state, obs, policy)))
    plan = _or_read(plan, _list_for_backing(state, obs))
    # A volume beside the cycle's would be paid for unseen for as long as the cache is there.
    plan = _or_read(plan, _listed(state, obs)) if state.phase in (Phase.BOOSTING, Phase.FLUSHING) else plan
    asks = plan.action is None and policy.notice_poll_s is not None and _may_concern(state)
    return _or_read(plan, ask(state, actions.PollNotice(), obs, "")) if asks else plan


def _list_for_backing(state: AgentState, obs: Observation) -> NextAction:
    """While a cache is missing, the volumes that any machine bought for this device, see `missing_cache`."""
    is_needed = obs.backing is not None and not state.is_stopped and state.lacks_cache(obs.backing)
    return ask(state, actions.ListForBacking(), obs, "") if is_needed else NextAction()


def _may_concern(state: AgentState) -> bool:
    """Whether a notice would change anything, so that the cloud's worker has to run for it.

    Without a cache it changes nothing. A volume that is not being attached yet holds nothing, and must not wait for
    the answer: the cloud's worker makes one call at a time, and a load waits for the next one.
    """
    cycle = state.cycle
    if cycle is None:
        return state.notice is not None
    return state.phase is not Phase.ATTACHING or cycle.times.asked is not None or state.notice is not None


def _or_read(plan: NextAction, read: NextAction) -> NextAction:
    """The plan, or, where it has no action, what is due beside it: a read, the depth of queues, or the shares."""
    if plan.action is not None:
        return plan
    if read.action is not None:
        return replace(plan, action=read.action)
    return first(plan, read)


def _next_action(state: AgentState, obs: Observation, policy: Policy) -> NextAction:
    backing = obs.backing
    in_force = backing.write_limit_mb_s if backing is not None else None
    wanted = None if in_force is None else _left_limit_mb_s(in_force, state, obs, policy)
    free = wanted != in_force
    lift = ask(state, actions.LimitWrites(wanted), obs, "the write limit to be lifted") if free else NextAction()
    if state.is_stopped:
        return replace(lift, waiting_for="an operator")
    # Without a cache of this agent, somebody may have stopped the device on purpose, and it is left alone.
    unregistered = obs.host.unregistered_backing if obs.host else ""
    if unregistered and state.cycle is not None and state.cycle.may_be_attached:
        waiting = f"{unregistered}, the backing device, to be registered again"
        return ask(state.cycle, actions.RegisterBacking(), obs, waiting)
    if backing is not None and state.may_run_without_cache(backing):
        start = actions.StartWithoutCache(state.failed_clean_set)
        backoff = state.cycle.backoff_of(start) if state.cycle else state.backoff_of("TuneBacking")
        return ask(backoff, start, obs, "the device to start without its cache, which failed while clean")
    return first(lift, _tuned_step(state, obs, policy)) if free else _tuned_step(state, obs, policy)


def _left_limit_mb_s(in_force: float, state: AgentState, obs: Observation, policy: Policy) -> float | None:
    """What a limit on writes that is in force is to be now; None: it ends.

    Applications are not limited by an agent that cannot follow the flush, or cannot write its journal. What is held
    back for a disk stays so until it is attached. If the disk is late, writes go on at the backing volume's pace: all
    that was held back would be in flight at once, and the attach would wait for it.
    """
    if state.is_stopped or not obs.can_record:
        return None
    window = boosting.drain_window(state, policy)
    is_awaited = window is not None and window[0] <= obs.now <= window[1]
    if state.phase is Phase.FLUSHING or is_awaited or boosting.is_being_attached(state, obs):
        return in_force
    is_late = window is not None and window[1] < obs.now <= window[1] + boosting.PACED_S
    pace_mb_s = policy.backing_bandwidth_mb_s
    return None if not is_late else in_force if in_force > pace_mb_s / 2 else pace_mb_s


def _tuned_step(state: AgentState, obs: Observation, policy: Policy) -> NextAction:
    backing = obs.backing
    # A cache that the kernel has assembled serves applications, whosever it is: a read of it may be stale until then.
    is_in_use = backing is not None and backing.cache_set is not None
    if backing is None or backing.tuned or (state.phase is Phase.FAULTED and not is_in_use):
        return _step(state, obs, policy)
    tune = ask(state, actions.TuneBacking(backing.depth), obs, "the backing device to be tuned")
    # Without these settings nothing is written to a cache, but a cache can be flushed and released, and volumes listed.
    needed = state.phase in (Phase.ATTACHING, Phase.BOOSTING)
    return tune if needed else first(tune, _step(state, obs, policy))


def _depth_step(state: AgentState, obs: Observation) -> NextAction:
    """Allow as many requests in flight as the load needs: not while it waits for its cache, nor after a fault."""
    backing = obs.backing
    if backing is None or backing.depth is None or state.is_stopped or state.phase not in DEEP:
        return NextAction()
    return ask(state, actions.TuneBacking(backing.depth), obs, "")


def _step(state: AgentState, obs: Observation, policy: Policy) -> NextAction:
    if (taken := _take_over(state, obs, policy)) is not None:
        return taken
    if state.cycle is None:
        tidied = release.tombstone_removed(state, obs)
        return _start_without_cache(state, obs) or (tidied if tidied.action else _upkeep(state, obs))
    return BY_PHASE[state.phase](state, state.cycle, obs, policy)


def _take_over(state: AgentState, obs: Observation, policy: Policy) -> NextAction | None:
    """The step that an operator ordered for the volume of a machine that is gone; None: none was, or it was refused."""
    order, backing = state.take_over, obs.backing
    if order is None or order.refused or backing is None or state.phase is not Phase.FAULTED:
        return None
    needed = backing.cache_set or backing.superblock_set
    if needed is None:
        return None
    action = actions.TakeOverVolume(
        order.volume_id, policy.backing_uuid, needed, is_attached=backing.cache_set is not None
    )
    return ask(order.backoff, action, obs, f"the cloud to show whose volume {order.volume_id} is")


def _start_without_cache(state: AgentState, obs: Observation) -> NextAction | None:
    """The start that an operator ordered for a cache that belongs to no cycle; None: none was ordered."""
    backing = obs.backing
    if not state.is_loss_accepted or backing is None or not backing.waits_for_cache or backing.running:
        return None
    start = actions.StartWithoutCache(state.loss_accepted_for)
    return ask(state.backoff_of("TuneBacking"), start, obs, "the device to start without its cache")


# --- idle ------------------------------------------------------------------------------------------------


def _listed(state: AgentState, obs: Observation) -> NextAction:
    is_due = state.listed is None or obs.now >= state.listed.again_at
    return ask(state, actions.ListVolumes(), obs, "the cloud to list this agent's volumes") if is_due else NextAction()


def _upkeep(state: AgentState, obs: Observation) -> NextAction:
    listed = _listed(state, obs)
    if listed != NextAction() or state.identity is not None:
        return listed
    return ask(state, actions.Identify(), obs, "")


def _idle(state: AgentState, cycle: Cycle, obs: Observation, policy: Policy) -> NextAction:
    """An idle agent has no cycle: always raises InvariantError."""
    raise InvariantError("an idle agent has a cycle", code="cycle.left")


# --- attaching -------------------------------------------------------------------------------------------


def _attaching(state: AgentState, cycle: Cycle, obs: Observation, policy: Policy) -> NextAction:
    if cycle.volume_id is None or cycle.serial is None:
        caps, least_s = policy.caps, policy.least_boost_s if cycle.least_s is None else cycle.least_s
        size, price, most = caps.max_size_bytes, caps.needs_price, caps.cost_left(obs.spend)
        asked_at = cycle.create_unconfirmed_at
        ago_s = None if asked_at is None else max(0.0, obs.now - asked_at)
        create = actions.CreateVolume(cycle.token, cycle.spec, size, price, most, least_s, caps.shared_limits, ago_s)
        return ask(cycle, create, obs, "the cloud to create the volume")
    host = obs.host
    if host is None or host.backing is None:
        return NextAction(waiting_for="the kernel's view of the backing device")
    # The tag comes before the cache: a janitor that finds the volume without its machine must keep it.
    tag = tag_volume(cycle, VolumeTag.DIRTY, obs, policy)
    stone = release.tombstone_written(cycle, host.backing, obs)
    disk = host.disk(cycle.serial)
    if disk is None:
        is_on_its_way = tag.action is not None and cycle.times.asked is not None
        step = tag if is_on_its_way else _awaiting_disk(state, cycle, obs, policy)
        # Writes are held back for it. It comes with the disk, or while they are held back for that one anyway.
        return first(step, stone) if host.backing.write_limit_mb_s is not None else step
    if tag.waiting_for:
        return tag
    if stone.waiting_for:
        return stone
    install = actions.InstallCache(cycle.serial, cycle.provisioned.size_bytes, policy.first_writeback_mb_s)
    return ask(cycle, install, obs, f"disk {disk.name} to be attached as a cache")


def _awaiting_disk(state: AgentState, cycle: Cycle, obs: Observation, policy: Policy) -> NextAction:
    hold = _held_back(state, cycle, obs, policy)
    return hold if hold.action is not None else first(_towards_attached(cycle, obs), hold)


def _held_back(state: AgentState, cycle: Cycle, obs: Observation, policy: Policy) -> NextAction:
    """Writes held back in time for the disk, or the wait until that begins or ends: see `drain`."""
    window, backing = boosting.drain_window(state, policy), obs.backing
    if window is None or backing is None or obs.now > window[1] or not obs.can_record:
        return NextAction()
    if obs.now < window[0] or backing.write_limit_mb_s is not None:
        return NextAction(wake_at=window[0] if obs.now < window[0] else window[1])
    return ask(cycle, actions.LimitWrites(actions.HELD_MB_S), obs, "applications' writes to be held back")


def _towards_attached(cycle: Cycle, obs: Observation) -> NextAction:
    """The one action that the volume's current state asks for, and polls in between."""
    if cycle.volume_id is None:
        return NextAction()
    poll = poll_volume(cycle, obs, f"volume {cycle.volume_id} ({cycle.volume_state or 'unseen'}) to appear")
    if cycle.volume_state is VolumeState.AVAILABLE:
        return first(ask(cycle, actions.AttachVolume(cycle.volume_id), obs, "the cloud to attach the volume"), poll)
    return poll


# --- boosting and flushing -------------------------------------------------------------------------------

GONE = "bcache to notice that its cache disk is gone, which takes a request to the disk, or a reboot"


def _boosting(state: AgentState, cycle: Cycle, obs: Observation, policy: Policy) -> NextAction:
    backing = obs.backing
    if backing is None or not cycle.is_attached_to(backing):
        return NextAction(waiting_for="the kernel's view of the cache")
    wanted = state.flush_mb_s
    if backing.flush_full_speed:
        return ask(cycle, actions.EnterPhase1(wanted), obs, "phase 1 settings")
    in_force = backing.flush_limit_mb_s if backing.writeback_running else NOTHING
    if is_change(wanted, in_force, policy):
        return ask(cycle, actions.SetFlush(wanted), obs, "the writeback rate to be set")
    waiting = GONE if _is_disk_gone(cycle, obs) else "the load to end"
    return replace(tag_volume(cycle, VolumeTag.DIRTY, obs, policy), waiting_for=waiting)


def _is_disk_gone(cycle: Cycle, obs: Observation) -> bool:
    return cycle.serial is not None and obs.host is not None and obs.host.disk(cycle.serial) is None


def _flushing(state: AgentState, cycle: Cycle, obs: Observation, policy: Policy) -> NextAction:
    backing = obs.backing
    if backing is None or not cycle.is_attached_to(backing):
        return NextAction(waiting_for="the kernel's view of the cache")
    settings = _flush_settings(state, cycle, backing, policy)
    if settings is not None:
        return ask(cycle, settings, obs, "phase 2 settings")
    is_gone = _is_disk_gone(cycle, obs)
    waiting = GONE if is_gone else "the dirty data to reach the backing device"
    if backing.cache_mode is CacheMode.NONE:
        return NextAction(wake_at=obs.now + 1.0, waiting_for=waiting)
    left_s, bypass = backing.dirty_bytes / (_flush_mb_s(state, cycle, policy) * MB), actions.BypassCache()
    if backing.is_left_to_detach:
        return ask(cycle, bypass, obs, "the detach, which flushes what only the index knows of")
    if backing.is_dirty_unseen:
        waiting = f"a write to the device: until then the kernel does not flush {format_size(backing.dirty_bytes)} "
        return ask(cycle, actions.WakeWriteback(), obs, waiting + "that it calls clean after a power cut")
    if left_s <= LAST_S:
        return ask(cycle, bypass, obs, "the last dirty data to reach the backing device")
    poll = NextAction(wake_at=obs.now + min(1.0, max(POLL_S, left_s - LAST_S)), waiting_for=waiting)
    may_limit = not is_gone and backing.write_limit_mb_s is None and obs.can_record
    if may_limit and must_end(state, cycle, obs.now, policy):
        limit = actions.LimitWrites(LIMITED * policy.backing_bandwidth_mb_s)
        return first(ask(cycle, limit, obs, "applications' writes to be limited"), poll)
    return poll


def _flush_settings(state: AgentState, cycle: Cycle, backing: BackingView, policy: Policy) -> actions.Action | None:
    """The action that puts the writeback rate of phase 2 in force: full speed, or what credits allow; None: it is."""
    limit = _credit_limit(state, cycle)
    if limit is None:
        return None if backing.flush_full_speed and backing.writeback_running else actions.EnterPhase2()
    in_force = backing.flush_limit_mb_s if backing.writeback_running else NOTHING
    return actions.SetFlush(limit) if is_change(limit, in_force, policy) else None


def _credit_limit(state: AgentState, cycle: Cycle) -> float | None:
    """The most that credits allow a flush in phase 2; None: no limit, or somebody waits for its end."""
    return None if _is_awaited(state, cycle) else state.memory.credit_limit_mb_s


def _flush_mb_s(state: AgentState, cycle: Cycle, policy: Policy) -> float:
    """The rate of phase 2."""
    limit = _credit_limit(state, cycle)
    return policy.backing_bandwidth_mb_s if limit is None else min(limit, policy.backing_bandwidth_mb_s)


def _is_awaited(state: AgentState, cycle: Cycle) -> bool:
    """Somebody waits for the end of the flush."""
    return cycle.forced or state.paused or state.wants_flush or state.is_cache_stale


def must_end(state: AgentState, cycle: Cycle, now: float, policy: Policy) -> bool:
    """The flush has priority over applications: the cache has to be released, or the flush is overdue."""
    if _is_awaited(state, cycle):
        return True
    expected_s = cycle.flush_started_dirty_bytes / (_flush_mb_s(state, cycle, policy) * MB)
    return cycle.times.quiet is not None and now - cycle.times.quiet > OVERDUE * expected_s + SLACK_S


# --- faulted ---------------------------------------------------------------------------------------------


def _faulted(state: AgentState, cycle: Cycle, obs: Observation, policy: Policy) -> NextAction:
    """Nothing is released. The only actions attach and register a missing cache again, or start without it if ordered.

    Never while the device that lost it still runs: udev would register the returned cache, and the kernel oopses when
    a device whose cache failed is unmounted after that.
    """
    host, backing = obs.host, obs.backing
    runs_without = backing is not None and backing.waits_for_cache and backing.running
    if runs_without or (host is not None and host.dead_bcache_device):
        waiting = "the adaptive device to be unmounted; after that its cache volume is attached again"
        return NextAction(waiting_for=waiting)
    if host is None or backing is None or not backing.waits_for_cache:
        return NextAction(waiting_for="an operator")
    if state.is_loss_accepted:
        start = actions.StartWithoutCache(state.loss_accepted_for)
        return ask(cycle, start, obs, "the device to start without its cache")
    disk = host.disk(cycle.serial)
    if disk is not None:
        return _towards_registered(cycle, disk, backing, obs)
    shown = f"volume {cycle.volume_id} ({cycle.volume_state or 'unseen'})"
    if backing.may_have_been_written_since and not cycle.operator_confirmed:
        return poll_volume(cycle, obs, f"an operator: {shown} may be older than the device, or be needed")
    plan = _towards_attached(cycle, obs)
    return plan if plan.action else NextAction(None, plan.wake_at, f"{shown} to be attached again, or an operator")


def _towards_registered(cycle: Cycle, disk: DiskView, backing: BackingView, obs: Observation) -> NextAction:
    """The disk is there. udev registers a disk that appears; one that stayed has to be registered here.

    A volume that was named by an operator, or found by its tags, may be another one than the device waits for.
    """
    carried, named = disk.cache_set or disk.superblock, backing.superblock_set
    if None not in (carried, named) and carried != named:
        text = f"an operator: disk {disk.name} of volume {cycle.volume_id} carries cache set {carried}, and the device"
        return NextAction(waiting_for=f"{text} waits for {named}: name another volume (`elastio recover`)")
    if disk.cache_set is not None or disk.superblock is None:
        return NextAction(waiting_for="the kernel to attach the cache set, or an operator")
    return ask(cycle, actions.RegisterCache(disk.serial, disk.superblock), obs, f"disk {disk.name} to be registered")


BY_PHASE = {
    Phase.IDLE: _idle,
    Phase.ATTACHING: _attaching,
    Phase.BOOSTING: _boosting,
    Phase.FLUSHING: _flushing,
    Phase.DETACHING: detaching,
    Phase.FAULTED: _faulted,
}
