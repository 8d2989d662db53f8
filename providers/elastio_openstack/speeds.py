"""The bandwidth of volume types, from QoS specs or the configuration, and which type to buy. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from elastio.core.model import Quote, VolumeSpec
from elastio.errors import RefusedError
from elastio.strategy.tariff import Tariff, unpriced
from elastio.units import GIB
from elastio_openstack.settings import UNDECLARED, Declared, Settings

MAX_GIB = 2**31 - 1  # Cinder's size is a signed 32-bit number
BOOST_S = 600.0
_FRONT_END = ("front-end", "both")  # enforced by the hypervisor; back ends name their limits differently


@dataclass(frozen=True, slots=True)
class Speed:
    """One volume type: its bandwidth and limits, and `declared`, which has its price if that is known."""

    name: str
    bandwidth_mb_s: float
    per_gib: bool = False
    iops: int | None = None
    max_size_gib: int | None = None
    declared: Declared = UNDECLARED

    def at(self, size_gib: int) -> float:
        """MB/s of a volume of this size."""
        return self.bandwidth_mb_s * (size_gib if self.per_gib else 1)


def speed_of(name: str, declared: Declared, qos: Mapping[str, Any] | None) -> Speed | None:
    """The declared values, completed from the type's QoS specs; None if neither has a bandwidth.

    The configuration takes precedence: an operator may have measured the type.
    """
    limits = _limits(qos or {})
    if declared.bandwidth_mb_s_per_gib is not None:
        bandwidth, per_gib = declared.bandwidth_mb_s_per_gib, True
    elif declared.bandwidth_mb_s is not None:
        bandwidth, per_gib = declared.bandwidth_mb_s, False
    elif "bytes_sec" in limits:
        bandwidth, per_gib = limits["bytes_sec"] / 1e6, False
    elif "bytes_sec_per_gb" in limits:
        bandwidth, per_gib = limits["bytes_sec_per_gb"] / 1e6, True
    else:
        return None
    iops = declared.iops or (int(limits["iops_sec"]) if "iops_sec" in limits else None)
    return Speed(name, bandwidth, per_gib, iops, declared.max_size_gib, declared)


def choose(spec: VolumeSpec, known: Iterable[Speed]) -> tuple[Speed, int]:
    """The slowest type that provides `spec` (the cheapest of equals), and the size in GiB, rounded up.

    Raises RefusedError if no type does.
    """
    if not (spec.size_bytes > 0 and 0 < spec.bandwidth_mb_s < math.inf):
        raise RefusedError("A volume needs a size and a bandwidth above 0.", code="spec.not-positive")
    size_gib = -(-spec.size_bytes // GIB)
    types = sorted(known, key=lambda speed: speed.name)
    if not types:
        raise RefusedError(
            "No volume type has a known bandwidth: set bandwidth_mb_s in [provider.openstack.types.NAME], or allow the "
            "credential to read QoS specs.",
            code="type.none-known",
        )
    large_enough = [speed for speed in types if size_gib <= (speed.max_size_gib or MAX_GIB)]
    if not large_enough:
        raise RefusedError(f"{size_gib} GiB is more than any volume type allows ({_names(types)}).", code="type.size")
    fast_enough = [speed for speed in large_enough if _provides(speed, spec, size_gib)]
    if not fast_enough:
        best = max(large_enough, key=lambda speed: speed.at(size_gib))
        raise RefusedError(
            f"{spec.bandwidth_mb_s:.0f} MB/s is more than a volume of {size_gib} GiB provides; "
            f"the fastest type, {best.name}, has {best.at(size_gib):.0f} MB/s.",
            code="type.bandwidth",
        )
    return min(fast_enough, key=lambda s: (s.at(size_gib), _cost(s, size_gib))), size_gib


def _cost(speed: Speed, size_gib: int) -> float:
    """Of a usual boost."""
    found = quote(speed, size_gib, Settings())
    return found.price_per_hour * found.billing.billed_s(BOOST_S)


def tariff(name: str, declared: Declared, settings: Settings) -> Tariff | None:
    """The tariff of a volume type. None: no price is configured for it."""
    if not declared.has_price:
        return None
    return Tariff(
        settings.currency,
        per_gib_hour=declared.price_per_gib_hour or 0.0,
        per_mb_s_hour=declared.price_per_mb_s_hour or 0.0,
        per_iops_hour=declared.price_per_iops_hour or 0.0,
        per_million_requests=declared.price_per_million_requests or 0.0,
        minimum_s=settings.minimum_s if declared.minimum_s is None else declared.minimum_s,
        step_s=settings.step_s if declared.step_s is None else declared.step_s,
        source=f"{settings.price_source}, volume type {name}",
        volume_type=name,
    )


def quote(speed: Speed, size_gib: int, settings: Settings) -> Quote:
    """What would be bought, with its price; without a configured one it is 0, and `price_known` is False."""
    spec = VolumeSpec(size_gib * GIB, speed.at(size_gib), speed.iops)
    known = tariff(speed.name, speed.declared, settings)
    if known is None:
        reason = f"no price is configured for volume type {speed.name}"
        return unpriced(spec, settings.currency, settings.minimum_s, reason)
    return known.quote(spec)


def _provides(speed: Speed, spec: VolumeSpec, size_gib: int) -> bool:
    # the bandwidth of this type itself must not fail by the last bit of a float
    enough = speed.at(size_gib) >= spec.bandwidth_mb_s * (1 - 1e-9)
    return enough and (spec.iops is None or speed.iops is None or speed.iops >= spec.iops)


def _limits(qos: Mapping[str, Any]) -> dict[str, float]:
    """The smallest of the limits for reads, writes and both together: a cache does both."""
    if qos.get("consumer") not in _FRONT_END:
        return {}
    found: dict[str, float] = {}
    for key, text in (qos.get("specs") or {}).items():
        direction, _, kind = key.partition("_")
        if direction not in ("total", "read", "write"):
            continue
        try:
            value = float(text)
        except ValueError:
            continue
        if value > 0:  # 0 means no limit to Cinder
            found[kind] = min(value, found.get(kind, math.inf))
    return found


def _names(types: Iterable[Speed]) -> str:
    return ", ".join(speed.name for speed in types)
