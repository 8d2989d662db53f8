"""The history, and where the time of cgroups went, in the file of the ledger: read by forecasters and reports.

A kill loses at most the batch that is not written yet: `WRITE_EVERY_S` of samples, and what they add to their cycle.
Nothing is counted twice, because a batch is one transaction. An idle machine needs one row per hour and one small
write per minute, a load one row per sample. The history is limited by days and by rows.

An account has a row for each cgroup in each burst, with the sums over what was seen, from which `strategy.account`
makes an account: sums of several rows can be added, accounts cannot. Rows are kept as long as samples. For counters,
which never go down, the seconds of bursts that are over are added up beside them, for ever; those of one that a kill
has cut off, when the next agent starts. With it, what cgroups have moved in boosts, kept with these: `group_costs`
divides their bills by it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection
from contextlib import suppress
from dataclasses import astuple, dataclass, replace

from elastio.accounting.burst_accounts import MOST_SUMS, OTHERS, AccountRow, Moves, Parts, parts_of
from elastio.accounting.database import LedgerFile
from elastio.accounting.history import CycleLoad, SampleRun, joined, run_of, samples
from elastio.codec import decode, encode
from elastio.core.model import Sample
from elastio.core.moved import Moved
from elastio.core.state import AgentState, Phase
from elastio.strategy.account import Totals

WRITE_EVERY_S = 60.0
DAY_S = 86400.0
# If the ledger cannot be written for longer than this many samples, the oldest are lost.
MOST_WAITING = 3600
# A lowered limit is reached over several batches, so that each transaction stays short.
MOST_DELETED = 5000


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """How long the samples of a device are kept, and how many rows. Boosts are kept with their cycles."""

    days: float = 30.0
    rows: int = 500_000


class HistoryWriter:
    """Collects the samples of one device and writes them in batches. Raises LedgerError if it cannot."""

    def __init__(self, file: LedgerFile, device_uuid: str, limits: HistoryLimits) -> None:
        self._file, self._uuid, self._limits = file, device_uuid, limits
        self._runs: list[SampleRun] = []  # the last one may still grow
        self._loads: dict[str, CycleLoad] = {}  # what the batch adds to each cycle
        self._growing: float | None = None  # the beginning of the first run, where the file has it already
        self._standing: tuple[str, Phase] | None = None  # the open cycle and the phase
        self.loads_written = 0  # batches that changed what is known of the loads of cycles
        self._written_at: float | None = None
        self._rows: int | None = None  # in the file, of this device; None: nobody has counted them

    def sampled(self, sample: Sample, state: AgentState, *, now: float, wall: float) -> None:
        """Add one sample; `state` is the decision on it. Writes if a batch, a cycle or a phase of one is complete."""
        offset = wall - now
        dirty_bytes = state.cycle.dirty_bytes if state.cycle else None
        run = run_of(sample, offset + sample.at, state.memory.load.utilization, dirty_bytes)
        self._add(run)
        token = state.cycle.token if state.cycle else None
        if token is not None:
            since = state.memory.load.above_since
            load = self._loads.get(token, CycleLoad())
            self._loads[token] = load.plus(run, None if since is None else offset + since)
        standing = None if token is None else (token, state.phase)
        # What is known of a load is needed right after a kill, too: a forecast is made of it.
        changed = self._standing is not None and standing != self._standing
        self._standing = standing
        if self._written_at is None:
            self._written_at = now
        if changed or now - self._written_at >= WRITE_EVERY_S:
            self._written_at = now
            self.flush(wall)

    def _add(self, run: SampleRun) -> None:
        one = joined(self._runs[-1], run) if self._runs else None
        if one is None:
            self._runs.append(run)
        else:
            self._runs[-1] = one
        del self._runs[:-MOST_WAITING]

    def flush(self, wall: float) -> None:
        """Write the batch, and delete what exceeds the limits. After a failure the batch is kept."""
        if not self._runs:
            return
        new = sum(1 for run in self._runs if run.begun_wall != self._growing)
        with self._file.write() as db:
            before = self._count(db) if self._rows is None else self._rows
            db.executemany(_PUT_RUN, [(self._uuid, *_figures(run)) for run in self._runs])
            db.executemany(_ADD_LOAD, [(token, *astuple(load)) for token, load in self._loads.items()])
            gone = self._prune(db, before + new, wall)
        self._rows = before + new - gone
        self.loads_written += bool(self._loads)
        self._loads = {}
        self._runs = self._runs[-1:]
        self._growing = self._runs[0].begun_wall

    def _count(self, db: sqlite3.Connection) -> int:
        return int(db.execute("SELECT count(*) FROM samples WHERE device_uuid = ?", (self._uuid,)).fetchone()[0])

    def _prune(self, db: sqlite3.Connection, rows: int, wall: float) -> int:
        """Delete the oldest rows. Returns how many."""
        oldest = wall - self._limits.days * DAY_S
        aged = db.execute(_DELETE_OLD, (self._uuid, self._uuid, oldest, MOST_DELETED)).rowcount
        excess = min(rows - aged - self._limits.rows, MOST_DELETED)
        if excess <= 0:
            return aged
        return aged + db.execute(_DELETE_OLD, (self._uuid, self._uuid, wall + DAY_S, excess)).rowcount


_PUT_RUN = """INSERT INTO samples VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    seconds = excluded.seconds, read_bytes = excluded.read_bytes, written_bytes = excluded.written_bytes,
    dirty_bytes = excluded.dirty_bytes"""

_ADD_LOAD = """INSERT INTO loads VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    read_bytes = read_bytes + excluded.read_bytes, written_bytes = written_bytes + excluded.written_bytes,
    begun_wall = coalesce(begun_wall, excluded.begun_wall), ended_wall = coalesce(excluded.ended_wall, ended_wall)"""

_DELETE_OLD = """DELETE FROM samples WHERE device_uuid = ? AND begun_wall IN (
    SELECT begun_wall FROM samples WHERE device_uuid = ? AND begun_wall < ? ORDER BY begun_wall LIMIT ?)"""


def _figures(run: SampleRun) -> tuple[float, float, int, int, int | None]:
    return run.begun_wall, run.seconds, run.read_bytes, run.written_bytes, run.dirty_bytes


# --- reading -----------------------------------------------------------------------------------------------


def read_loads(file: LedgerFile, since: float = 0.0) -> dict[str, CycleLoad]:
    """What applications did during each cycle that began since then, by its token.

    Cycles from before this was recorded have none.
    """
    query = """SELECT token, read_bytes, written_bytes, begun_wall, ended_wall FROM loads LEFT JOIN cycles USING (token)
               WHERE started_wall IS NULL OR started_wall >= ?"""
    with file.rows() as db:
        rows = db.execute(query, (since,)).fetchall()
        return {row["token"]: CycleLoad(*row[1:]) for row in rows}


def read_samples(file: LedgerFile, since: float, until: float) -> dict[str, tuple[SampleRun, ...]]:
    """The runs that overlap the period, by device, as `history.samples` orders them."""
    query = """SELECT device_uuid, begun_wall, seconds, read_bytes, written_bytes, dirty_bytes FROM samples
               WHERE begun_wall < ? AND begun_wall + seconds > ?"""
    found: dict[str, list[SampleRun]] = {}
    with file.rows() as db:
        for uuid, begun, seconds, read, written, dirty in db.execute(query, (until, since)):
            found.setdefault(uuid, []).append(SampleRun(begun, seconds, read, written, dirty_bytes=dirty))
    return {uuid: samples(runs) for uuid, runs in sorted(found.items())}


def read_last_samples(file: LedgerFile, device_uuid: str, most: int) -> tuple[SampleRun, ...]:
    """The last `most` runs of a device, as `history.samples` orders them."""
    query = """SELECT begun_wall, seconds, read_bytes, written_bytes FROM samples
               WHERE device_uuid = ? ORDER BY begun_wall DESC LIMIT ?"""
    with file.rows() as db:
        return samples(SampleRun(*figures) for figures in db.execute(query, (device_uuid, most)).fetchall())


# What is too old is deleted in several transactions, so that each stays short.
MOST_ACCOUNTS_DELETED = 500

_DELETE = """DELETE FROM accounts WHERE (device_uuid, begun_wall, cgroup) IN (
    SELECT device_uuid, begun_wall, cgroup FROM accounts WHERE ended_wall < ? ORDER BY begun_wall LIMIT ?)"""

# So many cgroups of a boost have a row, those that came first.
_ADD_MOVED = f"""INSERT INTO cycle_cgroups SELECT ?1, ?2, ?3, ?4
    WHERE EXISTS (SELECT 1 FROM cycle_cgroups WHERE token = ?1 AND cgroup = ?2)
       OR (SELECT count(*) FROM cycle_cgroups WHERE token = ?1) < {MOST_SUMS}
    ON CONFLICT DO UPDATE SET
    read_bytes = read_bytes + excluded.read_bytes, written_bytes = written_bytes + excluded.written_bytes"""


def write_accounts(file: LedgerFile, rows: Collection[AccountRow], moves: Moves, oldest_wall: float) -> None:
    """Write the rows; one of the same burst and cgroup is replaced. Those that ended before then are deleted.

    What `moves` has is added to what is known of the boost.
    """
    with file.write() as db:
        for row in rows:
            _write(db, row)
        figures = [(*key, moved.read_bytes, moved.written_bytes) for key, moved in moves.items()]
        db.executemany(_ADD_MOVED, figures)
        db.execute(_DELETE, (oldest_wall, MOST_ACCOUNTS_DELETED))


def close_accounts(file: LedgerFile, device_uuid: str) -> None:
    """Take all bursts of the device for over: no agent runs, so those that are not were cut off by a kill."""
    query = "SELECT * FROM accounts WHERE device_uuid = ? AND NOT is_over ORDER BY begun_wall, cgroup"
    with file.write() as db:
        for row in db.execute(query, (device_uuid,)).fetchall():
            with suppress(ValueError, TypeError):  # it is of no release, and a start must not fail for it
                _write(db, replace(_row(row), is_over=True))


def _write(db: sqlite3.Connection, row: AccountRow) -> None:
    key = row.device_uuid, row.begun_wall, row.cgroup
    query = "SELECT is_over FROM accounts WHERE device_uuid = ? AND begun_wall = ? AND cgroup = ?"
    known = db.execute(query, key).fetchone()
    if row.is_over and not (known is not None and known["is_over"]):
        _add(db, row)
    figures = (*key, row.ended_wall, row.token, row.is_over, json.dumps(encode(row.totals)))
    db.execute("INSERT OR REPLACE INTO accounts VALUES (?, ?, ?, ?, ?, ?, ?)", figures)


def _add(db: sqlite3.Connection, row: AccountRow) -> None:
    query = "SELECT * FROM account_sums WHERE cgroup = ?"
    cgroup, known = row.cgroup, db.execute(query, (row.cgroup,)).fetchone()
    if known is None and db.execute("SELECT count(*) FROM account_sums").fetchone()[0] >= MOST_SUMS:
        cgroup, known = OTHERS, db.execute(query, (OTHERS,)).fetchone()
    first_wall, parts = (row.begun_wall, {}) if known is None else (known["first_wall"], json.loads(known["parts"]))
    parts = {part: parts.get(part, 0.0) + seconds for part, seconds in parts_of(row.totals).items()}
    db.execute("INSERT OR REPLACE INTO account_sums VALUES (?, ?, ?)", (cgroup, first_wall, json.dumps(parts)))


def read_accounts(file: LedgerFile, since: float, until: float) -> tuple[AccountRow, ...]:
    """The bursts of all cgroups that overlap the period, oldest first."""
    query = "SELECT * FROM accounts WHERE begun_wall < ? AND ended_wall > ? ORDER BY begun_wall, cgroup"
    with file.rows() as db:
        return tuple(_row(row) for row in db.execute(query, (until, since)))


def read_moved(file: LedgerFile, since: float = 0.0) -> dict[str, dict[str, Moved]]:
    """What cgroups have moved in each boost that began since then, by its token and the cgroup."""
    query = """SELECT token, cgroup, read_bytes, written_bytes FROM cycle_cgroups LEFT JOIN cycles USING (token)
               WHERE started_wall IS NULL OR started_wall >= ?"""
    found: dict[str, dict[str, Moved]] = {}
    with file.rows() as db:
        for token, cgroup, read_bytes, written_bytes in db.execute(query, (since,)):
            found.setdefault(token, {})[cgroup] = Moved(read_bytes, written_bytes)
    return found


def read_sums(file: LedgerFile) -> dict[str, Parts]:
    """Seconds by part in all bursts that are over, of the cgroups that were seen first, and of the OTHERS together."""
    with file.rows() as db:
        found = db.execute("SELECT cgroup, parts FROM account_sums ORDER BY first_wall, cgroup")
        return {row["cgroup"]: json.loads(row["parts"]) for row in found}


def _row(row: sqlite3.Row) -> AccountRow:
    uuid, begun_wall, cgroup, ended_wall, token, is_over, totals = row
    return AccountRow(uuid, begun_wall, cgroup, ended_wall, token, bool(is_over), decode(Totals, json.loads(totals)))
