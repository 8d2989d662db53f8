"""A ledger that cannot be opened at the start, and can a minute later."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.accounting import database
from elastio.accounting.database import NOT_OPEN, RETRY_S
from elastio.accounting.history_store import HistoryLimits, read_samples
from elastio.accounting.ledger import Ledger
from elastio.accounting.recorder import CostRecorder, open_recorder
from elastio.core.model import Rates, Sample
from elastio.core.state import Phase
from elastio.errors import LedgerError
from tests.fixtures.errors import refused
from tests.simulated import BURST, KERNEL, POLICY, assert_at_rest, bought, in_phase, machine
from tests.values import present, state

from .test_ledger import CLOSED
from .test_ledger import START as WALL

NOW = 1000.0
OPEN = replace(CLOSED, token="open", closed_wall=None)
OLD = replace(CLOSED, token="old", started_wall=WALL - 50, opened_wall=WALL - 49, closed_wall=WALL - 9)


class Clock:
    """Seconds, as the test sets them."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def lock(path: Path) -> Callable[[], None]:
    """Somebody holds the file exclusively, as a check of its integrity does."""
    Ledger(path).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    return other.close


def stand_in_the_way(path: Path) -> Callable[[], None]:
    path.mkdir()
    return path.rmdir


def put_a_link(path: Path) -> Callable[[], None]:
    path.symlink_to(path.with_name("elsewhere"))
    return path.unlink


def put_something_else(path: Path) -> Callable[[], None]:
    path.write_bytes(b"this is no database at all" * 100)
    return path.unlink


@pytest.fixture(params=[lock, stand_in_the_way, put_a_link, put_something_else])
def free(path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The ledger cannot be opened until this is called."""
    monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 0.0)
    removed: Callable[[], None] = request.param(path)
    return removed


@pytest.fixture
def recorder(path: Path, free: Callable[[], None], clock: Clock) -> Iterator[CostRecorder]:
    with open_recorder(path, "dev", HistoryLimits(), clock) as opened:
        yield opened


def test_it_is_tried_again_a_minute_later_and_no_bill_is_lost(
    recorder: CostRecorder, free: Callable[[], None], clock: Clock, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder.recall([(OLD, 0.0)])
    recorder.record_cycle(OPEN, now=NOW, wall=WALL)
    recorder.listed(frozenset({OPEN.token}), wall=WALL + 10)
    recorder.record_cycle(CLOSED, now=NOW, wall=WALL + 20)
    assert (recorder.spend(wall=WALL + 30).known, recorder.learned_size()) == (False, None)
    free()
    clock.now = RETRY_S - 1.0
    assert not recorder.spend(wall=WALL + 59).known, "the loop does not wait for the file at every step"
    clock.now = RETRY_S
    spend = recorder.spend(wall=WALL + 100)
    assert (spend.known, spend.boosts, recorder.unrecorded) == (True, 3, 0)
    with Ledger(path, read_only=True) as ledger:
        rows = {row.token: row.closed_wall for row in ledger.cycles(0.0, 2 * WALL)}
    assert rows == {OLD.token: OLD.closed_wall, OPEN.token: None, CLOSED.token: CLOSED.closed_wall}
    assert [record.levelname for record in (*caplog.get_records("setup"), *caplog.records)] == ["ERROR", "WARNING"]


def test_what_is_sampled_meanwhile_is_in_the_history(
    recorder: CostRecorder, free: Callable[[], None], clock: Clock, path: Path
) -> None:
    for second in range(3):
        at = NOW + second
        recorder.sampled(Sample(at, 1.0, Rates(0.0, 60.0)), state(Phase.IDLE), now=at, wall=WALL + second)
    free()
    clock.now = RETRY_S
    recorder.flush(wall=WALL + 100)
    with Ledger(path, read_only=True) as ledger:
        (runs,) = read_samples(ledger.file, 0.0, 2 * WALL).values()
    assert sum(run.seconds for run in runs) == 3


def test_another_reason_is_told_and_the_same_one_is_not_told_again(
    path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    remove = put_something_else(path)
    with open_recorder(path, "dev", HistoryLimits(), clock) as recorder:
        for minute in range(1, 4):
            clock.now = minute * RETRY_S
            assert not recorder.spend(wall=WALL).known
        assert len(caplog.records) == 1
        remove()
        put_a_link(path)
        clock.now += RETRY_S
        assert not recorder.spend(wall=WALL).known
        assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]


def test_whoever_needs_the_past_is_told_that_it_is_not_known(path: Path, clock: Clock) -> None:
    stand_in_the_way(path)
    with open_recorder(path, "dev", HistoryLimits(), clock) as recorder, refused(LedgerError, NOT_OPEN):
        recorder.past(WALL)


def test_an_agent_with_a_cap_boosts_once_the_ledger_opens(path: Path, clock: Clock) -> None:
    remove = stand_in_the_way(path)
    caps = replace(POLICY.caps, max_boosts_per_day=2)
    with ExitStack() as stack:
        recorder = stack.enter_context(open_recorder(path, KERNEL.backing_uuid, HistoryLimits(), clock))
        sim = machine((*BURST[:1], replace(BURST[1], seconds=400), BURST[2]), recorder=recorder, caps=caps)
        sim.on_step = lambda: setattr(clock, "now", sim.world.clock.elapsed())
        sim.run_for(150)
        assert (bought(sim), present(sim.agent).snapshot().spend.known) == ([], False)
        remove()
        in_phase(sim, Phase.BOOSTING, 130)
        assert_at_rest(sim, 600)
        spend = recorder.spend(wall=sim.world.clock.wall())
        assert (spend.known, spend.boosts, recorder.unrecorded) == (True, 1, 0)
        assert spend.agbs == pytest.approx(sim.world.provider.bill_agbs(), rel=0.1)
