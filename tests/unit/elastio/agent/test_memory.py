"""What the agent remembers from its journal: across restarts, reboots, other machines and older releases."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elastio.agent.journal import Journal, Owner, read
from elastio.agent.memory import Remembered, bought, shift
from elastio.codec import encode, kept_fields
from elastio.core.cycle import Timestamps
from elastio.core.model import Forecast, VolumeId
from elastio.core.state import (
    AgentState,
    Fault,
    FaultKind,
    Inhibition,
    InhibitionReason,
    Phase,
)
from elastio.errors import ConfigError, JournalError
from elastio.strategy.credits import CreditBalance
from elastio.strategy.memory import (
    Boost,
    Capped,
    Filling,
    LearnedBandwidth,
    Lesson,
    Memory,
    QuotaReached,
    Unended,
    UselessBoost,
    Waste,
)
from elastio.strategy.spending import Period
from tests.values import VOLUME_ID, present

from .journals import BOOST, FULL, OWNER, STATE, decide, recall

WITHOUT_MEMORY = Path(__file__).parents[3] / "fixtures" / "journal_without_memory.jsonl"
ANNOUNCED = Forecast(150.0, 2**30, 1.0, is_announced=True)
# All that WITHOUT_MEMORY says.
LEARNED = Memory(
    boost=BOOST,
    lessons=(Lesson(5, 4), Lesson(7, 6)),
    bandwidth=LearnedBandwidth(91.0, instance_mb_s=500.0),
    cutoff_percent=70,
    waste=Waste((UselessBoost(0.4, 2.0, 1000.0),), 3, "nothing came of it"),
    capped=Capped("caps.max_agbs_per_day", 40.0, Period(0.0, 86400.0)),
    has_filled=True,
    expected=(ANNOUNCED,),
    missed=1,
    missed_forecasts=2,
    attach_s=(4.5, 3.5),
    release_s=(12.0,),
    credits=CreditBalance(5e9, 109.0),
)


def test_a_journal_that_is_not_there_remembers_nothing(path: Path) -> None:
    assert recall(path) == Remembered()


def test_remembers_a_cycle_and_its_phase(journal: Journal, path: Path) -> None:
    decide(journal)
    assert recall(path) == Remembered(replace(STATE, boot_id="boot-1"))


def test_a_journal_of_another_machine_is_not_believed(journal: Journal, path: Path) -> None:
    """It came with a machine image: its volume is the cache of the machine that the image was made of."""
    decide(journal)
    told = recall(path, owner=Owner("uuid-1", "i-2"))
    assert told.state == AgentState(machine="i-2")
    assert VOLUME_ID in told.foreign
    assert recall(path, owner=OWNER).state == replace(recall(path).state, machine="i-1")


def test_an_open_cycle_of_another_backing_device_stops_the_start(journal: Journal, path: Path) -> None:
    decide(journal)
    with pytest.raises(ConfigError):
        recall(path, owner=Owner("uuid-2", "i-1"))
    decide(journal, AgentState(paused=True))
    assert recall(path, owner=Owner("uuid-2", "i-1")) == Remembered(AgentState(machine="i-1"))


def test_remembers_an_inhibition_for_a_snapshot_and_no_other(journal: Journal, path: Path) -> None:
    for reason in InhibitionReason:
        decide(journal, replace(STATE, inhibition=Inhibition(reason, 200.0)))
        assert (recall(path).state.inhibition is not None) == (reason is InhibitionReason.SNAPSHOT)


def test_an_inhibition_is_not_longer_after_a_boot_than_it_had_left(journal: Journal, path: Path) -> None:
    decide(journal, replace(STATE, inhibition=Inhibition(InhibitionReason.SNAPSHOT, 200.0)))  # 90 s are left
    later = recall(path, boot_id="boot-2", now=5.0, wall=1150.0).state.inhibition
    assert later == Inhibition(InhibitionReason.SNAPSHOT, 55.0)  # 40 s of them went by
    wrong = recall(path, boot_id="boot-2", now=5.0, wall=-1e9).state.inhibition
    assert wrong == Inhibition(InhibitionReason.SNAPSHOT, 95.0)


def test_remembers_what_an_operator_gave_up_and_in_which_boot(journal: Journal, path: Path) -> None:
    decide(journal, replace(STATE, loss_accepted_for="vol-1", given_up=(VolumeId("vol-0"),), is_stale_accepted=True))
    state = recall(path, boot_id="boot-2").state
    assert (state.loss_accepted_for, state.boot_id, state.recovered) == ("vol-1", "boot-1", False)
    assert (state.given_up, state.is_stale_accepted) == (("vol-0",), True)


@pytest.mark.parametrize("kind", FaultKind)
def test_remembers_the_fault_of_a_broken_rule_and_no_other(kind: FaultKind, journal: Journal, path: Path) -> None:
    """The kernel or the cloud shows every other one again."""
    fault = Fault(kind, "a sentence")
    decide(journal, replace(STATE, phase=Phase.FAULTED, fault=fault))
    kept = fault if kind is FaultKind.RULE_BROKEN else None
    assert (recall(path).state.fault, recall(path, boot_id="boot-2").state.fault) == (kept, kept)
    decide(journal, STATE)
    assert recall(path).state.fault is None


@pytest.mark.parametrize("fault", [{"kind": "unheard of", "text": ""}, {"kind": "cache missing", "text": ""}, "rule"])
def test_a_fault_that_is_not_understood_is_not_dropped(fault: object, journal: Journal, path: Path) -> None:
    decide(journal, replace(STATE, phase=Phase.FAULTED))
    (record,) = read(path)
    path.write_text(json.dumps({**record, "fault": fault}) + "\n")
    with pytest.raises(JournalError):
        recall(path)


def test_what_an_earlier_release_recorded_as_given_up_is_kept_and_orders_nothing(journal: Journal, path: Path) -> None:
    decide(journal, replace(STATE, loss_accepted_for="vol-1"))
    (record,) = read(path)
    del record["given_up"], record["is_stale_accepted"], record["cycle"]["dirty_boot"]
    for accepted, given_up in (("vol-1", ("vol-1",)), ("", ())):
        path.write_text(json.dumps({**record, "accepted": accepted}) + "\n")
        memory = recall(path).state
        assert (memory.loss_accepted_for, memory.given_up, memory.is_stale_accepted) == ("", given_up, bool(accepted))
        assert memory.cycle == replace(FULL, dirty_boot="")


def test_the_use_of_a_cache_is_read_where_an_earlier_release_recorded_it(journal: Journal, path: Path) -> None:
    decide(journal)
    (record,) = read(path)
    record["cycle"] |= record["cycle"].pop("use")
    path.write_text(json.dumps(record) + "\n")
    assert recall(path).state.cycle == FULL
    assert [found for found, _ in bought(read(path), OWNER)] == [FULL]


def test_an_inhibition_for_a_snapshot_is_remembered_under_another_one(journal: Journal, path: Path) -> None:
    snapshot = Inhibition(InhibitionReason.SNAPSHOT, 200.0)
    stop = Inhibition(InhibitionReason.STOP, 120.0, under=snapshot)
    for hold in (stop, Inhibition(InhibitionReason.NOTICE, 900.0, under=stop)):
        decide(journal, replace(STATE, inhibition=hold))
        assert recall(path).state.inhibition == snapshot
    (record, *_) = read(path)
    del record["inhibition"]["under"]
    path.write_text(json.dumps(record) + "\n")
    assert recall(path).state.inhibition == snapshot


@pytest.mark.parametrize(
    "last",
    [
        {"phase": "levitating", "cycle": None, "now": 1.0, "wall": 2.0},
        {"phase": "idle", "now": 1.0, "wall": 2.0},
        {"phase": "boosting", "cycle": {"token": "t"}, "now": 1.0, "wall": 2.0},
        {"phase": "boosting", "cycle": "t", "now": 1.0, "wall": 2.0},
        {"phase": "boosting", "cycle": {**encode(FULL), "backoffs": []}, "now": 1.0, "wall": 2.0},
        {"phase": "idle", "cycle": None, "wall": 2.0},
        {"phase": "idle", "cycle": None, "now": [], "wall": 2.0},
        {"phase": "idle", "cycle": None, "now": 1.0, "wall": 2.0, "given_up": "vol-1"},
        {"phase": "idle", "cycle": None, "now": 1.0, "wall": 2.0, "memory": ["capped"]},
        {"phase": "idle", "cycle": None, "now": 1.0, "wall": 2.0, "memory": {"capped": "caps.shared"}},
        {"phase": "idle", "cycle": None, "now": 1.0, "wall": 2.0, "capped": "caps.shared"},
    ],
)
def test_a_last_record_that_is_not_understood_is_for_the_operator(path: Path, last: dict[str, Any]) -> None:
    path.parent.mkdir()
    path.write_text(json.dumps({"seq": 1, "kind": "decision", "boot": "boot-1", **last}) + "\n")
    with pytest.raises(JournalError) as refused:
        recall(path)
    assert refused.value.code == "record.unknown"


def test_within_one_boot_times_stay_as_they_are(journal: Journal, path: Path) -> None:
    decide(journal)
    assert recall(path, now=500.0, wall=9000.0).state.cycle == FULL


def test_after_a_reboot_times_are_moved_into_the_new_boot(journal: Journal, path: Path) -> None:
    """The record was written at 110 s of its boot; 400 s later this boot is 20 s old."""
    decide(journal)
    cycle = present(recall(path, now=20.0, wall=1510.0, boot_id="boot-2").state.cycle)
    assert cycle.started_at == 99.0 - 490.0
    assert cycle.create_unconfirmed_at == 101.0 - 490.0
    assert cycle.times == Timestamps(*(100.0 + n - 490.0 for n in range(len(dataclasses.fields(Timestamps)))))
    assert (cycle.started_wall, cycle.opened_wall, cycle.closed_wall) == (1099.0, 1101.0, 1201.0)
    assert cycle.backoffs == {}


def test_what_has_not_happened_stays_so() -> None:
    shifted = shift(replace(FULL, times=Timestamps(created=5.0), create_unconfirmed_at=None), 10.0, 1000.0)
    assert shifted.times == Timestamps(created=15.0)
    assert shifted.create_unconfirmed_at is None


def test_a_wrong_time_of_day_moves_nothing_into_the_future(journal: Journal, path: Path) -> None:
    """The clock of this boot is a day behind the one that wrote: nothing may wait for tomorrow."""
    decide(journal)
    cycle = present(recall(path, now=20.0, wall=1110.0 - 86400.0, boot_id="boot-2").state.cycle)
    assert (cycle.started_at, cycle.create_unconfirmed_at, cycle.times.decided) == (20.0, 20.0, 20.0)


def test_credits_survive_a_restart_with_the_time_at_which_they_were_counted(journal: Journal, path: Path) -> None:
    decide(journal)
    assert recall(path).state.memory.credits is None
    decide(journal, replace(STATE, memory=Memory(credits=CreditBalance(5e9, 109.0))))
    assert recall(path, now=500.0, wall=9000.0).state.memory.credits == CreditBalance(5e9, 109.0)
    moved = recall(path, now=20.0, wall=1510.0, boot_id="boot-2").state
    assert moved.memory.credits == CreditBalance(5e9, 109.0 - 490.0)


def test_credits_that_were_recorded_in_the_future_count_as_used(journal: Journal, path: Path) -> None:
    decide(journal, replace(STATE, memory=Memory(credits=CreditBalance(5e9, 109.0))))
    behind = recall(path, now=20.0, wall=1110.0 - 86400.0, boot_id="boot-2").state
    assert behind.memory.credits == CreditBalance(0.0, 20.0)


def test_times_of_the_cloud_survive_a_restart(journal: Journal, path: Path) -> None:
    known = AgentState(appear_s=(3.0,), memory=Memory(attach_s=(4.5, 3.5), cutoff_percent=70))
    journal.decision(Phase.IDLE, known, "idle", now=110.0, wall=1110.0)
    state = recall(path).state
    assert (state.memory.attach_s, state.appear_s, state.memory.cutoff_percent) == ((4.5, 3.5), (3.0,), 70)


def test_what_the_strategy_keeps_survives_a_restart_under_one_key(journal: Journal, path: Path) -> None:
    passing = Memory(declined_for=5.0, awaited=ANNOUNCED, full_since=7.0, credit_limit_mb_s=1.0, declined_boosts=2)
    quota = QuotaReached(9, 1000.0)
    known = replace(
        LEARNED, unended=Unended(9000.0, 80.0), filling=Filling(6.0, 0, 80.0), is_needless=True, quota=quota
    )
    kept = {name: getattr(known, name) for name in kept_fields(Memory)}
    assert not any(value == getattr(Memory(), name) for name, value in kept.items())
    journal.decision(Phase.IDLE, AgentState(memory=replace(passing, **kept)), "idle", now=110.0, wall=1110.0)
    (record,) = read(path)
    assert record["memory"] == {name: encode(value) for name, value in kept.items()}
    assert not record.keys() & kept.keys()
    assert recall(path).state.memory == known
    del record["memory"]["filling"]  # earlier releases did not keep it
    path.write_text(json.dumps(record) + "\n")
    assert recall(path).state.memory == replace(known, filling=None)


def test_no_load_that_fills_a_cache_outlives_its_boot(journal: Journal, path: Path) -> None:
    decide(journal, replace(STATE, memory=Memory(filling=Filling(6.0, 0))))
    assert recall(path, boot_id="boot-2", now=20.0, wall=1120.0).state.memory.filling is None


def test_what_is_known_of_a_boost_is_read_from_the_cycle_where_it_stood_before(journal: Journal, path: Path) -> None:
    decide(journal)
    (record,) = read(path)
    del record["memory"]["boost"]
    record["cycle"] |= encode(BOOST)
    path.write_text(json.dumps(record) + "\n")
    assert recall(path).state.memory.boost == BOOST
    booted = recall(path, boot_id="boot-2", now=20.0, wall=1120.0).state.memory.boost
    assert booted == replace(BOOST, chance_until=20.0, clean_since=5.0)


def test_what_the_strategy_kept_before_it_had_a_key_of_its_own_is_read(journal: Journal, path: Path) -> None:
    """It stood beside the other fields."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(WITHOUT_MEMORY.read_text())
    found = recall(path).state
    learned = replace(LEARNED, boost=Boost())
    assert found.memory == learned
    assert (found.appear_s, found.failures, found.cool_until) == ((3.0,), 3, 400.0)
    decide(journal, found)
    assert recall(path).state.memory == learned


@pytest.mark.parametrize(
    ("boot", "now", "wall", "cool_until", "until"),
    [
        ("boot-1", 150.0, 1150.0, 400.0, 400.0),  # the same boot: the same clock
        ("boot-2", 20.0, 1150.0, 400.0, 270.0),  # 250 s are left of 290
        ("boot-2", 20.0, 1110.0 - 86400.0, 400.0, 310.0),  # a clock a day behind: no longer than it was to be
        ("boot-2", 20.0, 1110.0 - 86400.0, 50.0, 20.0),  # what was over stays over
    ],
)
def test_failed_boosts_keep_the_load_alone_over_a_restart(
    journal: Journal, path: Path, boot: str, now: float, wall: float, cool_until: float, until: float
) -> None:
    failed = AgentState(failures=3, cool_until=cool_until)
    journal.decision(Phase.ATTACHING, failed, "refused", now=110.0, wall=1110.0)
    started = recall(path, now=now, wall=wall, boot_id=boot).state
    assert (started.failures, started.cool_until) == (3, until)
