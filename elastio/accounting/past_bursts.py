"""The past as a forecast needs it: bursts, and what their caches cost. Pure.

A burst is the load of a cycle that is over. Loads without a cycle are not in the ledger as bursts: a cap forbade it, or
boosts were paused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from elastio.accounting.history import CycleLoad
from elastio.accounting.rows import CycleRow
from elastio.core.cycle import Trigger
from elastio.core.forecast import KEPT_BURSTS, Burst
from elastio.core.learned import Bill, Past

# How far back bursts and bills count, in seconds.
PAST_S = 30 * 86_400.0

Loads = Mapping[str, CycleLoad]


def past_of(cycles: Iterable[CycleRow], loads: Loads, device_uuid: str) -> Past:
    """The bursts of one device and the bills of its caches. A cycle that was rejected does not name its device."""
    rows = [c for c in cycles if c.device_uuid in (device_uuid, "") and c.trigger != Trigger.ORPHAN]
    over = [c for c in rows if c.closed_wall is not None or c.is_refused]
    return Past(_bursts(over, loads), *_bills([c for c in over if c.opened_wall is not None], loads))


def is_wrong(row: CycleRow, loads: Loads) -> bool:
    """The cache was bought ahead of a burst that did not come while it was there."""
    load = loads.get(row.token)
    return row.trigger in (Trigger.FORECAST, Trigger.ANNOUNCED) and (load is None or load.begun_wall is None)


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


def _bills(rows: Sequence[CycleRow], loads: Loads) -> tuple[Bill, Bill | None]:
    """In AGBs, and in currency if all caches have a price in one."""
    if not rows:
        return Bill(), None
    begin, end, last = float("-inf"), float("inf"), rows[-1]
    used = [c.agbs(begin, end) for c in rows]
    owed = [cost for c in rows if (cost := c.cost(begin, end)) is not None]
    wrong = [is_wrong(c, loads) and c.trigger == Trigger.FORECAST for c in rows]
    in_agbs = Bill(sum(used), _sum_of(used, wrong), last.agbs(begin, end) / (last.billed_s(begin, end) or 1.0))
    if len(owed) < len(rows) or len({c.currency for c in rows}) != 1:
        return in_agbs, None
    per_s = (last.price_per_hour or 0.0) / 3600
    return in_agbs, Bill(sum(owed), _sum_of(owed, wrong), per_s)


def _sum_of(amounts: Sequence[float], counts: Sequence[bool]) -> float:
    return sum(amount for amount, is_counted in zip(amounts, counts, strict=True) if is_counted)
