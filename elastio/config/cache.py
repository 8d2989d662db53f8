"""[cache]: the cache volumes, and between which bandwidths that of the next one is learned."""

from __future__ import annotations

from dataclasses import dataclass

from elastio.config.device import DeviceSection
from elastio.config.rules import Number, Text, key, refuse, whole
from elastio.core.bandwidth import SpeedBounds
from elastio.core.policy import Model
from elastio.errors import ConfigError

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
