"""[caps]: the limits on spending, and those that several devices share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from elastio.config.rules import Flag, Number, key, whole


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
