"""[share]: what the cgroups that use the adaptive device have of it, and which of them may cause a boost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elastio.config.device import DeviceSection
from elastio.config.rules import Amounts, Flag, Patterns, key, refuse
from elastio.core.boost_rights import EVERYBODY, BoostRights
from elastio.core.capacity import OF_BACKING
from elastio.core.lending import LatencyTarget
from elastio.core.shares import MOST_RESERVED, Reserved


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
