"""Accounts of bursts in the file of the ledger: rows, sums over them, and what is kept of old ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.accounting.burst_accounts import MOST_SUMS, OTHERS, AccountRow, burst_accounts, parts_of
from elastio.accounting.database import LedgerFile
from elastio.accounting.history_store import HistoryLimits, read_accounts, read_moved, read_sums, write_accounts
from elastio.accounting.ledger import Ledger
from elastio.accounting.recorder import MOST_WAITING, CostRecorder
from elastio.core.moved import Moved
from elastio.strategy.account import PARTS, Totals
from tests.unit.elastio.strategy.wait_runs import Stretch, moments, totals

CAP_MB_S = 100.0
WAITS = totals(moments([Stretch(3, waiting=1, mb_s=99)]), CAP_MB_S)
MIXED = totals(moments([Stretch(2, waiting=2, running=1, mb_s=99), Stretch(1, running=1), Stretch(1)]), CAP_MB_S)


def row(
    begun_wall: float, cgroup: str = "a", sums: Totals = MIXED, token: str | None = None, *, is_over: bool = True
) -> AccountRow:
    return AccountRow("dev", begun_wall, cgroup, begun_wall + 10, token, is_over, sums)


@pytest.fixture
def file(path: Path) -> Iterator[LedgerFile]:
    opened = LedgerFile(path)
    yield opened
    opened.close()


def test_a_row_is_read_as_it_was_written(file: LedgerFile) -> None:
    rows = [row(5, "a", MIXED, "token"), row(5, "b", WAITS), row(9, "a", Totals(delayed_s=None))]
    write_accounts(file, rows, {}, 0.0)
    assert list(read_accounts(file, 0.0, 100.0)) == rows


def test_a_burst_that_goes_on_replaces_its_row(file: LedgerFile) -> None:
    write_accounts(file, [row(5, sums=WAITS, is_over=False)], {}, 0.0)
    assert not read_sums(file)
    for _ in range(2):
        write_accounts(file, [row(5, sums=WAITS.plus(MIXED))], {}, 0.0)
    assert sum(read_sums(file)["a"].values()) == pytest.approx(WAITS.seconds + MIXED.seconds)
    assert [each.totals for each in read_accounts(file, 0.0, 100.0)] == [WAITS.plus(MIXED)]


def test_a_burst_that_a_kill_has_cut_off_is_over_for_the_next_agent_of_its_device(path: Path) -> None:
    cut_off = [row(5, sums=WAITS, is_over=False), row(5, "b", MIXED, is_over=False), row(2, sums=MIXED)]
    other = replace(row(5, "c", WAITS, is_over=False), device_uuid="other")
    with Ledger(path) as ledger:
        write_accounts(ledger.file, [*cut_off, other], {}, 0.0)
        assert list(read_sums(ledger.file)) == ["a"]
    for _ in range(2):
        with Ledger(path) as ledger:
            CostRecorder(ledger, "dev", HistoryLimits())
            seconds = {name: sum(parts.values()) for name, parts in read_sums(ledger.file).items()}
            assert seconds == pytest.approx({"a": WAITS.seconds + MIXED.seconds, "b": MIXED.seconds})
            found = read_accounts(ledger.file, 0.0, 100.0)
            assert [each for each in found if each.device_uuid == "other"] == [other]
            assert {replace(each, is_over=False) for each in found if each.is_over} == {
                replace(each, is_over=False) for each in cut_off
            }


def test_a_row_that_no_release_wrote_keeps_no_agent_from_its_start(path: Path) -> None:
    with Ledger(path) as ledger:
        write_accounts(ledger.file, [row(5, is_over=False), row(5, "b", WAITS, is_over=False)], {}, 0.0)
        with ledger.file.write() as db:
            db.execute("UPDATE accounts SET totals = '{\"seconds\": \"many\"}' WHERE cgroup = 'a'")
        CostRecorder(ledger, "dev", HistoryLimits())
        assert list(read_sums(ledger.file)) == ["b"]


def test_an_agent_starts_with_a_ledger_that_another_process_writes(path: Path) -> None:
    with Ledger(path) as ledger, Ledger(path) as other:
        write_accounts(ledger.file, [row(5, is_over=False)], {}, 0.0)
        with other.file.write():
            CostRecorder(ledger, "dev", HistoryLimits())
        assert not read_sums(ledger.file)
        CostRecorder(ledger, "dev", HistoryLimits())
        assert list(read_sums(ledger.file)) == ["a"]


@pytest.mark.parametrize(("since", "until", "found"), [(0, 5, 0), (0, 6, 1), (14, 20, 1), (15, 20, 0)])
def test_a_period_has_the_bursts_that_overlap_it(file: LedgerFile, since: float, until: float, found: int) -> None:
    write_accounts(file, [row(5)], {}, 0.0)
    assert len(read_accounts(file, since, until)) == found


def test_what_is_deleted_stays_in_the_seconds_of_all_time(file: LedgerFile) -> None:
    rows = [row(5, "b"), row(30, "a"), row(60, "b", WAITS), row(90, "a", WAITS)]
    write_accounts(file, rows, {}, 0.0)
    before = read_sums(file)
    assert list(before) == ["b", "a"]
    write_accounts(file, [row(90, "a", WAITS)], {}, 65.0)
    write_accounts(file, [row(90, "a", WAITS)], {}, 75.0)
    assert [each.begun_wall for each in read_accounts(file, 0.0, 100.0)] == [90]
    after = read_sums(file)
    assert list(after) == ["b", "a"]
    for name in before:
        assert [after[name][part] for part in PARTS] == pytest.approx([before[name][part] for part in PARTS])
    assert sum(after["b"].values()) == pytest.approx(MIXED.seconds + WAITS.seconds)


def test_cgroups_beyond_the_first_are_added_up_together(file: LedgerFile) -> None:
    for number in range(MOST_SUMS + 3):
        write_accounts(file, [row(5 + number, f"run-{number}", WAITS)], {}, 0.0)
    write_accounts(file, [row(99, "run-0", WAITS)], {}, 0.0)
    sums = read_sums(file)
    assert len(sums) == MOST_SUMS + 1
    assert (sum(sums["run-0"].values()), sum(sums[OTHERS].values())) == (2 * WAITS.seconds, 3 * WAITS.seconds)


def test_what_cgroups_moved_in_a_boost_adds_up(file: LedgerFile) -> None:
    write_accounts(file, [], {("t", "a"): Moved(1, 2), ("t", "b"): Moved(3, 4)}, 0.0)
    write_accounts(file, [], {("t", "a"): Moved(10, 20), ("u", "a"): Moved(5, 6)}, 0.0)
    assert read_moved(file) == {"t": {"a": Moved(11, 22), "b": Moved(3, 4)}, "u": {"a": Moved(5, 6)}}


def test_a_boost_has_a_bounded_number_of_cgroups(file: LedgerFile) -> None:
    for _ in range(2):
        write_accounts(file, [], {("t", f"run-{number}"): Moved(0, 1) for number in range(MOST_SUMS + 3)}, 0.0)
    found = read_moved(file)["t"]
    assert len(found) == MOST_SUMS
    assert set(found.values()) == {Moved(0, 2)}


def test_what_was_moved_is_written_once_after_a_failure(path: Path) -> None:
    with Ledger(path) as ledger:
        recorder = CostRecorder(ledger, "dev", HistoryLimits(days=1))
        other = Ledger(path)
        with other.file.write():
            for _ in range(2):
                recorder.keep_accounts([], {("t", "a"): Moved(1, 2)})
        other.close()
        assert not read_moved(ledger.file)
        for _ in range(2):
            recorder.keep_accounts([], {("t", "a"): Moved(10, 20)})
        assert read_moved(ledger.file) == {"t": {"a": Moved(22, 44)}}


def test_rows_of_a_cgroup_give_one_account_and_all_together_another() -> None:
    found = burst_accounts([row(5, "a", MIXED), row(5, "b", WAITS), row(50, "a", MIXED, "token")])
    assert (found.bursts, found.boosts) == (2, 1)
    assert {each.cgroup: each.bursts for each in found.groups} == {"a": 2, "b": 1}
    assert found.groups[0].account.bandwidth_s >= found.groups[1].account.bandwidth_s
    assert found.all.totals.seconds == pytest.approx(2 * MIXED.seconds + WAITS.seconds)
    assert parts_of(found.all.totals)["bandwidth"] == pytest.approx(
        2 * parts_of(MIXED)["bandwidth"] + parts_of(WAITS)["bandwidth"]
    )


def test_rows_that_cannot_be_written_are_kept_within_bounds(path: Path) -> None:
    with Ledger(path) as ledger:
        recorder = CostRecorder(ledger, "dev", HistoryLimits(days=1))
        other = Ledger(path)
        with other.file.write():
            recorder.keep_accounts([row(float(at)) for at in range(MOST_WAITING)], {})
            recorder.keep_accounts([row(float(MOST_WAITING))], {})
        other.close()
        assert not read_accounts(ledger.file, 0.0, 1e9)
        recorder.keep_accounts([row(float(MOST_WAITING + 1))], {})
        assert len(read_accounts(ledger.file, 0.0, 1e9)) == MOST_WAITING
        recorder.keep_accounts([row(200_000.0)], {})
        assert len(read_accounts(ledger.file, 0.0, 1e9)) < MOST_WAITING


def test_what_is_written_is_not_written_again(path: Path) -> None:
    with Ledger(path) as ledger:
        recorder = CostRecorder(ledger, "dev", HistoryLimits(days=1))
        for begun in (5.0, 200_000.0, 200_100.0, 200_200.0):
            recorder.keep_accounts([row(begun, sums=WAITS)], {})
        assert [each.begun_wall for each in read_accounts(ledger.file, 0.0, 1e9)] == [200_000, 200_100, 200_200]
        assert sum(read_sums(ledger.file)["a"].values()) == pytest.approx(4 * WAITS.seconds)
