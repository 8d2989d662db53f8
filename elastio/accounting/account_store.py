"""Where the time of cgroups went, burst by burst, in the file of the ledger.

A row has the sums over what was seen, from which `core.account` makes an account: sums of several rows can be added,
accounts cannot. Rows are kept as long as samples. For counters, which never go down, the seconds of bursts that are
over are added up beside them, for ever.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection

from elastio.accounting.account_rows import MOST_SUMS, OTHERS, AccountRow, Parts, parts_of
from elastio.accounting.database import LedgerFile
from elastio.codec import decode, encode
from elastio.core.account import Totals

# What is too old is deleted in several transactions, so that each stays short.
MOST_DELETED = 500

_DELETE = """DELETE FROM accounts WHERE (device_uuid, begun_wall, cgroup) IN (
    SELECT device_uuid, begun_wall, cgroup FROM accounts WHERE ended_wall < ? ORDER BY begun_wall LIMIT ?)"""


def write_accounts(file: LedgerFile, rows: Collection[AccountRow], oldest_wall: float) -> None:
    """Write the rows; one of the same burst and cgroup is replaced. Those that ended before then are deleted."""
    with file.write() as db:
        for row in rows:
            _write(db, row)
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


def read_sums(file: LedgerFile) -> dict[str, Parts]:
    """Seconds by part in all bursts that are over, of the cgroups that were seen first, and of the OTHERS together."""
    with file.rows() as db:
        found = db.execute("SELECT cgroup, parts FROM account_sums ORDER BY first_wall, cgroup")
        return {row["cgroup"]: json.loads(row["parts"]) for row in found}


def _row(row: sqlite3.Row) -> AccountRow:
    uuid, begun_wall, cgroup, ended_wall, token, is_over, totals = row
    return AccountRow(uuid, begun_wall, cgroup, ended_wall, token, bool(is_over), decode(Totals, json.loads(totals)))
