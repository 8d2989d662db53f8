"""Three ways to charge for volumes, each with a machine whose time has a price. Pure.

`today` is how the agent is configured there as it is: bandwidth, drain, inactivity delay and first size are settings of
the operator, and the cost model behind them is AGBs. The value of an hour is an assumption of this comparison, not a
price of a cloud.
"""

from __future__ import annotations

from dataclasses import dataclass

from elastio.core.model import VolumeSpec
from elastio.core.policy import Policy
from elastio.strategy.speed import in_ratio
from elastio.strategy.spending import Caps
from elastio.strategy.tariff import Tariff, agbs_tariff
from elastio.strategy.worth import Bounds, Offer, Terms
from elastio.units import GB, GIB, MB, MIB
from elastio_aws import gp3
from elastio_aws.prices import price_list
from elastio_sim.kernel import KernelSettings

MONTH_H = 730.0
# From the purchase of a volume to its first write, from the begin of a burst to that write, and from the end of a flush
# to the deletion of the volume: means of the simulator's delays, which a test measures again.
ATTACH_S, LATE_S, RELEASE_S = 5.8, 6.8, 5.5
# Share of a cache that can be filled before anything is written through: garbage is collected only now and then.
USABLE = KernelSettings().cutoff - 0.04

# The largest cache that the agent and the optimum may buy.
MOST_BYTES = 100 * GIB


@dataclass(frozen=True, slots=True)
class Market:
    """A tariff for the backing volume and one for caches, what is sold, and the agent's settings of today.

    `value_per_s` is what a second of the machine is worth, in the currency of the tariffs, without its volumes.
    """

    name: str
    backing: Tariff
    cache: Tariff
    backing_mb_s: float
    backing_bytes: int
    value_per_s: float
    offer: Offer
    bounds: Bounds
    today_mb_s: float
    today_drain_mb_s: float

    @property
    def run_per_s(self) -> float:
        """What a second of the run costs: the machine's and the backing volume's."""
        spec = VolumeSpec(self.backing_bytes, self.backing_mb_s, self.offer.least_iops or None)
        return self.value_per_s + self.backing.per_hour(spec) / 3600

    def terms(self, late_s: float = LATE_S) -> Terms:
        """What decisions by this tariff start from, with a cache that comes `late_s` into a burst."""
        return Terms(
            self.cache,
            self.run_per_s,
            self.backing_mb_s,
            cutoff=USABLE,
            efficiency=KernelSettings().cache_efficiency,
            late_s=late_s,
            overhead_s=ATTACH_S + RELEASE_S,
        )

    def billed_spec(self, size_bytes: int, mb_s: float) -> VolumeSpec:
        """The volume as it is billed, with the IOPS that its bandwidth takes. Raises ValueError beyond the offer."""
        spec = self.offer.spec(size_bytes, mb_s)
        if spec is None:
            raise ValueError(f"no volume of {size_bytes} bytes is sold")
        return spec

    def policy(self) -> Policy:
        """The agent's settings of today."""
        return Policy(
            backing_bandwidth_mb_s=self.backing_mb_s,
            cache_bandwidth_mb_s=self.today_mb_s,
            drain_bandwidth_mb_s=self.today_drain_mb_s,
            backing_uuid=KernelSettings().backing_uuid,
            tags_volumes=False,
            caps=Caps(max_size_bytes=self.offer.most_bytes),
        )


def agbs_market() -> Market:
    """The published cost model and parameters. A second of the run costs what the backing volume costs, and no more."""
    tariff = agbs_tariff()
    return Market(
        "agbs",
        tariff,
        tariff,
        33.0,
        50 * GB,
        0.0,
        Offer(in_ratio(48.0, 500.0), most_bytes=MOST_BYTES),
        Bounds(),
        128.0,
        33.0,
    )


def gp3_market() -> Market:
    """EBS gp3 in us-east-1 on an instance with 593.75 MB/s of EBS bandwidth (m5.4xlarge), an hour worth 0.80 USD.

    The prices and limits are those of the provider.
    """
    (tariff,) = price_list({}, "us-east-1").tariffs
    mib_s, free_mb_s = MIB / MB, tariff.included_mb_s
    bounds = Bounds(instance_mb_s=593.75, most_mb_s=1000.0)
    speeds = in_ratio(free_mb_s, min(bounds.instance_mb_s, gp3.MAX_MIB_S * mib_s))
    offer = Offer(
        speeds, most_bytes=MOST_BYTES, mb_s_per_iops=mib_s / gp3.IOPS_PER_MIB_S, least_iops=tariff.included_iops
    )
    return Market("aws-gp3", tariff, tariff, free_mb_s, 100 * GIB, 0.80 / 3600, offer, bounds, 500.0, free_mb_s)


def openstack_market() -> Market:
    """An OpenStack with two types, charged by size and begun hour: 60 MB/s for 0.04 EUR a GiB and month, 250 for 0.09.

    The prices are an example; every operator has others. An hour is worth 0.20 EUR.
    """
    slow, fast = (
        Tariff("EUR", per_gib_hour=price / MONTH_H, minimum_s=3600.0, step_s=3600.0) for price in (0.04, 0.09)
    )
    offer = Offer((250.0,), most_bytes=MOST_BYTES)
    return Market("openstack", slow, fast, 60.0, 200 * GIB, 0.20 / 3600, offer, Bounds(), 190.0, 60.0)


def markets() -> tuple[Market, ...]:
    """All three."""
    return gp3_market(), openstack_market(), agbs_market()
