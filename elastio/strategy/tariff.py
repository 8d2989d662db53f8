"""What volumes cost in money: a tariff as clouds publish it. Pure.

A volume type is charged by its size, by the bandwidth and the IOPS above what its price includes, and where a cloud
counts them by requests:

    price per hour = a * GiB + b * max(0, MB/s - included) + c * max(0, IOPS - included) + d * GiB * MB/s

EBS gp3, Azure Premium SSD v2 and GCP Hyperdisk charge `a`, `b` and `c`; volume types of an OpenStack cloud only `a`,
another one for each type. `d` alone is the cost model of the published experiments: AGBs, without a currency. Prices
are without tax and discounts.
"""

from __future__ import annotations

from dataclasses import dataclass

from elastio.billing import Billing
from elastio.core.model import Quote, VolumeSpec
from elastio.units import GB, GIB

# The currency of a tariff in AGBs: MB/s x GB x s (10^9 bytes).
AGBS = "AGBs"
# Of a month's price: 30 days, as in the examples of the EBS pricing page (https://aws.amazon.com/ebs/pricing/).
HOURS_A_MONTH = 720


@dataclass(frozen=True, slots=True)
class Tariff:
    """The prices of one volume type, per hour. `region`, `source` and `date` (ISO 8601) say where they come from.

    A volume is billed for at least `minimum_s`, and in whole steps of `step_s` (0: to the instant).
    """

    currency: str
    per_gib_hour: float = 0.0
    per_mb_s_hour: float = 0.0
    per_iops_hour: float = 0.0
    per_gib_mb_s_hour: float = 0.0
    per_million_requests: float = 0.0
    included_mb_s: float = 0.0
    included_iops: int = 0
    minimum_s: float = 0.0
    step_s: float = 0.0
    region: str = ""
    source: str = ""
    date: str = ""
    volume_type: str = ""

    def per_hour(self, spec: VolumeSpec) -> float:
        """The price of such a volume for an hour, without requests."""
        gib = spec.size_bytes / GIB
        return (
            self.per_gib_hour * gib
            + self.per_mb_s_hour * max(0.0, spec.bandwidth_mb_s - self.included_mb_s)
            + self.per_iops_hour * max(0, (spec.iops or 0) - self.included_iops)
            + self.per_gib_mb_s_hour * gib * spec.bandwidth_mb_s
        )

    @property
    def billing(self) -> Billing:
        return Billing(self.minimum_s, self.step_s)

    def billed_s(self, seconds: float) -> float:
        """The seconds that are billed for a volume that existed for `seconds`."""
        return self.billing.billed_s(seconds)

    def cost(self, spec: VolumeSpec, seconds: float, requests: float = 0.0) -> float:
        """The bill of a volume that existed for `seconds` and served `requests`."""
        return self.per_hour(spec) * self.billed_s(seconds) / 3600 + self.per_million_requests * requests / 1e6

    def quote(self, spec: VolumeSpec) -> Quote:
        """The quote of a volume that is sold as `spec`. Its source ends with region and date, where these are known."""
        source = "; ".join(part for part in (self.source, self.region, self.date) if part)
        return Quote(spec, self.currency, self.per_hour(spec), self.minimum_s, source, step_s=self.step_s)


@dataclass(frozen=True, slots=True)
class PriceList:
    """What a provider knows of its prices without asking its cloud: one tariff for each volume type and region.

    `unknown` names what is sold but has no known price: regions, or volume types. `remedy` says where an operator sets
    such a price.
    """

    tariffs: tuple[Tariff, ...]
    unknown: tuple[str, ...] = ()
    remedy: str = ""


def unpriced(spec: VolumeSpec, currency: str, minimum_s: float, reason: str) -> Quote:
    """The quote of a volume whose price is not known, and why."""
    return Quote(spec, currency, 0.0, minimum_s, reason, price_known=False)


def agbs_tariff() -> Tariff:
    """The cost model of the published experiments: what `elastio.units.agbs` returns."""
    return Tariff(AGBS, per_gib_mb_s_hour=3600 * GIB / GB)
