"""The file of the ledger: SQLite, schema versions, transactions, and errors as one sentence.

A power failure may lose the last seconds (WAL with synchronous=NORMAL), but never leaves half a transaction. Other
processes may read while the daemon writes. A `LedgerFile` belongs to one thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

from elastio.errors import LedgerError

# How long to wait for another writer. Writers are rare and brief; the loop of the daemon must not wait for long.
BUSY_TIMEOUT_S = 2.0

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
        # SQLite follows a symbolic link of this name, but not of its -wal and -shm files. Root owns the directory.
        # Opening and closing the file here would drop the locks of another connection of this process.
        if path.is_symlink():
            raise LedgerError(
                f"the ledger {path} is a link and is not used: move the file there, or set agent.state_dir",
                code="link",
            )
        with self._translated():
            self._db = self._connect()
        try:
            self._prepare()
        except BaseException:
            self._db.close()
            raise

    def _connect(self) -> sqlite3.Connection:
        target = f"{self._path.absolute().as_uri()}?mode={'ro' if self._read_only else 'rwc'}"
        return sqlite3.connect(target, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)

    def close(self) -> None:
        """Close the file; may be called twice."""
        with self._translated():
            self._db.close()

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction, all or nothing."""
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
    def rows(self) -> Iterator[sqlite3.Connection]:
        """One snapshot for all reads in the block."""
        with self._translated():
            self._db.execute("BEGIN")
            try:
                yield self._db
            finally:
                self._db.execute("COMMIT")

    def _prepare(self) -> None:
        with self._translated():
            self._db.row_factory = sqlite3.Row
            if self._read_only:
                self._check_version(len(MIGRATIONS))
                return
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute("PRAGMA foreign_keys = ON")
            if self._version() == len(MIGRATIONS):
                return  # a ledger that somebody else has locked can be read
        self._migrate(MIGRATIONS)

    def _migrate(self, migrations: Sequence[Statements]) -> None:
        """All or nothing, under the write lock: two processes that open the file at once migrate it once."""
        with self.write() as db:
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


def local_zone(localtime: Path = Path("/etc/localtime")) -> tzinfo:
    """The machine's time zone with its rules for summer time; UTC if it has none."""
    try:
        with localtime.open("rb") as file:
            return ZoneInfo.from_file(file, key=str(localtime))
    except (OSError, ValueError):
        return UTC
