"""The safety rules, checked on every decision before it leaves the core. Pure.

A broken rule is a bug in the core: the decision is discarded and the agent stops acting. The executor checks the rules
that depend on the live system once more, because every scan is out of date as soon as it is made.

Nothing here is taken from the modules that are checked: a wrong predicate there must not be wrong here too. Each rule
is written down a second time, in terms of the kernel and the cloud.
"""

from __future__ import annotations

from typing import assert_never

from elastio.core import actions
from elastio.core.cycle import Cycle, Trigger
from elastio.core.model import BackingView, CacheMode, CacheState, HostView, Serial, VolumeTag
from elastio.core.policy import Policy
from elastio.core.state import AgentState, Decision, Observation, Phase
from elastio.errors import InvariantError
from elastio.units import MB

# Seconds that requests may be held back until the last dirty data is flushed, at the backing volume's speed.
MOMENT_S = 1.0


def check(decision: Decision, obs: Observation, policy: Policy) -> None:
    """Raises InvariantError, with the rule, if `decision` would break one. Its code names the action."""
    for action in decision.actions:
        if isinstance(action, actions.CloudAction):
            broken = _broken_in_cloud(action, decision.state, obs, policy)
        else:
            broken = _broken_on_host(action, decision.state, obs, policy)
        if broken:
            raise InvariantError(f"{type(action).__name__}: {broken}", code=f"action.{type(action).__name__}")


def _broken_in_cloud(action: actions.CloudAction, state: AgentState, obs: Observation, policy: Policy) -> str:
    """The rule that `action` would break; empty: none. So is the answer of every function below."""
    cycle = state.cycle
    match action:
        case actions.TakeOverVolume():
            return _take_over(action, state, obs, policy)
        case actions.CreateVolume():
            return _create(action, cycle, policy)
        case actions.AttachVolume():
            return _attach(cycle, obs.backing)
        case actions.DetachVolume() | actions.DeleteVolume() | actions.TagVolume(tag=VolumeTag.CLEAN):
            return _release(action.volume_id, cycle, obs)
        case (
            actions.TagVolume()
            | actions.DescribeVolume()
            | actions.ListVolumes()
            | actions.ListForBacking()
            | actions.Identify()
            | actions.PollNotice()
        ):
            return ""  # a read, or a tag that keeps the volume
        case _:
            assert_never(action)


def _broken_on_host(action: actions.HostAction, state: AgentState, obs: Observation, policy: Policy) -> str:
    cycle, backing = state.cycle, obs.backing
    attached = backing.cache_set if backing else None
    match action:
        case actions.InstallCache():
            return _install(action, cycle, obs, policy)
        case actions.EnterPhase1():
            return _foreign(attached, cycle) or _absorb(state, backing)
        case actions.BypassCache():
            return _foreign(attached, cycle) or _bypass(backing, policy)
        case actions.EnterPhase2() | actions.WakeWriteback() | actions.SetFlush() | actions.LimitWrites(mb_s=float()):
            # Writes may also be held back for a cache that is about to be attached.
            is_for_disk = attached is None and isinstance(action, actions.LimitWrites)
            return "" if is_for_disk and state.phase is Phase.ATTACHING else _foreign(attached, cycle)
        case actions.DetachCacheSet():
            return _foreign(action.cache_set, cycle) or _detach(backing, cycle)
        case actions.ReleaseCacheDisk():
            return _unregister(backing, cycle)
        case actions.StartWithoutCache() | actions.RegisterBacking():
            return _start(action, state, backing)
        case actions.WriteTombstone() | actions.RemoveTombstone():
            return _tombstone(action, state, backing)
        case (
            actions.LimitWrites()
            | actions.TuneBacking()
            | actions.MakeDurable()
            | actions.HelpDetach()
            | actions.RegisterCache()
            | actions.SetShares()
        ):
            return _share(action, state, backing)  # none of the others can lose data
        case _:
            assert_never(action)


def _foreign(cache_set: str | None, cycle: Cycle | None) -> str:
    ours = cycle.cache_set if cycle else None
    return "" if cache_set is not None and cache_set == ours else f"cache set {cache_set} is not this cycle's"


def _share(action: actions.HostAction, state: AgentState, backing: BackingView | None) -> str:
    """A limit on all writes must not be replaced, and an agent that waits for an operator limits nobody."""
    if not isinstance(action, actions.SetShares) or action.plan is None:
        return ""
    if state.phase is Phase.FAULTED or not state.recovered:
        return f"nothing is shared by an agent that is {state.phase}, or has just started"
    is_free = backing is not None and backing.running and backing.write_limit_mb_s is None
    return "" if is_free else "the device does not run, or all writes to it are limited"


def _serves(backing: BackingView, cycle: Cycle | None) -> bool:
    return cycle is not None and backing.cache_set is not None and backing.cache_set == cycle.cache_set


def _create(action: actions.CreateVolume, cycle: Cycle | None, policy: Policy) -> str:
    if cycle is None or action.token != cycle.token:
        return "no cycle has this token"
    if cycle.volume_id is not None:
        return "the cycle has its volume already"
    if action.spec.size_bytes > policy.caps.max_size_bytes:
        return "larger than the cap"
    return ""


def _attach(cycle: Cycle | None, backing: BackingView | None) -> str:
    """Never attach a cache again that missed writes, or that may have."""
    if backing is None:
        return ""
    # The answer to its installation may be lost: it may have served unseen.
    if backing.lost_clean_cache and cycle is not None and cycle.may_have_served:
        return "writes may have bypassed it"
    is_confirmed = cycle is not None and cycle.operator_confirmed
    in_doubt = backing.may_have_been_written_since and not is_confirmed
    return "what is on it may be older than the backing device" if in_doubt else ""


def _install(action: actions.InstallCache, cycle: Cycle | None, obs: Observation, policy: Policy) -> str:
    if cycle is None or cycle.serial != action.serial:
        return "the disk is not the volume of this cycle"
    if cycle.times.boosted is not None:
        return "the disk has been a cache in this cycle: it may hold data"
    if policy.tags_volumes and cycle.tag is not VolumeTag.DIRTY:
        return "the volume is not tagged dirty: a janitor would delete it"
    backing = obs.backing
    if backing is None or backing.cache_set is not None:
        return "the backing device has a cache set, or its state is unknown"
    if backing.has_tombstone is False:
        return "the adopted volume could be mounted without its cache"
    return "" if cycle.is_on(backing) else "the volume was bought for another backing disk"


def _absorb(state: AgentState, backing: BackingView | None) -> str:
    """Never write to a cache that missed writes, nor while writes that bypass it are in flight."""
    if backing is not None and backing.cache_mode is not CacheMode.WRITEBACK:
        return "writes that bypass the cache are in flight: reads could return older data"
    return "writes have bypassed this cache: its clean data may be stale" if state.is_cache_stale else ""


def _bypass(backing: BackingView | None, policy: Policy) -> str:
    """Requests are held back until nothing is dirty: that may take a moment only, and the kernel must see the data."""
    if backing is None:
        return "the backing device's state is unknown"
    if backing.is_left_to_detach:
        return ""
    if backing.is_dirty_unseen:
        return "the superblock says clean and the index holds dirty data: nothing would flush it"
    left_s = backing.dirty_bytes / MB / policy.backing_bandwidth_mb_s
    return f"{left_s:.1f} s of flushing are left: requests cannot be held back so long" if left_s > MOMENT_S else ""


def _detach(backing: BackingView | None, cycle: Cycle | None) -> str:
    if backing is None or backing.state is not CacheState.CLEAN:
        return "the cache is not clean"
    if backing.cache_mode is not CacheMode.NONE:
        return f"writes may still be absorbed (mode {backing.cache_mode})"
    return "" if cycle is not None and cycle.is_on(backing) else "it is attached to another backing disk"


def _unregister(backing: BackingView | None, cycle: Cycle | None) -> str:
    if backing is None:
        return "the backing device's state is unknown"
    return "the cache set is still attached" if _serves(backing, cycle) else ""


def _tombstone(
    action: actions.WriteTombstone | actions.RemoveTombstone, state: AgentState, backing: BackingView | None
) -> str:
    """It is there for as long as a cache may be."""
    if backing is None or backing.has_tombstone is None:
        return "the backing device is no adopted volume, or its state is unknown"
    if isinstance(action, actions.WriteTombstone):
        return "" if state.cycle is not None else "no cache is to be attached"
    may_have_cache = backing.cache_set is not None or backing.state is not CacheState.NO_CACHE
    is_idle = state.phase is Phase.IDLE and state.cycle is None and state.recovered
    return "the adopted volume may have a cache" if may_have_cache or not is_idle else ""


def _start(
    action: actions.StartWithoutCache | actions.RegisterBacking, state: AgentState, backing: BackingView | None
) -> str:
    """Data is given up only where it is provably not needed, or where an operator accepted its loss."""
    if isinstance(action, actions.RegisterBacking):  # elsewhere somebody may have stopped the device on purpose
        is_ours = state.cycle is not None and state.cycle.may_be_attached
        return "" if is_ours else "no cache of this agent was on the backing device"
    is_failed_clean = _may_start_without(state, backing) and action.given_up == state.failed_clean_set
    if not is_failed_clean and not (state.is_loss_accepted and action.given_up == state.loss_accepted_for):
        return "no operator accepted the loss of what the missing cache holds"
    return "" if backing is not None and not backing.running else "the device runs, or its state is unknown"


def _may_start_without(state: AgentState, backing: BackingView | None) -> bool:
    """The device waits for a cache set that failed while clean and has not been attached again since."""
    if backing is None or backing.cache_set is not None or backing.running or backing.state is not CacheState.CLEAN:
        return False
    cycle = state.cycle
    if cycle is not None and cycle.may_lack_data:
        return False
    was_back = cycle is not None and cycle.cache_set == state.failed_clean_set and cycle.may_be_attached
    return state.failed_clean_set != "" and backing.superblock_set == state.failed_clean_set and not was_back


def _take_over(action: actions.TakeOverVolume, state: AgentState, obs: Observation, policy: Policy) -> str:
    """Another machine's volume is touched only by order, for this device, and for the cache set that it needs."""
    if state.take_over is None or state.take_over.volume_id != action.volume_id:
        return "no operator ordered to take over this volume"
    if state.phase is not Phase.FAULTED or action.backing_uuid != policy.backing_uuid:
        return "no cache of this device is missing"
    if state.cycle is not None and state.cycle.cache_set is not None:
        return "the agent has a cache of its own"
    backing = obs.backing
    if backing is None:
        return "the backing device's state is unknown"
    named = backing.superblock_set if backing.cache_set is None else backing.cache_set
    return "" if named == action.cache_set else "the backing device needs another cache set"


def _release(volume_id: str, cycle: Cycle | None, obs: Observation) -> str:
    """A volume is detached, deleted or tagged clean only when it provably holds nothing that is needed."""
    if cycle is None or cycle.volume_id != volume_id or cycle.serial is None:
        return f"volume {volume_id} is not this cycle's"
    shown = cycle.volume.tag if cycle.volume is not None else cycle.tag
    if cycle.trigger is Trigger.ORPHAN and not cycle.may_have_served and shown is not VolumeTag.CLEAN:
        return "it was found by its tags, and they do not say clean: it may be in use by another machine"
    if cycle.may_lack_data:
        return "dirty data was on it when it was last seen, and the kernel shows another device"
    backing = obs.backing
    if backing is not None and _serves(backing, cycle):
        return "its cache set is attached"
    if backing is not None and cycle.may_have_served and cycle.times.released is None and not cycle.is_on(backing):
        return "it was attached to another backing disk than the one that is here"
    if not cycle.may_have_left:
        return "it was a cache, and neither this agent nor the kernel detached it"
    unsynced = "the backing device has not been made durable since it had this cache" if cycle.needs_sync else ""
    return why_not_release(cycle.serial, obs.host) or unsynced


def why_not_release(serial: Serial, host: HostView | None) -> str:
    """Why the volume with this serial may hold data that is nowhere else; empty: it does not.

    Checked on every decision, and again by the executor on a scan of its own.
    """
    if host is None or host.backing is None:
        return "the backing device's state is unknown"
    if host.backing.waits_for_cache:
        return f"the backing device is {host.backing.state} and its cache is missing: this may be that cache"
    disk = host.disk(serial)
    if disk is None:
        return ""
    if disk.cache_set is not None and disk.cache_set == host.backing.cache_set:
        return "its cache set is attached"
    is_used = disk.held or disk.superblock is not None or disk.cache_set is not None
    return "its disk still carries a cache set or is held" if is_used else ""
