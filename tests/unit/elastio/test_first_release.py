"""What release 0.1.0 wrote is still read: its journal, its ledger and its configuration, as it wrote them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from elastio.accounting.ledger import Ledger
from elastio.accounting.rows import DevicePrices
from elastio.agent.journal import Owner
from elastio.agent.memory import Remembered, remember
from elastio.config.schema import load, parse
from elastio.core.cycle import Failure, FailureKind
from elastio.core.model import VolumeTag
from elastio.core.state import InhibitionReason, Phase
from elastio.errors import ConfigError

RELEASE = Path(__file__).parents[2] / "fixtures" / "release_0_1_0"
UUID = "5f0e1d2c-0000-4000-8000-000000000001"
BOOT = "21636369-8b52-4b4a-97b7-50923ceb3ffd"
NOW, WALL = 1200.0, 1767225800.0


def recall(uuid: str) -> Remembered:
    return remember(RELEASE / "journal.jsonl", now=NOW, wall=WALL, boot_id=BOOT, owner=Owner(uuid, "i-1"))


def test_its_journal_is_remembered_and_belongs_to_the_device_that_its_volume_names() -> None:
    with pytest.raises(ConfigError):
        recall("another")
    memory = recall(UUID).state
    cycle = memory.cycle
    assert cycle is not None
    assert cycle.volume is not None
    assert (memory.phase, cycle.volume_id, cycle.volume.tag) == (
        Phase.BOOSTING,
        "vol-f16df648647adec26",
        VolumeTag.DIRTY,
    )
    assert (cycle.times.decided, cycle.times.boosted, cycle.create_unconfirmed_at) == (1163.0, 1168.94, 1160.0)
    assert (cycle.use.written_through_bytes, cycle.use.forced_writeback_bytes) == (12345, 678)
    assert not memory.memory.boost.updates_learned_size
    assert cycle.failure == Failure(FailureKind.UNKNOWN, "throttled once")
    assert cycle.backoff_of("DescribeVolume").retry_at > 0
    assert memory.inhibition is not None
    assert memory.inhibition.reason is InhibitionReason.SNAPSHOT
    assert (memory.loss_accepted_for, memory.given_up) == ("vol-given", ("vol-given",))


def test_its_ledger_is_read_and_written_on(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with sqlite3.connect(path) as db:
        db.executescript((RELEASE / "ledger.sql").read_text())
        db.execute("INSERT INTO spans VALUES (NULL, ?, 1, 33.0, 128.0, ?, ?)", (UUID, WALL - 2000, WALL - 100))
    db.close()
    with Ledger(path) as ledger:
        first, second = ledger.cycles(0.0, WALL)
        assert (first.provisioned_size_bytes, first.is_open, second.is_open) == (2 * 2**30, False, True)
        assert first.steps.boost_s == pytest.approx(5.54, abs=0.01)
        assert first.steps.format_s is not None
        assert {row.failure_kind for row in (first, second) if row.failure} <= {"unknown"}
        assert ledger.learned_size(UUID) == 3 * 2**30
        ledger.touch_device(UUID, 1, 33.0, 128.0, WALL, DevicePrices("USD", 1.0, 2.0))
        assert [span.prices for span in ledger.spans(0.0, WALL + 60)] == [DevicePrices(), DevicePrices("USD", 1.0, 2.0)]
        ledger.set_learned_size(UUID, 2**30)
        assert ledger.learned_size(UUID) == 2**30


def test_its_configuration_is_loaded() -> None:
    policy = load(RELEASE / "elastio.toml").policy()
    assert (policy.trigger_delay_s, policy.attach_timeout_s, policy.start_jitter_s) == (2.0, 90.0, 7.0)
    assert (policy.detach_throttle_after_s, policy.reconcile_interval_s) == (11.0, 600.0)


def test_a_setting_under_its_old_and_its_new_name_is_refused() -> None:
    both = {
        "device": {"backing_uuid": UUID, "bandwidth_mb_s": 60},
        "cache": {"bandwidth_mb_s": 128},
        "provider": {"name": "sim"},
        "policy": {"hold_s": 1, "trigger_delay_s": 2},
    }
    with pytest.raises(ConfigError) as refused:
        parse(both)
    assert refused.value.code == "policy.trigger_delay_s"
