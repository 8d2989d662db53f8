"""The cost recorder: what it records, and that a ledger that fails stops nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from elastio.accounting import database
from elastio.accounting.database import local_zone
from elastio.accounting.history_store import HistoryLimits
from elastio.accounting.ledger import Ledger
from elastio.accounting.recorder import TOUCH_EVERY_S, CostRecorder, open_recorder
from elastio.accounting.report import day_start
from elastio.accounting.rows import CycleRow
from elastio.core.cycle import Failure, FailureKind, Trigger
from elastio.core.model import Quote, Rates, RequestKind, Sample, VolumeId, VolumeSpec, VolumeState
from elastio.core.policy import Policy
from elastio.core.state import Phase
from elastio.errors import LedgerError
from elastio.strategy.caps import spending_refusal
from elastio.strategy.memory import LoadWatch
from elastio.strategy.spending import Caps, Spent
from elastio.units import GIB, agbs
from elastio_sim.prices import TARIFF
from elastio_sim.records import MemoryRecorder
from elastio_sim.run import Simulation
from elastio_sim.workload import Segment
from tests.simulated import BURST, KERNEL, POLICY, QUIET, assert_at_rest, bought, in_phase, machine
from tests.values import changed, present, state

from .test_ledger import BOUGHT, CLOSED, GB
from .test_ledger import START as WALL

NOW = 1000.0
CYCLE = replace(BOUGHT, opened_wall=WALL)


@pytest.fixture
def locked(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Somebody takes the write lock of the ledger; call it to release it."""
    monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 0.0)
    Ledger(path).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with closing(other):
        yield other.rollback


@pytest.fixture
def recorder(path: Path) -> Iterator[CostRecorder]:
    with Ledger(path) as ledger:
        yield CostRecorder(ledger, "dev")


def spoil(path: Path) -> None:
    """Somebody takes the tables away under the running agent."""
    with sqlite3.connect(path) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            if not table.startswith("sqlite_"):
                db.execute(f"DROP TABLE {table}")
    db.close()


def test_the_simulator_counts_what_was_spent_as_the_ledger_does(recorder: CostRecorder, path: Path) -> None:
    in_memory = MemoryRecorder()
    for cycle in (
        CYCLE,
        replace(CYCLE, token="closed", started_wall=WALL - 9, opened_wall=WALL - 8, closed_wall=WALL - 1),
        replace(CYCLE, token="orphan", trigger=Trigger.ORPHAN),
        replace(CYCLE, token="under way", volume_id=None, opened_wall=None),
        replace(
            CYCLE,
            token="refused",
            volume_id=None,
            opened_wall=None,
            failure=Failure(FailureKind.ERROR, "quota reached"),
        ),
        replace(CYCLE, token="yesterday", started_wall=WALL - 86_400, opened_wall=WALL - 86_400),
    ):
        recorder.record_cycle(cycle, now=NOW, wall=WALL)
        in_memory.record_cycle(cycle, now=NOW, wall=WALL)
    spent = in_memory.spend(wall=WALL + 50)
    with Ledger(path) as ledger:
        known = ledger.spend_since(day_start(WALL, UTC), WALL + 50)
    assert (spent.boosts, known.boosts) == (3, 3)
    assert [spent.agbs, spent.currency] == pytest.approx([known.agbs, known.currency])


def test_the_month_is_the_days_before_today_and_today(path: Path) -> None:
    """Two boosts of 100 s in the month, one in the month before, one open over midnight; every second costs 0.001."""
    march, today = datetime(2026, 3, 1, tzinfo=UTC).timestamp(), datetime(2026, 3, 10, tzinfo=UTC).timestamp()
    in_memory, sold = MemoryRecorder(), CYCLE.provisioned
    with Ledger(path) as ledger:
        recorder = CostRecorder(ledger, "dev")
        for token, begin, end in (
            ("february", march - 3600, march - 3500),
            ("first", march, march + 100),
            ("over midnight", today - 200, today + 100),
            ("today", today + 3600, today + 3700),
        ):
            cycle = replace(CYCLE, token=token, started_wall=begin, opened_wall=begin, closed_wall=end)
            for each in (recorder, in_memory):
                each.record_cycle(cycle, now=NOW, wall=end)
                each.spend(wall=today + 50)  # what is added up by then must not hide what follows
        for each in (recorder, in_memory):
            spend = each.spend(wall=today + 7200)
            assert (spend.boosts, spend.month.boosts) == (1, 3)
            assert (spend.currency, spend.month.currency) == pytest.approx((0.2, 0.5))
            assert spend.month.agbs == pytest.approx(agbs(sold.bandwidth_mb_s, sold.size_bytes, 500))
            assert each.spend(wall=datetime(2026, 4, 1, 12, tzinfo=UTC).timestamp()).month == Spent()


def test_boosts_without_a_price_and_the_currency_are_told(recorder: CostRecorder) -> None:
    recorder.record_cycle(CYCLE, now=NOW, wall=WALL)
    recorder.record_cycle(replace(CYCLE, token="free", quote=None), now=NOW, wall=WALL)
    spend = recorder.spend(wall=WALL + 50)
    assert (spend.currency_name, spend.unpriced, spend.boosts) == ("USD", 1, 2)


def test_what_could_never_be_read_is_not_taken_for_nothing(recorder: CostRecorder, path: Path) -> None:
    """Caps fail closed: a boost that may pass one is not begun, one without caps is not kept back."""
    spoil(path)
    spent = recorder.spend(wall=WALL)
    assert not spent.known
    for caps in (Caps(max_boosts_per_day=5), Caps(max_agbs_per_day=1e9), Caps(max_cost_per_day=100.0)):
        assert spending_refusal(GB, spent, Policy(20, 80, caps=caps))
    assert spending_refusal(GB, spent, Policy(20, 80)) == ""


def test_a_cycle_that_has_no_volume_any_more_costs_no_more(
    recorder: CostRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    recorder.record_cycle(CYCLE, now=NOW, wall=WALL)
    recorder.listed(frozenset({"token-1"}), wall=WALL + 100)
    assert caplog.records == []
    recorder.listed(frozenset(), wall=WALL + 100)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert recorder.spend(wall=WALL + 5000).agbs == pytest.approx(128 * 12 * 100)


def test_a_ledger_that_fails_is_reported_and_stops_nothing(
    recorder: CostRecorder, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder.record_cycle(CYCLE, now=NOW, wall=WALL)
    known = recorder.spend(wall=WALL + 100)
    spoil(path)
    recorder.record_cycle(replace(CYCLE, token="token-2"), now=NOW, wall=WALL)
    recorder.learned(GB)
    recorder.listed(frozenset(), wall=WALL)
    recorder.touch_device(GB, 60.0, 128.0, wall=WALL)
    recorder.sampled(Sample(NOW, 1.0, Rates()), state(Phase.IDLE), now=NOW, wall=WALL)
    recorder.sampled(Sample(NOW + 60, 1.0, Rates()), state(Phase.IDLE), now=NOW + 60, wall=WALL + 60)
    recorder.flush(wall=WALL)
    assert recorder.learned_size() is None
    assert recorder.spend(wall=WALL + 200) == replace(known, known=False)
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 9


def test_the_device_is_noted_once_a_minute(recorder: CostRecorder, path: Path) -> None:
    for second in (0.0, 1.0, TOUCH_EVERY_S - 0.5, TOUCH_EVERY_S, TOUCH_EVERY_S + 1):
        recorder.touch_device(GB, 60.0, 128.0, wall=WALL + second)
    with Ledger(path, read_only=True) as ledger:
        (span,) = ledger.spans(WALL - 1, WALL + 1000)
    assert (span.size_bytes, span.first_wall, span.last_wall) == (GB, WALL, WALL + 60)


def test_a_machine_without_a_time_zone_is_in_utc(tmp_path: Path) -> None:
    assert str(local_zone(tmp_path / "gone")) == "UTC"


def test_a_day_follows_the_rules_of_the_zone(tmp_path: Path) -> None:
    zone = tmp_path / "localtime"
    zone.symlink_to("/usr/share/zoneinfo/Europe/Berlin")
    berlin = local_zone(zone)
    offsets = [datetime(2026, month, 1, tzinfo=berlin).utcoffset() for month in (1, 7)]
    assert offsets == [timedelta(hours=1), timedelta(hours=2)]


def test_a_boost_leaves_every_step_in_the_ledger(path: Path) -> None:
    with Ledger(path) as ledger:
        sim = machine(recorder=CostRecorder(ledger, KERNEL.backing_uuid))
        sim.run_for(15)
        assert_at_rest(sim)
        (row,) = ledger.cycles(0.0, sim.world.clock.wall())
    steps = row.steps
    inside = (steps.decide_s, steps.attach_set_s)
    cloud = (steps.create_s, steps.attach_volume_s, steps.appear_s)
    assert all(s is not None for s in (*inside, *cloud, steps.own_s, steps.boost_s))
    assert steps.own_s == pytest.approx(sum(s or 0 for s in inside))
    assert steps.boost_s == pytest.approx(sum(s or 0 for s in (*inside, *cloud)))


def test_the_agent_goes_on_without_a_ledger_that_cannot_be_opened(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_bytes(b"this is no database at all" * 100)
    with open_recorder(path, "dev", HistoryLimits()) as recorder:
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert not recorder.spend(wall=WALL).known
        assert recorder.learned_size() is None
        sim = machine(recorder=recorder)
        in_phase(sim, Phase.BOOSTING)
        sim.run_for(1)
        assert_at_rest(sim)


def test_a_ledger_that_opens_is_used(path: Path) -> None:
    with open_recorder(path, "dev", HistoryLimits()) as recorder:
        recorder.learned(7 * GB)
        assert recorder.spend(wall=WALL).known
    with Ledger(path) as ledger:
        assert ledger.learned_size("dev") == 7 * GB


@pytest.mark.parametrize("how", ["an orphan", "its journal is lost", "its answer is lost"])
def test_a_volume_whose_purchase_nobody_saw_costs_what_the_price_list_says(how: str, path: Path) -> None:
    with Ledger(path) as ledger:
        recorder = CostRecorder(ledger, KERNEL.backing_uuid)
        recorder.price_of = TARIFF.quote
        load = (QUIET,) if how == "an orphan" else BURST
        sim = machine(load, "create#1=lose_reply" if how == "its answer is lost" else "nothing", recorder=recorder)
        if how == "an orphan":
            sim.world.provider.create("forgotten", VolumeSpec(GIB, 80), {})
            sim.run_for(10)
            assert sim.ask(RequestKind.COLLECT).accepted
        if how == "its journal is lost":
            in_phase(sim, Phase.ATTACHING)
            sim.run_until(lambda: bool(bought(sim)), 60)
            sim.lines.clear()
            sim.start_agent()
        sim.run_for(100)
        assert_at_rest(sim)
        spend = recorder.spend(wall=sim.world.clock.wall())
        assert (len(sim.world.provider.volumes) > 0, spend.unpriced) == (True, 0)
        assert spend.currency == pytest.approx(sim.world.provider.bill_cost(), rel=0.2)


def test_the_price_of_a_purchase_is_not_replaced_by_that_of_the_list(recorder: CostRecorder) -> None:
    recorder.record_cycle(CYCLE, now=NOW, wall=WALL)
    before = recorder.spend(wall=WALL + 100).currency
    recorder.price_of = lambda spec: Quote(spec, "USD", 99.0, 0.0, "a list")
    recorder.record_cycle(replace(CYCLE, trigger=Trigger.ORPHAN, quote=None), now=NOW, wall=WALL + 50)
    assert recorder.spend(wall=WALL + 100).currency == pytest.approx(before)


FIVE_BURSTS = (*(part for _ in range(5) for part in (Segment(120, 0), Segment(12, 60))), QUIET)


def capped_on(ledger: Ledger) -> Simulation:
    caps = replace(POLICY.caps, max_boosts_per_day=2)
    return machine(FIVE_BURSTS, recorder=CostRecorder(ledger, KERNEL.backing_uuid), caps=caps, cool_down_s=1.0)


@pytest.mark.parametrize("dies", [False, True])
def test_boosts_that_could_not_be_recorded_count_under_a_cap_and_are_recorded_later(
    path: Path, locked: Callable[[], None], *, dies: bool
) -> None:
    with open_recorder(path, KERNEL.backing_uuid, HistoryLimits()) as opened:
        assert isinstance(opened, CostRecorder), "what is locked can be read"
    with Ledger(path) as ledger:
        sim = capped_on(ledger)
        sim.run_until(lambda: len(bought(sim)) == 2 and sim.phase is Phase.IDLE, 900)
        if dies:
            sim.start_agent()
        sim.run_for(500)
        spend = present(sim.agent).snapshot().spend
        assert (len(bought(sim)), spend.boosts, spend.month.boosts, spend.known) == (2, 2, 2, True)
        assert spend.agbs == pytest.approx(sim.world.provider.bill_agbs(), rel=0.1)
        assert ledger.cycles(0.0, 2 * WALL) == ()
        locked()
        sim.run_for(2 * TOUCH_EVERY_S + 60)
        assert len([c for c in ledger.cycles(0.0, 2 * WALL) if c.closed_wall is not None]) == 2
        assert present(sim.agent).snapshot().spend == spend


def test_what_is_written_late_keeps_its_price_and_is_closed_by_a_list(
    recorder: CostRecorder, locked: Callable[[], None], path: Path
) -> None:
    """A cycle that was made from tags alone knows no price."""
    locked()
    recorder.record_cycle(CYCLE, now=NOW, wall=WALL)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        recorder.record_cycle(replace(CYCLE, trigger=Trigger.ORPHAN, quote=None), now=NOW, wall=WALL + 10)
        spend = recorder.spend(wall=WALL + 100)
        assert (spend.boosts, spend.unpriced, recorder.unrecorded) == (1, 0, 1)
        assert spend.currency == pytest.approx(100 * 0.001)
    recorder.listed(frozenset(), wall=WALL + 100)
    assert recorder.unrecorded == 0
    assert recorder.spend(wall=WALL + 900).currency == pytest.approx(100 * 0.001)


def test_a_volume_that_was_given_up_is_billed_until_it_is_listed_no_more(path: Path) -> None:
    with Ledger(path) as ledger:
        sim = machine(faults="@dirty=vanish attach#2+=throttle", recorder=CostRecorder(ledger, KERNEL.backing_uuid))
        in_phase(sim, Phase.FAULTED)
        cycle = sim.state.cycle
        assert cycle is not None
        assert sim.ask(RequestKind.PAUSE).accepted
        assert sim.ask(RequestKind.RECOVER, accepts_loss=True, volume_id=cycle.volume_id).accepted
        in_phase(sim, Phase.IDLE)
        sim.run_for(3600)
        assert [(c.token, c.closed_wall) for c in ledger.cycles(0.0, 2 * WALL)] == [(cycle.token, None)]
        for volume in sim.world.provider.existing():
            volume.state, volume.deleted_at = VolumeState.GONE, sim.world.clock.elapsed()
        assert sim.ask(RequestKind.COLLECT).accepted
        sim.run_for(10)
        (row,) = ledger.cycles(0.0, 2 * WALL)
    assert row.opened_wall is not None
    assert row.closed_wall is not None
    assert 3600 < row.closed_wall - row.opened_wall < 3800


def test_a_bill_that_one_list_has_closed_goes_on_with_a_list_that_shows_the_volume(
    recorder: CostRecorder, path: Path
) -> None:
    kept = replace(CYCLE, trigger=Trigger.ORPHAN, quote=None)
    recorder.record_cycle(CYCLE, now=NOW, wall=WALL)
    recorder.listed(frozenset(), wall=WALL + 100)
    recorder.record_cycle(replace(CYCLE, closed_wall=WALL + 100), now=NOW, wall=WALL + 100)
    with Ledger(path, read_only=True) as ledger:
        assert [c.failure_kind for c in ledger.cycles(0.0, 2 * WALL)] == [FailureKind.LOST]
    recorder.listed(frozenset({"token-1", "vol-1"}), wall=WALL + 200, others=[(kept, WALL - NOW)])
    spend = recorder.spend(wall=WALL + 1000)
    assert (spend.boosts, spend.unpriced) == (1, 0)
    assert spend.currency == pytest.approx(1000 * 0.001)
    with Ledger(path, read_only=True) as ledger:
        (row,) = ledger.cycles(0.0, 2 * WALL)
    assert (row.closed_wall, row.failure, row.failure_kind) == (None, "", "")


def test_of_a_purchase_that_was_carried_out_twice_both_volumes_have_a_bill(recorder: CostRecorder, path: Path) -> None:
    twin = replace(CYCLE, volume_id=VolumeId("vol-2"), trigger=Trigger.ORPHAN, quote=None)
    recorder.price_of = lambda spec: CYCLE.quote
    recorder.record_cycle(CYCLE, now=NOW, wall=WALL)
    for _ in range(2):
        recorder.listed(frozenset({"token-1", "vol-1", "vol-2"}), wall=WALL + 50, others=[(twin, WALL - NOW)])
    recorder.record_cycle(replace(CYCLE, closed_wall=WALL + 100), now=NOW, wall=WALL + 100)
    recorder.record_cycle(replace(twin, closed_wall=WALL + 300), now=NOW, wall=WALL + 300)
    spend = recorder.spend(wall=WALL + 1000)
    assert (spend.boosts, spend.unpriced) == (1, 0)
    assert spend.currency == pytest.approx((100 + 300) * 0.001)
    with Ledger(path, read_only=True) as ledger:
        assert [c.token for c in ledger.cycles(0.0, 2 * WALL)] == ["token-1", "vol-2"]


def test_a_load_that_is_written_after_its_cycle_is_a_burst_of_the_past(recorder: CostRecorder) -> None:
    """The last samples of a load may be in a batch that is written when its cycle is over."""
    recorder.record_cycle(CLOSED, now=NOW, wall=WALL + 101)
    assert recorder.past(WALL + 102).bursts == ()
    boosting = state(Phase.BOOSTING, CLOSED, load=LoadWatch(above_since=NOW))
    for second in (NOW + 1, NOW + 2):
        sample = Sample(second, 1.0, Rates(0.0, 60.0))
        recorder.sampled(sample, boosting, now=second, wall=WALL + second - NOW)
        boosting = changed(boosting, load=LoadWatch(below_since=second))
    recorder.flush(wall=WALL + 103)
    (burst,) = recorder.past(WALL + 104).bursts
    assert burst.begun_at == WALL


class UnreadableOnce(Ledger):
    """A ledger that cannot be read the first time."""

    failures = 1

    def cycles(self, since: float, until: float, *, with_steps: bool = True) -> tuple[CycleRow, ...]:
        if self.failures:
            self.failures -= 1
            raise LedgerError("unreadable")
        return super().cycles(since, until, with_steps=with_steps)


def test_a_bill_that_is_closed_is_not_opened_again_by_a_journal_that_knows_less(path: Path) -> None:
    still_open = replace(CYCLE, token="open", started_wall=90.0, opened_wall=100.0, closed_wall=None)
    with UnreadableOnce(path) as ledger:
        ledger.record(replace(still_open, closed_wall=200.0), 0.0)
        recorder = CostRecorder(ledger, KERNEL.backing_uuid)
        recorder.recall([(still_open, 0.0)])
        recorder.listed(frozenset(), wall=5000.0)
        (row,) = ledger.cycles(0.0, 6000.0)
    assert (row.closed_wall, recorder.unrecorded) == (200.0, 0)
