"""The history in the file of the ledger: batches, what a kill loses, limits, older files."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from elastio.accounting.database import MIGRATIONS, LedgerFile
from elastio.accounting.history import CycleLoad, SampleRun
from elastio.accounting.history_store import (
    DAY_S,
    MOST_DELETED,
    MOST_WAITING,
    WRITE_EVERY_S,
    HistoryLimits,
    HistoryWriter,
    read_loads,
    read_samples,
)
from elastio.accounting.ledger import Ledger
from elastio.core.model import Rates, Sample
from elastio.core.state import AgentState, Phase
from elastio.errors import LedgerError
from elastio.strategy.memory import LoadWatch
from tests.values import changed, cycle, state

MB = 10**6
BOOT = 1_770_000_000.0  # wall clock minus CLOCK_BOOTTIME
IDLE = state(Phase.IDLE)
BUSY = state(Phase.BOOSTING, cycle(), load=LoadWatch(above_since=100.0, utilization=1.0))
QUIET = LoadWatch(below_since=100.0)
CALM = state(Phase.BOOSTING, cycle(), load=LoadWatch(below_since=100.0, utilization=0.5))


@pytest.fixture
def file(path: Path) -> Iterator[LedgerFile]:
    opened = LedgerFile(path)
    yield opened
    opened.close()


def writer(file: LedgerFile, **limits: float) -> HistoryWriter:
    return HistoryWriter(file, "dev", HistoryLimits(**limits))  # type: ignore[arg-type]


def feed(to: HistoryWriter, seconds: range, what: AgentState, mb_s: float = 0.0) -> None:
    for now in seconds:
        to.sampled(Sample(float(now), 1.0, Rates(write_mb_s=mb_s, read_mb_s=mb_s / 4)), what, now=now, wall=BOOT + now)


def stored(file: LedgerFile, device: str = "dev") -> tuple[SampleRun, ...]:
    return read_samples(file, 0.0, 4e9).get(device, ())


@contextmanager
def unwritable(path: Path) -> Iterator[None]:
    """A table of the history is missing for a while."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("ALTER TABLE loads RENAME TO elsewhere")
        yield
        other.execute("ALTER TABLE elsewhere RENAME TO loads")


# --- batches ---------------------------------------------------------------------------------------------------


def test_nothing_is_written_before_a_batch_is_complete(file: LedgerFile) -> None:
    history = writer(file)
    feed(history, range(100, 160), BUSY, 40)
    assert (stored(file), read_loads(file)) == ((), {})
    feed(history, range(160, 161), BUSY, 40)
    assert len(stored(file)) == 61
    assert read_loads(file)["token"].written_bytes == 61 * 40 * MB


def test_a_batch_is_written_when_a_phase_ends(file: LedgerFile) -> None:
    history = writer(file)
    feed(history, range(100, 110), BUSY, 40)
    feed(history, range(110, 115), CALM, 4)
    feed(history, range(115, 116), IDLE)
    assert len(stored(file)) == 16
    # The load of `BUSY` is there since 100; the last sample that had it ended at 109.
    assert read_loads(file) == {"token": CycleLoad(105 * MB, 420 * MB, BOOT + 100, BOOT + 109)}


def test_what_is_dirty_is_kept_with_each_sample_until_it_is_flushed(file: LedgerFile) -> None:
    history = writer(file)
    feed(history, range(90, 100), IDLE)
    for now, dirty_bytes in zip(range(100, 106), (3, 2, 1, 0, 0, 0), strict=True):
        feed(history, range(now, now + 1), changed(CALM, cycle=cycle(dirty_bytes=dirty_bytes), load=QUIET))
    history.flush(BOOT + 106)
    assert [(r.seconds, r.dirty_bytes) for r in stored(file)] == [(10, None), (1, 3), (1, 2), (1, 1), (3, 0)]


def test_an_idle_day_is_a_row_an_hour(file: LedgerFile) -> None:
    history = writer(file)
    feed(history, range(86400), IDLE, 0.1)
    history.flush(BOOT + 86400)
    assert 24 <= len(stored(file)) <= 25
    assert sum(r.seconds for r in stored(file)) == 86400
    assert sum(r.written_bytes for r in stored(file)) == 86400 * MB // 10


def test_a_kill_loses_the_unwritten_batch_and_nothing_is_counted_twice(file: LedgerFile) -> None:
    first = writer(file)
    feed(first, range(100, 190), BUSY, 40)  # written at 160, killed at 189
    second = writer(file)
    feed(second, range(200, 261), BUSY, 40)
    assert len(stored(file)) == 61 + 61
    assert read_loads(file)["token"].written_bytes == 122 * 40 * MB
    assert read_loads(file)["token"].begun_wall == BOOT + 100


def test_a_load_is_bounded_by_its_first_and_last_sample_over_many_batches(file: LedgerFile) -> None:
    history = writer(file)
    feed(history, range(100, 200), BUSY, 40)
    feed(history, range(200, 300), CALM, 4)
    back = changed(BUSY, load=LoadWatch(above_since=299.0, utilization=1.0))
    feed(history, range(300, 380), back, 40)
    feed(history, range(380, 500), CALM, 4)
    history.flush(BOOT + 500)
    load = read_loads(file)["token"]
    assert (load.begun_wall, load.ended_wall) == (BOOT + 100, BOOT + 379)


def test_a_ledger_that_fails_keeps_the_batch_waiting(file: LedgerFile, path: Path) -> None:
    history = writer(file)
    with unwritable(path):
        with pytest.raises(LedgerError):
            feed(history, range(100, 161), BUSY, 40)
        assert stored(file) == ()
    feed(history, range(161, 221), BUSY, 40)
    assert len(stored(file)) == 121
    assert read_loads(file)["token"].written_bytes == 121 * 40 * MB


def test_what_waits_for_a_broken_ledger_is_bounded(file: LedgerFile, path: Path) -> None:
    history = writer(file)
    with unwritable(path):
        for now in range(MOST_WAITING + 500):
            with suppress(LedgerError):
                feed(history, range(now, now + 1), BUSY, 40)
    history.flush(BOOT + MOST_WAITING + 500)
    assert len(stored(file)) == MOST_WAITING
    assert stored(file)[-1].ended_wall == BOOT + MOST_WAITING + 499, "the newest are kept"


# --- bounds ----------------------------------------------------------------------------------------------------


def test_no_more_rows_are_kept_than_allowed_and_the_newest_stay(file: LedgerFile) -> None:
    history = writer(file, rows=1000)
    feed(history, range(5000), BUSY, 40)
    history.flush(BOOT + 5000)
    assert len(stored(file)) == 1000
    assert stored(file)[-1].ended_wall == BOOT + 4999
    again = writer(file, rows=1000)  # a start counts what is there
    feed(again, range(5000, 5200), BUSY, 40)
    again.flush(BOOT + 5200)
    assert len(stored(file)) == 1000


def test_samples_older_than_the_limit_go_and_phases_stay(file: LedgerFile) -> None:
    history = writer(file, days=1)
    feed(history, range(100, 200), BUSY, 40)
    feed(history, range(200, 201), IDLE)
    late = range(200 + int(DAY_S) - 50, 200 + int(DAY_S) + 11)
    feed(history, late, IDLE)
    assert stored(file)[0].begun_wall >= BOOT + late[-1] - DAY_S
    assert len(stored(file)) < 100
    assert read_loads(file)["token"].written_bytes == 100 * 40 * MB


def test_a_lowered_limit_is_reached_in_steps(file: LedgerFile) -> None:
    with file.write() as db:
        rows = [("dev", BOOT + second, 1.0, 0, MB) for second in range(2 * MOST_DELETED)]
        db.executemany("INSERT INTO samples VALUES (?, ?, ?, ?, ?, NULL)", rows)
    history = writer(file, rows=1000)
    feed(history, range(10**5, 10**5 + int(WRITE_EVERY_S) + 1), BUSY, 40)
    assert len(stored(file)) == MOST_DELETED + 61
    feed(history, range(10**5 + 61, 10**5 + 121), BUSY, 40)
    assert len(stored(file)) == 1000


def test_another_device_in_the_same_file_is_left_alone(file: LedgerFile) -> None:
    other = HistoryWriter(file, "other", HistoryLimits())
    feed(other, range(61), BUSY, 40)
    history = writer(file, rows=1000, days=1)
    feed(history, range(10**6, 10**6 + 2000), BUSY, 40)
    history.flush(BOOT + 10**6 + 2000)
    assert len(stored(file, "other")) == 61
    assert len(stored(file)) == 1000


# --- clocks, reading, older files ------------------------------------------------------------------------------


def test_a_period_shows_the_runs_that_touch_it(file: LedgerFile) -> None:
    history = writer(file)
    feed(history, range(100), BUSY, 40)
    history.flush(BOOT + 100)
    found = read_samples(file, BOOT + 10, BOOT + 12)["dev"]
    assert [r.begun_wall - BOOT for r in found] == [10, 11]
    assert read_samples(file, BOOT + 500, BOOT + 600) == {}


def test_a_ledger_of_the_first_release_gets_a_history(path: Path) -> None:
    old = sqlite3.connect(path)
    for statement in MIGRATIONS[0]:
        old.execute(statement)
    old.execute("PRAGMA user_version = 1")
    old.execute("INSERT INTO learned VALUES ('dev', 7)")
    old.commit()
    old.close()
    with Ledger(path) as ledger:
        assert ledger.learned_size("dev") == 7
        feed(writer(ledger.file), range(100, 161), BUSY, 40)
        assert len(stored(ledger.file)) == 61
