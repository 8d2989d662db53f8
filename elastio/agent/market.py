"""What is sold where this machine runs, what the backing volume costs and has of credits. No cloud is asked.

For `policy.model = "money"` also what waiting costs. The price list of the provider is asked for a cache of every
bandwidth between that of the backing volume and the configured one. What is sold at the configured bandwidth decides
the tariff; bandwidths that another tariff applies to, such as those of another volume type, are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from elastio import registry
from elastio.accounting.rows import DevicePrices
from elastio.config.schema import Config
from elastio.core.model import Identity, Quote, VolumeSpec
from elastio.core.policy import Model, Policy
from elastio.errors import ConfigError, ElastioError, RefusedError
from elastio.strategy.credits import CreditBucket
from elastio.strategy.speed import in_ratio
from elastio.strategy.tariff import HOURS_A_MONTH, PriceList, Tariff
from elastio.strategy.worth import Bounds, Market, Offer
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


# A cache that is hardly faster than the backing volume is never worth it.
LEAST_RATIO = 1.1
UNKNOWN = "prices.unknown"
CAP_KEYS = "caps.max_cost_per_day, caps.max_cost_per_month"


def require_prices(config: Config) -> None:
    """Raises ConfigError if `policy.model = "money"` can never know its prices, whatever the region turns out to be."""
    policy = config.policy()
    if policy.model is not Model.MONEY:
        return
    region = _configured_region(config)
    listed = _listed(config, region)
    try:
        market(config, region, policy.caps.max_size_bytes, None)
    except ConfigError as error:
        # Until the cloud has named the region, its prices are not known.
        if error.code != UNKNOWN or not any(tariff.region for tariff in listed.tariffs):
            raise


def unkept_cap(config: Config) -> str:
    """Why nothing is ever bought under a cap on cost, whatever the region turns out to be; empty: that is not known."""
    policy, provider, region = config.policy(), config.provider, _configured_region(config)
    listed = registry.price_list(provider.name, provider.settings, region) if policy.caps.needs_price else None
    if listed is None or (not region and any(tariff.region for tariff in listed.tariffs)):
        return ""
    try:
        quote = registry.price(
            provider.name, provider.settings, region, _smallest(policy, policy.bought_bandwidth_mb_s)
        )
    except RefusedError:  # no volume is sold, at whatever price
        return ""
    if quote is None or quote.price_known:
        return ""
    return f"{CAP_KEYS}: nothing is bought under a cap on cost, because {quote.price_source}; {listed.remedy}"


def _configured_region(config: Config) -> str:
    """The region that the settings name; empty: the cloud names it."""
    return str(config.provider.settings.get("region", ""))


def market(config: Config, region: str, backing_bytes: int, limit_mb_s: float | None) -> Market:
    """The market of this device. `limit_mb_s`: the instance's storage limit; None: not known.

    Raises ConfigError, with the code UNKNOWN where a price is not known: nothing is guessed.
    """
    policy, hour = config.policy(), config.value.hour
    if hour is None:
        raise ConfigError('policy.model = "money" needs value.hour', code="value.hour")
    region = _configured_region(config) or region
    listed = _listed(config, region)
    configured = _sold(config, region, policy, policy.bought_bandwidth_mb_s)
    tariff = None if configured is None else _tariff(configured, listed)
    if configured is None or tariff is None:
        raise _unknown(f"a cache of {policy.bought_bandwidth_mb_s:g} MB/s", region, listed)
    backing = device_prices(config, region, backing_bytes)
    if backing.backing_per_hour is None or backing.currency not in ("", tariff.currency):
        remedy = PriceList((), remedy=f"set device.price_per_month in {tariff.currency}")
        raise _unknown("the backing volume", region, remedy)
    bounds = Bounds() if limit_mb_s is None else Bounds(instance_mb_s=limit_mb_s)
    offer = _offer(config, region, policy, tariff, configured, bounds.instance_mb_s)
    return Market(tariff, (hour + backing.backing_per_hour) / 3600, offer, bounds)


def _unknown(what: str, region: str, listed: PriceList) -> ConfigError:
    where = f" in {region}" if region else ""
    remedy = f": {listed.remedy}" if listed.remedy else ""
    return ConfigError(f'policy.model is "money" and the price of {what}{where} is not known{remedy}', code=UNKNOWN)


def _listed(config: Config, region: str) -> PriceList:
    listed = registry.price_list(config.provider.name, config.provider.settings, region)
    if listed is None:
        raise ConfigError(
            f'policy.model is "money" and the provider {config.provider.name} has no price list: use "agbs"',
            code=UNKNOWN,
        )
    return listed


def _smallest(policy: Policy, mb_s: float) -> VolumeSpec:
    """The smallest cache of this bandwidth."""
    return VolumeSpec(policy.min_size_bytes, mb_s, policy.cache_iops)


def _sold(config: Config, region: str, policy: Policy, mb_s: float) -> Quote | None:
    """What is sold for the smallest cache of this bandwidth; None: nothing, or its price is not known."""
    try:
        quote = registry.price(config.provider.name, config.provider.settings, region, _smallest(policy, mb_s))
    except RefusedError:
        return None
    return quote if quote is not None and quote.price_known else None


def _tariff(quote: Quote, listed: PriceList) -> Tariff | None:
    """The tariff by which this volume is priced."""
    return next((tariff for tariff in listed.tariffs if _is_priced_by(quote, tariff)), None)


def _is_priced_by(quote: Quote, tariff: Tariff) -> bool:
    price = tariff.per_hour(quote.spec)
    return quote.currency == tariff.currency and abs(price - quote.price_per_hour) <= 1e-9 * max(price, 1e-12)


def _offer(
    config: Config, region: str, policy: Policy, tariff: Tariff, configured: Quote, instance_mb_s: float
) -> Offer:
    """The bandwidths that are sold at this tariff, up to the configured one or what the instance carries, included."""
    least = min(policy.bought_bandwidth_mb_s, LEAST_RATIO * policy.backing_bandwidth_mb_s)
    most = max(least, min(policy.bought_bandwidth_mb_s, instance_mb_s))
    wanted = (_sold(config, region, policy, mb_s) for mb_s in in_ratio(least, most))
    sold = [quote.spec for quote in wanted if quote is not None and _is_priced_by(quote, tariff)]
    sold = sold or [configured.spec]
    least_iops, last = sold[0].iops or 0, sold[-1]
    is_by_iops = bool(least_iops) and (last.iops or 0) > least_iops
    return Offer(
        tuple(sorted({min(spec.bandwidth_mb_s, most) for spec in sold})),
        size_step_bytes=policy.size_step_bytes,
        least_bytes=max(policy.min_size_bytes, configured.spec.size_bytes),
        most_bytes=max(policy.caps.max_size_bytes, policy.min_size_bytes),
        mb_s_per_iops=last.bandwidth_mb_s / (last.iops or 1) if is_by_iops else 0.0,
        least_iops=least_iops,
    )


@dataclass(slots=True)
class MarketWatch:
    """Determines the market when the machine's region and the device's size are known, and again when they change."""

    trouble: str = ""
    _of: tuple[str, float | None, int, Config] | None = None
    _market: Market | None = None

    def market(self, config: Config, identity: Identity | None, backing_bytes: int | None) -> Market | None:
        """None: not known yet, or not at all; `trouble` says why then."""
        if identity is None or backing_bytes is None:
            return self._market
        wanted = (identity.region, identity.bandwidth_limit_mb_s, backing_bytes, config)
        if wanted != self._of:
            self._of, self._market, self.trouble = wanted, None, ""
            try:
                self._market = market(config, identity.region, backing_bytes, identity.bandwidth_limit_mb_s)
            except ConfigError as error:
                self.trouble = str(error)
        return self._market
