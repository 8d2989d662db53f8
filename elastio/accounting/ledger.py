"""The cost ledger: which volumes were bought when, for how long and at what price.

The journal is the truth about what the agent did; the ledger is what it cost, kept for years. What a power failure
takes from it, the next record of a cycle repeats.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from elastio.accounting.database import LedgerFile
from elastio.accounting.rows import CycleRow, DeviceSpan, StepDurations
from elastio.core.cycle import Cycle, Trigger
from elastio.core.model import Quote, Spend

# Two sights of a device this close together are one stretch: a missed minute, a restart, a reboot.
GAP_S = 300.0
DAY_S = 86_400.0

# A cycle that is picked up again by its tags alone (an orphan with a known token) knows less than its row: what
# can happen only once keeps its first word, a failure and a price are never forgotten. The bill's end follows the
# last word: a deletion that the cloud took back runs the bill on.
_UPSERT = """
INSERT INTO cycles VALUES (
    :token, :device_uuid, :trigger, :volume_id, :wanted_size_bytes, :wanted_mb_s, :sold_size_bytes, :sold_mb_s,
    :started_wall, :opened_wall, :closed_wall, :currency, :price_per_hour, :minimum_s, :peak_dirty_bytes,
    :peak_in_use_percent, :evicted_bytes, :failure)
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
    peak_dirty_bytes = max(peak_dirty_bytes, excluded.peak_dirty_bytes),
    peak_in_use_percent = max(peak_in_use_percent, excluded.peak_in_use_percent),
    evicted_bytes = max(evicted_bytes, excluded.evicted_bytes),
    failure = iif(excluded.failure <> '', excluded.failure, failure)
"""

# These may be marked again within one cycle; every other step happens once.
_REPEATED_MARKS = ("quiet", "clean", "detached", "released", "deleted")
# Made up for an orphan when it is found: nobody saw its purchase.
_UNSEEN_BY_ORPHAN = ("decided", "created")


class Ledger:
    """An open ledger. Every method raises LedgerError, with a sentence that names the file, when SQLite fails."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Opens the file, creates or migrates it. `read_only`: for reports; the file must exist."""
        self.file = LedgerFile(path, read_only=read_only)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; may be called twice."""
        self.file.close()

    # --- cycles ------------------------------------------------------------------------------------------

    def record(self, cycle: Cycle, quote: Quote | None, boot_offset_s: float) -> None:
        """Writes what is known of the cycle; saying the same twice changes nothing.

        `boot_offset_s` is wall clock minus CLOCK_BOOTTIME now: it turns new marks into points in time that
        outlive a reboot.
        """
        sold = cycle.volume
        row = {
            "token": cycle.token,
            "device_uuid": sold.backing_uuid if sold else "",
            "trigger": cycle.trigger.value,
            "volume_id": cycle.volume_id,
            "wanted_size_bytes": cycle.spec.size_bytes,
            "wanted_mb_s": cycle.spec.bandwidth_mb_s,
            "sold_size_bytes": sold.size_bytes if sold else None,
            "sold_mb_s": sold.bandwidth_mb_s if sold else None,
            "started_wall": cycle.started_wall,
            "opened_wall": cycle.opened_wall,
            "closed_wall": cycle.closed_wall,
            "currency": quote.currency if quote else None,
            "price_per_hour": quote.price_per_hour if quote and quote.price_known else None,
            "minimum_s": quote.minimum_s if quote else None,
            "peak_dirty_bytes": cycle.peak_dirty_bytes,
            "peak_in_use_percent": cycle.peak_in_use_percent,
            "evicted_bytes": cycle.missing_bytes,
            "failure": str(cycle.failure or ""),
        }
        with self.file.write() as db:
            db.execute(_UPSERT, row)
            self._record_marks(db, cycle, boot_offset_s)

    def _record_marks(self, db: sqlite3.Connection, cycle: Cycle, boot_offset_s: float) -> None:
        if cycle.times.clean is None:
            db.execute("DELETE FROM marks WHERE token = ? AND name = 'clean'", (cycle.token,))
        for name, at in asdict(cycle.times).items():
            if at is None or (cycle.trigger is Trigger.ORPHAN and name in _UNSEEN_BY_ORPHAN):
                continue
            # A mark that is known keeps the offset it was first recorded with: after a reboot ours is another.
            db.execute(
                """INSERT INTO marks VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE
                   SET boottime_s = excluded.boottime_s, boot_offset_s = excluded.boot_offset_s
                   WHERE ? AND boottime_s <> excluded.boottime_s""",
                (cycle.token, name, at, boot_offset_s, name in _REPEATED_MARKS),
            )

    def close_unlisted(self, device_uuid: str, listed: Collection[str], wall: float) -> tuple[str, ...]:
        """Ends at `wall` the open bills of this device whose token is not in `listed`; returns their tokens.

        For volumes that disappeared while no agent ran: call it when the cloud has listed this agent's volumes,
        with the tokens of those volumes and of the current cycle, or their bills would run on for ever.
        """
        with self.file.write() as db:
            query = "SELECT token FROM cycles WHERE device_uuid = ? AND opened_wall NOTNULL AND closed_wall ISNULL"
            lost = tuple(t for (t,) in db.execute(query, (device_uuid,)) if t not in listed)
            db.executemany(
                """UPDATE cycles SET closed_wall = ?, failure = iif(failure <> '', failure, ?) WHERE token = ?""",
                [(wall, "the volume disappeared while no agent was running", token) for token in lost],
            )
        return lost

    def cycles(self, since: float, until: float) -> tuple[CycleRow, ...]:
        """Cycles that began before `until` and were not over at `since`, in the order of their beginning."""
        query = """SELECT * FROM cycles WHERE min(started_wall, coalesce(opened_wall, started_wall)) < :until AND (
                       started_wall >= :since OR closed_wall > :since OR (opened_wall NOTNULL AND closed_wall ISNULL))
                   ORDER BY started_wall, token"""
        with self.file.rows() as db:
            rows = db.execute(query, {"since": since, "until": until}).fetchall()
            return tuple(_cycle_row(row, self._marks(db, row["token"])) for row in rows)

    def _marks(self, db: sqlite3.Connection, token: str) -> dict[str, tuple[float, float]]:
        found = db.execute("SELECT name, boottime_s, boot_offset_s FROM marks WHERE token = ?", (token,))
        return {name: (boottime_s, boot_offset_s) for name, boottime_s, boot_offset_s in found}

    def spend_since(self, since: float, now_wall: float) -> Spend:
        """What was used up of the caps from `since` (local midnight) to `now_wall`; open bills run to `now_wall`.

        A boost counts once it begins, unless it was refused before anything was bought. The shortest time billed
        is owed at once. A cycle without a price adds nothing to `currency`. What a clock that has since been set back
        has written counts as well, up to a day ahead: beyond that the clock was wrong, and no day may begin full.
        """
        rows = self.cycles(since, now_wall + DAY_S)
        begun = [c for c in rows if since <= c.started_wall and c.trigger != Trigger.ORPHAN and not c.is_refused]
        ends = [(c, max(now_wall, c.closed_wall or c.opened_wall or now_wall)) for c in rows]
        return Spend(
            boosts=len(begun),
            agbs=sum(c.agbs(since, until) for c, until in ends),
            currency=sum(c.cost(since, until) or 0.0 for c, until in ends),
        )

    # --- the adaptive device -----------------------------------------------------------------------------

    def touch_device(self, uuid: str, size_bytes: int, backing_mb_s: float, cache_mb_s: float, wall: float) -> None:
        """The device is there at `wall`. Call it about once a minute, and when its figures change.

        Prolongs the device's last span, or begins another after more than GAP_S, a change, or a clock set back.
        """
        figures = (size_bytes, backing_mb_s, cache_mb_s)
        with self.file.write() as db:
            last = db.execute("SELECT * FROM spans WHERE device_uuid = ? ORDER BY id DESC LIMIT 1", (uuid,)).fetchone()
            near = last is not None and -GAP_S <= wall - last["last_wall"] <= GAP_S
            if near:
                known = max(wall, last["last_wall"])
                db.execute("UPDATE spans SET last_wall = ? WHERE id = ?", (known, last["id"]))
            if not near or figures != (last["size_bytes"], last["backing_mb_s"], last["cache_mb_s"]):
                row = (uuid, *figures, wall, wall)
                db.execute("INSERT INTO spans VALUES (NULL, ?, ?, ?, ?, ?, ?)", row)

    def spans(self, since: float, until: float) -> tuple[DeviceSpan, ...]:
        """When which device was seen: spans that touch the period, and for each device at least its last one."""
        query = """SELECT device_uuid, size_bytes, backing_mb_s, cache_mb_s, first_wall, last_wall FROM spans
                   WHERE (first_wall < ? AND last_wall > ?)
                      OR id IN (SELECT max(id) FROM spans GROUP BY device_uuid)
                   ORDER BY first_wall, id"""
        with self.file.rows() as db:
            return tuple(DeviceSpan(*row) for row in db.execute(query, (until, since)))

    def learned_size(self, uuid: str) -> int | None:
        """Bytes to buy next for this device, or None: nothing learned yet."""
        with self.file.rows() as db:
            row = db.execute("SELECT size_bytes FROM learned WHERE device_uuid = ?", (uuid,)).fetchone()
            return None if row is None else int(row["size_bytes"])

    def set_learned_size(self, uuid: str, size_bytes: int) -> None:
        with self.file.write() as db:
            db.execute("INSERT OR REPLACE INTO learned VALUES (?, ?)", (uuid, size_bytes))


# --- rows ------------------------------------------------------------------------------------------------


def _cycle_row(row: sqlite3.Row, marks: Mapping[str, tuple[float, float]]) -> CycleRow:
    sold = row["sold_size_bytes"] is not None
    return CycleRow(
        token=row["token"],
        device_uuid=row["device_uuid"],
        trigger=row["trigger"],
        volume_id=row["volume_id"],
        wanted_size_bytes=row["wanted_size_bytes"],
        provisioned_size_bytes=row["sold_size_bytes"] if sold else row["wanted_size_bytes"],
        bandwidth_mb_s=row["sold_mb_s"] if sold else row["wanted_mb_s"],
        started_wall=row["started_wall"],
        opened_wall=row["opened_wall"],
        closed_wall=row["closed_wall"],
        currency=row["currency"] or "",
        price_per_hour=row["price_per_hour"],
        minimum_s=row["minimum_s"] or 0.0,
        steps=_steps(marks),
        peak_dirty_bytes=row["peak_dirty_bytes"],
        peak_in_use_percent=row["peak_in_use_percent"],
        written_through_bytes=row["evicted_bytes"],
        failure=row["failure"],
    )


def _steps(marks: Mapping[str, tuple[float, float]]) -> StepDurations:
    gone = next((name for name in ("detached", "released", "deleted") if name in marks), "")
    decide_s = _between(marks, "crossed", "decided")
    # Formatted and registered in steps of their own until these became one with the attach. The first release marked
    # neither that, nor what crossed the threshold.
    before = "registered" if "registered" in marks else "appeared"
    known = "registered" in marks or "installing" in marks
    boosted_s = _between(marks, "appeared", "boosted") if known else None
    return StepDurations(
        decide_s=decide_s,
        create_s=_between(marks, "decided", "created"),
        attach_volume_s=_between(marks, "created", "asked"),
        appear_s=_between(marks, "asked", "appeared"),
        format_s=_between(marks, "appeared", "formatted"),
        register_s=_between(marks, "formatted", "registered"),
        attach_set_s=_between(marks, before, "boosted") if known else None,
        boost_s=_between(marks, "crossed" if "crossed" in marks else "decided", "boosted"),
        own_s=None if boosted_s is None else boosted_s + (decide_s or 0.0),
        flush_s=_between(marks, "quiet", "clean"),
        attached_s=_between(marks, "boosted", gone),
    )


def _between(marks: Mapping[str, tuple[float, float]], first: str, last: str) -> float | None:
    """Seconds between two marks; None when one is missing or the clocks contradict each other.

    Within one boot CLOCK_BOOTTIME is exact. A reboot moves the offset to the wall clock by at least the uptime
    before it, hence by more than the first mark: then only the wall clock spans both.
    """
    if first not in marks or last not in marks:
        return None
    (first_s, first_offset_s), (last_s, last_offset_s) = marks[first], marks[last]
    shift_s = last_offset_s - first_offset_s
    seconds = last_s - first_s + (shift_s if shift_s >= first_s else 0.0)
    return seconds if seconds >= 0 else None
