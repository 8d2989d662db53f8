"""The file of the ledger: SQLite, schema versions, transactions, and errors as one sentence.

A power failure may lose the last seconds (WAL with synchronous=NORMAL), but never leaves half a transaction. Other
processes may read while the daemon writes. A `LedgerFile` belongs to one thread.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

from elastio.errors import LedgerError

# How long to wait for another writer. Writers are rare and brief; the loop of the daemon must not wait for long.
BUSY_TIMEOUT_S = 2.0
# A ledger that did not open is tried again after this time: with each reading of what was spent, once a minute.
RETRY_S = 55.0
# The code of a LedgerError of a file that is not open yet.
NOT_OPEN = "not-open"

_log = logging.getLogger(__name__)

Statements = Sequence[str]

# Entry n migrates from user_version n to n + 1. Released entries are never changed. Names of columns are those of
# 0.1.0: `evicted_bytes` is what was written through, `sold_*` what was provisioned, `marks` the timestamps.
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
    (
        """CREATE TABLE loads (
            token TEXT PRIMARY KEY,
            read_bytes INTEGER NOT NULL,
            written_bytes INTEGER NOT NULL,
            begun_wall REAL,
            ended_wall REAL
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE samples (
            device_uuid TEXT NOT NULL,
            begun_wall REAL NOT NULL,
            seconds REAL NOT NULL,
            read_bytes INTEGER NOT NULL,
            written_bytes INTEGER NOT NULL,
            PRIMARY KEY (device_uuid, begun_wall)
        ) STRICT, WITHOUT ROWID""",
    ),
    (
        # NULL: nobody determined the prices of this span. An empty currency: they were not known.
        "ALTER TABLE spans ADD COLUMN currency TEXT",
        "ALTER TABLE spans ADD COLUMN backing_per_hour REAL",
        "ALTER TABLE spans ADD COLUMN fast_per_hour REAL",
    ),
    # NULL: written by a release that did not record it, or no failure.
    ("ALTER TABLE cycles ADD COLUMN failure_kind TEXT",),
    # NULL: no cache was there, or nobody wrote it down.
    ("ALTER TABLE samples ADD COLUMN dirty_bytes INTEGER",),
    (
        # `totals`: JSON of `strategy.account.Totals`. `parts`: JSON of seconds by part, of all bursts that are over.
        """CREATE TABLE accounts (
            device_uuid TEXT NOT NULL,
            begun_wall REAL NOT NULL,
            cgroup TEXT NOT NULL,
            ended_wall REAL NOT NULL,
            token TEXT,
            is_over INTEGER NOT NULL,
            totals TEXT NOT NULL,
            PRIMARY KEY (device_uuid, begun_wall, cgroup)
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE account_sums (
            cgroup TEXT PRIMARY KEY,
            first_wall REAL NOT NULL,
            parts TEXT NOT NULL
        ) STRICT, WITHOUT ROWID""",
    ),
    (
        """CREATE TABLE cycle_cgroups (
            token TEXT NOT NULL,
            cgroup TEXT NOT NULL,
            read_bytes INTEGER NOT NULL,
            written_bytes INTEGER NOT NULL,
            PRIMARY KEY (token, cgroup)
        ) STRICT, WITHOUT ROWID""",
        # NULL: written by a release that knew no steps, or nothing was bought.
        "ALTER TABLE cycles ADD COLUMN step_s REAL",
    ),
)


class LedgerFile:
    """An open ledger file. Every error of SQLite becomes a LedgerError that names the file; its code is SQLite's."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Open the file; create or migrate it if needed. `read_only`: for reports; the file must exist."""
        self._path, self._read_only = path, read_only
        self._db: sqlite3.Connection | None = self._opened()

    def _opened(self) -> sqlite3.Connection:
        # SQLite follows a symbolic link of this name, but not of its -wal and -shm files. Root owns the directory.
        # Opening and closing the file here would drop the locks of another connection of this process.
        if self._path.is_symlink():
            raise LedgerError(
                f"the ledger {self._path} is a link and is not used: move the file there, or set agent.state_dir",
                code="link",
            )
        with self._translated():
            db = self._connect()
        try:
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        return db

    def _open(self) -> sqlite3.Connection:
        """The connection, for one transaction."""
        if self._db is None:
            self._db = self._opened()
        return self._db

    def _connect(self) -> sqlite3.Connection:
        target = f"{self._path.absolute().as_uri()}?mode={'ro' if self._read_only else 'rwc'}"
        return sqlite3.connect(target, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)

    def close(self) -> None:
        """Close the file; may be called twice."""
        with self._translated():
            if self._db is not None:
                self._db.close()

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction, all or nothing."""
        with self._written(self._open()) as db:
            yield db

    @contextmanager
    def _written(self, db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
        with self._translated():
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:  # a full disk may have ended it already
                    db.execute("ROLLBACK")
                raise

    @contextmanager
    def rows(self) -> Iterator[sqlite3.Connection]:
        """One snapshot for all reads in the block."""
        db = self._open()
        with self._translated():
            db.execute("BEGIN")
            try:
                yield db
            finally:
                db.execute("COMMIT")

    def _prepare(self, db: sqlite3.Connection) -> None:
        with self._translated():
            db.row_factory = sqlite3.Row
            if self._read_only:
                self._check_version(db, len(MIGRATIONS))
                return
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA foreign_keys = ON")
            if _version(db) == len(MIGRATIONS):
                return  # a ledger that somebody else has locked can be read
        self._migrate(db, MIGRATIONS)

    def _migrate(self, db: sqlite3.Connection, migrations: Sequence[Statements]) -> None:
        """All or nothing, under the write lock: two processes that open the file at once migrate it once."""
        with self._written(db):
            version = _version(db)
            for statements in migrations[version:]:
                for statement in statements:
                    db.execute(statement)
            if version < len(migrations):
                db.execute(f"PRAGMA user_version = {len(migrations)}")
            self._check_version(db, len(migrations))

    def _check_version(self, db: sqlite3.Connection, wanted: int) -> None:
        version = _version(db)
        if version > wanted:
            raise LedgerError(
                f"the ledger {self._path} was written by a newer elastio (version {version}): update", code="newer"
            )
        if version < wanted:
            raise LedgerError(
                f"the ledger {self._path} was written by an older elastio: start the agent once to migrate it",
                code="older",
            )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            # If no daemon runs, only users who may write to the directory can read a database in WAL mode.
            way = "read it as root, or while the agent runs" if self._read_only else "costs go unrecorded"
            code = getattr(error, "sqlite_errorname", "")
            raise LedgerError(f"the ledger {self._path} cannot be used: {error}; {way}", code=code) from error


class LateFile(LedgerFile):
    """A ledger file that need not open yet: its user goes on without it, and it is tried again with a later access.

    At most one access in `RETRY_S` waits for it. Every other one fails at once, with the code NOT_OPEN: what is wrong
    is in the log already. `clock` returns seconds.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises nothing."""
        self._path, self._read_only, self._clock = path, False, clock
        self._db = None
        self._error, self._again_at = "", float("-inf")

    def _open(self) -> sqlite3.Connection:
        if self._db is not None:
            return self._db
        if self._clock() < self._again_at:
            raise LedgerError(self._error, code=NOT_OPEN)
        self._again_at = self._clock() + RETRY_S
        try:
            db = super()._open()
        except LedgerError as error:
            if str(error) != self._error:
                self._error = str(error)
                _log.error("running without a ledger: %s; it is tried again every minute", error)
            raise LedgerError(self._error, code=NOT_OPEN) from error
        if self._error:
            _log.warning("the ledger %s works again", self._path)
        return db


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def local_zone(localtime: Path = Path("/etc/localtime")) -> tzinfo:
    """The machine's time zone with its rules for summer time; UTC if it has none."""
    try:
        with localtime.open("rb") as file:
            return ZoneInfo.from_file(file, key=str(localtime))
    except (OSError, ValueError):
        return UTC
