"""What is run: the published experiments, and how they are scaled to a smaller machine and a shorter time.

Sizes in GB (10^9 bytes), bandwidths in MB/s (10^6 bytes per second), as in the published evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from elastio.units import GB, GIB, MB, MIB

# The agent takes no shorter one.
SHORTEST_SAMPLE_S = 0.2
# The agent buys none below 256 MiB, see `cache.min_size_gib`.
MIN_CACHE_GIB = 0.26
# What the agent may learn, in initial sizes.
MOST_CACHES = 4
# What a guest of the laboratory has without anything of the application's own.
GUEST_MIB = 1536


class Setup(StrEnum):
    """The storage set-ups that an experiment compares: the published ones, and what one would build by hand today."""

    STATIC_SLOW = "static-slow"
    STATIC_FAST = "static-fast"
    ADAPTIVE = "adaptive"
    LVMCACHE = "lvmcache"  # dm-writecache on a fast volume that is there all the time


PUBLISHED = (Setup.STATIC_SLOW, Setup.STATIC_FAST, Setup.ADAPTIVE)


class Workload(Protocol):
    """One application, sized for a guest by a scaled experiment.

    `program` is a module of `elastio_testbed.guest` that understands `run SPEC REPORT` and `verify SPEC`, as told in
    `guest/reporting.py`. `needs_tools`: it uses packages that the everyday guest image lacks. `is_checkpointing`: it
    computes without I/O and writes dumps of the experiment's sizes, one after the other, and nothing else.
    """

    @property
    def program(self) -> str: ...

    @property
    def needs_tools(self) -> bool: ...

    @property
    def is_checkpointing(self) -> bool: ...

    @property
    def writers(self) -> int:
        """How many of its processes write a dump at once."""
        ...

    def spec(self, scaled: Scaled) -> dict[str, Any]:
        """What the program in the guest is told, beside `directory` and `seed`."""
        ...

    def memory_mib(self, scaled: Scaled) -> int:
        """Memory of one guest, the same in every set-up."""
        ...

    def resident_mib(self, scaled: Scaled) -> int:
        """Of that memory, what its processes keep for their data."""
        ...

    def moved_bytes(self, scaled: Scaled) -> int:
        """Bytes read and written by one guest over the whole run: no set-up is slower than these at backing speed."""
        ...


@dataclass(frozen=True, slots=True)
class Experiment:
    """One application on one VM, at its published size.

    `dumps_gb` per VM: the first is the initial dump, before the first iteration; `compute_s` is the whole time spent
    computing, in equal parts before each later dump. What a dump is, and what computing, is the workload's business.
    `is_size_fixed`: the agent may buy no other size than the initial one.
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


@dataclass(frozen=True, slots=True)
class Scaled:
    """An experiment in the guest's own bytes and seconds.

    `time` scales compute time, inactivity delay, sampling, cloud latency and data; `bandwidth` scales both volumes'
    bandwidth and, once more, the data. The shape stays: a dump of S GB takes S/B of `time` times the published seconds.
    """

    experiment: Experiment
    time: float
    bandwidth: float

    def bytes_of(self, size_gb: float) -> int:
        """GB of the publication as bytes of the guest, in whole MiB."""
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
    def cache_bytes_s(self) -> int:
        return round(self.experiment.cache_mb_s * self.bandwidth * MB)

    @property
    def inactivity_delay_s(self) -> float:
        return self.experiment.inactivity_delay_s * self.time

    @property
    def sample_interval_s(self) -> float:
        """The agent's default of 1 s, scaled as far as the agent allows."""
        return max(SHORTEST_SAMPLE_S, self.time)

    @property
    def unit_bytes(self) -> int:
        """What one GiB of the scaled cloud is worth: small enough that sizes are not rounded away."""
        return max(4 * MIB, self.bytes_of(self.experiment.initial_cache_gb) // 64 // MIB * MIB)

    @property
    def initial_cache_gib(self) -> float:
        """The initial cache in real GiB, a multiple of the unit."""
        units = -(-self.bytes_of(self.experiment.initial_cache_gb) // self.unit_bytes)
        return units * self.unit_bytes / GIB

    @property
    def least_cache_gib(self) -> float:
        """The least that the agent may buy: what bcache takes, or the one size there is."""
        return self.initial_cache_gib if self.experiment.is_size_fixed else max(MIN_CACHE_GIB, self.unit_bytes / GIB)

    @property
    def most_cache_gib(self) -> float:
        """The most that the agent may buy."""
        return self.initial_cache_gib if self.experiment.is_size_fixed else MOST_CACHES * self.initial_cache_gib
