"""Where does the agent stand after a start? Read off the kernel; memory only supplies names.

Crash, reboot and repair are one case: the phase is what the kernel shows, the cycle is what the journal remembers
or, if it remembers nothing, what the cloud's tags say.
"""

from __future__ import annotations

from dataclasses import replace

from elastio.model import BackingView, CacheMode, CacheState, DiskView, Volume, VolumeSpec
from elastio.observation import Observation
from elastio.policy import Policy
from elastio.state import AgentState, Cycle, Phase, Trigger


def recover(state: AgentState, obs: Observation, policy: Policy) -> tuple[AgentState, str] | None:
    """The state to go on from and the sentence that says why; None while too little is known.

    `state` is what the journal remembered: phase and cycle of the last record.
    """
    backing = obs.host.backing if obs.host else None
    if backing is None:
        return None
    if backing.cache_set is not None:
        return _with_cache(state, obs, backing)
    cycle = state.cycle
    if state.accepted and not backing.waits_for_cache:
        text = f"going on without volume {state.accepted}, which is left as it is"
        return replace(state, phase=Phase.IDLE, cycle=None, recovered=True, fault="", stopped=False), text
    if cycle is None:
        return replace(state, phase=Phase.IDLE, recovered=True, fault="", stopped=False), "no cache is attached"
    cycle = replace(cycle, failure="", pace={})
    if not backing.waits_for_cache and _is_disputed(state, cycle, obs):
        return replace(state, cycle=replace(cycle, is_disputed=True), recovered=True), "dirty data was out"
    if cycle.volume_id is None:
        cycle = replace(cycle, doubt_at=obs.now)  # the purchase may have been made at the very last moment
    going_on = state.phase is Phase.ATTACHING and cycle.marks.boosted is None
    phase = Phase.ATTACHING if going_on else Phase.DETACHING
    text = f"cycle {cycle.token} was open in phase {state.phase} and no cache is attached: going on {phase}"
    return replace(state, phase=phase, cycle=cycle, recovered=True, fault="", stopped=False), text


def _is_disputed(state: AgentState, cycle: Cycle, obs: Observation) -> bool:
    """The journal knows of dirty data, the machine has booted since, and the kernel shows no cache.

    Within one boot the kernel's word is enough: it lets no cache go that is dirty. Over a boot the disk may be another
    one, restored from an older copy for example.
    """
    booted = state.boot_id not in ("", obs.host.boot_id if obs.host else "")
    return booted and cycle.dirty_bytes > 0 and state.phase in (Phase.BOOSTING, Phase.FLUSHING)


def _with_cache(state: AgentState, obs: Observation, backing: BackingView) -> tuple[AgentState, str] | None:
    disk = _cache_disk(obs, backing)
    cycle = state.cycle
    known = cycle is not None and (
        cycle.cache_set == backing.cache_set or (disk is not None and cycle.serial == disk.serial)
    )
    if not known:
        if state.owned is None:
            return None  # the cloud has to say whose volume this is
        volume = next((v for v in state.owned if disk is not None and v.serial == disk.serial), None)
        if volume is None:
            fault = f"cache set {backing.cache_set} is attached and its volume is not one of this agent's"
            return replace(state, phase=Phase.FAULTED, cycle=None, recovered=True, fault=fault), fault
        cycle = cycle_of(volume, obs)
    if cycle is None:
        return None
    cycle = replace(cycle, cache_set=backing.cache_set, failure="", pace={}).marked(boosted=obs.now)
    phase = phase_of(backing)
    if phase is Phase.BOOSTING and state.phase is Phase.FLUSHING and cycle.forced:
        phase = Phase.FLUSHING  # an operator's order that the kernel has not been told yet
    text = f"cache set {backing.cache_set} is attached in mode {backing.cache_mode}: going on {phase}"
    return replace(state, phase=phase, cycle=cycle, recovered=True, fault="", stopped=False), text


def _cache_disk(obs: Observation, backing: BackingView) -> DiskView | None:
    disks = obs.host.disks if obs.host else ()
    return next((d for d in disks if backing.cache_set in (d.cache_set, d.superblock)), None)


def phase_of(backing: BackingView) -> Phase:
    """The phase that an attached cache is in."""
    if backing.state is CacheState.NO_CACHE:
        return Phase.DETACHING  # the kernel has begun a detach, which cannot be taken back
    return Phase.BOOSTING if backing.cache_mode is CacheMode.WRITEBACK else Phase.FLUSHING


def cycle_of(volume: Volume, obs: Observation) -> Cycle:
    """A cycle for a volume that nobody remembers, from its tags."""
    return Cycle(
        token=volume.token or volume.id,
        trigger=Trigger.ORPHAN,
        spec=VolumeSpec(volume.size_bytes, volume.bandwidth_mb_s),
        started_at=obs.now - max(0.0, obs.wall - volume.created_wall),
        started_wall=volume.created_wall,
        volume_id=volume.id,
        serial=volume.serial,
        volume=volume,
        seen=True,
        opened_wall=volume.created_wall,
    ).marked(decided=obs.now, created=obs.now)
