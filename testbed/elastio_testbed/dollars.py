"""What the set-ups of a priced experiment cost in currency, at its published size. Pure.

A scaled run has fewer bytes, fewer MB/s and less time than the experiment that it stands for. The tariffs are charged
on the experiment: sizes and times of the run are divided by its scales. So the shortest time that is billed has the
share of a boost that it would have in a cloud, and a run of any scale has the cost of the whole experiment.
"""

from __future__ import annotations

from collections.abc import Iterable

from elastio.strategy.tariff import Tariff
from elastio.units import GB, GIB, MB
from elastio_adviser.volume_types import volume_type
from elastio_testbed.billing import Billing
from elastio_testbed.ec2 import Purchase, Scale
from elastio_testbed.experiment import Priced, Scaled, Setup

HOURS_PER_MONTH = 720.0  # of a price list of EBS


def bill(scaled: Scaled, setup: Setup, vms: int, seconds: float, cloud: Billing, now: float) -> float | None:
    """The price of VMs and data volumes for `seconds` of the run, and of all caches; None: there are no tariffs."""
    priced = scaled.experiment.priced
    if priced is None:
        return None
    bought = caches(scaled, priced, cloud.volumes(), cloud.scale, now)
    vm = priced.vm_hour * seconds / scaled.time / 3600
    return round(vms * (vm + data_volume(scaled, priced, setup, seconds)) + bought, 6)


def data_volume(scaled: Scaled, priced: Priced, setup: Setup, seconds: float) -> float:
    """The price of the data volume for `seconds` of the run: of the fast type if static-fast, else of its own."""
    published = scaled.experiment
    size, time_s = published.backing_gb * GB, seconds / scaled.time
    if setup is Setup.STATIC_FAST:
        mb_s = published.fast_mb_s or published.cache_mb_s
        return volume_type(priced.fast_type).standing(size, mb_s, time_s)
    return volume_type(priced.volume_type).standing(size, published.backing_mb_s, time_s)


def caches(scaled: Scaled, priced: Priced, volumes: Iterable[Purchase], scale: Scale, now: float) -> float:
    """The bill of the cache volumes; one that was not deleted is billed until `now` (seconds of the Unix epoch)."""
    return sum(_cache(scaled, priced, volume, scale, now) for volume in volumes)


def _cache(scaled: Scaled, priced: Priced, volume: Purchase, scale: Scale, now: float) -> float:
    ended = now if volume.deleted_at is None else volume.deleted_at
    size_bytes = volume.size_gib * scale.gib_bytes / (scaled.time * scaled.bandwidth)
    mb_s = volume.throughput_mib_s * scale.mib_s_bytes / MB / scaled.bandwidth
    return volume_type(priced.fast_type).cost(size_bytes, mb_s, (ended - volume.created_at) / scaled.time)


def agent_settings(scaled: Scaled, scale: Scale) -> dict[str, dict[str, object]]:
    """Tables by which the agent of a run decides as that of the experiment would; empty where it does not by money.

    A run has less time, so an hour costs more by as much; so does a unit of its cloud that stands for more bytes.
    """
    priced = scaled.experiment.priced
    if priced is None or not scaled.experiment.is_by_money:
        return {}
    tariff, month_hours = volume_type(priced.fast_type).tariff, HOURS_PER_MONTH / scaled.time
    return {
        "policy": {"model": '"money"'},
        "value": {"hour": priced.vm_hour / scaled.time},
        "provider.aws.prices": {
            "gb_month": tariff.per_gib_hour * month_hours * scale.gib_bytes / GIB / (scaled.time * scaled.bandwidth),
            "mib_s_month": tariff.per_mb_s_hour * month_hours * scale.mib_s_bytes / MB / scaled.bandwidth,
            "iops_month": tariff.per_iops_hour * month_hours,
        },
    }


def sources(priced: Priced) -> dict[str, str]:
    """The tariffs, each with its region, source and date, and the price of the VM if it counts."""
    found = {name: _source(volume_type(name).tariff) for name in (priced.volume_type, priced.fast_type)}
    return found | ({"VM": f"USD {priced.vm_hour:g} an hour"} if priced.vm_hour else {})


def _source(tariff: Tariff) -> str:
    return f"{tariff.source}, {tariff.region}, {tariff.date}"
