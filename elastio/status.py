"""The status document: what the daemon publishes after each decision, and `elastio status` shows.

Plain values only, so that it goes over the control socket as JSON and comes back equal. Field names are part of
the protocol: a change of their meaning is a new protocol version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from elastio import thrift
from elastio.errors import ControlError
from elastio.events import is_kept, needs_no_cache
from elastio.holds import is_safe_to_copy
from elastio.model import BackingView, HostView, Identity, Rates, Sample, Spend, Volume
from elastio.observation import Observation
from elastio.policy import Policy
from elastio.state import AgentState, Cycle, Phase


@dataclass(frozen=True, slots=True)
class Surroundings:
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


@dataclass(frozen=True, slots=True)
class AgentPart:
    version: str
    uptime_s: float
    host_responsive: bool
    cloud: str
    instance_id: str
    instance_type: str
    zone: str


@dataclass(frozen=True, slots=True)
class LoadPart:
    """`utilization` 1.0 is the whole bandwidth of the backing device. Rates are those of the adaptive device."""

    utilization: float
    threshold: float
    backing_bandwidth_mb_s: float
    read_mb_s: float
    write_mb_s: float


@dataclass(frozen=True, slots=True)
class BackingPart:
    running: bool
    state: str
    cache_mode: str
    dirty_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CyclePart:
    """`flush_progress` goes from 0 to 1; None while nothing is flushed. Sizes and speeds are what was bought."""

    token: str
    trigger: str
    volume_id: str | None
    serial: str | None
    size_bytes: int
    bandwidth_mb_s: float
    started_wall: float
    elapsed_s: float
    boosted_after_s: float | None
    peak_dirty_bytes: int
    flush_started_dirty_bytes: int
    flush_progress: float | None
    failure: str


@dataclass(frozen=True, slots=True)
class SpendPart:
    """Since local midnight, against the caps; None: not limited. `known` False: the ledger cannot be read."""

    boosts: int
    agbs: float
    cost: float
    max_boosts: int | None
    max_agbs: float | None
    max_cost: float | None
    known: bool = True


@dataclass(frozen=True, slots=True)
class VolumePart:
    """`mark` is the tag that tells a janitor what it may hold; `kept` True: only an operator may release it.

    `backing_uuid` is set where it was bought for another backing device than this agent's.
    """

    id: str
    state: str
    size_bytes: int
    mark: str = "unknown"
    kept: bool = False
    backing_uuid: str = ""


@dataclass(frozen=True, slots=True)
class HoldPart:
    """`safe` True: the backing volume is whole by itself and may be copied."""

    reason: str
    left_s: float
    flush: bool
    safe: bool


@dataclass(frozen=True, slots=True)
class MissingPart:
    """A cache that is missing: what is known of its volume and of the data that only it holds.

    `disputed` True: the backing device that is here does not ask for it; it may be an older copy. `may_be_older` True:
    the device was clean without it, and may have been written to since.
    """

    volume_id: str | None
    volume_state: str
    serial: str | None
    dirty_bytes: int
    peak_dirty_bytes: int
    seen_wall: float | None
    adaptive: str
    waits_for_umount: bool
    disputed: bool = False
    may_be_older: bool = False


@dataclass(frozen=True, slots=True)
class Status:
    """`recovered` False: the phase is not yet read off the kernel.

    `owned` None: the cloud has not listed this agent's volumes since the start. `cloud_error`: why the cloud cannot
    be asked, or what it answered last; empty once a call succeeded. `restraint`: what past purchases hold back.
    """

    wall: float
    phase: str
    recovered: bool
    waiting_for: str
    paused: bool
    fault: str
    last_error: str
    cloud_error: str
    learned_size_bytes: int | None
    agent: AgentPart
    load: LoadPart
    spend: SpendPart
    backing: BackingPart | None
    cycle: CyclePart | None
    owned: tuple[VolumePart, ...] | None
    listed_ago_s: float | None = None
    hold: HoldPart | None = None
    missing: MissingPart | None = None
    restraint: str = ""

    @classmethod
    def of(cls, state: AgentState, obs: Observation, policy: Policy, around: Surroundings) -> Status:
        """The document for the state that a decision left behind."""
        host = obs.host or around.host
        backing = host.backing if host else None
        sample = obs.sample or around.sample
        return cls(
            wall=obs.wall,
            phase=state.phase.value,
            recovered=state.recovered,
            waiting_for=state.waiting_for,
            paused=state.paused,
            fault=state.fault,
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
            restraint=thrift.told(state.thrift, obs.wall),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries, lists, strings and numbers."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Status:
        """The inverse of `to_json`. Raises ControlError where the document is not one of this version."""
        try:
            parts = dict(document)
            owned = parts.pop("owned")
            return cls(
                agent=AgentPart(**parts.pop("agent")),
                load=LoadPart(**parts.pop("load")),
                spend=SpendPart(**parts.pop("spend")),
                backing=_maybe(BackingPart, parts.pop("backing")),
                cycle=_maybe(CyclePart, parts.pop("cycle")),
                hold=_maybe(HoldPart, parts.pop("hold", None)),
                missing=_maybe(MissingPart, parts.pop("missing", None)),
                owned=None if owned is None else tuple(VolumePart(**v) for v in owned),
                **parts,
            )
        except (KeyError, TypeError) as error:
            raise ControlError(
                f"the agent's status cannot be read ({error}): agent and `elastio` are of different releases"
            ) from error


def _maybe(kind: type[Any], value: Mapping[str, Any] | None) -> Any:
    return None if value is None else kind(**value)


def _agent(obs: Observation, around: Surroundings) -> AgentPart:
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
    boosted = cycle.marks.boosted
    return CyclePart(
        token=cycle.token,
        trigger=cycle.trigger.value,
        volume_id=cycle.volume_id,
        serial=cycle.serial,
        size_bytes=cycle.sold.size_bytes,
        bandwidth_mb_s=cycle.sold.bandwidth_mb_s,
        started_wall=cycle.started_wall,
        elapsed_s=obs.now - cycle.started_at,
        boosted_after_s=None if boosted is None else boosted - cycle.started_at,
        peak_dirty_bytes=cycle.peak_dirty_bytes,
        flush_started_dirty_bytes=cycle.flush_started_dirty_bytes,
        flush_progress=_flush_progress(state.phase, cycle, backing),
        failure=cycle.failure,
    )


def _flush_progress(phase: Phase, cycle: Cycle, backing: BackingView | None) -> float | None:
    """Share of what was dirty at the start of phase 2 that has left; the kernel's figure is rounded."""
    if phase is not Phase.FLUSHING or backing is None:
        return None
    at_start = cycle.flush_started_dirty_bytes
    if at_start <= 0:
        return 1.0
    return min(1.0, max(0.0, 1.0 - backing.dirty_bytes / at_start))


def _hold(state: AgentState, obs: Observation, host: HostView | None) -> HoldPart | None:
    hold = state.hold
    if hold is None:
        return None
    safe = state.recovered and not state.fault and is_safe_to_copy(state.cycle, host)
    return HoldPart(hold.reason.value, max(0.0, hold.until - obs.now), hold.flush, safe)


def _missing(state: AgentState, host: HostView | None) -> MissingPart | None:
    """Also while the kernel has let go of the backing device: it does so when its cache dies."""
    cycle, backing, wounded = state.cycle, host.backing if host else None, host.wounded if host else ""
    disputed = cycle is not None and cycle.is_disputed and not (backing is not None and backing.waits_for_cache)
    waits = cycle is not None and (state.phase is Phase.FAULTED or bool(wounded))
    if backing is not None:
        waits = backing.waits_for_cache and not needs_no_cache(state, backing)
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
        disputed=disputed,
        may_be_older=backing is not None and backing.may_have_gone_on,
    )


def _volume(volume: Volume, state: AgentState) -> VolumePart:
    of_cycle = state.cycle is not None and state.cycle.volume_id == volume.id
    is_other = volume in state.others
    kept = not of_cycle and (is_other or is_kept(volume, state))
    backing_uuid = volume.backing_uuid if is_other else ""
    return VolumePart(volume.id, volume.state.value, volume.size_bytes, volume.mark.value, kept, backing_uuid)
