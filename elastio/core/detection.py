"""Which event does the agent see in each phase? One function per phase; at most one event per decision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from elastio.core import inhibition
from elastio.core.actions import Lane
from elastio.core.model import (
    BackingView,
    CacheMode,
    CacheState,
    HostView,
    RequestKind,
    Volume,
    VolumeMark,
    VolumeState,
)
from elastio.core.observation import Observation
from elastio.core.policy import Policy, has_chance, is_load_high, is_quiet
from elastio.core.state import AgentState, Cycle, Phase, Trigger
from elastio.core.update import VISIBLE_WITHIN_S
from elastio.units import format_duration, format_size


class Event(StrEnum):
    BOOST_WANTED = "boost wanted"
    ORPHAN_FOUND = "orphan found"
    CACHE_ATTACHED = "cache attached"
    BOOST_REFUSED = "boost refused"  # nothing was bought
    BOOST_ABANDONED = "boost abandoned"  # something was, or may have been, bought
    BOOST_WITHDRAWN = "boost withdrawn"  # nobody wants it any more
    WENT_QUIET = "went quiet"
    LOAD_RETURNED = "load returned"
    CACHE_LEFT = "cache left"
    DRAINED = "drained"
    DIRTIED = "dirtied"
    RELEASED = "released"
    ENDANGERED = "endangered"
    REPAIRED = "repaired"


@dataclass(frozen=True, slots=True)
class Seen:
    """An event and the sentence that says what showed it."""

    event: Event
    reason: str


def danger(state: AgentState, obs: Observation) -> Seen | None:
    """What only an operator may decide, whatever the phase."""
    backing = obs.host.backing if obs.host else None
    if backing is None:
        return _copied(state, obs.host) or _let_go_of(state, obs.host)
    is_accepted = state.is_loss_accepted or state.is_stale_accepted
    if backing.state is CacheState.INCONSISTENT and not is_accepted:
        return Seen(
            Event.ENDANGERED,
            "the backing device was started by force without its cache: it is inconsistent "
            f"(`elastio {'resume` takes it as it is' if state.cycle is None else 'recover` tells the ways out'})",
        )
    if backing.waits_for_cache and not needs_no_cache(state, backing):
        return Seen(Event.ENDANGERED, _missing(state.cycle, backing))
    if state.recovered and state.cycle is not None and _is_in_dispute(state, state.cycle, backing):
        return Seen(Event.ENDANGERED, disputed(state.cycle))
    ours = state.cycle.cache_set if state.cycle else None
    strange = backing.cache_set is not None and backing.cache_set != ours
    if strange and state.recovered and state.phase is not Phase.FAULTED and not _may_be_ours(state):
        return Seen(
            Event.ENDANGERED,
            f"cache set {backing.cache_set} is attached to the backing device and this agent did not attach it",
        )
    return None


def _missing(cycle: Cycle | None, backing: BackingView) -> str:
    name = _volume_name(cycle)
    text = f"the cache of the backing device is missing and the device is {backing.state}"
    if backing.may_have_gone_on:
        return f"{text}: volume {name} may be older than what was written since, or be needed (`elastio recover`)"
    return f"{text}: attach volume {name} again; nothing is started without it (`elastio recover`)"


def _copied(state: AgentState, host: HostView | None) -> Seen | None:
    """Which of two devices with one UUID is meant cannot be told, so nothing is done to either."""
    if host is None or len(host.twins) < 2 or state.cycle is None:
        return None
    names = " and ".join(host.twins)
    return Seen(Event.ENDANGERED, f"{names} carry the same backing UUID: one is a copy; take it away, then resume")


def _let_go_of(state: AgentState, host: HostView | None) -> Seen | None:
    """With its cache the kernel lets go of the backing device, too; a look may come too late to see why."""
    cycle = state.cycle
    if host is None or cycle is None or not cycle.is_in_front or not state.recovered:
        return None
    return Seen(
        Event.ENDANGERED,
        f"bcache has let go of the backing device while volume {_volume_name(cycle)} was its cache: that failed, or "
        "somebody stopped the device (`elastio recover`)",
    )


def needs_no_cache(state: AgentState, backing: BackingView) -> bool:
    """It waits for a cache that it has outlived, and for no other: nothing is lost by starting it without."""
    waits_for_it = backing.waits_for_cache and state.outlived != "" and backing.named_set == state.outlived
    # It may have been in front again, and have taken writes: "clean" reaches the superblock's "dirty" late.
    is_back = state.is_cache_outlived and state.cycle is not None and state.cycle.is_in_front
    is_disputed = state.cycle is not None and state.cycle.is_disputed
    return waits_for_it and backing.state is CacheState.CLEAN and not is_disputed and not is_back


def _is_in_dispute(state: AgentState, cycle: Cycle, backing: BackingView) -> bool:
    is_back = backing.cache_set is not None and backing.cache_set == cycle.cache_set
    return cycle.is_disputed and not is_back and not state.is_loss_accepted


def disputed(cycle: Cycle) -> str:
    """What is wrong with a device that shows no cache although this agent did not take it off."""
    return (
        f"the kernel shows no cache, but volume {_volume_name(cycle)} was one when it was last seen, with "
        f"{format_size(cycle.dirty_bytes)} dirty, and this agent did not take it off: the backing device may be an "
        "older copy, or lack them (`elastio recover`)"
    )


def _volume_name(cycle: Cycle | None) -> str:
    return cycle.volume_id if cycle and cycle.volume_id else "that was its cache"


def _may_be_ours(state: AgentState) -> bool:
    """A cache set that appears while this agent is formatting is the one it formats."""
    return state.phase is Phase.ATTACHING and state.cycle is not None and state.cycle.cache_set is None


def is_asked(obs: Observation, kind: RequestKind) -> bool:
    return any(r.kind is kind for r in obs.requests)


def _why_stop(state: AgentState, obs: Observation) -> str:
    """Who wants the cache away whatever the load, or an empty string."""
    if is_asked(obs, RequestKind.FLUSH) or is_asked(obs, RequestKind.PAUSE):
        return "an operator asked to"
    return f"held clean ({state.hold.reason}):" if state.hold is not None and inhibition.wants_flush(state) else ""


# --- one function per phase ------------------------------------------------------------------------------


def in_idle(state: AgentState, obs: Observation, policy: Policy) -> Seen | None:
    """Boosts are decided by `decide` itself (they can be refused); here: volumes that nobody remembers."""
    orphan = orphan_of(state)
    if orphan is not None and obs.host is not None and obs.host.backing is not None:
        return Seen(Event.ORPHAN_FOUND, f"volume {orphan} is ours and belongs to no cycle: release it")
    return None


def orphans(state: AgentState) -> tuple[Volume, ...]:
    """Owned volumes that exist, may be released, are not leaving and are not attached to another instance."""
    left_alone = (VolumeState.DELETING, VolumeState.GONE, VolumeState.ELSEWHERE, VolumeState.FOREIGN)
    return tuple(v for v in state.owned or () if v.state not in left_alone and not is_kept(v, state))


def is_kept(volume: Volume, state: AgentState) -> bool:
    """Not marked clean, and remembered by no cycle, or given up: only an operator knows whose data that is."""
    return volume.mark is not VolumeMark.CLEAN or volume.id == state.accepted or volume.id in state.given_up


def orphan_of(state: AgentState) -> str | None:
    """The id of one orphan, or None."""
    return next((v.id for v in orphans(state)), None)


def in_attaching(state: AgentState, obs: Observation, policy: Policy) -> Seen | None:
    cycle = _cycle(state)
    backing = obs.host.backing if obs.host else None
    if backing is not None and _is_boosted(cycle, backing):
        took = (cycle.marks.boosted or obs.now) - cycle.started_at
        return Seen(Event.CACHE_ATTACHED, f"cache attached in writeback mode {took:.2f} s after the decision")
    if cycle.failure:
        kind = Event.BOOST_ABANDONED if cycle.volume_id or cycle.doubt_at is not None else Event.BOOST_REFUSED
        return Seen(kind, cycle.failure)
    was_there = cycle.cache_set is not None or cycle.marks.installing is not None
    if was_there and obs.host is not None and obs.host.disk(cycle.serial) is None:
        return Seen(Event.BOOST_ABANDONED, f"the disk of volume {cycle.volume_id} has gone since it was formatted")
    if cycle.volume_state in (VolumeState.ERROR, VolumeState.GONE, VolumeState.ELSEWHERE, VolumeState.FOREIGN):
        return Seen(Event.BOOST_ABANDONED, f"volume {cycle.volume_id} is {cycle.volume_state}")
    if obs.now - cycle.started_at > policy.attach_deadline_s:
        waited = format_duration(policy.attach_deadline_s)
        return Seen(Event.BOOST_ABANDONED, f"no cache {waited} after the decision: giving up this boost")
    if why := _why_stop(state, obs):
        return Seen(Event.BOOST_WITHDRAWN, f"{why} stop")
    return _no_longer_wanted(state, cycle, obs, policy)


def _no_longer_wanted(state: AgentState, cycle: Cycle, obs: Observation, policy: Policy) -> Seen | None:
    """An operator boosts ahead of a load: only a load that asked, or was expected, can take its wish back."""
    if not is_quiet(state.load, obs.now, policy):
        return None
    if cycle.trigger is Trigger.LOAD and cycle.started_at < (state.load.below_since or 0):
        return Seen(Event.BOOST_WITHDRAWN, "the load was over before the cache was there")
    if cycle.trigger is Trigger.FORECAST and not has_chance(cycle, obs.now):
        return Seen(Event.BOOST_WITHDRAWN, "the time of the forecast burst was over before the cache was there")
    return None


def _is_boosted(cycle: Cycle, backing: BackingView) -> bool:
    return (
        cycle.cache_set is not None
        and backing.cache_set == cycle.cache_set
        and backing.cache_mode is CacheMode.WRITEBACK
    )


def in_boosting(state: AgentState, obs: Observation, policy: Policy) -> Seen | None:
    cycle = _cycle(state)
    if why := _why_stop(state, obs):
        return Seen(Event.WENT_QUIET, f"{why} flush")
    if _has_left(cycle, obs):
        return Seen(Event.CACHE_LEFT, "the cache set is no longer attached")
    if state.is_cache_outlived:
        return Seen(Event.WENT_QUIET, "the cache had failed, and what is on it may be old: it is taken off")
    if is_bypassed(obs):
        return Seen(Event.WENT_QUIET, "somebody made writes bypass the cache: it is flushed and released")
    since = max(state.load.below_since or 0.0, cycle.marks.boosted or 0.0)
    over = is_quiet(state.load, obs.now, policy) and obs.now - since >= policy.inactivity_delay_s
    if over and not has_chance(cycle, obs.now):
        return Seen(
            Event.WENT_QUIET,
            f"utilization below {policy.release_threshold:.0%} for {format_duration(policy.inactivity_delay_s)}",
        )
    return None


def in_flushing(state: AgentState, obs: Observation, policy: Policy) -> Seen | None:
    cycle = _cycle(state)
    if _has_left(cycle, obs):
        return Seen(Event.CACHE_LEFT, "the cache set is no longer attached")
    wants_back = is_load_high(state.load, obs.now, policy) and obs.sample is not None
    wanted = is_asked(obs, RequestKind.BOOST) or (wants_back and not cycle.forced and not state.paused)
    if wanted and not inhibition.wants_flush(state) and not is_bypassed(obs) and not state.is_cache_outlived:
        return Seen(Event.LOAD_RETURNED, f"utilization {state.load.utilization:.0%} while flushing")
    backing = obs.host.backing if obs.host else None
    if backing is not None and is_drained(backing):
        return Seen(Event.DRAINED, "the cache is clean")
    return None


def is_bypassed(obs: Observation) -> bool:
    """Writes pass a cache that is attached. They must not be led back into it: a read that misses while such a write is
    in flight would put what was there before into the cache."""
    backing = obs.host.backing if obs.host else None
    return backing is not None and backing.cache_set is not None and backing.cache_mode is not CacheMode.WRITEBACK


def is_drained(backing: BackingView) -> bool:
    """The writeback thread has nothing to do, and nothing can become dirty.

    `dirty_bytes` is no condition. After a power cut the index may call dirty again what was flushed just before it, or
    the superblock may still say clean over data that was not. The thread then sees no work and waits for a write, which
    does not come in this mode. A detach does not ask it: the kernel flushes all that the index calls dirty first.
    """
    return backing.state is CacheState.CLEAN and backing.cache_mode is CacheMode.NONE


def _has_left(cycle: Cycle, obs: Observation) -> bool:
    """Its device shows no cache, and is believed. One that is not believed is in dispute: see `facts`."""
    backing = obs.host.backing if obs.host else None
    if backing is None or backing.cache_set is not None or cycle.is_disputed or not cycle.may_have_left:
        return False
    return backing.state is CacheState.NO_CACHE or backing.outlives_cache


def in_detaching(state: AgentState, obs: Observation, policy: Policy) -> Seen | None:
    cycle = _cycle(state)
    backing = obs.host.backing if obs.host else None
    if backing is not None and backing.cache_set is not None and backing.cache_set == cycle.cache_set:
        if backing.state is CacheState.DIRTY or backing.cache_mode is CacheMode.WRITEBACK:
            return Seen(Event.DIRTIED, "the cache set is attached and not drained")
        return None
    if cycle.volume_id is None and not _may_still_show(state, cycle, obs):
        return Seen(Event.RELEASED, "no volume was bought")
    if cycle.volume_state is VolumeState.ELSEWHERE:
        return Seen(
            Event.ENDANGERED,
            f"volume {cycle.volume_id} is ours and attached to another instance: whoever attached it there has to say "
            "why; once it is detached there, resume",
        )
    if cycle.volume_state is VolumeState.FOREIGN and not cycle.needs_sync:
        return Seen(Event.RELEASED, f"volume {cycle.volume_id} belongs to another machine and is left alone")
    is_gone = cycle.volume_state in (VolumeState.GONE, VolumeState.DELETING)
    if is_gone and not (cycle.needs_sync and backing is not None):
        return Seen(Event.RELEASED, f"volume {cycle.volume_id} is deleted")
    return None


def _may_still_show(state: AgentState, cycle: Cycle, obs: Observation) -> bool:
    """A purchase without a clear answer: it may show in a list until long after the last attempt."""
    if Lane.CLOUD in obs.busy:
        return True  # the purchase itself may be under way
    if cycle.doubt_at is None:
        return False
    return state.listed_at is None or state.listed_at < cycle.doubt_at + VISIBLE_WITHIN_S


def in_faulted(state: AgentState, obs: Observation, policy: Policy) -> Seen | None:
    """Leaves when an operator says so, or when the missing cache is back; what then is, is read off the kernel."""
    if obs.host is None or obs.host.backing is None:
        return None
    if danger(resumed(state, obs), obs) is not None:
        return None
    if is_asked(obs, RequestKind.RESUME):
        return Seen(Event.REPAIRED, "an operator asked to go on")
    goes_without = state.is_loss_accepted and obs.host.backing.cache_set is None
    if goes_without and not state.stopped and obs.host.backing.running:
        return Seen(Event.REPAIRED, f"an operator gave up what only volume {state.accepted} held")
    goes_on = not state.stopped and obs.host.backing.running and not is_mixed(state)
    if goes_on and _is_cache_back(state, obs.host, obs.host.backing):
        return Seen(Event.REPAIRED, "the cache is back")
    return None


def is_mixed(state: AgentState) -> bool:
    """The device went on without a cache that may have been dirty: what is flushed may be older than what it meets."""
    return state.is_cache_outlived and state.cycle is not None and state.cycle.is_disputed


def resumed(state: AgentState, obs: Observation) -> AgentState:
    """An operator who resumes takes an inconsistent device as it is: the kernel's mark stays until the next cache.

    Not while a volume is left that may hold what is missing: that is given up by its name, or not at all.
    """
    backing = obs.host.backing if obs.host else None
    is_marked = backing is not None and backing.state is CacheState.INCONSISTENT and state.cycle is None
    return replace(state, is_stale_accepted=True) if is_marked and is_asked(obs, RequestKind.RESUME) else state


def _is_cache_back(state: AgentState, host: HostView, backing: BackingView) -> bool:
    """The attached set is the cycle's; or, where none is remembered, lies on a volume of this agent."""
    if backing.cache_set is None:
        return False
    if state.cycle is not None and state.cycle.cache_set is not None:
        return backing.cache_set == state.cycle.cache_set
    owned = {v.serial for v in state.owned or ()} | {state.cycle.serial if state.cycle else None}
    return any(d.serial in owned for d in host.disks if backing.cache_set in (d.cache_set, d.superblock))


def _cycle(state: AgentState) -> Cycle:
    if state.cycle is None:
        raise ValueError(f"{state.phase} without a cycle")
    return state.cycle


DETECTORS = {
    Phase.IDLE: in_idle,
    Phase.ATTACHING: in_attaching,
    Phase.BOOSTING: in_boosting,
    Phase.FLUSHING: in_flushing,
    Phase.DETACHING: in_detaching,
    Phase.FAULTED: in_faulted,
}
