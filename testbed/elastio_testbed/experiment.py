"""Experiments, and how they are scaled to a smaller machine and a shorter time.

Sizes in GB (10^9 bytes), bandwidths in MB/s (10^6 bytes per second), as in the published evaluation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from elastio.strategy.credits import CreditBucket
from elastio.units import GB, GIB, MB, MIB
from elastio_adviser.volume_types import volume_type

# The minimum of the agent's sampling interval.
SHORTEST_SAMPLE_S = 0.2
# The agent's default, at the speed of a real cloud.
LEAD_S = 20.0
# The agent buys no caches below 256 MiB, see `cache.min_size_gib`.
MIN_CACHE_GIB = 0.26
# The least bandwidth of gp3.
LEAST_MIB_S = 125
# The largest size that the agent may learn, in initial sizes.
MOST_CACHES = 4
# Memory of a guest without that of the application.
GUEST_MIB = 1536


class Setup(StrEnum):
    """The storage set-ups that are compared: the published ones, and the usual fixed alternative."""

    STATIC_SLOW = "static-slow"
    STATIC_FAST = "static-fast"
    ADAPTIVE = "adaptive"
    LVMCACHE = "lvmcache"  # dm-writecache on a permanent fast volume


PUBLISHED = (Setup.STATIC_SLOW, Setup.STATIC_FAST, Setup.ADAPTIVE)


class Ahead(StrEnum):
    """How the agent of the adaptive set-up learns of a burst before it begins."""

    EXPECT = "expect"  # the application announces each one
    LEARNED = "learned"  # the agent forecasts it from what it has seen


# The agent's setting for LEARNED: table, key and value of its configuration.
LEARNED_SETTING = ("policy", "ahead", '"learned"')


@dataclass(frozen=True, slots=True)
class ColdVolume:
    """A data volume with credits, of a type as in `elastio_adviser.volume_types`.

    `first_share` of a full bucket is there when the application starts.
    """

    volume_type: str
    first_share: float


@dataclass(frozen=True, slots=True)
class Priced:
    """What the set-ups cost in currency. Types as in `elastio_adviser.volume_types`: of the data volume; of caches and
    static-fast.

    `vm_hour`: the price of an hour of the VM, which the agent knows too: it then decides by money. 0: volumes only.
    The adaptive set-up has to reach, against static-fast: at most so many percent more time, and so many of its price.
    """

    volume_type: str
    fast_type: str
    most_time_pct: float
    most_cost_pct: float
    vm_hour: float = 0.0


@dataclass(frozen=True, slots=True)
class Workload(ABC):
    """One application, sized for a guest by a scaled experiment.

    `program` is a module of `elastio_testbed.guest` with the commands `run SPEC REPORT` and `verify SPEC`, see
    `guest/reporting.py`. `needs_tools`: it needs packages that the default guest image lacks. `is_checkpointing`: it
    alternates computing without I/O and dumps of the experiment's sizes, and does nothing else. `writers`: the number
    of processes that write a dump in parallel.
    """

    program: str
    needs_tools: bool
    is_checkpointing: bool
    writers: int

    @abstractmethod
    def spec(self, scaled: Scaled) -> dict[str, Any]:
        """The spec of the program in the guest, without `directory` and `seed`."""

    def memory_mib(self, scaled: Scaled) -> int:
        """Memory of one guest in any set-up."""
        return GUEST_MIB

    def resident_mib(self, scaled: Scaled) -> int:
        """The part of that memory that its processes use for data."""
        return 0

    def moved_bytes(self, scaled: Scaled) -> int:
        """Bytes read and written by one guest in a run, from which the longest duration is estimated."""
        return sum(scaled.dumps_bytes)


@dataclass(frozen=True, slots=True)
class Experiment:
    """One application on one VM, at its published size.

    `dumps_gb` per VM: the first is the initial dump, before the first iteration; `compute_s` is the total compute time,
    in equal parts before each later dump. `is_size_fixed`: the agent may buy the initial size only. `setups` are those
    that are compared by default, at `default_scale`. `cold`: the data volume has credits, and `backing_mb_s` is its
    burst rate. `fast_mb_s`: of static-fast; 0: as caches.
    """

    name: str
    dumps_gb: tuple[float, ...]
    compute_s: float
    backing_gb: float
    backing_mb_s: float
    cache_mb_s: float
    initial_cache_gb: float
    workload: Workload
    inactivity_delay_s: float = 30.0
    is_size_fixed: bool = False
    setups: tuple[Setup, ...] = PUBLISHED
    cold: ColdVolume | None = None
    priced: Priced | None = None
    fast_mb_s: float = 0.0
    default_scale: float = 1.0

    @property
    def is_by_money(self) -> bool:
        """The agent decides by the prices of the VM and of caches."""
        return self.priced is not None and self.priced.vm_hour > 0


@dataclass(frozen=True, slots=True)
class Scaled:
    """An experiment in the guest's own bytes and seconds.

    `time` scales compute time, inactivity delay, sampling, cloud latency and data; `bandwidth` scales both volumes'
    bandwidth and also the data. So every duration is multiplied by `time`.
    """

    experiment: Experiment
    time: float
    bandwidth: float

    def bytes_of(self, size_gb: float) -> int:
        """Published GB as bytes of the guest, in whole MiB."""
        return max(1, round(size_gb * GB * self.time * self.bandwidth / MIB)) * MIB

    @property
    def dumps_bytes(self) -> tuple[int, ...]:
        return tuple(self.bytes_of(d) for d in self.experiment.dumps_gb)

    @property
    def compute_each_s(self) -> float:
        return self.experiment.compute_s * self.time / max(1, len(self.experiment.dumps_gb) - 1)

    @property
    def backing_bytes(self) -> int:
        return self.bytes_of(self.experiment.backing_gb)

    @property
    def backing_bytes_s(self) -> int:
        return round(self.experiment.backing_mb_s * self.bandwidth * MB)

    @property
    def bucket(self) -> CreditBucket | None:
        """The credits of the data volume; None: it has none. A full bucket holds the bytes of the volume."""
        cold = self.experiment.cold
        if cold is None:
            return None
        sold = volume_type(cold.volume_type).bucket(self.experiment.backing_gb * GB, 0.0)
        return CreditBucket(sold.base_mb_s * self.bandwidth, self.backing_bytes_s / MB, self.backing_bytes)

    @property
    def first_credits_bytes(self) -> float:
        """The credits when the application starts; 0 without any."""
        cold = self.experiment.cold
        return 0.0 if cold is None else cold.first_share * self.backing_bytes

    @property
    def cache_bytes_s(self) -> int:
        return round(self.experiment.cache_mb_s * self.bandwidth * MB)

    @property
    def fast_bytes_s(self) -> int:
        """The bandwidth of static-fast."""
        return round((self.experiment.fast_mb_s or self.experiment.cache_mb_s) * self.bandwidth * MB)

    @property
    def lead_s(self) -> float:
        return max(1.0, LEAD_S * self.time)

    @property
    def inactivity_delay_s(self) -> float:
        return self.experiment.inactivity_delay_s * self.time

    @property
    def sample_interval_s(self) -> float:
        """The agent's default of 1 s, scaled as far as the agent allows."""
        return max(SHORTEST_SAMPLE_S, self.time)

    @property
    def unit_bytes(self) -> int:
        """The bytes of one GiB of the scaled cloud: small enough for a fine choice of sizes."""
        return max(4 * MIB, self.bytes_of(self.experiment.initial_cache_gb) // 64 // MIB * MIB)

    @property
    def unit_bytes_s(self) -> int:
        """The bytes/s of one MiB/s of the scaled cloud. If none is paid for, caches have the least that is sold."""
        return round(MIB * self.bandwidth) if self.experiment.is_by_money else -(-self.cache_bytes_s // LEAST_MIB_S)

    @property
    def initial_cache_gib(self) -> float:
        """The initial cache in real GiB, a multiple of the unit."""
        return self._sold_gib(self.bytes_of(self.experiment.initial_cache_gb))

    def _sold_gib(self, size_bytes: int) -> float:
        """The smallest size that the scaled cloud sells for so many bytes."""
        return -(-size_bytes // self.unit_bytes) * self.unit_bytes / GIB

    @property
    def least_cache_gib(self) -> float:
        """The smallest size that the agent may buy: the minimum of bcache, or the fixed size."""
        return self.initial_cache_gib if self.experiment.is_size_fixed else self._sold_gib(round(MIN_CACHE_GIB * GIB))

    @property
    def most_cache_gib(self) -> float:
        """The largest size that the agent may buy."""
        return self.initial_cache_gib if self.experiment.is_size_fixed else MOST_CACHES * self.initial_cache_gib
