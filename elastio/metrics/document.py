"""The whole text: what is always there, what the agent says, and what the ledger has. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from elastio.control.status import BackingPart, CapacityPart, CyclePart, LoadPart, Status
from elastio.core.state import FaultKind, InhibitionReason, Phase
from elastio.metrics.catalogue import Value, render
from elastio.metrics.ledger_values import Bills, ledger_values
from elastio.units import MB

# A volume in one of these states is not paid for any more.
_GONE = ("deleting", "gone")


def agent_values(seen: Status) -> Iterator[Value]:
    """Every metric of the agent that this document has a value for."""
    yield from _standing(seen)
    yield from _load(seen.load, seen.cycle)
    yield from _capacity(seen.capacity)
    yield from _data(seen)
    yield from _volumes(seen)


def _standing(seen: Status) -> Iterator[Value]:
    agent, purchases = seen.agent, seen.purchases
    yield Value("elastio_agent_start_time_seconds", seen.wall - agent.uptime_s)
    yield Value("elastio_kernel_responsive", agent.host_responsive)
    yield Value("elastio_cloud_error", bool(seen.cloud_error))
    yield Value("elastio_phase_known", seen.recovered)
    yield from _states("elastio_phase", Phase, seen.phase if seen.recovered else "")
    yield from _states("elastio_fault", FaultKind, seen.fault_kind)
    yield from _states("elastio_inhibited", InhibitionReason, seen.hold.reason if seen.hold else "")
    yield Value("elastio_paused", seen.paused)
    yield Value("elastio_capped", bool(seen.capped))
    yield Value("elastio_restrained", bool(seen.restraint))
    yield Value("elastio_purchases_stopped", purchases.stopped)
    yield Value("elastio_boost_failures", purchases.failures)
    yield Value("elastio_boosts_capped_total", purchases.capped)
    yield Value("elastio_boosts_declined_total", purchases.declined)
    yield Value("elastio_expected_bursts", len(seen.expected))


def _states(name: str, states: type[StrEnum], current: str) -> Iterator[Value]:
    """One series for each state. One that this release does not know is added: it must not look like none."""
    known = [str(state) for state in states]
    for state in known if current in ("", *known) else [*known, current]:
        yield Value(name, state == current, (state,))


def _load(load: LoadPart, cycle: CyclePart | None) -> Iterator[Value]:
    if load.sampled_wall is not None:
        yield Value("elastio_last_sample_timestamp_seconds", load.sampled_wall)
    yield Value("elastio_utilization_ratio", load.utilization)
    yield Value("elastio_utilization_threshold_ratio", load.threshold)
    rates = (
        ("adaptive", "read", load.read_mb_s),
        ("adaptive", "write", load.write_mb_s),
        ("backing", "read", load.backing_read_mb_s),
        ("backing", "write", load.backing_write_mb_s),
        ("cache", "read", load.cache_read_mb_s),
        ("cache", "write", load.cache_write_mb_s),
    )
    for of, direction, mb_s in rates:
        yield Value("elastio_throughput_bytes_per_second", mb_s * MB, (of, direction))
    cache_mb_s = cycle.bandwidth_mb_s if cycle else 0.0
    yield Value("elastio_bandwidth_bytes_per_second", load.backing_bandwidth_mb_s * MB, ("backing",))
    yield Value("elastio_bandwidth_bytes_per_second", cache_mb_s * MB, ("cache",))


def _capacity(capacity: CapacityPart | None) -> Iterator[Value]:
    if capacity is None:
        return
    if capacity.mb_s is not None:
        yield Value("elastio_capacity_bytes_per_second", capacity.mb_s * MB)
    yield Value("elastio_shared_bytes_per_second", (capacity.shared_mb_s or 0.0) * MB)


def _data(seen: Status) -> Iterator[Value]:
    cycle, backing = seen.cycle, seen.backing
    if seen.credits is not None:
        yield Value("elastio_credits_ratio", seen.credits.share)
    if backing is not None:
        yield Value("elastio_backing_size_bytes", backing.size_bytes)
        yield Value("elastio_backing_running", backing.running)
        yield Value("elastio_dirty_bytes", backing.dirty_bytes)
    yield Value("elastio_dirty_peak_bytes", cycle.peak_dirty_bytes if cycle else 0)
    yield Value("elastio_cache_size_bytes", cycle.size_bytes if cycle else 0)
    if cycle is not None and cycle.flush_progress is not None and backing is not None:
        yield Value("elastio_flush_progress_ratio", cycle.flush_progress)
        yield Value("elastio_flush_left_seconds", flush_left_s(seen, backing))


def flush_left_s(seen: Status, backing: BackingPart) -> float:
    """The least seconds until nothing is dirty: at the bandwidth of the backing volume, or what its credits allow."""
    limit = seen.credits.flush_limit_mb_s if seen.credits else None
    whole = seen.load.backing_bandwidth_mb_s
    return backing.dirty_bytes / (max(1e-3, whole if limit is None else min(whole, limit)) * MB)


def _volumes(seen: Status) -> Iterator[Value]:
    """The list of the cloud is older than the boost: its volume is added."""
    # Without those that an agent beside this one has bought.
    owned = tuple(v for v in seen.owned or () if v.kept or not v.backing_uuid)
    there = {volume.id for volume in owned if volume.state not in _GONE}
    if seen.cycle is not None and seen.cycle.volume_id:
        there.add(seen.cycle.volume_id)
    yield Value("elastio_volumes", len(there))
    if seen.owned is None:
        return
    yield Value("elastio_volumes_kept", sum(volume.kept and volume.state not in _GONE for volume in owned))
    if seen.listed_ago_s is not None:
        yield Value("elastio_volumes_listed_timestamp_seconds", seen.wall - seen.listed_ago_s)


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one device. `seen` None: no agent answers; `bills` None: the ledger cannot be read."""

    device: str
    seen: Status | None
    bills: Bills | None


def document(devices: Iterable[Known], *, wall: float, version: str) -> str:
    """The metrics of all these devices at `wall`.

    `version` is that of the command, which stands in for the agent's while none answers.
    """
    return render((each.device, _values(each.seen, each.bills, wall, version)) for each in devices)


def _values(seen: Status | None, bills: Bills | None, wall: float, version: str) -> Iterator[Value]:
    yield Value("elastio_up", seen is not None)
    yield Value("elastio_metrics_timestamp_seconds", wall)
    yield Value("elastio_ledger_readable", bills is not None)
    yield Value("elastio_build_info", 1, (seen.agent.version if seen else version,))
    if seen is not None:
        yield from agent_values(seen)
    if bills is not None:
        yield from ledger_values(bills)
