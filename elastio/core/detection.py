"""Which event an observation shows: one function per phase, and `danger` for all; orders are in `requests`. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from elastio.core import boosting, recovery
from elastio.core.actions import Worker
from elastio.core.cycle import Cycle, FailureKind, Trigger
from elastio.core.model import BackingView, CacheState, HostView, VolumeState, VolumeTag
from elastio.core.polling import VISIBLE_WITHIN_S
from elastio.core.state import AgentState, FaultKind, Observation, Phase
from elastio.errors import InvariantError
from elastio.strategy.memory import Capped
from elastio.strategy.situation import BoostPlan, Decline, Wish
from elastio.units import format_duration

MOST_DIRTIED = 10  # so often a release begins again because its cache is not drained any more


class Event(StrEnum):
    """What ends a phase, or leaves it: docs/reference/state-machine.md says what shows each."""

    BOOST_WANTED = "boost wanted"
    BOOST_CAPPED = "boost capped"
    BOOST_DECLINED = "boost declined"
    ORPHAN_FOUND = "orphan found"
    CACHE_ATTACHED = "cache attached"
    BOOST_REFUSED = "boost refused"
    BOOST_ABANDONED = "boost abandoned"
    BOOST_WITHDRAWN = "boost withdrawn"
    WENT_QUIET = "went quiet"
    CAP_REACHED = "cap reached"
    FILLED_UP = "filled up"
    LOAD_RETURNED = "load returned"
    CACHE_LEFT = "cache left"
    DRAINED = "drained"
    DIRTIED = "dirtied"
    RELEASED = "released"
    ENDANGERED = "endangered"
    REPAIRED = "repaired"


@dataclass(frozen=True, slots=True)
class Detection:
    """An event and, in `reason`, one sentence that says what showed it.

    `fault` comes with ENDANGERED, `failure` with the events that end a boost before its cache, `plan` with
    BOOST_WANTED, `capped` where a cap ends a boost.
    """

    event: Event
    reason: str
    fault: FaultKind | None = None
    failure: FailureKind | None = None
    plan: BoostPlan | None = None
    capped: Capped | None = None
    is_ordered: bool = False  # an operator asked for it, or it pays: it is carried out whatever the load

    @property
    def is_capped(self) -> bool:
        return self.capped is not None or self.event is Event.BOOST_CAPPED


# Of states in which nothing may be done to a volume, although it is paid for: the fault, and what an operator is to do.
ELSEWHERE = FaultKind.ATTACHED_ELSEWHERE, "is attached to another instance: find out why, detach it there"
UNLABELED = FaultKind.UNLABELED, "has lost the label that names its owner: label it again, or delete it"
LEFT_TO_OPERATOR = {VolumeState.ELSEWHERE: ELSEWHERE, VolumeState.UNLABELED: UNLABELED}
UNUSABLE = frozenset({VolumeState.ERROR, VolumeState.GONE, VolumeState.FOREIGN, *LEFT_TO_OPERATOR})


def endangered(kind: FaultKind, reason: str) -> Detection:
    """ENDANGERED with the kind of fault and its sentence."""
    return Detection(Event.ENDANGERED, reason, fault=kind)


def danger(state: AgentState, obs: Observation) -> Detection | None:
    """ENDANGERED where only an operator may decide how to go on, in every phase; else None."""
    backing = obs.backing
    if backing is None:
        return _duplicated(state, obs.host) or _unregistered(state, obs.host)
    is_accepted = state.is_loss_accepted or state.is_stale_accepted
    if backing.state is CacheState.INCONSISTENT and not is_accepted:
        return endangered(FaultKind.INCONSISTENT, recovery.inconsistent_text(state.cycle))
    if backing.waits_for_cache and not state.may_run_without_cache(backing):
        return endangered(FaultKind.CACHE_MISSING, recovery.missing_text(state.cycle, backing))
    cycle = state.cycle
    is_ours = cycle is not None and cycle.is_attached_to(backing)
    lacks_data = cycle is not None and cycle.may_lack_data and not is_ours and not state.is_loss_accepted
    if cycle is not None and lacks_data and state.recovered:
        return endangered(FaultKind.MAY_LACK_DATA, recovery.why_may_lack_data(cycle))
    is_strange = backing.cache_set is not None and not is_ours
    # A cache set that appears while this agent is formatting is the one it formats.
    is_formatting = state.phase is Phase.ATTACHING and cycle is not None and cycle.cache_set is None
    if is_strange and state.recovered and state.phase is not Phase.FAULTED and not is_formatting:
        text = f"cache set {backing.cache_set} is attached to the backing device and this agent did not attach it"
        return endangered(FaultKind.FOREIGN_CACHE, text)
    return _meddled(state, backing) or _unclaimed(state, backing)


def _meddled(state: AgentState, backing: BackingView) -> Detection | None:
    """Whatever sets the cache mode again and again would keep the cache attached, and paid, for ever."""
    cycle = state.cycle
    if cycle is None or cycle.dirtied < MOST_DIRTIED or None in (backing.cache_set, cycle.cache_set):
        return None
    text = f"somebody has set the cache mode {cycle.dirtied} times while the cache was being released"
    return endangered(FaultKind.MODE_CHANGED, f"{text}: find out who, then run `elastio resume`")


def _unclaimed(state: AgentState, backing: BackingView) -> Detection | None:
    """The next boost would put more data on a device that may be the wrong one. What is clean is released before."""
    is_releasing = state.phase is Phase.IDLE and state.orphans != ()
    found = state.unclaimed(backing) if state.recovered and not is_releasing else ()
    return endangered(FaultKind.MAY_LACK_DATA, recovery.unclaimed_text(found)) if found else None


def _duplicated(state: AgentState, host: HostView | None) -> Detection | None:
    """Nobody can tell which of two devices with one UUID is the right one, so nothing is done to either."""
    if host is None or len(host.duplicates) < 2 or state.cycle is None:
        return None
    text = f"{' and '.join(host.duplicates)} have the same backing UUID: remove the copy, then run `elastio resume`"
    return endangered(FaultKind.DUPLICATE_DEVICE, text)


def _unregistered(state: AgentState, host: HostView | None) -> Detection | None:
    """When a dirty cache fails, the kernel drops the backing device too; a scan may come too late to show why."""
    cycle = state.cycle
    if host is None or cycle is None or not cycle.may_be_attached or not state.recovered:
        return None
    return endangered(
        FaultKind.CACHE_FAILED,
        f"bcache dropped the backing device while volume {recovery.volume_name(cycle)} was its cache: the cache "
        "failed, or somebody stopped the device (`elastio recover`)",
    )


def _why_inhibited(state: AgentState) -> str:
    """Why the cache has to be released whatever the load; empty: it does not."""
    return f"held clean ({state.inhibition.reason}):" if state.inhibition is not None and state.wants_flush else ""


def in_idle(state: AgentState, obs: Observation, wish: Wish) -> Detection | None:
    """A volume that belongs to no cycle. Whether a boost begins is decided later, see `machine`."""
    if state.orphans and obs.backing is not None:
        text = f"volume {state.orphans[0].id} is ours and belongs to no cycle: release it"
        return Detection(Event.ORPHAN_FOUND, text)
    return None


def in_attaching(state: AgentState, obs: Observation, wish: Wish) -> Detection | None:
    """The cache is attached, the boost failed, or it is no longer wanted."""
    cycle, backing = _cycle(state), obs.backing
    if backing is not None and cycle.is_attached_to(backing) and not backing.is_bypassed:
        took = (cycle.times.boosted or obs.now) - cycle.started_at
        return Detection(Event.CACHE_ATTACHED, f"cache attached in writeback mode {took:.2f} s after the decision")
    if (failure := cycle.failure) is not None:
        is_bought = cycle.volume_id is not None or cycle.create_unconfirmed_at is not None
        unbought = Event.BOOST_CAPPED if failure.kind is FailureKind.CAPPED else Event.BOOST_REFUSED
        return Detection(Event.BOOST_ABANDONED if is_bought else unbought, failure.text, failure=failure.kind)
    if backing is not None and cycle.is_attached_to(backing):
        return _abandoned(FailureKind.ERROR, f"somebody has set the cache mode {backing.cache_mode} as it was attached")
    was_there = cycle.cache_set is not None or cycle.times.installing is not None
    if was_there and obs.host is not None and obs.host.disk(cycle.serial) is None:
        return _abandoned(FailureKind.LOST, f"the disk of volume {cycle.volume_id} disappeared after it was formatted")
    if cycle.volume_state in UNUSABLE:
        return _abandoned(FailureKind.LOST, f"volume {cycle.volume_id} is {cycle.volume_state}")
    if obs.now - cycle.started_at > wish.policy.attach_timeout_s:
        waited = format_duration(wish.policy.attach_timeout_s)
        return _abandoned(FailureKind.TIMED_OUT, f"no cache {waited} after the decision: abandoning this boost")
    if why := _why_inhibited(state):
        return withdrawn(f"{why} stop")
    if wish.policy.buys_nothing and cycle.volume_id is None:
        return withdrawn(wish.policy.buys_nothing)
    # A load that is held back looks over.
    is_held = backing is not None and backing.write_limit_mb_s is not None and boosting.is_being_attached(state, obs)
    if wish.release is None or (is_held and wish.release.capped is None):
        return None
    return replace(withdrawn(wish.release.reason), capped=wish.release.capped)


def _abandoned(kind: FailureKind, reason: str) -> Detection:
    return Detection(Event.BOOST_ABANDONED, reason, failure=kind)


def withdrawn(reason: str, *, is_ordered: bool = False) -> Detection:
    """BOOST_WITHDRAWN with its sentence."""
    return Detection(Event.BOOST_WITHDRAWN, reason, failure=FailureKind.WITHDRAWN, is_ordered=is_ordered)


def in_boosting(state: AgentState, obs: Observation, wish: Wish) -> Detection | None:
    """The load is over, the cache has to be released, or it is detached."""
    cycle = _cycle(state)
    if why := _why_inhibited(state):
        return Detection(Event.WENT_QUIET, f"{why} flush")
    if _has_left(cycle, obs):
        return Detection(Event.CACHE_LEFT, "the cache set is no longer attached")
    if state.is_cache_stale:
        return Detection(Event.WENT_QUIET, "the cache had failed, and its data may be stale: it is released")
    if obs.backing is not None and obs.backing.is_bypassed:
        return Detection(Event.WENT_QUIET, "somebody made writes bypass the cache: it is flushed and released")
    release = wish.release
    if release is None:
        return None
    if release.capped is not None:
        return Detection(Event.CAP_REACHED, release.reason, capped=release.capped)
    event = Event.FILLED_UP if release.is_filled else Event.WENT_QUIET
    return Detection(event, release.reason, is_ordered=release.is_ordered)


def in_flushing(state: AgentState, obs: Observation, wish: Wish) -> Detection | None:
    """The cache is drained or detached, or the load is back."""
    cycle = _cycle(state)
    if _has_left(cycle, obs):
        return Detection(Event.CACHE_LEFT, "the cache set is no longer attached")
    if not cycle.forced and may_boost_again(state, obs):
        if wish.release is not None and wish.release.capped is not None:
            return Detection(Event.CAP_REACHED, wish.release.reason, capped=wish.release.capped)
        if wish.again and not state.paused:
            return Detection(Event.LOAD_RETURNED, f"{wish.again} while flushing")
    backing = obs.backing
    if backing is not None and backing.is_drained:
        return Detection(Event.DRAINED, "the cache is clean")
    return None


def may_boost_again(state: AgentState, obs: Observation) -> bool:
    """A cache that is being flushed may take writes again."""
    backing = obs.backing
    is_bypassed = backing is not None and backing.is_bypassed
    return not is_bypassed and not state.is_cache_stale and not state.wants_flush


def _has_left(cycle: Cycle, obs: Observation) -> bool:
    """The device shows no cache set, and that is plausible. See `update` for a device where it is not."""
    backing = obs.backing
    if backing is None or backing.cache_set is not None or cycle.may_lack_data or not cycle.may_have_left:
        return False
    return backing.state is CacheState.NO_CACHE or backing.lost_clean_cache


def in_detaching(state: AgentState, obs: Observation, wish: Wish) -> Detection | None:
    """The volume is gone, the cache is dirty again, or the volume is attached to another instance."""
    cycle, backing = _cycle(state), obs.backing
    if backing is not None and cycle.is_attached_to(backing):
        if backing.state is not CacheState.NO_CACHE and not backing.is_drained:
            return Detection(Event.DIRTIED, f"the cache is not drained any more (mode {backing.cache_mode})")
        return None  # it is being detached, or the kernel has begun that and ends it by itself
    if cycle.volume_id is None and not _may_still_show(state, cycle, obs):
        return Detection(Event.RELEASED, "no volume was bought")
    poll = cycle.backoff_of("DescribeVolume")
    # What was seen before a fault says nothing after it: an operator may have mended that.
    if cycle.volume_state in LEFT_TO_OPERATOR and poll.tries and not poll.error:
        kind, what = LEFT_TO_OPERATOR[cycle.volume_state]
        return endangered(kind, f"volume {cycle.volume_id} is ours and {what}, then run `elastio resume`")
    if cycle.volume_state is VolumeState.FOREIGN and not cycle.needs_sync:
        return Detection(Event.RELEASED, f"volume {cycle.volume_id} belongs to another machine and is left alone")
    is_found, volume = cycle.trigger is Trigger.ORPHAN and not cycle.may_have_served, cycle.volume
    if is_found and volume is not None and volume.tag is not VolumeTag.CLEAN:
        return Detection(Event.RELEASED, f"volume {volume.id} belongs to no cycle and is not tagged clean: it is left")
    if cycle.is_gone and not (cycle.needs_sync and backing is not None) and not cycle.is_unknown(obs.host, obs.now):
        return Detection(Event.RELEASED, f"volume {cycle.volume_id} is deleted")
    return None


def _may_still_show(state: AgentState, cycle: Cycle, obs: Observation) -> bool:
    """An unconfirmed purchase may appear in a list long after the last attempt."""
    if Worker.CLOUD in obs.busy:
        return True  # the purchase itself may be under way
    if cycle.create_unconfirmed_at is None:
        return False
    return state.listed is None or state.listed.at < cycle.create_unconfirmed_at + VISIBLE_WITHIN_S


def in_faulted(state: AgentState, obs: Observation, wish: Wish) -> Detection | None:
    """The missing cache is back, or is no longer needed. For `elastio resume` see `requests.resume`."""
    backing = obs.backing
    if obs.host is None or backing is None or state.is_stopped or not backing.running:
        return None
    if danger(state, obs) is not None:
        return None
    if state.is_loss_accepted and backing.cache_set is None:
        return Detection(Event.REPAIRED, f"an operator gave up what only volume {state.loss_accepted_for} held")
    if state.cycle is None and state.fault is not None and state.fault.kind is FaultKind.MAY_LACK_DATA:
        return Detection(Event.REPAIRED, "no volume that may hold data is left, or an operator gave it up")
    if not state.is_mixed and _is_cache_back(state, obs.host, backing):
        return Detection(Event.REPAIRED, "the cache is back")
    return None


def _is_cache_back(state: AgentState, host: HostView, backing: BackingView) -> bool:
    """The attached cache set is the cycle's; or, where the cycle names none, it is on a volume of this agent."""
    if state.cycle is not None and state.cycle.cache_set is not None:
        return state.cycle.is_attached_to(backing)
    owned = {v.serial for v in state.owned or ()} | {state.cycle.serial if state.cycle else None}
    carriers = (d for d in host.disks if backing.cache_set in (d.cache_set, d.superblock))
    return backing.cache_set is not None and any(d.serial in owned for d in carriers)


def _cycle(state: AgentState) -> Cycle:
    if state.cycle is None:
        raise InvariantError(f"{state.phase} without a cycle", code="cycle.missing")
    return state.cycle


DETECTORS = {
    Phase.IDLE: in_idle,
    Phase.ATTACHING: in_attaching,
    Phase.BOOSTING: in_boosting,
    Phase.FLUSHING: in_flushing,
    Phase.DETACHING: in_detaching,
    Phase.FAULTED: in_faulted,
}


def wanted(wish: Wish) -> Detection | None:
    """In phase IDLE: BOOST_WANTED, or why a boost is not bought: BOOST_CAPPED where a cap forbids it."""
    if isinstance(wish.boost, Decline):
        return Detection(Event.BOOST_CAPPED if wish.boost.is_capped else Event.BOOST_DECLINED, wish.boost.reason)
    return None if wish.boost is None else Detection(Event.BOOST_WANTED, wish.boost.reason, plan=wish.boost)
