"""A burst with its account in the ledger: what a simulated application waited for, boosted or not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from elastio.accounting.burst_accounts import AccountRow
from elastio.accounting.history_store import HistoryLimits, read_accounts, read_loads, read_moved
from elastio.accounting.recorder import CostRecorder
from elastio.config.sections import ProfileSection
from elastio.core.model import RequestKind
from elastio.core.state import Phase
from elastio.strategy.account import account
from elastio.strategy.bandwidth import curves_of
from elastio.strategy.watched_bursts import UNSEEN_S, Watch
from elastio_sim.run import Simulation
from elastio_sim.shares import READERS, WRITERS
from elastio_sim.workload import Segment
from tests.fixtures.memory_ledger import MemoryLedger
from tests.simulated import BURST, KERNEL, QUIET, assert_at_rest, machine

SATURATED = (Segment(2, 0), Segment(20, 60), QUIET)


@pytest.fixture
def ledger() -> Iterator[MemoryLedger]:
    with MemoryLedger() as opened:
        yield opened


def kept(sim: Simulation, ledger: MemoryLedger, **settings: object) -> None:
    recorder = CostRecorder(ledger, sim.policy.backing_uuid, HistoryLimits())
    ledger.lock_while(sim.is_ledger_locked)
    sim.keep_accounts(recorder.keep_accounts, ProfileSection(**settings))  # type: ignore[arg-type]


def recorded(load: tuple[Segment, ...], ledger: MemoryLedger, **policy: Any) -> Simulation:
    """A machine whose boosts, with all that belongs to them, are in the ledger."""
    recorder = CostRecorder(ledger, KERNEL.backing_uuid, HistoryLimits())
    sim = machine(load, recorder=recorder, **policy)
    sim.keep_accounts(recorder.keep_accounts, ProfileSection())
    return sim


def rows(ledger: MemoryLedger) -> list[AccountRow]:
    return list(read_accounts(ledger.file, 0.0, 1e12))


def unboosted(load: tuple[Segment, ...], faults: str = "nothing") -> Simulation:
    """A machine that never boosts: the load is too short for that."""
    return machine(load, faults, trigger_delay_s=3600)


def test_a_burst_without_a_boost_has_one_row_of_who_used_the_device(ledger: MemoryLedger) -> None:
    sim = unboosted(SATURATED)
    kept(sim, ledger)
    sim.run_for(60)
    (row,) = rows(ledger)
    found = account(row.totals)
    assert (row.cgroup, row.token, row.device_uuid) == (WRITERS, None, sim.policy.backing_uuid)
    assert row.ended_wall - row.begun_wall == pytest.approx(20, abs=2)
    assert row.totals.seconds == pytest.approx(20, abs=3)
    assert found.bandwidth_s > 0.9 * found.seconds
    assert row.totals.classes[9] > 0.9 * found.seconds
    assert curves_of(row.totals).likely.measured_mb_s == pytest.approx(20, rel=0.05)


def test_a_burst_with_a_boost_names_it_and_waits_less_with_the_cache(ledger: MemoryLedger) -> None:
    slow = unboosted((Segment(2, 0), Segment(40, 50), QUIET))
    kept(slow, ledger)
    slow.run_for(90)
    (without,) = rows(ledger)
    sim = machine((Segment(2, 0), Segment(40, 50), QUIET))
    kept(sim, ledger)
    sim.run_until(lambda: sim.phase is Phase.BOOSTING, 120)
    assert sim.state.cycle is not None
    token = sim.state.cycle.token
    assert_at_rest(sim)
    boosted = [row for row in rows(ledger) if row.token == token]
    assert [row.cgroup for row in boosted] == [WRITERS]
    with_share = account(boosted[0].totals).bandwidth_s / boosted[0].totals.seconds
    assert with_share < account(without.totals).bandwidth_s / without.totals.seconds - 0.2


def test_what_cgroups_move_in_a_boost_is_nearly_all_of_its_load(ledger: MemoryLedger) -> None:
    sim = recorded((Segment(2, 0), Segment(40, 40, 10), QUIET), ledger)
    sim.run_until(lambda: sim.phase is Phase.BOOSTING, 120)
    assert_at_rest(sim)
    ((token, moved),) = read_moved(ledger.file).items()
    load = read_loads(ledger.file)[token]
    assert moved.keys() == {READERS, WRITERS}
    assert 0.9 * load.written_bytes < moved[WRITERS].written_bytes <= load.written_bytes
    assert 0.9 * load.read_bytes < moved[READERS].read_bytes <= load.read_bytes
    assert (moved[WRITERS].read_bytes, moved[READERS].written_bytes) == (0, 0)


def test_two_boosts_in_one_burst_have_their_own_bytes(ledger: MemoryLedger) -> None:
    sim = recorded((Segment(2, 0), Segment(200, 40), QUIET), ledger, trigger_delay_s=5.0)
    sim.run_until(lambda: sim.phase is Phase.BOOSTING, 120)
    assert not read_moved(ledger.file)
    assert sim.ask(RequestKind.FLUSH).accepted
    sim.run_until(lambda: sim.phase is Phase.IDLE, 120)
    sim.run_for(10)
    first = read_moved(ledger.file)
    assert len(first) == 1
    sim.run_until(lambda: sim.phase is Phase.BOOSTING, 120)
    assert_at_rest(sim)
    both, loads = read_moved(ledger.file), read_loads(ledger.file)
    assert len(both) == 2
    assert first.items() < both.items()
    for token, moved in both.items():
        assert moved[WRITERS].written_bytes == pytest.approx(loads[token].written_bytes, rel=0.1)


def test_a_program_at_half_the_bandwidth_computes_for_half_of_its_time(ledger: MemoryLedger) -> None:
    sim = unboosted((Segment(2, 0), Segment(20, 10), QUIET))
    kept(sim, ledger)
    sim.run_for(60)
    (row,) = rows(ledger)
    found = account(row.totals)
    assert found.computing_s / found.seconds == pytest.approx(0.5, abs=0.1)
    assert found.bandwidth_s / found.seconds == pytest.approx(0.5, abs=0.1)


def test_readers_and_writers_have_their_own_rows(ledger: MemoryLedger) -> None:
    sim = unboosted((Segment(2, 0), Segment(20, 30, 30), QUIET))
    kept(sim, ledger)
    sim.run_for(60)
    assert sorted(row.cgroup for row in rows(ledger)) == sorted([READERS, WRITERS])


def test_two_bursts_are_two_rows_and_the_pause_is_in_none(ledger: MemoryLedger) -> None:
    sim = unboosted((*SATURATED[:2], Segment(30, 0), *SATURATED))
    kept(sim, ledger)
    sim.run_for(120)
    assert [round(row.totals.seconds / 5) for row in rows(ledger)] == [4, 4]


@pytest.mark.parametrize(("interval_s", "is_taught"), [(1.0, True), (8.0, False)])
def test_a_burst_ends_when_its_boost_is_released_in_its_quiet(
    ledger: MemoryLedger, interval_s: float, *, is_taught: bool
) -> None:
    """The next one begins before that much quiet is seen. Between two samples of 8 s the boost is released and gone."""
    burst = Segment(24, 0, 60)
    load = (Segment(8, 0), burst, Segment(16, 0), burst, QUIET)
    sim = machine(load, inactivity_delay_s=20.0, sample_interval_s=interval_s)
    kept(sim, ledger)
    sim.run_until(lambda: sim.world.clock.elapsed() >= 40.1, 60)
    assert sim.ask(RequestKind.FLUSH).accepted
    sim.run_for(8)
    assert sim.phase is Phase.IDLE
    assert sim.agent is not None
    assert (sim.agent.burst is not None) is is_taught
    assert_at_rest(sim)
    assert rows(ledger)[0].ended_wall - rows(ledger)[0].begun_wall < 30


def test_a_load_that_comes_back_in_the_flush_is_another_burst(ledger: MemoryLedger) -> None:
    burst = Segment(20, 60)
    sim = machine((Segment(2, 0), burst, Segment(9, 0), burst, QUIET), inactivity_delay_s=12.0)
    kept(sim, ledger)
    sim.run_until(lambda: sim.world.clock.elapsed() >= 24.5, 60)
    assert sim.ask(RequestKind.FLUSH).accepted
    sim.run_until(lambda: sim.phase is Phase.FLUSHING, 5)
    assert_at_rest(sim)
    assert [round(row.totals.seconds / 5) for row in rows(ledger)] == [4, 4]


def test_at_rest_nothing_is_looked_at(ledger: MemoryLedger) -> None:
    sim = unboosted((Segment(1e9, 4),))
    kept(sim, ledger)
    sim.run_for(300)
    assert sim.looks.looks == 0
    assert not rows(ledger)


@pytest.mark.parametrize("is_boosted", [False, True])
def test_with_the_account_switched_off_nothing_is_looked_at(ledger: MemoryLedger, is_boosted: bool) -> None:
    sim = machine(BURST) if is_boosted else unboosted(SATURATED)
    kept(sim, ledger, enabled=False)
    sim.run_for(60)
    assert bool(sim.state.memory.attach_s) is is_boosted
    assert sim.looks.looks == 0


def test_a_cgroup_that_vanishes_keeps_what_was_seen_of_it(
    ledger: MemoryLedger, caplog: pytest.LogCaptureFixture
) -> None:
    sim = unboosted(SATURATED)
    kept(sim, ledger)
    sim.run_for(12)
    sim.looks.gone.add(WRITERS)
    sim.run_for(60)
    (row,) = rows(ledger)
    assert 5 < row.totals.seconds < 12
    assert len([r for r in caplog.records if r.name == "elastio.agent.accountant"]) == 1


def test_a_look_that_hangs_delays_no_boost_and_is_told_once(
    ledger: MemoryLedger, caplog: pytest.LogCaptureFixture
) -> None:
    plain = machine(BURST)
    plain.run_until(lambda: plain.phase is Phase.BOOSTING, 120)
    sim = machine(BURST)
    kept(sim, ledger)
    sim.looks.hangs = True
    sim.run_until(lambda: sim.phase is Phase.BOOSTING, 120)
    assert sim.world.clock.elapsed() == pytest.approx(plain.world.clock.elapsed(), abs=0.2)
    assert_at_rest(sim)
    assert len([r for r in caplog.records if r.name == "elastio.agent.accountant"]) == 1


def test_after_a_look_without_an_answer_there_is_a_pause_and_it_is_told_once(
    ledger: MemoryLedger, caplog: pytest.LogCaptureFixture
) -> None:
    sim = unboosted((Segment(2, 0), Segment(1e9, 60)))
    kept(sim, ledger)
    sim.looks.hangs = True
    sim.run_for(60)
    assert sim.looks.looks == 1
    sim.run_for(60)
    assert sim.looks.looks > 10
    sim.looks.hangs = True
    sim.run_for(60)
    assert len([r for r in caplog.records if r.name == "elastio.agent.accountant"]) == 1


def test_a_bug_in_the_account_ends_it_and_nothing_else(ledger: MemoryLedger, caplog: pytest.LogCaptureFixture) -> None:
    def fail(watch: Watch, timeout_s: float) -> None:
        raise ZeroDivisionError

    sim = machine(BURST)
    kept(sim, ledger)
    sim.looks.submit = fail  # type: ignore[method-assign, assignment]
    sim.run_until(lambda: sim.phase is Phase.BOOSTING, 120)
    assert_at_rest(sim)
    assert len([r for r in caplog.records if r.levelname == "ERROR"]) == 1
    assert sim.accountant is not None
    assert not sim.accountant.is_watching


def test_a_bug_while_a_look_is_out_leaves_no_answer_that_nobody_takes(ledger: MemoryLedger) -> None:
    sim = machine(BURST)
    kept(sim, ledger)
    sim.looks.hangs = True
    sim.run_until(lambda: sim.looks.busy, 120)
    assert sim.accountant is not None
    sim.accountant.settings = None  # type: ignore[assignment]
    sim.run_for(2)
    assert sim.looks.busy
    assert sim.accountant.is_watching, "until the look is given up"
    sim.run_for(15)
    assert not sim.looks.busy
    assert not sim.accountant.is_watching


def test_a_burst_whose_device_goes_away_ends(ledger: MemoryLedger) -> None:
    sim = unboosted((Segment(2, 0), Segment(1e9, 60)))
    kept(sim, ledger)
    sim.run_for(30)
    sim.world.counters.read = dict  # type: ignore[method-assign]
    sim.run_for(UNSEEN_S + 10)
    assert sim.accountant is not None
    assert not sim.accountant.is_watching
    assert [row.is_over for row in rows(ledger)] == [True] * len(rows(ledger))


def test_who_comes_late_into_a_burst_has_not_waited_before(ledger: MemoryLedger) -> None:
    sim = unboosted((Segment(2, 0), Segment(60, 60), Segment(6, 60, 10), QUIET))
    kept(sim, ledger)
    sim.run_for(100)
    seconds = {row.cgroup: row.totals.seconds for row in rows(ledger)}
    assert seconds[READERS] < 15 < seconds[WRITERS]


def test_a_burst_that_a_stop_cuts_off_is_written(ledger: MemoryLedger) -> None:
    sim = unboosted((Segment(2, 0), Segment(1e9, 60)))
    kept(sim, ledger)
    sim.run_for(30)
    assert not rows(ledger)
    assert sim.accountant is not None
    assert sim.agent is not None
    assert sim.accountant.is_watching
    sim.accountant.close(sim.agent)
    assert [row.is_over for row in rows(ledger)] == [True]


def test_a_row_that_a_locked_ledger_refused_is_written_with_the_next(ledger: MemoryLedger) -> None:
    sim = unboosted((*SATURATED[:2], Segment(30, 0), *SATURATED), "@23=locked:20")
    kept(sim, ledger)
    sim.run_for(50)
    assert not rows(ledger)
    sim.run_for(70)
    assert len(rows(ledger)) == 2


def test_a_burst_that_goes_on_is_written_once_a_minute(ledger: MemoryLedger) -> None:
    sim = unboosted((Segment(2, 0), Segment(1e9, 60)))
    kept(sim, ledger)
    sim.run_for(150)
    (row,) = rows(ledger)
    assert row.totals.seconds > 100


def test_what_a_burst_of_seconds_moves_is_nearly_all_known(ledger: MemoryLedger) -> None:
    """It is over before the second list, and its boost ends without a burst. A look may delay the list of its begin."""
    sim = recorded((Segment(2, 0), Segment(7, 60), QUIET), ledger, inactivity_delay_s=2.0, trigger_delay_s=0.0)
    sim.run_until(lambda: sim.phase is Phase.BOOSTING, 120)
    assert_at_rest(sim)
    assert 0.85 < _known_share(ledger) <= 1.0


def test_what_bursts_move_in_a_boost_by_hand_is_nearly_all_known(ledger: MemoryLedger) -> None:
    """The boost begins without a burst, and has two; between them little is moved, and after them."""
    two = (Segment(4, 60), Segment(6, 1), Segment(4, 60), Segment(6, 1))
    sim = recorded((Segment(20, 0), *two, QUIET), ledger, inactivity_delay_s=30.0, release_threshold=0.3)
    sim.run_for(3)
    assert sim.ask(RequestKind.BOOST).accepted
    assert_at_rest(sim)
    assert _known_share(ledger) == pytest.approx(1.0, abs=0.01)


def test_after_a_count_without_an_answer_the_next_one_waits_for_a_minute(ledger: MemoryLedger) -> None:
    sim = recorded((Segment(1e9, 0),), ledger)
    sim.run_for(3)
    sim.looks.hangs = True
    assert sim.ask(RequestKind.BOOST).accepted
    sim.run_for(20)
    assert sim.ask(RequestKind.FLUSH).accepted
    sim.run_for(30)
    assert (sim.phase, sim.looks.looks) == (Phase.IDLE, 1)
    sim.run_for(40)
    assert sim.looks.looks == 2


def test_a_look_that_outlasts_its_burst_is_no_bug(ledger: MemoryLedger, caplog: pytest.LogCaptureFixture) -> None:
    sim = recorded((Segment(2, 0), Segment(20, 60), QUIET), ledger, inactivity_delay_s=2.0, trigger_delay_s=0.0)
    sim.run_until(lambda: sim.phase is Phase.BOOSTING, 120)
    sim.run_until(lambda: sim.world.clock.elapsed() >= 20.0, 60)
    sim.looks.hangs = True
    assert_at_rest(sim)
    assert [record.levelname for record in caplog.records if record.name == "elastio.agent.accountant"] == ["WARNING"]


@pytest.mark.parametrize(("rest_s", "is_known"), [(10, True), (70, False)])
def test_what_was_moved_since_a_list_is_known_until_its_process_ends_at_rest(rest_s: float, is_known: bool) -> None:
    sim = unboosted(SATURATED)
    sim.run_for(3)
    sim.looks.submit(Watch(1.0, "bcache0", None, (), "a"), 10.0)
    sim.run_for(2)
    assert sim.looks.poll() is not None
    sim.run_for(rest_s)
    sim.looks.submit(Watch(1.0, "bcache0", None, (), None, only_counts=True), 10.0)
    sim.run_for(1)
    seen = sim.looks.poll()
    assert seen is not None
    assert bool(seen.moved) is is_known


def _known_share(ledger: MemoryLedger) -> float:
    """What of the bytes that were written in the one boost is known to be of the cgroup that wrote them."""
    ((token, moved),) = read_moved(ledger.file).items()
    return moved[WRITERS].written_bytes / read_loads(ledger.file)[token].written_bytes
