"""Settings that are valid and surely not meant. Pure.

The agent starts with them: one that refused to start after an upgrade would leave a dirty cache unflushed and paid for.
"""

from __future__ import annotations

from elastio.config.schema import Config
from elastio.core.policy import Model


def doubts(config: Config) -> tuple[str, ...]:
    """One sentence for each doubt, which `config check`, `init`, `doctor` and the log of a start show."""
    chosen_by_money = config.policy_settings.model == Model.MONEY
    slow = None if chosen_by_money else slow_cache(config.device.bandwidth_mb_s, config.cache.bandwidth_mb_s)
    return (slow,) if slow else ()


def slow_cache(backing_mb_s: float, cache_mb_s: float) -> str:
    """What is wrong with a cache that is no faster than the backing volume; empty: it is faster."""
    if cache_mb_s > backing_mb_s:
        return ""
    return (
        f"cache.bandwidth_mb_s is {cache_mb_s:g}, and device.bandwidth_mb_s {backing_mb_s:g}: a cache that is not "
        "faster than the backing volume costs money and gains nothing"
    )
