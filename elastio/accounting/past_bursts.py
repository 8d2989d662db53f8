"""The past as a forecast needs it: bursts, and what their caches cost. Pure.

A burst is the load of a cycle that is over. Loads without a cycle are not in the ledger as bursts: a cap forbade it, or
boosts were paused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from elastio.accounting.history import CycleLoad
from elastio.accounting.rows import CycleRow
from elastio.core.cycle import Trigger
from elastio.core.model import VolumeSpec
from elastio.strategy.forecast import KEPT_BURSTS, Burst
from elastio.strategy.learned import CacheCosts, Past, allowance
from elastio.strategy.spending import TO_THE_INSTANT, Billing
from elastio.units import agbs

# How far back bursts and bills count, in seconds.
PAST_S = 30 * 86_400.0

Loads = Mapping[str, CycleLoad]


def past_of(cycles: Iterable[CycleRow], loads: Loads, device_uuid: str) -> Past:
    """The bursts of one device and the bills of its caches. A cycle that was rejected does not name its device."""
    rows = [c for c in cycles if c.device_uuid in (device_uuid, "") and c.trigger != Trigger.ORPHAN]
    over = [c for c in rows if c.closed_wall is not None or c.is_refused]
    bought = [c for c in over if c.opened_wall is not None]
    if not bought:
        return Past(_bursts(over, loads))
    return Past(_bursts(over, loads), *_bills(bought, loads), bought[-1].billing)


def is_wrong(row: CycleRow, loads: Loads) -> bool:
    """The cache was bought ahead of a burst that did not come while it was there."""
    load = loads.get(row.token)
    return row.trigger in (Trigger.FORECAST, Trigger.ANNOUNCED) and (load is None or load.begun_wall is None)


def early_s(row: CycleRow, load: CycleLoad) -> float:
    """Seconds from the attached cache to the begin of its load; 0 if the load was first, or that is not known."""
    if row.steps.boost_s is None or load.begun_wall is None:
        return 0.0
    return max(0.0, load.begun_wall - row.started_wall - row.steps.boost_s)


def _bursts(rows: Sequence[CycleRow], loads: Loads) -> tuple[Burst, ...]:
    """The last bursts in their order. Cycles that followed each other under one load had one burst."""
    seen = [load for c in rows if (load := loads.get(c.token)) is not None]
    ended = ((x.begun_wall, x.ended_wall, x.written_bytes) for x in seen)
    found: list[Burst] = []
    for begun, end, written in sorted((b, e, w) for b, e, w in ended if b is not None and e is not None):
        last = found[-1] if found else None
        if last is not None and begun <= last.ended_at:
            found[-1] = Burst(last.begun_at, max(last.ended_at, end), last.written_bytes + written)
        else:
            found.append(Burst(begun, end, written))
    return tuple(found[-KEPT_BURSTS:])


def _bills(rows: Sequence[CycleRow], loads: Loads) -> tuple[CacheCosts, CacheCosts | None]:
    """In AGBs, and in currency if all caches have a price in one. There are rows."""
    begin, end = float("-inf"), float("inf")
    per_s = [agbs(c.bandwidth_mb_s, c.provisioned_size_bytes, 1.0) for c in rows]
    in_agbs = _bill(rows, loads, [c.agbs(begin, end) for c in rows], per_s, TO_THE_INSTANT)
    owed = [cost for c in rows if (cost := c.cost(begin, end)) is not None]
    if len(owed) < len(rows) or len({c.currency for c in rows}) != 1:
        return in_agbs, None
    return in_agbs, _bill(rows, loads, owed, [(c.price_per_hour or 0.0) / 3600 for c in rows], rows[0].billing)


def _bill(
    rows: Sequence[CycleRow], loads: Loads, costs: Sequence[float], per_s: Sequence[float], billing: Billing
) -> CacheCosts:
    """The bill of these caches, from what each and a second of each costs; `billing` is that of the first."""
    sold = {(VolumeSpec(c.provisioned_size_bytes, c.bandwidth_mb_s), p) for c, p in zip(rows, per_s, strict=True)}
    wasted = 0.0
    for row, cost, price in zip(rows, costs, per_s, strict=True):
        if row.trigger == Trigger.FORECAST:
            wasted += cost if is_wrong(row, loads) else price * early_s(row, loads[row.token])
    return CacheCosts(sum(costs), wasted, per_s[-1], allowance(per_s[0], billing), tuple(sold))
