"""The cost ledger: which volumes were bought when, for how long and at what price. SQLite, one file.

The journal is the truth about what the agent did; the ledger is what it cost, kept for years. Losing the last
seconds of it in a power failure is allowed (WAL with synchronous=NORMAL): the next record of a cycle repeats them.
Other processes may read while the daemon writes. One `Ledger` belongs to one thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from elastio.errors import LedgerError
from elastio.model import Quote, Spend
from elastio.report import CycleRow, DeviceSpan, Steps
from elastio.state import Cycle, Trigger

# How long to wait for another writer. Writers are rare and brief; the daemon's loop must not hang on one.
BUSY_TIMEOUT_S = 2.0
# Two sights of a device this close together are one stretch: a missed minute, a restart, a reboot.
GAP_S = 300.0

Statements = Sequence[str]

# Entry n leads from user_version n to n + 1. Entries are never changed once released, only added.
MIGRATIONS: Sequence[Statements] = (
    (
        """CREATE TABLE cycles (
            token TEXT PRIMARY KEY,
            device_uuid TEXT NOT NULL,
            trigger TEXT NOT NULL,
            volume_id TEXT,
            wanted_size_bytes INTEGER NOT NULL,
            wanted_mb_s REAL NOT NULL,
            sold_size_bytes INTEGER,
            sold_mb_s REAL,
            started_wall REAL NOT NULL,
            opened_wall REAL,
            closed_wall REAL,
            currency TEXT,
            price_per_hour REAL,
            minimum_s REAL,
            peak_dirty_bytes INTEGER NOT NULL,
            peak_in_use_percent INTEGER NOT NULL,
            evicted_bytes INTEGER NOT NULL,
            failure TEXT NOT NULL
        ) STRICT""",
        "CREATE INDEX cycles_by_start ON cycles (started_wall)",
        "CREATE INDEX cycles_by_end ON cycles (closed_wall)",
        """CREATE TABLE marks (
            token TEXT NOT NULL REFERENCES cycles,
            name TEXT NOT NULL,
            boottime_s REAL NOT NULL,
            boot_offset_s REAL NOT NULL,
            PRIMARY KEY (token, name)
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE spans (
            id INTEGER PRIMARY KEY,
            device_uuid TEXT NOT NULL,
            size_bytes INTEGER NOT NULL,
            backing_mb_s REAL NOT NULL,
            cache_mb_s REAL NOT NULL,
            first_wall REAL NOT NULL,
            last_wall REAL NOT NULL
        ) STRICT""",
        "CREATE INDEX spans_by_device ON spans (device_uuid)",
        "CREATE TABLE learned (device_uuid TEXT PRIMARY KEY, size_bytes INTEGER NOT NULL) STRICT",
    ),
)

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
        self._path, self._read_only = path, read_only
        with self._translated():
            target = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
            self._db = sqlite3.connect(target, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        try:
            self._prepare()
        except BaseException:
            self._db.close()
            raise

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; may be called twice."""
        with self._translated():
            self._db.close()

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
            "price_per_hour": quote.price_per_hour if quote else None,
            "minimum_s": quote.minimum_s if quote else None,
            "peak_dirty_bytes": cycle.peak_dirty_bytes,
            "peak_in_use_percent": cycle.peak_in_use_percent,
            "evicted_bytes": cycle.evicted_bytes,
            "failure": cycle.failure,
        }
        with self._write() as db:
            db.execute(_UPSERT, row)
            self._record_marks(db, cycle, boot_offset_s)

    def _record_marks(self, db: sqlite3.Connection, cycle: Cycle, boot_offset_s: float) -> None:
        if cycle.marks.clean is None:
            db.execute("DELETE FROM marks WHERE token = ? AND name = 'clean'", (cycle.token,))
        for name, at in asdict(cycle.marks).items():
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
        with self._write() as db:
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
        with self._rows() as db:
            rows = db.execute(query, {"since": since, "until": until}).fetchall()
            return tuple(_cycle_row(row, self._marks(db, row["token"])) for row in rows)

    def _marks(self, db: sqlite3.Connection, token: str) -> dict[str, tuple[float, float]]:
        found = db.execute("SELECT name, boottime_s, boot_offset_s FROM marks WHERE token = ?", (token,))
        return {name: (boottime_s, boot_offset_s) for name, boottime_s, boot_offset_s in found}

    def spend_since(self, since: float, now_wall: float) -> Spend:
        """What was used up of the caps from `since` (local midnight) to `now_wall`; open bills run to `now_wall`.

        A boost counts once it begins, unless it was refused before anything was bought. The shortest time billed
        is owed at once. A cycle without a price adds nothing to `currency`.
        """
        rows = self.cycles(since, now_wall)
        begun = [c for c in rows if since <= c.started_wall and c.trigger != Trigger.ORPHAN and not c.is_refused]
        return Spend(
            boosts=len(begun),
            agbs=sum(c.agbs(since, now_wall) for c in rows),
            currency=sum(c.cost(since, now_wall) or 0.0 for c in rows),
        )

    # --- the adaptive device -----------------------------------------------------------------------------

    def touch_device(self, uuid: str, size_bytes: int, backing_mb_s: float, cache_mb_s: float, wall: float) -> None:
        """The device is there at `wall`. Call it about once a minute, and when its figures change.

        Prolongs the device's last span, or begins another after more than GAP_S, a change, or a clock set back.
        """
        figures = (size_bytes, backing_mb_s, cache_mb_s)
        with self._write() as db:
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
        with self._rows() as db:
            return tuple(DeviceSpan(*row) for row in db.execute(query, (until, since)))

    def learned_size(self, uuid: str) -> int | None:
        """Bytes to buy next for this device, or None: nothing learned yet."""
        with self._rows() as db:
            row = db.execute("SELECT size_bytes FROM learned WHERE device_uuid = ?", (uuid,)).fetchone()
            return None if row is None else int(row["size_bytes"])

    def set_learned_size(self, uuid: str, size_bytes: int) -> None:
        with self._write() as db:
            db.execute("INSERT OR REPLACE INTO learned VALUES (?, ?)", (uuid, size_bytes))

    # --- SQLite ------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        with self._translated():
            self._db.row_factory = sqlite3.Row
            if self._read_only:
                self._check_version(len(MIGRATIONS))
                return
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute("PRAGMA foreign_keys = ON")
        self._migrate(MIGRATIONS)

    def _migrate(self, migrations: Sequence[Statements]) -> None:
        """All or nothing, under the write lock: two processes that open the file at once migrate it once."""
        with self._write() as db:
            version = self._version()
            for statements in migrations[version:]:
                for statement in statements:
                    db.execute(statement)
            if version < len(migrations):
                db.execute(f"PRAGMA user_version = {len(migrations)}")
            self._check_version(len(migrations))

    def _version(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def _check_version(self, wanted: int) -> None:
        version = self._version()
        if version > wanted:
            raise LedgerError(f"the ledger {self._path} was written by a newer elastio (version {version}): update")
        if version < wanted:
            raise LedgerError(f"the ledger {self._path} is of an older elastio: start the agent once to migrate it")

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with self._translated():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk may have ended it already
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _rows(self) -> Iterator[sqlite3.Connection]:
        """One snapshot for all reads within."""
        with self._translated():
            self._db.execute("BEGIN")
            try:
                yield self._db
            finally:
                self._db.execute("COMMIT")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            # Without its daemon a WAL file can be read only by those who may write beside it.
            way = "read it as root, or while the agent runs" if self._read_only else "costs go unrecorded"
            raise LedgerError(f"the ledger {self._path} cannot be used: {error}; {way}") from error


# --- rows ------------------------------------------------------------------------------------------------


def _cycle_row(row: sqlite3.Row, marks: Mapping[str, tuple[float, float]]) -> CycleRow:
    sold = row["sold_size_bytes"] is not None
    return CycleRow(
        token=row["token"],
        device_uuid=row["device_uuid"],
        trigger=row["trigger"],
        volume_id=row["volume_id"],
        wanted_size_bytes=row["wanted_size_bytes"],
        sold_size_bytes=row["sold_size_bytes"] if sold else row["wanted_size_bytes"],
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
        evicted_bytes=row["evicted_bytes"],
        failure=row["failure"],
    )


def _steps(marks: Mapping[str, tuple[float, float]]) -> Steps:
    gone = next((name for name in ("detached", "released", "deleted") if name in marks), "")
    return Steps(
        create_s=_between(marks, "decided", "created"),
        appear_s=_between(marks, "created", "appeared"),
        format_s=_between(marks, "appeared", "formatted"),
        attach_s=_between(marks, "formatted", "boosted"),
        boost_s=_between(marks, "decided", "boosted"),
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
