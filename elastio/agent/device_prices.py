"""What the backing volume, or a volume that was found, costs an hour, for the ledger. No cloud is asked."""

from __future__ import annotations

from dataclasses import dataclass

from elastio import registry
from elastio.accounting.rows import DevicePrices
from elastio.config.schema import Config
from elastio.core.model import Identity, Quote, VolumeSpec
from elastio.core.tariff import HOURS_A_MONTH
from elastio.errors import ElastioError


@dataclass(slots=True)
class DevicePricing:
    """Determines the prices when the machine's region is known, and again when size or bandwidths change."""

    _of: tuple[str, int, Config] | None = None
    _prices: DevicePrices | None = None

    def at(self, config: Config, identity: Identity | None, size_bytes: int) -> DevicePrices | None:
        """The prices; None until the cloud has named this machine."""
        if identity is None:
            return None
        wanted = (identity.region, size_bytes, config)
        if wanted != self._of:
            self._of, self._prices = wanted, device_prices(config, identity.region, size_bytes)
        return self._prices


def device_prices(config: Config, region: str, size_bytes: int) -> DevicePrices:
    """The prices of the backing volume, and of one of its size with the bandwidth of a cache for applications.

    The backing volume's is the operator's, else the provider's for a volume of this size and bandwidth.
    """
    slow = _quote(config, region, VolumeSpec(size_bytes, config.device.bandwidth_mb_s))
    fast = _quote(config, region, VolumeSpec(size_bytes, config.cache.bandwidth_mb_s))
    currency = next((q.currency for q in (fast, slow) if q is not None), "")
    own = config.device.price_per_month
    backing = _per_hour(slow) if own is None else own / HOURS_A_MONTH
    prices = DevicePrices(currency, backing if currency else None, _per_hour(fast))
    return prices if (prices.backing_per_hour, prices.fast_per_hour) != (None, None) else DevicePrices()


def volume_price(config: Config, identity: Identity | None, spec: VolumeSpec) -> Quote | None:
    """What a volume of the provider costs by its price list, where this machine runs; None: that is not known."""
    region = str(config.provider.settings.get("region", "")) or (identity.region if identity else "")
    return _quote(config, region, spec)


def _quote(config: Config, region: str, spec: VolumeSpec) -> Quote | None:
    """None: the provider has no price list, or sells no such volume."""
    try:
        return registry.price(config.provider.name, config.provider.settings, region, spec)
    except ElastioError:
        return None


def _per_hour(quote: Quote | None) -> float | None:
    return quote.price_per_hour if quote is not None and quote.price_known else None
