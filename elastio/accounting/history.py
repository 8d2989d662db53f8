"""The input of a forecast: past boosts and bursts, and throughput at the sampling interval of the policy. Pure.

Times are seconds since the epoch. The throughput is that of the adaptive device: what applications did. Where two runs
do not touch, nothing was observed in between.

A burst is the load of a cycle that is over. Loads without a cycle are not in the ledger as bursts: a cap forbade it, or
boosts were paused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from elastio.accounting.rows import CycleRow
from elastio.billing import TO_THE_INSTANT, Billing
from elastio.core.cycle import Trigger
from elastio.core.model import Sample, VolumeSpec
from elastio.strategy.forecast import KEPT_BURSTS, Burst
from elastio.strategy.learned import CacheCosts, Past, allowance
from elastio.units import MB, agbs

# A sample below this share of the bandwidth of the backing device is quiet, and needs no row of its own.
QUIET_UTILIZATION = 0.03
# The longest quiet run, so that a period can be selected to the hour.
LONGEST_RUN_S = 3600.0
# Samples further apart than this do not touch: one was missed, or the wall clock was set.
SEAM_S = 0.5


@dataclass(frozen=True, slots=True)
class SampleRun:
    """Throughput of the adaptive device over some time: one sample, or several quiet ones.

    `dirty_bytes` is what was dirty at its end; None: no cache was there, or an older release wrote it.
    """

    begun_wall: float
    seconds: float
    read_bytes: int
    written_bytes: int
    quiet: bool = False
    dirty_bytes: int | None = None

    @property
    def ended_wall(self) -> float:
        return self.begun_wall + self.seconds

    @property
    def read_mb_s(self) -> float:
        return self.read_bytes / self.seconds / MB

    @property
    def write_mb_s(self) -> float:
        return self.written_bytes / self.seconds / MB


def run_of(sample: Sample, ended_wall: float, utilization: float, dirty_bytes: int | None = None) -> SampleRun:
    """One sample as a run; `utilization` is what the policy made of it."""
    rates, seconds = sample.adaptive, sample.seconds
    return SampleRun(
        ended_wall - seconds,
        seconds,
        round(rates.read_mb_s * MB * seconds),
        round(rates.write_mb_s * MB * seconds),
        utilization < QUIET_UTILIZATION,
        dirty_bytes,
    )


def joined(run: SampleRun, later: SampleRun) -> SampleRun | None:
    """Both as one run that keeps every byte and second, or None if they are not joined.

    Only quiet runs that touch, with the same dirty data, are joined. A load and a flush keep every sample.
    """
    touch = abs(later.begun_wall - run.ended_wall) <= SEAM_S
    is_same = run.quiet and later.quiet and run.dirty_bytes == later.dirty_bytes
    if not (is_same and touch) or run.seconds + later.seconds > LONGEST_RUN_S:
        return None
    return replace(
        run,
        seconds=run.seconds + later.seconds,
        read_bytes=run.read_bytes + later.read_bytes,
        written_bytes=run.written_bytes + later.written_bytes,
    )


@dataclass(frozen=True, slots=True)
class CycleLoad:
    """What applications did during one cycle, from the sample that began it to the end of its volume.

    `begun_wall` and `ended_wall` bound the time at or above the utilization threshold; None: there was no load, for
    example after a wrong forecast. A load may have begun before the cycle.
    """

    read_bytes: int = 0
    written_bytes: int = 0
    begun_wall: float | None = None
    ended_wall: float | None = None

    @property
    def seconds(self) -> float | None:
        """How long the load lasted, including pauses."""
        if self.begun_wall is None or self.ended_wall is None:
            return None
        return max(0.0, self.ended_wall - self.begun_wall)

    def plus(self, run: SampleRun, load_begun_wall: float | None) -> CycleLoad:
        """With one more sample. `load_begun_wall`: when the present load began; None: there is none."""
        begun, ended = self.begun_wall, self.ended_wall
        if load_begun_wall is not None:
            begun, ended = load_begun_wall if begun is None else begun, run.ended_wall
        return CycleLoad(self.read_bytes + run.read_bytes, self.written_bytes + run.written_bytes, begun, ended)


@dataclass(frozen=True, slots=True)
class PastBoost:
    """One boost and its load. None: not known, or there was no load.

    `begun_wall` is when the load began, or without a load when the boost was decided. `period_s` is the time since the
    beginning of the previous boost, `gap_s` since the end of the previous load; both None for the first boost.
    """

    token: str
    device_uuid: str
    trigger: str
    begun_wall: float
    load_s: float | None
    period_s: float | None
    gap_s: float | None
    bought_bytes: int
    bandwidth_mb_s: float
    read_bytes: int | None
    written_bytes: int | None
    peak_dirty_bytes: int
    written_through_bytes: int
    failure: str


@dataclass(frozen=True, slots=True)
class History:
    """What is kept for forecasts: boosts in their order, and runs by device in theirs."""

    boosts: tuple[PastBoost, ...]
    samples: Mapping[str, tuple[SampleRun, ...]]


def past_boosts(cycles: Sequence[CycleRow], loads: Mapping[str, CycleLoad]) -> tuple[PastBoost, ...]:
    """The boosts of all devices in their order, without orphans.

    A cycle whose purchase was rejected does not name its device. If all others have the same one, it has it too.
    """
    devices = {c.device_uuid for c in cycles if c.device_uuid}
    if len(devices) == 1:
        (only,) = devices
        cycles = [replace(c, device_uuid=only) for c in cycles]
    found: list[PastBoost] = []
    last: dict[str, tuple[float, float | None]] = {}
    begun_at = {c.token: _begun(c, loads.get(c.token)) for c in cycles if c.trigger != Trigger.ORPHAN}
    rows = [c for c in cycles if c.token in begun_at]
    for row in sorted(rows, key=lambda c: (begun_at[c.token], c.token)):
        load, begun = loads.get(row.token), begun_at[row.token]
        before, before_ended = last.get(row.device_uuid, (None, None))
        found.append(_past_boost(row, load, begun, before, before_ended))
        if load is None or load.begun_wall is not None:  # a boost without a load is not a burst
            last[row.device_uuid] = (begun, load.ended_wall if load else None)
    return tuple(found)


def _begun(row: CycleRow, load: CycleLoad | None) -> float:
    return row.started_wall if load is None or load.begun_wall is None else load.begun_wall


def _past_boost(
    row: CycleRow, load: CycleLoad | None, begun: float, before: float | None, before_ended: float | None
) -> PastBoost:
    return PastBoost(
        token=row.token,
        device_uuid=row.device_uuid,
        trigger=row.trigger,
        begun_wall=begun,
        load_s=load.seconds if load else None,
        period_s=None if before is None else begun - before,
        gap_s=None if before_ended is None else max(0.0, begun - before_ended),
        bought_bytes=row.provisioned_size_bytes if row.opened_wall is not None else 0,
        bandwidth_mb_s=row.bandwidth_mb_s,
        read_bytes=load.read_bytes if load else None,
        written_bytes=load.written_bytes if load else None,
        peak_dirty_bytes=row.peak_dirty_bytes,
        written_through_bytes=row.written_through_bytes,
        failure=row.failure,
    )


def samples(runs: Iterable[SampleRun]) -> tuple[SampleRun, ...]:
    """The runs of one device in their order, without overlap.

    Runs overlap where the clock was set back. The earlier one is cut where the later begins, its bytes in proportion.
    """
    found: list[SampleRun] = []
    for run in sorted(runs, key=lambda r: r.begun_wall):
        if found and found[-1].ended_wall > run.begun_wall + SEAM_S:
            found[-1] = _cut(found[-1], run.begun_wall)
        found.append(run)
    return tuple(r for r in found if r.seconds > 0)


def _cut(run: SampleRun, at_wall: float) -> SampleRun:
    seconds = max(0.0, at_wall - run.begun_wall)
    share = seconds / run.seconds
    return replace(
        run,
        seconds=seconds,
        read_bytes=round(run.read_bytes * share),
        written_bytes=round(run.written_bytes * share),
    )


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
