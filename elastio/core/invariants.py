"""What must never happen, checked on every decision before it leaves the core.

A broken rule is a bug in the core: the decision is thrown away and the agent stops acting. The executor checks
the same rules once more against the live system, because a look is old the moment it is made.

Nothing here is taken from the modules that are checked: a predicate that is wrong there would be wrong here, too. Each
rule is told anew, in the terms of the kernel and the cloud.
"""

from __future__ import annotations

from elastio.core.actions import (
    Action,
    AttachVolume,
    BypassCache,
    CreateVolume,
    DeleteVolume,
    DetachCacheSet,
    DetachVolume,
    EnterPhase1,
    EnterPhase2,
    InstallCache,
    LimitWrites,
    RegisterBacking,
    ReleaseCacheDisk,
    SetFlush,
    StartWithoutCache,
    TagVolume,
    WakeWriteback,
)
from elastio.core.cycle import Cycle
from elastio.core.model import BackingView, CacheMode, CacheState, HostView, Serial, VolumeTag
from elastio.core.observation import Decision, Observation
from elastio.core.policy import Policy
from elastio.core.state import AgentState
from elastio.errors import InvariantError
from elastio.units import MB

# For so long, at the backing volume's speed, requests may be held back until the last dirty data is flushed.
MOMENT_S = 1.0


def check(decision: Decision, obs: Observation, policy: Policy) -> None:
    """Raises InvariantError with the rule that `decision` would break."""
    for action in decision.actions:
        broken = _broken_rule(action, decision.state.cycle, obs, policy) or _loss(action, decision.state, obs)
        if broken:
            raise InvariantError(f"{type(action).__name__}: {broken}")


def _broken_rule(action: Action, cycle: Cycle | None, obs: Observation, policy: Policy) -> str:
    match action:
        case CreateVolume():
            return _create(action, cycle, policy)
        case DetachVolume() | DeleteVolume():
            return _let_go(action.volume_id, cycle, obs)
        case InstallCache():
            return _install(action, cycle, obs, policy)
        case EnterPhase1():
            backing = _backing(obs)
            bypassed = backing is not None and backing.cache_mode is not CacheMode.WRITEBACK
            stale = "writes that bypass the cache are in flight: reads would keep what was there before them"
            return _foreign(backing.cache_set if backing else None, cycle) or (stale if bypassed else "")
        case BypassCache():
            backing = _backing(obs)
            return _foreign(backing.cache_set if backing else None, cycle) or _bypass(backing, policy)
        case EnterPhase2() | WakeWriteback() | SetFlush() | LimitWrites(mb_s=float()):
            backing = _backing(obs)
            return _foreign(backing.cache_set if backing else None, cycle)
        case DetachCacheSet():
            return _foreign(action.cache_set, cycle) or _detach(_backing(obs), cycle)
        case ReleaseCacheDisk():
            backing = _backing(obs)
            if backing is None:
                return "the backing device's state is unknown"
            return "the cache set is still attached" if _serves(backing, cycle) else ""
    return ""


def _loss(action: Action, state: AgentState, obs: Observation) -> str:
    """Data is given up, and a tag says "clean", only on proof: of a decision, and of an empty disk.

    Nor is anything written to a cache that has missed writes, nor one that may have brought back.
    """
    cycle = state.cycle
    if isinstance(action, AttachVolume):
        backing = _backing(obs)
        in_doubt = (
            backing is not None
            and backing.may_have_been_written_since
            and not (cycle is not None and cycle.operator_confirmed)
        )
        # Its answer may be lost, and it may have been in front unseen.
        if backing is not None and backing.lost_clean_cache and cycle is not None and cycle.may_have_served:
            return "writes may have gone past it"
        return "what is on it may be older than the backing device" if in_doubt else ""
    if isinstance(action, EnterPhase1) and state.is_cache_stale:
        return "writes have gone past this cache: what is clean on it may be old"
    if isinstance(action, StartWithoutCache):
        backing = _backing(obs)
        outlived = _may_start_without(state, backing) and action.given_up == state.failed_clean_set
        if not outlived and not (state.is_loss_accepted and action.given_up == state.loss_accepted_for):
            return "no operator gave up what the missing cache holds"
        return "" if backing is not None and not backing.running else "the device runs, or its state is unknown"
    if isinstance(action, TagVolume) and action.tag is VolumeTag.CLEAN:
        return _let_go(action.volume_id, cycle, obs)
    if isinstance(action, RegisterBacking) and not (cycle is not None and cycle.is_in_front):
        return "no cache of this agent was on the backing device"
    return ""


def _backing(obs: Observation) -> BackingView | None:
    return obs.host.backing if obs.host else None


def _foreign(cache_set: str | None, cycle: Cycle | None) -> str:
    ours = cycle.cache_set if cycle else None
    return "" if cache_set is not None and cache_set == ours else f"cache set {cache_set} is not this cycle's"


def _serves(backing: BackingView, cycle: Cycle | None) -> bool:
    return cycle is not None and backing.cache_set is not None and backing.cache_set == cycle.cache_set


def _create(action: CreateVolume, cycle: Cycle | None, policy: Policy) -> str:
    if cycle is None or action.token != cycle.token:
        return "no cycle bought this"
    if cycle.volume_id is not None:
        return "the cycle has its volume already"
    if action.spec.size_bytes > policy.caps.max_size_bytes:
        return "larger than the cap"
    return ""


def _install(action: InstallCache, cycle: Cycle | None, obs: Observation, policy: Policy) -> str:
    if cycle is None or cycle.serial != action.serial:
        return "the disk is not the volume of this cycle"
    if cycle.times.boosted is not None:
        return "the disk has been a cache in this cycle: it may hold data"
    if policy.tags_volumes and cycle.tag is not VolumeTag.DIRTY:
        return "the volume is not tagged dirty: whoever finds it without its machine would delete it"
    backing = _backing(obs)
    if backing is None or backing.cache_set is not None:
        return "the backing device has a cache set, or its state is unknown"
    return "" if cycle.is_on(backing) else "the volume was bought for another backing disk"


def _bypass(backing: BackingView | None, policy: Policy) -> str:
    """Requests are held back until nothing is dirty: that must be a moment, and the kernel must know of the dirt."""
    if backing is None:
        return "the backing device's state is unknown"
    if backing.state is CacheState.CLEAN and backing.dirty_bytes:
        return "the kernel calls clean what its index calls dirty: nothing would flush it"
    left_s = backing.dirty_bytes / MB / policy.backing_bandwidth_mb_s
    return f"{left_s:.1f} s of flushing are left: requests cannot be held back so long" if left_s > MOMENT_S else ""


def _detach(backing: BackingView | None, cycle: Cycle | None) -> str:
    if backing is None or backing.state is not CacheState.CLEAN:
        return "the cache is not clean"
    if backing.cache_mode is not CacheMode.NONE:
        return f"writes may still be absorbed (mode {backing.cache_mode})"
    return "" if cycle is not None and cycle.is_on(backing) else "it is in front of another backing disk"


def _may_start_without(state: AgentState, backing: BackingView | None) -> bool:
    """The device waits for a cache that failed while clean, and has been seen to go on without it since."""
    if backing is None or backing.cache_set is not None or backing.running or backing.state is not CacheState.CLEAN:
        return False
    cycle = state.cycle
    if cycle is not None and cycle.may_lack_data:
        return False
    was_back = cycle is not None and cycle.cache_set == state.failed_clean_set and cycle.is_in_front
    return state.failed_clean_set != "" and backing.superblock_set == state.failed_clean_set and not was_back


def _let_go(volume_id: str, cycle: Cycle | None, obs: Observation) -> str:
    """A volume may leave the machine, or the world, only when it provably holds nothing."""
    if cycle is None or cycle.volume_id != volume_id or cycle.serial is None:
        return f"volume {volume_id} is not this cycle's"
    if cycle.may_lack_data:
        return "dirty data was on it when it was last seen, and the kernel shows another device"
    backing = _backing(obs)
    if backing is not None and _serves(backing, cycle):
        return "its cache set is attached"
    if backing is not None and cycle.may_have_served and cycle.times.released is None and not cycle.is_on(backing):
        return "it was in front of another backing disk than the one that is here"
    if not cycle.may_have_left:
        return "it was a cache, and neither this agent nor the kernel took it off"
    unsynced = "the backing device has not been made durable since it was its cache" if cycle.needs_sync else ""
    return why_not_let_go(cycle.serial, obs.host) or unsynced


def why_not_let_go(serial: Serial, host: HostView | None) -> str:
    """Why the volume with this serial may hold data that is nowhere else, or an empty string.

    Used on a decision, and again by the executor on a look made for the purpose.
    """
    if host is None or host.backing is None:
        return "the backing device's state is unknown"
    if host.backing.waits_for_cache:
        return f"the backing device is {host.backing.state} and its cache is missing: this may be it"
    disk = host.disk(serial)
    if disk is None:
        return ""
    if disk.cache_set is not None and disk.cache_set == host.backing.cache_set:
        return "its cache set is attached"
    is_used = disk.held or disk.superblock is not None or disk.cache_set is not None
    return "its disk still carries a cache set or is held" if is_used else ""
