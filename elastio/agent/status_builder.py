"""Builds the status document from the state after a decision."""

from __future__ import annotations

from dataclasses import dataclass, replace

from elastio.accounting.rows import row_of
from elastio.control import status as document
from elastio.core.boosting import situation_of
from elastio.core.capacity import Unknown, capacity
from elastio.core.cycle import Cycle
from elastio.core.model import BackingView, HostView, Identity, Rates, Sample, Volume, VolumeState
from elastio.core.policy import Model, Policy
from elastio.core.shares import NOT_SHARED
from elastio.core.state import AgentState, Observation, Phase
from elastio.strategy import caps, holding, learning, waste
from elastio.strategy.spending import Others, Spend


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    """What the daemon knows besides a decision.

    `started_at` is CLOCK_BOOTTIME. `host` and `sample` are the last ones, which an observation has only while they are
    fresh.
    """

    version: str
    started_at: float
    identity: Identity | None = None
    host: HostView | None = None
    sample: Sample | None = None
    host_responsive: bool = True
    last_error: str = ""
    last_error_wall: float | None = None
    cloud_error: str = ""


def status_of(state: AgentState, obs: Observation, policy: Policy, runtime: RuntimeInfo) -> document.Status:
    """The status document of the state."""
    policy = learning.in_force(policy, state.memory)
    host = obs.host or runtime.host
    backing = host.backing if host else None
    sample = obs.sample or runtime.sample
    return document.Status(
        wall=obs.wall,
        phase=state.phase.value,
        recovered=state.recovered or state.is_stopped,  # a start that stays faulted is not one that is under way
        waiting_for=state.waiting_for,
        paused=state.paused,
        fault=str(state.fault or ""),
        last_error=runtime.last_error,
        last_error_wall=runtime.last_error_wall,
        cloud_error=runtime.cloud_error,
        learned_size_bytes=state.memory.learned_size_bytes,
        agent=_agent(obs, runtime),
        load=_load(state, sample, obs, policy),
        spend=_spend(obs.spend, policy),
        backing=_backing(backing),
        cycle=_cycle(state, state.cycle, obs, policy, backing),
        owned=_owned(state, policy),
        listed_ago_s=None if state.listed is None else obs.now - state.listed.at,
        hold=_inhibition(state, obs, host),
        missing=_missing(state, host),
        restraint=_restraint(state, obs, policy),
        expected=tuple(document.ExpectedPart(b.begins_at - obs.now, b.written_bytes) for b in state.memory.expected),
        capped=caps.standing(state.memory, obs.wall, policy),
        fault_kind=state.fault.kind.value if state.fault else "",
        credits=_credits(state, policy),
        device_uuid=policy.backing_uuid,
        purchases=_purchases(state),
        take_over=_take_over(state),
        capacity=_capacity(state, backing if runtime.host_responsive else None, sample, policy),
        least_boost_s=caps.least_s(state.memory, policy),
        learned_bandwidth_mb_s=None if policy.bandwidth is None else policy.cache_bandwidth_mb_s,
    )


def _agent(obs: Observation, runtime: RuntimeInfo) -> document.AgentPart:
    who = runtime.identity or Identity("", "", "", "", "")
    uptime_s = obs.now - runtime.started_at
    machine = who.cloud, who.instance_id, who.instance_type, who.zone
    return document.AgentPart(runtime.version, uptime_s, runtime.host_responsive, *machine)


def _restraint(state: AgentState, obs: Observation, policy: Policy) -> str:
    if policy.model is Model.MONEY and policy.market is None:
        return "no boost begins by itself until the prices of this region are known"
    return waste.restraint(state.memory.waste, obs.wall)


def _purchases(state: AgentState) -> document.PurchasesPart:
    memory = state.memory
    return document.PurchasesPart(
        state.failures, bool(memory.waste.stopped), memory.capped_boosts, memory.declined_boosts
    )


def _take_over(state: AgentState) -> document.TakeOverPart | None:
    order = state.take_over
    return None if order is None else document.TakeOverPart(order.volume_id, order.refused, order.code)


def _load(state: AgentState, last: Sample | None, obs: Observation, policy: Policy) -> document.LoadPart:
    sample = last or Sample(obs.now, 0.0, Rates())
    return document.LoadPart(
        utilization=state.memory.load.utilization,
        threshold=policy.utilization_threshold,
        backing_bandwidth_mb_s=policy.backing_bandwidth_mb_s,
        read_mb_s=sample.adaptive.read_mb_s,
        write_mb_s=sample.adaptive.write_mb_s,
        backing_read_mb_s=sample.backing.read_mb_s,
        backing_write_mb_s=sample.backing.write_mb_s,
        cache_read_mb_s=sample.cache.read_mb_s,
        cache_write_mb_s=sample.cache.write_mb_s,
        sampled_wall=None if last is None else obs.wall - (obs.now - last.at),
        counted_mb_s=None if sample.counted is None else sample.counted.total_mb_s,
        may_boost=policy.boost_rights.may,
        no_boost=policy.boost_rights.no,
    )


def _capacity(
    state: AgentState, backing: BackingView | None, sample: Sample | None, policy: Policy
) -> document.CapacityPart:
    found = capacity(state, backing, sample, policy)
    shared = backing.shared_mb_s if backing else None
    plan = NOT_SHARED if shared is None else state.share_plan
    if isinstance(found, Unknown):
        return document.CapacityPart(None, unknown=found.value, shared_mb_s=shared)
    why = found.limited_by.value, found.bandwidth_mb_s, found.flush_mb_s, found.missed
    return document.CapacityPart(found.mb_s, *why, shared_mb_s=shared, reserve=plan.reserve, latency=plan.latency)


def _spend(spend: Spend, policy: Policy) -> document.SpendPart:
    most = policy.caps
    return document.SpendPart(
        boosts=spend.boosts,
        agbs=spend.agbs,
        cost=spend.currency,
        max_boosts=most.max_boosts_per_day,
        max_agbs=most.max_agbs_per_day,
        max_cost=most.max_cost_per_day,
        known=spend.known,
        currency=spend.currency_name,
        unpriced=spend.unpriced,
        month=document.MonthPart(spend.month.boosts, spend.month.agbs, spend.month.currency, *most.month),
        others=None if spend.others is None else _others(spend.others),
    )


def _others(others: Others) -> document.OthersPart:
    today, month = others.today, others.month
    return document.OthersPart(
        today.boosts,
        today.agbs,
        today.currency,
        document.MonthPart(month.boosts, month.agbs, month.currency),
        others.trouble,
    )


def _credits(state: AgentState, policy: Policy) -> document.CreditsPart | None:
    bucket = policy.backing_credits
    if bucket is None or state.memory.credits is None:
        return None
    return document.CreditsPart(
        balance_bytes=state.memory.credits.balance_bytes,
        capacity_bytes=bucket.capacity_bytes,
        reserve_bytes=bucket.reserve_bytes,
        base_mb_s=bucket.base_mb_s,
        burst_mb_s=bucket.burst_mb_s,
        flush_limit_mb_s=state.memory.credit_limit_mb_s,
    )


def _backing(view: BackingView | None) -> document.BackingPart | None:
    if view is None:
        return None
    return document.BackingPart(
        view.running, view.state.value, view.cache_mode.value, view.dirty_bytes, view.size_bytes
    )


def _cycle(
    state: AgentState, cycle: Cycle | None, obs: Observation, policy: Policy, backing: BackingView | None
) -> document.CyclePart | None:
    if cycle is None:
        return None
    boosted, quote = cycle.times.boosted, cycle.quote
    priced = quote if quote is not None and quote.price_known else None
    return document.CyclePart(
        token=cycle.token,
        trigger=cycle.trigger.value,
        volume_id=cycle.volume_id,
        serial=cycle.serial,
        size_bytes=cycle.provisioned.size_bytes,
        bandwidth_mb_s=cycle.provisioned.bandwidth_mb_s,
        started_wall=cycle.started_wall,
        elapsed_s=obs.now - cycle.started_at,
        boosted_after_s=None if boosted is None else boosted - cycle.started_at,
        peak_dirty_bytes=cycle.use.peak_dirty_bytes,
        flush_started_dirty_bytes=cycle.flush_started_dirty_bytes,
        flush_progress=_flush_progress(state.phase, cycle, backing),
        failure=str(cycle.failure or ""),
        price_per_hour=priced.price_per_hour if priced else None,
        currency=priced.currency if priced else "",
        choice=cycle.choice.reason if cycle.choice else "",
        held_s=holding.left_s(state.memory, situation_of(state, obs, policy), policy),
        cost=row_of(cycle).cost(0.0, obs.wall) if priced else None,
    )


def _flush_progress(phase: Phase, cycle: Cycle, backing: BackingView | None) -> float | None:
    """The flushed share (0 to 1) of what was dirty at the start of phase 2; the kernel's count is rounded."""
    if phase is not Phase.FLUSHING or backing is None:
        return None
    at_start = cycle.flush_started_dirty_bytes
    if at_start <= 0:
        return 1.0
    return min(1.0, max(0.0, 1.0 - backing.dirty_bytes / at_start))


def _inhibition(state: AgentState, obs: Observation, host: HostView | None) -> document.InhibitionPart | None:
    inhibition = state.inhibition
    if inhibition is None:
        return None
    safe = state.recovered and not state.fault and is_safe_to_copy(state.cycle, host)
    return document.InhibitionPart(
        inhibition.reason.value, max(0.0, inhibition.until - obs.now), inhibition.flush, safe
    )


def _missing(state: AgentState, host: HostView | None) -> document.MissingPart | None:
    """The missing cache, also while the backing device is unregistered: the kernel drops it when its cache fails."""
    cycle, backing, dead_device = state.cycle, host.backing if host else None, host.dead_bcache_device if host else ""
    may_lack_data = cycle is not None and cycle.may_lack_data and not (backing is not None and backing.waits_for_cache)
    waits = cycle is not None and (state.phase is Phase.FAULTED or bool(dead_device))
    if backing is not None:
        waits = backing.waits_for_cache and not state.may_run_without_cache(backing)
    if not (waits or may_lack_data):
        return None
    return document.MissingPart(
        volume_id=cycle.volume_id if cycle else None,
        volume_state=cycle.volume_state.value if cycle and cycle.volume_state else "not seen",
        serial=cycle.serial if cycle else None,
        dirty_bytes=cycle.dirty_bytes if cycle else 0,
        peak_dirty_bytes=cycle.use.peak_dirty_bytes if cycle else 0,
        seen_wall=cycle.dirty_wall if cycle else None,
        adaptive=backing.adaptive_name if backing else dead_device,
        waits_for_umount=(backing.running if backing else bool(dead_device)) and not may_lack_data,
        may_lack_data=may_lack_data,
        may_be_older=backing is not None and backing.may_have_been_written_since,
    )


def _owned(state: AgentState, policy: Policy) -> tuple[document.VolumePart, ...] | None:
    """The volumes of this agent that exist: as listed last, and that of the cycle as it was seen last.

    The cloud is not asked again about a volume whose disk the kernel shows.
    """
    if state.owned is None:
        return None
    current = state.cycle.volume if state.cycle is not None else None
    is_seen = state.cycle is not None and state.cycle.times.appeared is not None
    if current is not None and current.state is VolumeState.ATTACHING and is_seen:
        current = replace(current, state=VolumeState.ATTACHED)
    listed = tuple(v for v in state.owned if current is None or v.id != current.id)
    volumes = (*(() if current is None else (current,)), *listed, *state.others)
    return tuple(_volume(v, state, policy) for v in volumes if v.state is not VolumeState.GONE)


def _volume(volume: Volume, state: AgentState, policy: Policy) -> document.VolumePart:
    of_cycle = state.cycle is not None and state.cycle.volume_id == volume.id
    is_other = volume in state.others
    # What an agent beside this one has bought is its own affair: no operator has to look after it.
    is_kept = volume.backing_uuid not in policy.neighbours if is_other else state.is_kept(volume)
    kept = not of_cycle and is_kept
    backing_uuid = volume.backing_uuid if is_other else ""
    return document.VolumePart(volume.id, volume.state.value, volume.size_bytes, volume.tag.value, kept, backing_uuid)


def is_safe_to_copy(cycle: Cycle | None, host: HostView | None) -> bool:
    """The backing volume is consistent without a cache, and durably so.

    A clean cache that is still attached is not enough: the superblock of a copy would name it, and the copy would wait
    for it for ever. Releasing the cache disk makes the superblock's "no cache" durable. Of an adopted volume with its
    tombstone a copy lacks its first sectors.
    """
    backing = host.backing if host else None
    if backing is None or backing.cache_set is not None or not backing.running:
        return False
    if backing.waits_for_cache or backing.lost_clean_cache or backing.has_tombstone:
        return False
    return cycle is None or cycle.cache_set is None or cycle.times.released is not None
