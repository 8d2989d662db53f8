"""Where the time of cgroups went, burst by burst, in the file of the ledger.

With it, what cgroups have moved in boosts, kept with these: `group_costs` divides their bills by it.

A row has the sums over what was seen, from which `strategy.account` makes an account: sums of several rows can be
added, accounts cannot. Rows are kept as long as samples. For counters, which never go down, the seconds of bursts that
are over are added up beside them, for ever.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection

from elastio.accounting.burst_accounts import MOST_SUMS, OTHERS, AccountRow, Moves, Parts, parts_of
from elastio.accounting.database import LedgerFile
from elastio.codec import decode, encode
from elastio.core.moved import Moved
from elastio.strategy.account import Totals

# What is too old is deleted in several transactions, so that each stays short.
MOST_DELETED = 500

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
        db.execute(_DELETE, (oldest_wall, MOST_DELETED))


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
