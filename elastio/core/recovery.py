"""The phase after a start, a reboot or a repair. Pure.

Theory of operation
-------------------

A crash, a reboot and a repair are one case. The *phase* is what the kernel shows now. Memory only supplies names: which
volume carries the cache set, what it was bought for, from when on it is billed. The journal remembers the cycle; if it
remembers none, the cloud's tags say which volume is this agent's.

With a cache set attached, the kernel's settings show the phase: writeback mode at a limited rate is BOOSTING, full
speed or any other mode is FLUSHING, a detach that has begun is DETACHING. Nothing needs to be undone: each of these
phases continues from what the kernel shows.

Without a cache set there are three cases:

1. The device waits for its cache: it does not run, or its superblock says dirty. The cycle continues in DETACHING, and
   `detection.danger` makes it FAULTED: the cache has to come back. The device is not started without it.
2. The device runs, and the journal explains why: the agent was about to detach, or the cache failed while it was clean
   and the kernel continued without it. The cycle continues in ATTACHING if it never boosted, else in DETACHING.
3. The device runs, and nothing explains it: the volume may hold data that the device lacks (`may_lack_data`). That is
   FAULTED, and the volume is kept.

Case 3 is where an agent that trusts the superblock loses data. Three facts about bcache make it necessary:

- bcache writes "dirty" and "clean" to the superblock without waiting for the write, and flushes the disk after neither.
  After a power cut, a superblock may say clean although the index is dirty (measured: 15 of 71 power cuts while dirty).
  So a cache that failed as clean is believed only in the boot in which it was seen clean and bypassed.
- A backing device that names no cache starts by itself. If somebody put an older copy of the disk in place, it starts
  too, and looks as if the cache had been detached. So a cycle is bound to the serial of its backing disk, and "no
  cache" is believed only after the agent itself began a detach.
- A detach cannot be undone, and the kernel shows that it has begun only after it wrote the superblock. So an intent to
  detach is remembered until the next boot.

A cache that comes back after the device ran without it is stale (`is_cache_stale`): it is flushed and released whatever
the load. If it may have been dirty (`is_mixed`), this waits until an operator has checked the filesystem.
"""

from __future__ import annotations

from dataclasses import replace

from elastio.core.cycle import Cycle, Trigger
from elastio.core.model import BackingView, CacheMode, CacheState, DiskView, Volume, VolumeId, VolumeSpec
from elastio.core.state import AgentState, Fault, FaultKind, Observation, Phase
from elastio.units import format_size

MIXED = (
    "the cache is back, but it may have been dirty when the device continued without it: some blocks may be older than "
    "what was written last. Check the filesystem; `elastio resume --accept-data-loss` flushes the cache and releases it"
)


def recover(state: AgentState, obs: Observation, *, is_ordered: bool = False) -> tuple[AgentState, str] | None:
    """The state to continue from, and a sentence that says why; None while too little is known.

    `state` is what the journal remembered: phase and cycle of the last record. `is_ordered`: an operator has checked
    the device and wants to go on.
    """
    backing = obs.backing
    if backing is None:
        return None
    if backing.cache_set is not None:
        return _with_cache(replace(state, loss_accepted_for=""), obs, backing, is_ordered=is_ordered)
    if state.is_loss_accepted and not backing.waits_for_cache:
        return _given_up(state, backing)
    return _without_cache(state if backing.waits_for_cache else replace(state, loss_accepted_for=""), obs, backing)


def _given_up(state: AgentState, backing: BackingView) -> tuple[AgentState, str]:
    """The order to give up the data is carried out. The volume stays; a new list shows whether it still exists."""
    text = f"continuing without volume {state.loss_accepted_for}, which is left as it is"
    kept = tuple(dict.fromkeys((*state.given_up, VolumeId(state.loss_accepted_for))))
    stale = backing.state is CacheState.INCONSISTENT
    state = replace(_at_rest(state), loss_accepted_for="", given_up=kept, is_stale_accepted=stale)
    return replace(state, owned=None, listed=None), text


def _at_rest(state: AgentState) -> AgentState:
    return replace(state, phase=Phase.IDLE, cycle=None, recovered=True, fault=None)


def _faulted(state: AgentState, kind: FaultKind, text: str) -> tuple[AgentState, str]:
    return replace(state, phase=Phase.FAULTED, recovered=True, fault=Fault(kind, text)), text


def _without_cache(state: AgentState, obs: Observation, backing: BackingView) -> tuple[AgentState, str]:
    cycle = state.cycle
    if cycle is None:
        return remember_failed_clean(_at_rest(state), backing), "no cache is attached"
    cycle = replace(cycle, failure=None, backoffs={})
    if not backing.waits_for_cache and _may_lack_data(state, cycle, obs, backing):
        state = replace(state, cycle=replace(cycle, may_lack_data=True))
        return _faulted(state, FaultKind.MAY_LACK_DATA, why_may_lack_data(cycle))
    if cycle.volume_id is None:
        cycle = replace(cycle, create_unconfirmed_at=obs.now)  # the volume may have been bought just before the crash
    going_on = state.phase is Phase.ATTACHING and cycle.times.boosted is None
    phase = Phase.ATTACHING if going_on else Phase.DETACHING
    text = f"cycle {cycle.token} was open in phase {state.phase} and no cache is attached: continuing in phase {phase}"
    if backing.lost_clean_cache:
        cycle = cycle.stamped(detached=obs.now, failed_clean=obs.now)
    state = replace(state, phase=phase, cycle=cycle, recovered=True, fault=None)
    return remember_failed_clean(state, backing), text


def _may_lack_data(state: AgentState, cycle: Cycle, obs: Observation, backing: BackingView) -> bool:
    """The volume may hold data that this backing device lacks: case 3 above; see also `update._without_cache_set`.

    While writes went to the cache, the last count of dirty data proves nothing, because the next write changed it. A
    cache that was being attached may have served unseen.
    """
    if cycle.may_lack_data or not cycle.may_have_served:
        return cycle.may_lack_data
    if backing.state is CacheState.INCONSISTENT:
        return cycle.times.boosted is not None and not state.is_stale_accepted
    if not backing.lost_clean_cache:
        return not cycle.may_have_left
    last_boot = cycle.dirty_boot or state.boot_id  # a journal of 0.1.0 has only the boot of its last record
    is_other_boot = last_boot not in ("", obs.host.boot_id if obs.host else "")
    is_known_clean = cycle.dirty_bytes == 0 and cycle.times.bypassed is not None
    return cycle.may_be_attached and not is_known_clean and (is_other_boot or state.phase is Phase.FAULTED)


def _with_cache(
    state: AgentState, obs: Observation, backing: BackingView, *, is_ordered: bool
) -> tuple[AgentState, str] | None:
    disk = _cache_disk(obs, backing)
    cycle = state.cycle
    if cycle is None or not (cycle.is_attached_to(backing) or (disk is not None and cycle.serial == disk.serial)):
        if state.owned is None:
            return None  # only the cloud knows whose volume this is
        volume = next((v for v in state.owned if disk is not None and v.serial == disk.serial), None)
        if volume is None:
            text = f"cache set {backing.cache_set} is attached and its volume is not one of this agent's"
            return _faulted(replace(state, cycle=None), FaultKind.FOREIGN_CACHE, text)
        cycle = cycle_of(volume, obs)
    if state.is_mixed and not is_ordered:
        return _faulted(state, FaultKind.CACHE_STALE, MIXED)
    phase = phase_of(backing)
    if phase is Phase.BOOSTING and cycle.forced:
        phase = Phase.FLUSHING  # the order of an operator, or of a cap, has not reached the kernel, or a boot undid it
    if backing.cache_set == state.failed_clean_set:
        # Writes have bypassed it: its clean data may be stale, and is read until the set is detached again.
        phase, cycle = Phase.FLUSHING, replace(cycle, forced=True)
    cycle = _attached(cycle, backing, is_leaving=_may_be_leaving(state, obs, backing)).stamped(boosted=obs.now)
    if phase is Phase.FLUSHING and cycle.times.quiet is None:
        cycle = replace(cycle.stamped(quiet=obs.now), flush_started_dirty_bytes=backing.dirty_bytes)
    text = f"cache set {backing.cache_set} is attached in mode {backing.cache_mode}: continuing in phase {phase}"
    kept = tuple(v for v in state.given_up if v != cycle.volume_id)
    return replace(state, phase=phase, cycle=cycle, recovered=True, fault=None, given_up=kept), text


def _may_be_leaving(state: AgentState, obs: Observation, backing: BackingView) -> bool:
    """A detach that was begun in this boot finishes by itself; the kernel may not show yet that it has begun.

    Somebody may have set another mode since: as long as it is not `writeback`, nothing has become dirty.
    """
    is_same_boot = obs.host is not None and obs.host.boot_id == state.boot_id
    is_bypassed = is_same_boot and backing.state is CacheState.CLEAN and backing.is_bypassed
    return is_bypassed or backing.state is CacheState.NO_CACHE


def _attached(cycle: Cycle, backing: BackingView, *, is_leaving: bool) -> Cycle:
    cycle = replace(cycle.came_back(), cache_set=backing.cache_set, failure=None, backoffs={})
    times = cycle.times if is_leaving else replace(cycle.times, clean=None, detaching=None)
    return replace(cycle, may_lack_data=False, operator_confirmed=False, times=times)


def _cache_disk(obs: Observation, backing: BackingView) -> DiskView | None:
    disks = obs.host.disks if obs.host else ()
    return next((d for d in disks if backing.cache_set in (d.cache_set, d.superblock)), None)


def phase_of(backing: BackingView) -> Phase:
    """The phase that the kernel's settings of an attached cache show."""
    if backing.state is CacheState.NO_CACHE:
        return Phase.DETACHING  # the kernel has begun a detach, which cannot be undone
    boosts = backing.cache_mode is CacheMode.WRITEBACK and not backing.flush_full_speed
    return Phase.BOOSTING if boosts else Phase.FLUSHING


def cycle_of(volume: Volume, obs: Observation) -> Cycle:
    """A cycle for a volume that belongs to none, made from its tags."""
    return Cycle(
        token=volume.token or volume.id,
        trigger=Trigger.ORPHAN,
        spec=VolumeSpec(volume.size_bytes, volume.bandwidth_mb_s),
        started_at=obs.now - max(0.0, obs.wall - volume.created_wall),
        started_wall=volume.created_wall,
        volume_id=volume.id,
        serial=volume.serial,
        volume=volume,
        tag=volume.tag,
        seen=True,
        opened_wall=volume.created_wall,
    ).stamped(decided=obs.now, created=obs.now)


def remember_failed_clean(state: AgentState, backing: BackingView) -> AgentState:
    """The state with the cache set that failed while clean: the kernel shows it only until the next cache or boot.

    The kernel shows the same while a cache is being attached, which does not count.
    """
    cycle, named = state.cycle, backing.superblock_set
    if not backing.lost_clean_cache or named is None:
        return state
    is_coming = state.phase is Phase.ATTACHING and cycle is not None and cycle.times.boosted is None
    is_known = is_coming and cycle is not None and named == cycle.cache_set
    return state if is_known else replace(state, failed_clean_set=named)


def inconsistent_text(cycle: Cycle | None) -> str:
    """A device that somebody started by force; without a cycle no volume is known that has what it lacks."""
    remedy = "resume --accept-data-loss` accepts it as it is" if cycle is None else "recover` says what can be done"
    return f"the backing device was started by force without its cache: it is inconsistent (`elastio {remedy})"


def missing_text(cycle: Cycle | None, backing: BackingView) -> str:
    """A device that waits for its cache."""
    name = volume_name(cycle)
    text = f"the cache of the backing device is missing and the device is {backing.state}"
    if backing.may_have_been_written_since:
        return f"{text}: volume {name} may be older than the device, or be needed (`elastio recover`)"
    return f"{text}: attach volume {name} again; the device is not started without it (`elastio recover`)"


def why_may_lack_data(cycle: Cycle) -> str:
    """What is wrong with a device that shows no cache although this agent did not detach it."""
    return (
        f"the kernel shows no cache, but volume {volume_name(cycle)} was the cache when it was last seen, with "
        f"{format_size(cycle.dirty_bytes)} dirty, and this agent did not detach it: the backing device may be an "
        "older copy, or lack that data (`elastio recover`)"
    )


def unclaimed_text(volumes: tuple[Volume, ...]) -> str:
    """Volumes of this device that may hold data, and that no cycle knows."""
    names = ", ".join(f"{v.id} ({format_size(v.size_bytes)}, {v.tag})" for v in volumes)
    return (
        f"volume {names} was bought for this backing device, is not tagged clean, and no cycle knows it: the backing "
        "device or the journal may be an older copy, and it may hold data that this device lacks (`elastio recover`)"
    )


def volume_name(cycle: Cycle | None) -> str:
    """The volume's ID, or what it was."""
    return cycle.volume_id if cycle and cycle.volume_id else "that was its cache"
