"""The file of the ledger: transactions, other processes, versions, and files that are not a ledger."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import elastio.accounting.database
from elastio.accounting.database import MIGRATIONS
from elastio.accounting.ledger import Ledger
from elastio.errors import LedgerError

from .test_ledger import BOOT, BOUGHT, CLOSED, GB, only


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("read_only", [True, False])
def test_a_link_is_not_followed(path: Path, tmp_path: Path, *, exists: bool, read_only: bool) -> None:
    target = tmp_path / "elsewhere.db"
    if exists:
        Ledger(target).close()
    path.symlink_to(target)
    with pytest.raises(LedgerError) as caught:
        Ledger(path, read_only=read_only)
    assert caught.value.code == "link"
    assert target.exists() is exists


READER = """
import sys
from pathlib import Path
from elastio.accounting.ledger import Ledger
with Ledger(Path(sys.argv[1]), read_only=True) as ledger:
    print(*(c.token for c in ledger.cycles(0, 1e12)))
"""


def read_elsewhere(path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", READER, str(path)], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


@pytest.mark.runs_programs
def test_another_process_reads_while_the_daemon_writes(ledger: Ledger, path: Path) -> None:
    ledger.record(BOUGHT, BOOT)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT closed_wall FROM cycles").fetchall() == [(None,)]
    ledger.record(CLOSED, BOOT)  # a reader that takes its time blocks no writer
    assert reader.execute("SELECT closed_wall FROM cycles").fetchall() == [(None,)]
    reader.close()
    assert read_elsewhere(path) == "token-1"


def test_reader_does_not_create_a_ledger(path: Path) -> None:
    with pytest.raises(LedgerError) as caught:
        Ledger(path, read_only=True)
    assert caught.value.code == "SQLITE_CANTOPEN"
    assert not path.exists()


def test_reader_cannot_write(ledger: Ledger, path: Path) -> None:
    with Ledger(path, read_only=True) as reader, pytest.raises(LedgerError) as caught:
        reader.set_learned_size("dev", GB)
    assert caught.value.code == "SQLITE_READONLY"
    assert ledger.learned_size("dev") is None


def test_row_and_marks_are_written_together_or_not_at_all(ledger: Ledger) -> None:
    ledger.record(BOUGHT, BOOT)
    bad = replace(CLOSED, times=replace(CLOSED.times, clean="soon"))  # type: ignore[arg-type]
    with pytest.raises(LedgerError):
        ledger.record(bad, BOOT)
    assert only(ledger).is_open
    ledger.record(CLOSED, BOOT)
    assert not only(ledger).is_open


def test_file_that_is_not_a_ledger_is_rejected_and_left_alone(path: Path) -> None:
    path.write_bytes(b"something else entirely, and long enough to be looked at" * 40)
    before = path.read_bytes()
    with pytest.raises(LedgerError) as caught:
        Ledger(path)
    assert caught.value.code == "SQLITE_NOTADB"
    assert path.read_bytes() == before


def test_ledger_of_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as raw:
        raw.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
        for read_only in (False, True):
            with pytest.raises(LedgerError) as caught:
                Ledger(path, read_only=read_only)
            assert caught.value.code == "newer"
        assert raw.execute("SELECT name FROM sqlite_master").fetchall() == []


NEXT = (*MIGRATIONS, ("ALTER TABLE learned ADD COLUMN note TEXT", "UPDATE learned SET note = 'old'"))


def test_older_ledger_is_migrated_and_keeps_its_rows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger(path) as ledger:
        ledger.record(CLOSED, BOOT)
        ledger.set_learned_size("dev", GB)
    monkeypatch.setattr(elastio.accounting.database, "MIGRATIONS", NEXT)
    with pytest.raises(LedgerError) as caught:
        Ledger(path, read_only=True)
    assert caught.value.code == "older"
    with Ledger(path) as ledger:
        assert only(ledger).token == "token-1"
    raw = sqlite3.connect(path)
    assert raw.execute("SELECT device_uuid, note FROM learned").fetchall() == [("dev", "old")]
    assert raw.execute("PRAGMA user_version").fetchone() == (len(NEXT),)
    raw.close()


def test_migration_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger(path) as ledger:
        ledger.set_learned_size("dev", GB)
    broken = (*MIGRATIONS, ("ALTER TABLE learned ADD COLUMN note TEXT", "UPDATE nowhere SET note = 'old'"))
    with monkeypatch.context() as patch:
        patch.setattr(elastio.accounting.database, "MIGRATIONS", broken)
        with pytest.raises(LedgerError):
            Ledger(path)
    with Ledger(path) as ledger:
        assert ledger.learned_size("dev") == GB
        ledger.set_learned_size("other", GB)


def test_closing_twice_is_allowed_and_use_after_it_is_an_error(path: Path) -> None:
    ledger = Ledger(path)
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError):
        ledger.learned_size("dev")
