"""The sections of the configuration file: the keys of each, with their meaning, and the rules between keys of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from elastio.config.paths import DEFAULT_SOCKET, DEFAULT_STATE_DIR
from elastio.config.rules import Amounts, Flag, Number, Patterns, Text, key, refuse, whole
from elastio.core.capacity import OF_BACKING
from elastio.core.policy import Model
from elastio.core.shares import EVERYBODY, MOST_RESERVED, BoostRights, LatencyTarget, Reserved
from elastio.errors import ConfigError
from elastio.strategy.credits import CreditBucket
from elastio.strategy.memory import SpeedBounds
from elastio.units import GIB

LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSection:
    """[agent]: the daemon."""

    sample_interval_s: float = key(Number("interval between throughput samples, in seconds", least=0.2, most=60), 1.0)
    state_dir: Path = field(
        default=DEFAULT_STATE_DIR,
        metadata={"rule": Text("directory of journal and ledger; must not be on the adaptive device", "path")},
    )
    socket: Path = field(default=DEFAULT_SOCKET, metadata={"rule": Text("path of the control socket", "socket")})
    socket_group: str = key(
        Text("group whose members may use the control socket; empty: root only", "group"), "elastio"
    )
    history_days: float = key(Number("retention of throughput samples, in days", above=0, most=3650), 30.0)
    history_rows: int = key(
        whole("maximum number of samples kept; each sample under load is a row, a quiet hour is one row", least=1000),
        500_000,
    )
    log_level: str = key(Text("lowest severity of the messages that are logged", "choice", LOG_LEVELS), "info")


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsSection:
    """[caps]: limits on spending in a local day and in a local month. A cap that is not set does not limit."""

    max_boosts_per_day: int | None = key(whole("maximum number of boosts a day", least=0), None)
    max_agbs_per_day: float | None = key(Number("maximum adjusted GB seconds (MB/s x GB x s) a day", least=0), None)
    max_cost_per_day: float | None = key(Number("maximum cost a day, in the currency of the provider", least=0), None)
    max_boosts_per_month: int | None = key(whole("maximum number of boosts a month", least=0), None)
    max_agbs_per_month: float | None = key(Number("maximum adjusted GB seconds (MB/s x GB x s) a month", least=0), None)
    max_cost_per_month: float | None = key(
        Number("maximum cost a month, in the currency of the provider", least=0), None
    )
    ends_boosts: bool = key(
        Flag("end a running boost before its bill passes a cap on AGBs or cost; its cache is flushed and released"),
        True,
    )
    shared: bool = key(
        Flag("these caps limit what all devices of this VM whose configuration says so spend together"), False
    )


def lowest(sections: Iterable[CapsSection], own: CapsSection) -> CapsSection:
    """The caps of `own` with the lowest limit of each kind that one of `sections` sets."""
    each, limits = (own, *sections), dict[str, float | None]()
    for name in (f.name for f in fields(CapsSection) if f.name.startswith("max_")):
        limits[name] = min((v for s in each if (v := getattr(s, name)) is not None), default=None)
    return CapsSection(**limits, ends_boosts=own.ends_boosts, shared=own.shared)  # type: ignore[arg-type]


DEFAULT_CGROUPS = ("*.slice", "*.service", "system.slice/*.service")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSection:
    """[profile]: the account of bursts in the ledger, which `elastio profile --since` shows."""

    enabled: bool = key(
        Flag("during a load, look at the tasks of cgroups, and keep in the ledger what they wait for"), True
    )
    cgroups: tuple[str, ...] = key(
        Patterns("cgroups that are looked at, at most 50, by their paths below /sys/fs/cgroup"), DEFAULT_CGROUPS
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSection:
    """[value]: what time is worth. Without it, only costs are compared."""

    hour: float | None = key(
        Number(
            "what an hour of waiting costs, in the currency of the provider, for example the price of this machine "
            "for an hour",
            least=0,
        ),
        None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSection:
    """[device]: the backing device."""

    backing_uuid: str = key(Text("bcache UUID of the backing device, as `elastio device create` prints it", "uuid"))
    bandwidth_mb_s: float = key(
        Number("bandwidth of the backing volume, in MB/s; of a volume with credits, that with credits", above=0)
    )
    price_per_month: float | None = key(
        Number(
            "price of the backing volume for a month of 720 h, in the currency of the provider, for reports; default: "
            "the provider's price of a volume of its size and bandwidth",
            least=0,
        ),
        None,
    )
    base_bandwidth_mb_s: float | None = key(
        Number("bandwidth of a backing volume without credits, in MB/s; default: it has no credits", above=0), None
    )
    credits_gib: float | None = key(
        Number("credits of a full bucket, in GiB; required with base_bandwidth_mb_s", above=0), None
    )
    volume_type: str | None = key(
        Text("type of a backing volume whose credits the provider knows, in place of these two: st1 or sc1", "word"),
        None,
    )
    volume_size_gib: float | None = key(
        Number("size of the backing volume, in GiB; required with volume_type", above=0), None
    )
    first_credits_gib: float = key(
        Number(
            "credits of the backing volume when the agent first runs, in GiB, if it is new: what is not known counts "
            "as used",
            least=0,
        ),
        0.0,
    )

    @property
    def bucket(self) -> CreditBucket | None:
        """The configured bucket; None: the volume has none, or its type decides."""
        if self.base_bandwidth_mb_s is None or self.credits_gib is None:
            return None
        return CreditBucket(self.base_bandwidth_mb_s, self.bandwidth_mb_s, self.credits_gib * GIB)


def check_credits(device: DeviceSection) -> None:
    """Refuse keys about credits that do not fit one another. Raises ConfigError; its code is the key."""
    base, credits = device.base_bandwidth_mb_s, device.credits_gib
    for first, value, other, needed in (
        ("base_bandwidth_mb_s", base, "credits_gib", credits),
        ("credits_gib", credits, "base_bandwidth_mb_s", base),
        ("volume_type", device.volume_type, "volume_size_gib", device.volume_size_gib),
        ("volume_size_gib", device.volume_size_gib, "volume_type", device.volume_type),
    ):
        if value is not None and needed is None:
            raise ConfigError(f"device.{first} is set without device.{other}: set both", code=f"device.{other}")
    if base is not None and device.volume_type is not None:
        raise ConfigError(
            "device.volume_type and device.base_bandwidth_mb_s are both set: keep one, each decides about credits",
            code="device.volume_type",
        )
    if base is not None and base >= device.bandwidth_mb_s:
        raise refuse("device.base_bandwidth_mb_s", base, f"below device.bandwidth_mb_s ({device.bandwidth_mb_s:g})")
    if device.first_credits_gib and (base, device.volume_type) == (None, None):
        raise ConfigError(
            "device.first_credits_gib is set for a volume without credits: set device.base_bandwidth_mb_s and "
            "device.credits_gib, or device.volume_type",
            code="device.first_credits_gib",
        )


FIXED, LEARNED = HOW = ("fixed", "learned")


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSection:
    """[cache]: the cache volumes."""

    bandwidth_mb_s: float = key(Number("bandwidth of a cache for applications, in MB/s", above=0))
    bandwidth: str = key(
        Text("whether that is the bandwidth of every cache, or the first one, from which it is learned", "choice", HOW),
        FIXED,
    )
    min_bandwidth_mb_s: float | None = key(
        Number("least bandwidth of a cache where it is learned, in MB/s; default: bandwidth_mb_s", above=0), None
    )
    max_bandwidth_mb_s: float | None = key(
        Number("most bandwidth of a cache where it is learned, in MB/s; default: twice bandwidth_mb_s", above=0), None
    )
    drain_bandwidth_mb_s: float | None = key(
        Number(
            "additional bandwidth of a cache, for flushing while applications write; default: device.bandwidth_mb_s",
            least=0,
        ),
        None,
    )
    initial_size_gib: float = key(Number("size of a cache before a size was learned, in GiB", above=0), 10.0)
    min_size_gib: float = key(
        Number("minimum size of a cache, in GiB; below 256 MiB bcache can hang when it is full", above=0.25), 1.0
    )
    max_size_gib: float = key(Number("maximum size of a cache, in GiB", above=0.25), 100.0)
    size_step_gib: float = key(Number("step to which learned sizes are rounded up, in GiB", above=0), 1.0)
    iops: int | None = key(whole("IOPS of a cache; default: the minimum for its bandwidth", least=1), None)
    headroom: float = key(Number("factor by which a learned size is multiplied", least=1, most=4), 1.05)

    def drain_mb_s(self, backing_mb_s: float) -> float:
        return backing_mb_s if self.drain_bandwidth_mb_s is None else self.drain_bandwidth_mb_s

    def speed_bounds(self, stop_gain: float) -> SpeedBounds | None:
        """Between which bandwidths that of the next cache is learned; None: it is fixed."""
        if self.bandwidth == FIXED:
            return None
        first, least, most = self.bandwidth_mb_s, self.min_bandwidth_mb_s, self.max_bandwidth_mb_s
        return SpeedBounds(first, first if least is None else least, 2 * first if most is None else most, stop_gain)


def check_cache(cache: CacheSection, device: DeviceSection, model: str, *, is_profiled: bool) -> None:
    """The constraints between keys. Raises ConfigError; its code is the key."""
    least, first, most = cache.min_size_gib, cache.initial_size_gib, cache.max_size_gib
    largest = f"cache.max_size_gib ({most:g})"
    if least > most:
        raise refuse("cache.min_size_gib", least, f"at most {largest}")
    if not least <= first <= most:
        raise refuse("cache.initial_size_gib", first, f"from cache.min_size_gib ({least:g}) to {largest}")
    if cache.bandwidth == LEARNED:
        _check_learned(cache, device, model, is_profiled=is_profiled)


def _check_learned(cache: CacheSection, device: DeviceSection, model: str, *, is_profiled: bool) -> None:
    slow, first, fast = cache.min_bandwidth_mb_s, cache.bandwidth_mb_s, cache.max_bandwidth_mb_s
    backing = device.bandwidth_mb_s
    if slow is not None and not backing <= slow <= first:
        allowed = f"from device.bandwidth_mb_s ({backing:g}) to cache.bandwidth_mb_s ({first:g})"
        raise refuse("cache.min_bandwidth_mb_s", slow, allowed)
    if fast is not None and fast < first:
        raise refuse("cache.max_bandwidth_mb_s", fast, f"at least cache.bandwidth_mb_s ({first:g})")
    if model == Model.MONEY:
        text = 'policy.model is "money", which chooses the bandwidth itself: leave cache.bandwidth at "fixed"'
        raise ConfigError(text, code="cache.bandwidth")
    if not is_profiled:
        text = 'cache.bandwidth is "learned" and profile.enabled is false: without the account nothing is learned'
        raise ConfigError(text, code="cache.bandwidth")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSection:
    """[share]: how cgroups share the adaptive device, and whose load counts. Experimental."""

    enabled: bool = key(
        Flag("share the device among cgroups by their weights (IOWeight=), with limits that follow its capacity"), False
    )
    reserve: Mapping[str, float] | None = key(
        Amounts("MB/s that a cgroup gets whatever others want, by its path or the last part of it"), None
    )
    latency_ms: Mapping[str, float] | None = key(
        Amounts(
            "ms that requests of a cgroup, which keeps within its share, are to take, by its path or the last part"
        ),
        None,
    )
    may_boost: tuple[str, ...] = key(
        Patterns("cgroups whose load counts towards a boost: patterns of a path, or of the last part of it"), EVERYBODY
    )
    no_boost: tuple[str, ...] = key(
        Patterns("cgroups whose load does not, with all that is below them, whatever `may_boost` says"), ()
    )

    @property
    def rights(self) -> BoostRights:
        return BoostRights(self.may_boost, self.no_boost)

    @property
    def latency(self) -> tuple[LatencyTarget, ...]:
        return tuple(LatencyTarget(name, ms) for name, ms in (self.latency_ms or {}).items())

    @property
    def reserved(self) -> tuple[Reserved, ...] | None:
        """The reservations; None: nothing is shared."""
        reserve = tuple(Reserved(name, mb_s) for name, mb_s in (self.reserve or {}).items())
        return reserve if self.enabled else None


def check_share(share: ShareSection, device: DeviceSection) -> None:
    """Refuse reservations that the idle device cannot keep. Raises ConfigError; its code is the key."""
    slowest_mb_s = device.bandwidth_mb_s if device.bucket is None else device.bucket.base_mb_s
    asked, most = sum((share.reserve or {}).values()), MOST_RESERVED * OF_BACKING * slowest_mb_s
    if asked > most:
        raise refuse("share.reserve", f"{asked:g} MB/s in all", f"at most {most:.1f} MB/s without a cache")
