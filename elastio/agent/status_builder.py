"""Builds the status document from the state that a decision left behind."""

from __future__ import annotations

from dataclasses import dataclass

from elastio.control.status import (
    AgentPart,
    BackingPart,
    CyclePart,
    InhibitionPart,
    LoadPart,
    MissingPart,
    SpendPart,
    Status,
    VolumePart,
)
from elastio.core import waste
from elastio.core.cycle import Cycle
from elastio.core.inhibition import is_safe_to_copy
from elastio.core.model import BackingView, HostView, Identity, Rates, Sample, Spend, Volume
from elastio.core.observation import Observation
from elastio.core.policy import Policy
from elastio.core.state import AgentState, Phase


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    """What the daemon knows beside one decision: the last views it had, and itself.

    `host` and `sample` are the last ones seen (an observation carries them only while they are fresh).
    """

    version: str
    started_at: float
    identity: Identity | None = None
    host: HostView | None = None
    sample: Sample | None = None
    host_responsive: bool = True
    last_error: str = ""
    cloud_error: str = ""


def status_of(state: AgentState, obs: Observation, policy: Policy, around: RuntimeInfo) -> Status:
    """The status document for the state that a decision left behind."""
    host = obs.host or around.host
    backing = host.backing if host else None
    sample = obs.sample or around.sample
    return Status(
        wall=obs.wall,
        phase=state.phase.value,
        recovered=state.recovered,
        waiting_for=state.waiting_for,
        paused=state.paused,
        fault=str(state.fault or ""),
        last_error=around.last_error,
        cloud_error=around.cloud_error,
        learned_size_bytes=state.learned_size_bytes,
        agent=_agent(obs, around),
        load=_load(state, sample.adaptive if sample else Rates(), policy),
        spend=_spend(obs.spend, policy),
        backing=_backing(backing),
        cycle=_cycle(state, state.cycle, obs, backing),
        owned=None if state.owned is None else tuple(_volume(v, state) for v in (*state.owned, *state.others)),
        listed_ago_s=None if state.listed_at is None else obs.now - state.listed_at,
        hold=_hold(state, obs, host),
        missing=_missing(state, host),
        restraint=waste.told(state.waste, obs.wall),
    )


def _agent(obs: Observation, around: RuntimeInfo) -> AgentPart:
    who = around.identity
    return AgentPart(
        version=around.version,
        uptime_s=obs.now - around.started_at,
        host_responsive=around.host_responsive,
        cloud=who.cloud if who else "",
        instance_id=who.instance_id if who else "",
        instance_type=who.instance_type if who else "",
        zone=who.zone if who else "",
    )


def _load(state: AgentState, rates: Rates, policy: Policy) -> LoadPart:
    return LoadPart(
        utilization=state.load.utilization,
        threshold=policy.utilization_threshold,
        backing_bandwidth_mb_s=policy.backing_bandwidth_mb_s,
        read_mb_s=rates.read_mb_s,
        write_mb_s=rates.write_mb_s,
    )


def _spend(spend: Spend, policy: Policy) -> SpendPart:
    caps = policy.caps
    return SpendPart(
        boosts=spend.boosts,
        agbs=spend.agbs,
        cost=spend.currency,
        max_boosts=caps.max_boosts_per_day,
        max_agbs=caps.max_agbs_per_day,
        max_cost=caps.max_cost_per_day,
        known=spend.known,
    )


def _backing(view: BackingView | None) -> BackingPart | None:
    if view is None:
        return None
    return BackingPart(view.running, view.state.value, view.cache_mode.value, view.dirty_bytes, view.size_bytes)


def _cycle(state: AgentState, cycle: Cycle | None, obs: Observation, backing: BackingView | None) -> CyclePart | None:
    if cycle is None:
        return None
    boosted = cycle.times.boosted
    return CyclePart(
        token=cycle.token,
        trigger=cycle.trigger.value,
        volume_id=cycle.volume_id,
        serial=cycle.serial,
        size_bytes=cycle.provisioned.size_bytes,
        bandwidth_mb_s=cycle.provisioned.bandwidth_mb_s,
        started_wall=cycle.started_wall,
        elapsed_s=obs.now - cycle.started_at,
        boosted_after_s=None if boosted is None else boosted - cycle.started_at,
        peak_dirty_bytes=cycle.peak_dirty_bytes,
        flush_started_dirty_bytes=cycle.flush_started_dirty_bytes,
        flush_progress=_flush_progress(state.phase, cycle, backing),
        failure=str(cycle.failure or ""),
    )


def _flush_progress(phase: Phase, cycle: Cycle, backing: BackingView | None) -> float | None:
    """Share of what was dirty at the start of phase 2 that has left; the kernel's figure is rounded."""
    if phase is not Phase.FLUSHING or backing is None:
        return None
    at_start = cycle.flush_started_dirty_bytes
    if at_start <= 0:
        return 1.0
    return min(1.0, max(0.0, 1.0 - backing.dirty_bytes / at_start))


def _hold(state: AgentState, obs: Observation, host: HostView | None) -> InhibitionPart | None:
    hold = state.inhibition
    if hold is None:
        return None
    safe = state.recovered and not state.fault and is_safe_to_copy(state.cycle, host)
    return InhibitionPart(hold.reason.value, max(0.0, hold.until - obs.now), hold.flush, safe)


def _missing(state: AgentState, host: HostView | None) -> MissingPart | None:
    """Also while the kernel has let go of the backing device: it does so when its cache dies."""
    cycle, backing, wounded = state.cycle, host.backing if host else None, host.dead_bcache_device if host else ""
    disputed = cycle is not None and cycle.may_lack_data and not (backing is not None and backing.waits_for_cache)
    waits = cycle is not None and (state.phase is Phase.FAULTED or bool(wounded))
    if backing is not None:
        waits = backing.waits_for_cache and not state.may_run_without_cache(backing)
    if not (waits or disputed):
        return None
    return MissingPart(
        volume_id=cycle.volume_id if cycle else None,
        volume_state=cycle.volume_state.value if cycle and cycle.volume_state else "not seen",
        serial=cycle.serial if cycle else None,
        dirty_bytes=cycle.dirty_bytes if cycle else 0,
        peak_dirty_bytes=cycle.peak_dirty_bytes if cycle else 0,
        seen_wall=cycle.dirty_wall if cycle else None,
        adaptive=backing.adaptive_name if backing else wounded,
        waits_for_umount=(backing.running if backing else bool(wounded)) and not disputed,
        may_lack_data=disputed,
        may_be_older=backing is not None and backing.may_have_been_written_since,
    )


def _volume(volume: Volume, state: AgentState) -> VolumePart:
    of_cycle = state.cycle is not None and state.cycle.volume_id == volume.id
    is_other = volume in state.others
    kept = not of_cycle and (is_other or state.is_kept(volume))
    backing_uuid = volume.backing_uuid if is_other else ""
    return VolumePart(volume.id, volume.state.value, volume.size_bytes, volume.tag.value, kept, backing_uuid)
