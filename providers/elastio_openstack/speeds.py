"""What a volume type carries, from its QoS or from the configuration, and which one to buy. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from elastio.core.model import Quote, VolumeSpec
from elastio.errors import RefusedError
from elastio.units import GIB
from elastio_openstack.settings import Declared, Settings

MAX_GIB = 2**31 - 1  # of Cinder's size, a signed 32-bit number
_FRONT_END = ("front-end", "both")  # what the hypervisor enforces; a back end's own limits have names of their own


@dataclass(frozen=True, slots=True)
class Speed:
    """One volume type: what it carries, and what it costs if that is known."""

    name: str
    bandwidth_mb_s: float
    per_gib: bool = False
    iops: int | None = None
    max_size_gib: int | None = None
    price_per_gib_hour: float | None = None

    def at(self, size_gib: int) -> float:
        """MB/s of a volume of this size."""
        return self.bandwidth_mb_s * (size_gib if self.per_gib else 1)


def speed_of(name: str, declared: Declared, qos: Mapping[str, Any] | None) -> Speed | None:
    """What is declared, completed by the type's QoS specs; None where neither tells a bandwidth.

    The configuration wins: an operator may have measured what no specification says.
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
    return Speed(name, bandwidth, per_gib, iops, declared.max_size_gib, declared.price_per_gib_hour)


def choose(spec: VolumeSpec, known: Iterable[Speed]) -> tuple[Speed, int]:
    """The slowest type that carries `spec` (of equals the cheapest), and the size in GiB, rounded up.

    Raises RefusedError with what the fastest would carry.
    """
    if not (spec.size_bytes > 0 and 0 < spec.bandwidth_mb_s < math.inf):
        raise RefusedError("A volume needs a size and a bandwidth above 0.")
    size_gib = -(-spec.size_bytes // GIB)
    types = sorted(known, key=lambda speed: speed.name)
    if not types:
        raise RefusedError(
            "No volume type's bandwidth is known: declare one as [provider.openstack.types.NAME] bandwidth_mb_s, "
            "or allow this agent to read QoS specs."
        )
    roomy = [speed for speed in types if size_gib <= (speed.max_size_gib or MAX_GIB)]
    if not roomy:
        raise RefusedError(f"{size_gib} GiB is more than any volume type takes ({_names(types)}).")
    fitting = [speed for speed in roomy if _carries(speed, spec, size_gib)]
    if not fitting:
        best = max(roomy, key=lambda speed: speed.at(size_gib))
        raise RefusedError(
            f"{spec.bandwidth_mb_s:.0f} MB/s is more than a volume of {size_gib} GiB has here; "
            f"the fastest type, {best.name}, carries {best.at(size_gib):.0f} MB/s."
        )
    return min(fitting, key=lambda s: (s.at(size_gib), s.price_per_gib_hour or 0.0)), size_gib


def quote(speed: Speed, size_gib: int, settings: Settings) -> Quote:
    """What is bought and what it costs; a price that nobody configured is 0 and says so."""
    price = speed.price_per_gib_hour
    known = f"{settings.price_source}, volume type {speed.name}"
    return Quote(
        spec=VolumeSpec(size_gib * GIB, speed.at(size_gib), speed.iops),
        currency=settings.currency,
        price_per_hour=(price or 0.0) * size_gib,
        minimum_s=settings.minimum_s,
        price_source=known if price is not None else f"no price is configured for volume type {speed.name}",
        price_known=price is not None,
    )


def _carries(speed: Speed, spec: VolumeSpec, size_gib: int) -> bool:
    # a bandwidth that came from this very type must not fail by the last bit of a float
    enough = speed.at(size_gib) >= spec.bandwidth_mb_s * (1 - 1e-9)
    return enough and (spec.iops is None or speed.iops is None or speed.iops >= spec.iops)


def _limits(qos: Mapping[str, Any]) -> dict[str, float]:
    """The least of what is said for reads, writes and both together: a cache does both."""
    if qos.get("consumer") not in _FRONT_END:
        return {}
    found: dict[str, float] = {}
    for key, text in (qos.get("specs") or {}).items():
        way, _, kind = key.partition("_")
        if way not in ("total", "read", "write"):
            continue
        try:
            value = float(text)
        except ValueError:
            continue
        if value > 0:  # 0 is Cinder's word for no limit
            found[kind] = min(value, found.get(kind, math.inf))
    return found


def _names(types: Iterable[Speed]) -> str:
    return ", ".join(speed.name for speed in types)
