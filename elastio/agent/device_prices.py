"""What the backing volume, or one that was found, costs an hour, and its credits by its type. No cloud is asked."""

from __future__ import annotations

from dataclasses import dataclass, replace

from elastio import registry
from elastio.accounting.rows import DevicePrices
from elastio.config.schema import Config
from elastio.core.model import Identity, Quote, VolumeSpec
from elastio.core.policy import Policy
from elastio.errors import ConfigError, ElastioError
from elastio.strategy.credits import CreditBucket
from elastio.strategy.tariff import HOURS_A_MONTH
from elastio.units import GIB


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


def policy_of(config: Config) -> Policy:
    """The settings as the core uses them, with the credits of device.volume_type. Raises ConfigError."""
    policy = config.policy()
    bucket = _by_type(config)
    if bucket is None:
        return policy
    return replace(policy, backing_bandwidth_mb_s=bucket.burst_mb_s, backing_credits=bucket)


def _by_type(config: Config) -> CreditBucket | None:
    """The bucket of the volume's type and size, with a burst rate of at most device.bandwidth_mb_s."""
    device = config.device
    if device.volume_type is None or device.volume_size_gib is None:
        return None
    rule = registry.credit_rule(config.provider.name, device.volume_type)
    if rule is None:
        raise ConfigError(
            f"the provider {config.provider.name} knows no credits of the volume type {device.volume_type}: set "
            "device.base_bandwidth_mb_s and device.credits_gib instead",
            code="device.volume_type",
        )
    sold = rule.bucket(device.volume_size_gib * GIB)
    burst = min(sold.burst_mb_s, device.bandwidth_mb_s)
    return CreditBucket(min(sold.base_mb_s, burst), burst, sold.capacity_bytes)
