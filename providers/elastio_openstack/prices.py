"""The tariffs of an OpenStack cloud: one for each volume type, as `[provider.openstack.types]` has them. No network."""

from __future__ import annotations

from collections.abc import Mapping

from elastio.core.model import Quote, VolumeSpec
from elastio.strategy.tariff import PriceList
from elastio_openstack import speeds
from elastio_openstack.settings import parse

REMEDY = "set price_per_gib_hour in [provider.openstack.types.NAME]"


def price_list(table: Mapping[str, object], region: str) -> PriceList:
    """The tariff of every configured volume type, whatever the region. Raises ConfigError."""
    settings = parse(table)
    found = {name: speeds.tariff(name, declared, settings) for name, declared in settings.types.items()}
    known = tuple(t for _, t in sorted(found.items()) if t is not None)
    return PriceList(known, tuple(sorted(name for name, t in found.items() if t is None)), REMEDY)


def price(table: Mapping[str, object], region: str, spec: VolumeSpec) -> Quote:
    """The price of the slowest configured type that provides `spec`, without a call.

    Types whose bandwidth only QoS specs have are left out. Raises ConfigError, and RefusedError if no type provides
    `spec`.
    """
    settings = parse(table)
    declared = (speeds.speed_of(name, each, None) for name, each in settings.types.items())
    speed, size_gib = speeds.choose(spec, [each for each in declared if each is not None])
    return speeds.quote(speed, size_gib, settings)
