"""The cost ledger: which volumes were bought, when, for how long, and at what price.

The journal records what the agent did; the ledger records what it cost, for years. What a power failure loses, the next
record of the cycle repeats.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, astuple, fields, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from elastio.accounting import rows
from elastio.accounting.database import LateFile, LedgerFile
from elastio.core.cycle import Cycle, FailureKind, Trigger
from elastio.strategy.spending import Spend, Spent

# Observations of a device this close together are one span: a missed minute, a restart, a reboot.
GAP_S = 300.0
DAY_S = 86_400.0

_LOST = "the volume disappeared while no agent was running"
# A list had lacked it, and a later one shows it: it is billed on, and nothing has failed.
_IS_BACK = f"excluded.closed_wall ISNULL AND failure = '{_LOST}'"

# A cycle that was found by its tags alone (an orphan with a known token) knows less than its row. What can happen only
# once keeps its first value; a price is never removed, nor is a failure, but that of a volume that is back. The end of
# the bill is the newest value: if the cloud takes a deletion back, the bill runs on.
_UPSERT = f"""
INSERT INTO cycles VALUES (
    :token, :device_uuid, :trigger, :volume_id, :wanted_size_bytes, :wanted_mb_s, :sold_size_bytes, :sold_mb_s,
    :started_wall, :opened_wall, :closed_wall, :currency, :price_per_hour, :minimum_s, :peak_dirty_bytes,
    :peak_in_use_percent, :evicted_bytes, :failure, :failure_kind, :step_s)
ON CONFLICT (token) DO UPDATE SET
    device_uuid = iif(excluded.device_uuid <> '', excluded.device_uuid, device_uuid),
    volume_id = coalesce(excluded.volume_id, volume_id),
    sold_size_bytes = coalesce(excluded.sold_size_bytes, sold_size_bytes),
    sold_mb_s = coalesce(excluded.sold_mb_s, sold_mb_s),
    opened_wall = coalesce(opened_wall, excluded.opened_wall),
    closed_wall = excluded.closed_wall,
    currency = coalesce(excluded.currency, currency),
    price_per_hour = coalesce(excluded.price_per_hour, price_per_hour),
    minimum_s = coalesce(excluded.minimum_s, minimum_s),
    step_s = coalesce(excluded.step_s, step_s),
    peak_dirty_bytes = max(peak_dirty_bytes, excluded.peak_dirty_bytes),
    peak_in_use_percent = max(peak_in_use_percent, excluded.peak_in_use_percent),
    evicted_bytes = max(evicted_bytes, excluded.evicted_bytes),
    failure = iif(excluded.failure <> '', excluded.failure, iif({_IS_BACK}, '', failure)),
    failure_kind = iif({_IS_BACK}, excluded.failure_kind, coalesce(failure_kind, excluded.failure_kind))
"""

_CLOSE_LOST = """
UPDATE cycles SET closed_wall = ?, failure_kind = iif(failure <> '', failure_kind, ?),
    failure = iif(failure <> '', failure, ?) WHERE token = ?
"""

# These may happen again within one cycle; every other step happens once.
_REPEATED_TIMES = ("quiet", "clean", "detached", "released", "deleted")
# Fields of a row that are read from a column of their name.
_OTHER_NAMES = {"provisioned_size_bytes", "bandwidth_mb_s", "steps", "written_through_bytes", "failure_kind"}
_COLUMNS = tuple(f.name for f in fields(rows.CycleRow) if f.name not in _OTHER_NAMES)
# Set when an orphan is found: nobody saw its purchase.
_UNSEEN_BY_ORPHAN = ("decided", "created")


class Ledger:
    """An open ledger. Every method raises LedgerError, which names the file, if SQLite fails."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Open the file; create or migrate it if needed. `read_only`: for reports; the file must exist."""
        self.file: LedgerFile = LedgerFile(path, read_only=read_only)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; may be called twice."""
        self.file.close()

    # --- cycles ------------------------------------------------------------------------------------------

    def record(self, cycle: Cycle, boot_offset_s: float) -> None:
        """Write what is known of the cycle. Writing the same twice changes nothing.

        Of one purchase that was carried out twice, each volume has a bill: the second one's by the volume's ID.
        `boot_offset_s` is wall clock minus CLOCK_BOOTTIME now. It makes new timestamps comparable across reboots.
        """
        volume, quote, known = cycle.volume, cycle.quote, rows.row_of(cycle)
        row = {name: getattr(known, name) for name in _COLUMNS}
        row |= {
            "device_uuid": volume.backing_uuid if volume else "",
            "wanted_mb_s": cycle.spec.bandwidth_mb_s,
            "sold_size_bytes": volume.size_bytes if volume else None,
            "sold_mb_s": volume.bandwidth_mb_s if volume else None,
            "peak_dirty_bytes": cycle.use.peak_dirty_bytes,
            "peak_in_use_percent": cycle.use.peak_in_use_percent,
            "evicted_bytes": cycle.use.missing_bytes,
            "failure_kind": known.failure_kind or None,
        }
        if quote is None:  # what is not known does not replace what is
            row |= dict.fromkeys(("currency", "minimum_s", "step_s"))
        with self.file.write() as db:
            cycle = replace(cycle, token=_name_of(db, cycle))
            db.execute(_UPSERT, row | {"token": cycle.token})
            self._record_times(db, cycle, boot_offset_s)

    def _record_times(self, db: sqlite3.Connection, cycle: Cycle, boot_offset_s: float) -> None:
        if cycle.times.clean is None:
            db.execute("DELETE FROM marks WHERE token = ? AND name = 'clean'", (cycle.token,))
        for name, at in asdict(cycle.times).items():
            if at is None or (cycle.trigger is Trigger.ORPHAN and name in _UNSEEN_BY_ORPHAN):
                continue
            # A known timestamp keeps the offset it was first recorded with: after a reboot the offset differs.
            db.execute(
                """INSERT INTO marks VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE
                   SET boottime_s = excluded.boottime_s, boot_offset_s = excluded.boot_offset_s
                   WHERE ? AND boottime_s <> excluded.boottime_s""",
                (cycle.token, name, at, boot_offset_s, name in _REPEATED_TIMES),
            )

    def close_unlisted(self, device_uuid: str, listed: Collection[str], wall: float) -> tuple[str, ...]:
        """End at `wall` the open bills of this device whose token is not in `listed`. Returns their tokens.

        The bills of volumes that disappeared while no agent ran would never end otherwise. Call it when the cloud has
        listed the volumes of this agent, with the tokens and IDs of those volumes, and the token of the current cycle.
        """
        with self.file.write() as db:
            query = "SELECT token FROM cycles WHERE device_uuid = ? AND opened_wall NOTNULL AND closed_wall ISNULL"
            lost = tuple(t for (t,) in db.execute(query, (device_uuid,)) if t not in listed)
            db.executemany(
                _CLOSE_LOST,
                [(wall, FailureKind.LOST.value, _LOST, t) for t in lost],
            )
        return lost

    def cycles(self, since: float, until: float, *, with_steps: bool = True) -> tuple[rows.CycleRow, ...]:
        """Cycles that began before `until` and had not ended at `since`, ordered by their beginning.

        `with_steps` False: without the durations of their steps, which takes a fraction of the time.
        """
        none = rows.StepDurations()
        with self.file.rows() as db:
            found = self._cycles(db, since, until)
            if not with_steps:
                return tuple(_cycle_row(row, none) for row in found)
            return tuple(_cycle_row(row, _steps(self._times(db, row["token"]))) for row in found)

    def _cycles(self, db: sqlite3.Connection, since: float, until: float) -> list[sqlite3.Row]:
        query = """SELECT * FROM cycles WHERE min(started_wall, coalesce(opened_wall, started_wall)) < :until AND (
                       started_wall >= :since OR closed_wall > :since OR (opened_wall NOTNULL AND closed_wall ISNULL))
                   ORDER BY started_wall, token"""
        return db.execute(query, {"since": since, "until": until}).fetchall()

    def _times(self, db: sqlite3.Connection, token: str) -> dict[str, tuple[float, float]]:
        found = db.execute("SELECT name, boottime_s, boot_offset_s FROM marks WHERE token = ?", (token,))
        return {name: (boottime_s, boot_offset_s) for name, boottime_s, boot_offset_s in found}

    def timestamps(self, token: str) -> dict[str, float]:
        """When each step of the cycle was seen last, as wall clock, by the names of `cycle.Timestamps`."""
        with self.file.rows() as db:
            return {name: boottime_s + offset_s for name, (boottime_s, offset_s) in self._times(db, token).items()}

    def is_priced(self, cycle: Cycle) -> bool:
        """The cycle is in the ledger with a price."""
        with self.file.rows() as db:
            query = "SELECT 1 FROM cycles WHERE token = ? AND price_per_hour NOTNULL"
            return db.execute(query, (_name_of(db, cycle),)).fetchone() is not None

    def spend_since(self, since: float, now_wall: float, unrecorded: Collection[rows.CycleRow] = ()) -> Spend:
        """See `rows.spend_since`. Cycles up to DAY_S ahead of the clock count; beyond that the clock was wrong.

        `unrecorded` rows count like those of the file.
        """
        return rows.spend_since(since, now_wall, rows.with_newer(self.cycles(since, now_wall + DAY_S), unrecorded))

    def spent_between(self, since: float, until: float, unrecorded: Collection[rows.CycleRow] = ()) -> Spent:
        """See `rows.spent_between`."""
        # A month may have thousands of boosts, and the loop waits for this.
        return rows.spent_between(
            since, until, rows.with_newer(self.cycles(since, until, with_steps=False), unrecorded)
        )

    # --- the adaptive device -----------------------------------------------------------------------------

    def touch_device(
        self,
        uuid: str,
        size_bytes: int,
        backing_mb_s: float,
        cache_mb_s: float,
        wall: float,
        prices: rows.DevicePrices | None = None,
    ) -> None:
        """The device was seen at `wall`. Call it about once a minute, and when its figures or prices change.

        Extends the last span of the device, or begins another one after GAP_S, a change, or a clock that was set back.
        `prices` None: not determined yet. The first that are determined within GAP_S hold from the span's beginning.
        """
        figures = (size_bytes, backing_mb_s, cache_mb_s)
        with self.file.write() as db:
            last = db.execute("SELECT * FROM spans WHERE device_uuid = ? ORDER BY id DESC LIMIT 1", (uuid,)).fetchone()
            near = last is not None and -GAP_S <= wall - last["last_wall"] <= GAP_S
            if near:
                known = max(wall, last["last_wall"])
                db.execute("UPDATE spans SET last_wall = ? WHERE id = ?", (known, last["id"]))
            if not near or figures != (last["size_bytes"], last["backing_mb_s"], last["cache_mb_s"]):
                _begin_span(db, (uuid, *figures, wall, wall), prices)
            elif prices is not None and last["currency"] is None and wall - last["first_wall"] <= GAP_S:
                columns = "currency = ?, backing_per_hour = ?, fast_per_hour = ?"
                db.execute(f"UPDATE spans SET {columns} WHERE id = ?", (*astuple(prices), last["id"]))
            elif prices is not None and (last["currency"] is None or prices != _prices(last)):
                _begin_span(db, (uuid, *figures, wall, wall), prices)

    def spans(self, since: float, until: float) -> tuple[rows.DeviceSpan, ...]:
        """When each device was seen: spans that overlap the period, and for each device at least its last one."""
        query = """SELECT * FROM spans
                   WHERE (first_wall < ? AND last_wall > ?)
                      OR id IN (SELECT max(id) FROM spans GROUP BY device_uuid)
                   ORDER BY first_wall, id"""
        with self.file.rows() as db:
            return tuple(_span(row) for row in db.execute(query, (until, since)))

    def learned_size(self, uuid: str) -> int | None:
        """Bytes to buy next for this device; None: nothing was learned yet."""
        with self.file.rows() as db:
            row = db.execute("SELECT size_bytes FROM learned WHERE device_uuid = ?", (uuid,)).fetchone()
            return None if row is None else int(row["size_bytes"])

    def set_learned_size(self, uuid: str, size_bytes: int) -> None:
        with self.file.write() as db:
            db.execute("INSERT OR REPLACE INTO learned VALUES (?, ?)", (uuid, size_bytes))


class LateLedger(Ledger):
    """A ledger that need not open yet, see `database.LateFile`: every method raises LedgerError until it does."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.file = LateFile(path, clock)


# --- rows ------------------------------------------------------------------------------------------------


def _name_of(db: sqlite3.Connection, cycle: Cycle) -> str:
    """The token of its row; if the row of that is another volume's, the ID of this volume."""
    row = db.execute("SELECT volume_id FROM cycles WHERE token = ?", (cycle.token,)).fetchone()
    known = None if row is None else row["volume_id"]
    return cycle.token if cycle.volume_id is None or known in (None, cycle.volume_id) else cycle.volume_id


def _begin_span(db: sqlite3.Connection, figures: tuple[object, ...], prices: rows.DevicePrices | None) -> None:
    row = (*figures, *((None, None, None) if prices is None else astuple(prices)))
    db.execute("INSERT INTO spans VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)


def _span(row: sqlite3.Row) -> rows.DeviceSpan:
    known = {f.name: row[f.name] for f in fields(rows.DeviceSpan) if f.name != "prices"}
    return rows.DeviceSpan(**known, prices=_prices(row))


def _prices(row: sqlite3.Row) -> rows.DevicePrices:
    return rows.DevicePrices(row["currency"] or "", row["backing_per_hour"], row["fast_per_hour"])


def _cycle_row(row: sqlite3.Row, steps: rows.StepDurations) -> rows.CycleRow:
    """Columns have the names of fields, but for those of 0.1.0 below. NULL is the default of its field."""
    is_known = row["sold_size_bytes"] is not None
    known = {name: row[name] for name in _COLUMNS if row[name] is not None}
    return rows.CycleRow(
        **{"volume_id": None, **known},
        provisioned_size_bytes=row["sold_size_bytes"] if is_known else row["wanted_size_bytes"],
        bandwidth_mb_s=row["sold_mb_s"] if is_known else row["wanted_mb_s"],
        steps=steps,
        written_through_bytes=row["evicted_bytes"],
        failure_kind=row["failure_kind"] or (FailureKind.UNKNOWN.value if row["failure"] else ""),
    )


def _steps(times: Mapping[str, tuple[float, float]]) -> rows.StepDurations:
    gone = next((name for name in ("detached", "released", "deleted") if name in times), "")
    decide_s = _between(times, "crossed", "decided")
    # Formatting and registering were separate steps before they became part of the attach. The first release recorded
    # neither the attach nor the crossing of the threshold.
    before = "registered" if "registered" in times else "appeared"
    known = "registered" in times or "installing" in times
    boosted_s = _between(times, "appeared", "boosted") if known else None
    return rows.StepDurations(
        decide_s=decide_s,
        create_s=_between(times, "decided", "created"),
        attach_volume_s=_between(times, "created", "asked"),
        appear_s=_between(times, "asked", "appeared"),
        format_s=_between(times, "appeared", "formatted"),
        register_s=_between(times, "formatted", "registered"),
        attach_set_s=_between(times, before, "boosted") if known else None,
        boost_s=_between(times, "crossed" if "crossed" in times else "decided", "boosted"),
        own_s=None if boosted_s is None else boosted_s + (decide_s or 0.0),
        flush_s=_between(times, "quiet", "clean"),
        attached_s=_between(times, "boosted", gone),
    )


def _between(times: Mapping[str, tuple[float, float]], first: str, last: str) -> float | None:
    """Seconds between two timestamps; None if one is missing or the clocks contradict each other.

    Within one boot CLOCK_BOOTTIME is exact. A reboot changes the offset by at least the uptime before it, hence by
    more than the first timestamp. In that case only the wall clock covers both.
    """
    if first not in times or last not in times:
        return None
    (first_s, first_offset_s), (last_s, last_offset_s) = times[first], times[last]
    shift_s = last_offset_s - first_offset_s
    seconds = last_s - first_s + (shift_s if shift_s >= first_s else 0.0)
    return seconds if seconds >= 0 else None
