"""What the set-ups of a `cold` experiment cost in currency, at its published size. Pure.

A scaled run has fewer bytes, fewer MB/s and less time than the experiment that it stands for. The tariffs are charged
on the experiment: sizes and times of the run are divided by its scales. So the shortest time that is billed has the
share of a boost that it would have in a cloud, and a run of any scale has the cost of the whole experiment.
"""

from __future__ import annotations

from collections.abc import Iterable

from elastio.strategy.tariff import Tariff
from elastio.units import GB, MB
from elastio_adviser.volume_types import volume_type
from elastio_testbed.billing import Billing
from elastio_testbed.ec2 import Purchase, Scale
from elastio_testbed.experiment import ColdVolume, Scaled, Setup


def bill(scaled: Scaled, setup: Setup, vms: int, seconds: float, cloud: Billing, now: float) -> float | None:
    """The price of all data volumes for `seconds` of the run, and of all caches; None: there are no tariffs."""
    cold = scaled.experiment.cold
    if cold is None:
        return None
    bought = caches(scaled, cold, cloud.volumes(), cloud.scale, now)
    return round(vms * data_volume(scaled, cold, setup, seconds) + bought, 6)


def data_volume(scaled: Scaled, cold: ColdVolume, setup: Setup, seconds: float) -> float:
    """The price of the data volume for `seconds` of the run: of the fast type if static-fast, else of the cold type."""
    published = scaled.experiment
    size, time_s = published.backing_gb * GB, seconds / scaled.time
    if setup is Setup.STATIC_FAST:
        return volume_type(cold.fast_type).standing(size, published.cache_mb_s, time_s)
    return volume_type(cold.volume_type).standing(size, published.backing_mb_s, time_s)


def caches(scaled: Scaled, cold: ColdVolume, volumes: Iterable[Purchase], scale: Scale, now: float) -> float:
    """The bill of the cache volumes; one that was not deleted is billed until `now` (seconds of the Unix epoch)."""
    return sum(_cache(scaled, cold, volume, scale, now) for volume in volumes)


def _cache(scaled: Scaled, cold: ColdVolume, volume: Purchase, scale: Scale, now: float) -> float:
    ended = now if volume.deleted_at is None else volume.deleted_at
    size_bytes = volume.size_gib * scale.gib_bytes / (scaled.time * scaled.bandwidth)
    mb_s = volume.throughput_mib_s * scale.mib_s_bytes / MB / scaled.bandwidth
    return volume_type(cold.fast_type).cost(size_bytes, mb_s, (ended - volume.created_at) / scaled.time)


def sources(cold: ColdVolume) -> dict[str, str]:
    """The tariffs, each with its region, source and date."""
    return {name: _source(volume_type(name).tariff) for name in (cold.volume_type, cold.fast_type)}


def _source(tariff: Tariff) -> str:
    return f"{tariff.source}, {tariff.region}, {tariff.date}"
