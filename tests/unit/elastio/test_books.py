"""The ledger as the loop sees it: recorded, learned, and never in the way of guarding data."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from elastio.books import TOUCH_EVERY_S, LedgerBooks, local_zone
from elastio.config import load
from elastio.history_store import read_loads
from elastio.ledger import Ledger
from elastio.model import Quote, Serial, Spend, Volume, VolumeId, VolumeSpec, VolumeState
from elastio.policy import Policy
from elastio.sim.run import Simulation
from elastio.sim.world import SimWorld
from elastio.state import Cycle, Marks, Phase, Trigger

from .simulated import KERNEL, assert_at_rest, machine

GB = 10**9
NOW = 1000.0
WALL = datetime(2026, 3, 14, 12, tzinfo=UTC).timestamp()
SPEC = VolumeSpec(10 * GB, 100.0)
VOLUME = Volume(VolumeId("vol-1"), Serial("vol1"), VolumeState.ATTACHED, 10 * GB, 100.0, "token-1", "dev", WALL)
CYCLE = Cycle(
    "token-1",
    Trigger.LOAD,
    SPEC,
    NOW,
    WALL,
    volume_id=VOLUME.id,
    serial=VOLUME.serial,
    volume=VOLUME,
    quote=Quote(SPEC, "USD", 3.6, 60.0, "a price list"),
    opened_wall=WALL,
    marks=Marks(decided=NOW, created=NOW),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def books(path: Path) -> Iterator[LedgerBooks]:
    with Ledger(path) as ledger:
        yield LedgerBooks(ledger, "dev")


def spoil(path: Path) -> None:
    """Somebody takes the tables away under the running agent."""
    with sqlite3.connect(path) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            if not table.startswith("sqlite_"):
                db.execute(f"DROP TABLE {table}")
    db.close()


def test_a_cycle_counts_in_what_was_spent_today(books: LedgerBooks) -> None:
    assert books.spend(wall=WALL) == Spend()
    books.record_cycle(CYCLE, now=NOW, wall=WALL)
    spent = books.spend(wall=WALL + 100)
    assert spent.boosts == 1
    assert spent.agbs == pytest.approx(100.0 * 10 * 100)
    assert spent.currency == pytest.approx(0.1)


def test_a_cycle_that_has_no_volume_any_more_costs_no_more(
    books: LedgerBooks, caplog: pytest.LogCaptureFixture
) -> None:
    books.record_cycle(CYCLE, now=NOW, wall=WALL)
    books.listed(frozenset({"token-1"}), wall=WALL + 100)
    assert caplog.text == ""
    books.listed(frozenset(), wall=WALL + 100)
    assert "cycle token-1 has no volume any more: its bill is closed" in caplog.text
    assert books.spend(wall=WALL + 5000).agbs == pytest.approx(100.0 * 10 * 100)


def test_a_learned_size_stays(books: LedgerBooks, path: Path) -> None:
    assert books.learned_size() is None
    books.learned(7 * GB)
    assert books.learned_size() == 7 * GB
    with Ledger(path) as again:
        assert LedgerBooks(again, "dev").learned_size() == 7 * GB
        assert LedgerBooks(again, "another").learned_size() is None


def test_a_ledger_that_fails_is_reported_and_stops_nothing(
    books: LedgerBooks, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    books.record_cycle(CYCLE, now=NOW, wall=WALL)
    known = books.spend(wall=WALL + 100)
    spoil(path)
    books.record_cycle(replace(CYCLE, token="token-2"), now=NOW, wall=WALL)
    books.learned(GB)
    books.listed(frozenset(), wall=WALL)
    assert books.spend(wall=WALL + 200) == known
    told = [record.getMessage().split(": ")[0] for record in caplog.records]
    assert told == [
        "cycle token-2 is not in the ledger",
        "the learned size is not in the ledger",
        "open bills were not checked",
        "today's spend is not known",
    ]


def test_the_device_is_noted_once_a_minute(books: LedgerBooks, path: Path, tmp_path: Path) -> None:
    config_path = tmp_path / "elastio.toml"
    config_path.write_text(
        '[device]\nbacking_uuid = "58c00623-0529-4a44-9474-dabb02496928"\nbandwidth_mb_s = 60\n'
        '[cache]\nbandwidth_mb_s = 128\n[provider]\nname = "sim"\n'
    )
    config = load(config_path)
    agent = Simulation(SimWorld(), Policy(60.0, 128.0)).agent
    assert agent is not None
    books.touch_device(agent, config, wall=WALL)  # nothing has been seen yet
    agent.view = SimWorld().host.look(())
    assert agent.view.backing is not None
    for second in (0.0, 1.0, TOUCH_EVERY_S - 0.5, TOUCH_EVERY_S, TOUCH_EVERY_S + 1):
        books.touch_device(agent, config, wall=WALL + second)
    with Ledger(path, read_only=True) as ledger:
        (span,) = ledger.spans(WALL - 1, WALL + 1000)
    assert (span.size_bytes, span.first_wall, span.last_wall) == (agent.view.backing.size_bytes, WALL, WALL + 60)


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
        sim = machine(books=LedgerBooks(ledger, KERNEL.backing_uuid))
        sim.run_for(15)
        assert_at_rest(sim)
        (row,) = ledger.cycles(0.0, sim.world.clock.wall())
    steps = row.steps
    inside = (steps.decide_s, steps.format_s, steps.register_s, steps.attach_set_s)
    cloud = (steps.create_s, steps.attach_volume_s, steps.appear_s)
    assert all(s is not None for s in (*inside, *cloud, steps.own_s, steps.boost_s))
    assert steps.own_s == pytest.approx(sum(s or 0 for s in inside))
    assert steps.boost_s == pytest.approx(sum(s or 0 for s in (*inside, *cloud)))


def test_the_history_of_a_run_is_written_and_a_broken_ledger_stops_nothing(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Ledger(path) as ledger:
        books = LedgerBooks(ledger, KERNEL.backing_uuid)
        sim = machine(books=books)
        sim.run_for(15)
        assert_at_rest(sim)
        books.flush(wall=sim.world.clock.wall())
        (load,) = read_loads(ledger.file).values()
        assert load.written_bytes == pytest.approx(sim.world.workload.stats.written_bytes, rel=0.1)
        spoil(path)
        sim.run_for(100)
        assert sim.phase is Phase.IDLE
    assert "the history waits" in caplog.text
