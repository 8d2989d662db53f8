"""The result of one repetition of an experiment. Sizes in GB (10^9), cost in AGBs (MB/s x GB x s)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from elastio_testbed.bandwidth_use import BandwidthUse
from elastio_testbed.experiment import Setup
from elastio_testbed.lower_bound import ratio


@dataclass(frozen=True, slots=True)
class Boost:
    """One boost from the agent's ledger; `cache_agbs` from the cloud.

    `steps_s` add up to `attach_s`. `cloud_s` is the part that the cloud took to create and attach the volume,
    `own_share_s` the rest.
    """

    size_gb: float
    attach_s: float | None
    attached_s: float | None
    dirty_peak_gb: float
    written_through_gb: float
    flush_s: float | None
    steps_s: dict[str, float | None] = field(default_factory=dict)
    vm: str = ""
    cloud_s: float | None = None
    dumped_gb: float = 0.0
    cache_agbs: float = 0.0
    cache_agbs_bound: float = 0.0
    begun: float = 0.0  # wall clock
    ended: float = 0.0
    bandwidth_use: BandwidthUse | None = None  # of the first VM
    own_share_s: float | None = None

    def to_json(self) -> dict[str, Any]:
        """With the names of the first result files."""
        fields = asdict(self)
        fields["evicted_gb"] = fields.pop("written_through_gb")
        fields["governed"] = fields.pop("bandwidth_use")
        return fields


def own_share_s(attach_s: float | None, cloud_s: float | None) -> float | None:
    """The agent's own share of a boost: the time from the decision to writeback mode without the cloud's share.

    It consists of the agent's own steps and of the delay until it notices that the cloud is done.
    """
    return None if attach_s is None or cloud_s is None else attach_s - cloud_s


@dataclass(frozen=True, slots=True)
class SetupResult:
    """One set-up of one run.

    `completion_s` is from the end of the initial dump to the end of the last dump, as published; `total_s` includes the
    initial dump. AGBs cover `total_s` for the data volume and for a permanent cache volume (lvmcache), and the lifetime
    of every cache volume that was bought (adaptive). `volumes_left` counts volumes at the cloud's API and disks at the
    hypervisor. `dollars` is the price of data volume and caches at the published size, where it has
    tariffs; `least_credit_share` the lowest balance of a data volume with credits, 0 to 1.
    """

    setup: Setup
    completion_s: float
    total_s: float
    agbs: float
    cache_agbs: float
    app_write_mb_s: float
    dumps_s: tuple[float, ...]
    checksums_ok: bool
    volumes_left: int
    boosts: tuple[Boost, ...] = ()
    checksums: dict[str, str] = field(default_factory=dict)
    ledger_cache_agbs: float | None = None
    # Figures of the workload itself for each dump of the first VM; the keys depend on the workload.
    figures: tuple[dict[str, float], ...] = ()
    dollars: float | None = None
    least_credit_share: float | None = None

    @property
    def cache_agbs_bound(self) -> float | None:
        """The lower bound of the cost of caches for these bursts; None without a boost."""
        return round(sum(p.cache_agbs_bound for p in self.boosts), 3) if self.boosts else None

    @property
    def cache_agbs_ratio(self) -> float | None:
        """The cost of all caches as a multiple of the bound."""
        return ratio(self.cache_agbs, self.cache_agbs_bound or 0.0)

    @property
    def cache_agbs_ratio_later(self) -> float | None:
        """The same without each VM's first boost, whose size is not a learned one."""
        seen: set[str] = set()
        later = [p for p in self.boosts if p.vm in seen or seen.add(p.vm)]  # type: ignore[func-returns-value]
        return ratio(sum(p.cache_agbs for p in later), sum(p.cache_agbs_bound for p in later))

    def to_json(self) -> dict[str, Any]:
        fields = asdict(self)
        del fields["boosts"]
        return {
            **fields,
            "phases": [boost.to_json() for boost in self.boosts],
            "cache_agbs_bound": self.cache_agbs_bound,
            "cache_agbs_ratio": self.cache_agbs_ratio,
            "cache_agbs_ratio_later": self.cache_agbs_ratio_later,
        }


@dataclass(frozen=True, slots=True)
class Result:
    """All set-ups of one repetition."""

    setups: tuple[SetupResult, ...]

    def of(self, setup: Setup) -> SetupResult | None:
        return next((s for s in self.setups if s.setup is setup), None)

    def ratios(self) -> dict[Setup, dict[str, float | None]]:
        """For each set-up in percent: completion relative to static-fast, AGBs relative to both static set-ups."""
        slow, fast = self.of(Setup.STATIC_SLOW), self.of(Setup.STATIC_FAST)
        return {
            s.setup: {
                "overhead_vs_fast_pct": _more(s.completion_s, fast.completion_s if fast else None),
                "agbs_vs_fast_pct": _more(s.agbs, fast.agbs if fast else None),
                "agbs_vs_slow_pct": _more(s.agbs, slow.agbs if slow else None),
            }
            for s in self.setups
        }

    def comparison(self) -> dict[str, float | None]:
        """The ratios of the adaptive set-up, and the overhead of static-slow."""
        ratios = self.ratios()
        adaptive, slow = ratios.get(Setup.ADAPTIVE, {}), ratios.get(Setup.STATIC_SLOW, {})
        return {
            "overhead_vs_fast_pct": adaptive.get("overhead_vs_fast_pct"),
            "overhead_slow_vs_fast_pct": slow.get("overhead_vs_fast_pct"),
            "agbs_vs_fast_pct": adaptive.get("agbs_vs_fast_pct"),
            "agbs_vs_slow_pct": adaptive.get("agbs_vs_slow_pct"),
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "setups": {s.setup.value: s.to_json() for s in self.setups},
            "ratios": {setup.value: row for setup, row in self.ratios().items()},
            **self.comparison(),
        }


def _more(value: float, base: float | None) -> float | None:
    """How many percent `value` is above `base`; negative: below."""
    return None if not base else round((value / base - 1) * 100, 2)
