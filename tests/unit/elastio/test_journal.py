"""The journal keeps what the agent must not forget: through power cuts, full disks, rotation and reboots."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elastio.agent import journal as module
from elastio.agent.journal import Journal, Owner, read
from elastio.agent.memory import Memory, remember, shift
from elastio.codec import encode
from elastio.core.actions import AttachVolume, CreateVolume, Outcome, OutcomeKind
from elastio.core.cycle import Backoff, Cycle, Failure, FailureKind, Timestamps, Trigger
from elastio.core.model import (
    CacheSetUuid,
    Purchase,
    Quote,
    Serial,
    Volume,
    VolumeId,
    VolumeSpec,
    VolumeState,
    VolumeTag,
)
from elastio.core.state import AgentState, Inhibition, InhibitionReason, Lesson, Phase, UselessBoost, Waste
from elastio.errors import ConfigError, JournalError

SPEC = VolumeSpec(10 * 2**30, 128.0, 3000)
VOLUME = Volume(VolumeId("vol-1"), Serial("vol1"), VolumeState.ATTACHED, 10 * 2**30, 125.0, "token", "uuid", 1000.5)
QUOTE = Quote(SPEC, "USD", 0.1, 60.0, "list of 2026")
MARKS = Timestamps(*(100.0 + n for n in range(len(dataclasses.fields(Timestamps)))))
FULL = Cycle(
    token="token",
    trigger=Trigger.OPERATOR,
    spec=SPEC,
    started_at=99.0,
    started_wall=1099.0,
    volume_id=VolumeId("vol-1"),
    serial=Serial("vol1"),
    backing_serial=Serial("vol0"),
    cache_set=CacheSetUuid("cf27dac6"),
    volume=VOLUME,
    quote=QUOTE,
    unready_at=100.5,
    seen=True,
    create_unconfirmed_at=101.0,
    chance_until=300.0,
    forced=True,
    opened_wall=1101.0,
    closed_wall=1201.0,
    times=MARKS,
    backoffs={"CreateVolume": Backoff(2, 130.0, "throttled")},
    peak_dirty_bytes=1,
    peak_in_use_percent=2,
    written_through_bytes=3,
    moved_bytes=30,
    gained_bytes=31,
    bare=0.5,
    longest_s=32.0,
    forced_writeback_bytes=5,
    overflow_base=6,
    flush_started_dirty_bytes=4,
    cutoff_percent=5,
    dirty_bytes=7,
    dirty_wall=1109.0,
    dirty_boot="boot-1",
    is_index_dirty=True,
    may_lack_data=True,
    operator_confirmed=True,
    tag=VolumeTag.CLEAN,
    failure=Failure(FailureKind.TIMED_OUT, "no luck"),
)
OWNER = Owner("uuid-1", "i-1")
STATE = AgentState(phase=Phase.BOOSTING, cycle=FULL, paused=True)
CREATE = CreateVolume("token", SPEC, SPEC.size_bytes)
BOOT = {"now": 110.0, "wall": 1110.0, "boot_id": "boot-1"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.jsonl"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    opened = Journal(path, "boot-1", OWNER)
    opened.open()
    yield opened
    opened.close()


def decide(journal: Journal, state: AgentState = STATE, reason: str = "because", now: float = 110.0) -> None:
    journal.decision(Phase.IDLE, state, reason, now=now, wall=now + 1000.0)


def recall(path: Path, **changes: Any) -> Memory:
    return remember(path, **{**BOOT, **changes})


def reasons(path: Path) -> list[str]:
    return [record["reason"] for record in read(path)]


# --- writing and remembering -------------------------------------------------------------------------------


def test_a_journal_that_is_not_there_remembers_nothing(path: Path) -> None:
    assert recall(path) == Memory()


def test_remembers_a_cycle_with_every_field_set(journal: Journal, path: Path) -> None:
    empty = [f.name for f in dataclasses.fields(Cycle) if getattr(FULL, f.name) in (None, "", 0, False)]
    assert empty == []
    decide(journal)
    assert recall(path) == Memory(Phase.BOOSTING, FULL, paused=True, boot_id="boot-1")


def test_what_an_effect_waits_for_is_on_the_disk(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    journal.note(STATE, now=110.0, wall=1110.0)
    assert synced == []
    journal.intend(CREATE, STATE, now=110.0, wall=1110.0)
    assert len(synced) == 1
    decide(journal)
    assert len(synced) == 2


def test_a_journal_of_another_machine_is_not_believed(journal: Journal, path: Path) -> None:
    """It came with a machine image: its volume is the cache of the machine that the image was made of."""
    decide(journal)
    told = recall(path, owner=Owner("uuid-1", "i-2"))
    assert (told.phase, told.cycle, told.paused, told.machine) == (Phase.IDLE, None, False, "i-2")
    assert "vol-1" in told.foreign
    assert recall(path, owner=OWNER) == replace(recall(path), machine="i-1")


def test_an_open_cycle_of_another_backing_device_stops_the_start(journal: Journal, path: Path) -> None:
    decide(journal)
    with pytest.raises(ConfigError, match="vol-1"):
        recall(path, owner=Owner("uuid-2", "i-1"))
    decide(journal, AgentState(paused=True))
    assert recall(path, owner=Owner("uuid-2", "i-1")) == Memory(machine="i-1")


def test_records_of_before_are_bound_by_the_volume_that_they_name(path: Path) -> None:
    with_nobody = Journal(path, "boot-1")
    with_nobody.open()
    decide(with_nobody)
    with_nobody.close()
    assert recall(path, owner=Owner(VOLUME.backing_uuid, "i-1")).cycle == FULL
    with pytest.raises(ConfigError):
        recall(path, owner=Owner("uuid-9", "i-1"))


def test_the_last_record_counts(journal: Journal, path: Path) -> None:
    decide(journal)
    journal.intend(CREATE, replace(STATE, phase=Phase.ATTACHING), now=111.0, wall=1111.0)
    assert recall(path).phase is Phase.ATTACHING
    decide(journal, AgentState())
    assert recall(path) == Memory(Phase.IDLE, boot_id="boot-1")


def test_remembers_a_hold_for_a_snapshot_and_no_other(journal: Journal, path: Path) -> None:
    for reason in InhibitionReason:
        decide(journal, replace(STATE, inhibition=Inhibition(reason, 200.0)))
        assert (recall(path).inhibition is not None) == (reason is InhibitionReason.SNAPSHOT)


def test_a_hold_is_not_longer_after_a_boot_than_it_had_left(journal: Journal, path: Path) -> None:
    decide(journal, replace(STATE, inhibition=Inhibition(InhibitionReason.SNAPSHOT, 200.0)))  # 90 s are left
    later = recall(path, boot_id="boot-2", now=5.0, wall=1150.0).inhibition
    assert later == Inhibition(InhibitionReason.SNAPSHOT, 55.0)  # 40 s of them went by
    wrong = recall(path, boot_id="boot-2", now=5.0, wall=-1e9).inhibition
    assert wrong == Inhibition(InhibitionReason.SNAPSHOT, 95.0)


def test_remembers_what_an_operator_gave_up_and_in_which_boot(journal: Journal, path: Path) -> None:
    decide(journal, replace(STATE, loss_accepted_for="vol-1", given_up=(VolumeId("vol-0"),), is_stale_accepted=True))
    state = recall(path, boot_id="boot-2").state(learned_size_bytes=3)
    assert (state.loss_accepted_for, state.boot_id, state.learned_size_bytes, state.recovered) == (
        "vol-1",
        "boot-1",
        3,
        False,
    )
    assert (state.given_up, state.is_stale_accepted) == (("vol-0",), True)


def test_what_a_record_of_before_names_as_given_up_is_kept_and_orders_nothing(journal: Journal, path: Path) -> None:
    decide(journal, replace(STATE, loss_accepted_for="vol-1"))
    (record,) = read(path)
    del record["given_up"], record["is_stale_accepted"], record["cycle"]["dirty_boot"]
    for accepted, given_up in (("vol-1", ("vol-1",)), ("", ())):
        path.write_text(json.dumps({**record, "accepted": accepted}) + "\n")
        memory = recall(path)
        assert (memory.loss_accepted_for, memory.given_up, memory.is_stale_accepted) == ("", given_up, bool(accepted))
        assert memory.cycle == replace(FULL, dirty_boot="")


def test_a_hold_for_a_snapshot_is_remembered_under_another_one(journal: Journal, path: Path) -> None:
    snapshot = Inhibition(InhibitionReason.SNAPSHOT, 200.0)
    stop = Inhibition(InhibitionReason.STOP, 120.0, under=snapshot)
    for hold in (stop, Inhibition(InhibitionReason.NOTICE, 900.0, under=stop)):
        decide(journal, replace(STATE, inhibition=hold))
        assert recall(path).inhibition == snapshot
    (record, *_) = read(path)
    del record["inhibition"]["under"]
    path.write_text(json.dumps(record) + "\n")
    assert recall(path).inhibition == snapshot


def test_a_note_tells_how_much_is_dirty_and_is_no_decision(journal: Journal, path: Path) -> None:
    decide(journal)
    journal.note(replace(STATE, cycle=replace(FULL, dirty_bytes=99)), now=111.0, wall=1111.0)
    remembered = recall(path).cycle
    assert remembered is not None
    assert remembered.dirty_bytes == 99
    assert [r["kind"] for r in read(path)] == ["decision", "note"]


def test_an_outcome_changes_nothing_that_is_remembered(journal: Journal, path: Path) -> None:
    decide(journal)
    journal.outcome(Outcome(CREATE, OutcomeKind.DONE, Purchase(VOLUME, QUOTE), seconds=0.25), now=112.0, wall=1112.0)
    assert recall(path).cycle == FULL
    assert list(read(path))[-1] == {
        "seq": 2,
        "kind": "outcome",
        "wall": 1112.0,
        "now": 112.0,
        "boot": "boot-1",
        "backing": "uuid-1",
        "machine": "i-1",
        "action": "CreateVolume",
        "verdict": "done",
        "seconds": 0.25,
        "error": "",
        "value": encode(Purchase(VOLUME, QUOTE)),
    }


def test_an_intent_says_what_is_about_to_happen(journal: Journal, path: Path) -> None:
    journal.intend(AttachVolume(VolumeId("vol-1")), STATE, now=1.0, wall=2.0)
    (record,) = read(path)
    assert (record["kind"], record["action"], record["with"]) == ("intent", "AttachVolume", {"volume_id": "vol-1"})


def test_numbering_goes_on_after_a_restart(journal: Journal, path: Path) -> None:
    decide(journal)
    journal.close()
    journal.open()
    decide(journal)
    assert [record["seq"] for record in read(path)] == [1, 2]


def test_a_journal_that_is_not_open_takes_nothing(path: Path) -> None:
    with pytest.raises(JournalError, match="not open"):
        decide(Journal(path, "boot-1"))


# --- damage ------------------------------------------------------------------------------------------------


def test_a_torn_last_line_is_cut_off_and_written_over(journal: Journal, path: Path) -> None:
    decide(journal, reason="first")
    journal.close()
    with path.open("ab") as file:
        file.write(b'{"seq":2,"kind":"decision","phase":"idle","cyc')
    assert recall(path).phase is Phase.BOOSTING
    journal.open()
    decide(journal, reason="second")
    assert reasons(path) == ["first", "second"]
    assert b"cyc{" not in path.read_bytes()


def test_a_file_that_is_one_torn_line_is_empty(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b'{"seq":1')
    journal = Journal(path, "boot-1")
    journal.open()
    assert path.read_bytes() == b""
    journal.close()


@contextmanager
def no_room_beyond(size_bytes: int) -> Iterator[None]:
    """A file that would grow beyond this is cut there, as on a full disk: write(2) tells how much fitted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_half_a_line_on_a_full_disk_spoils_no_later_line(journal: Journal, path: Path) -> None:
    decide(journal, reason="first")
    size = path.stat().st_size
    with no_room_beyond(size + 40):
        with pytest.raises(JournalError, match=r"cannot write the journal .*the disk is full"):
            decide(journal, AgentState(), reason="half")
        assert path.stat().st_size == size + 40
        assert recall(path).phase is Phase.BOOSTING
        with pytest.raises(JournalError, match="cannot write the journal"):
            decide(journal, AgentState(), reason="none")
    decide(journal, AgentState(phase=Phase.DETACHING), reason="second")
    decide(journal, AgentState(phase=Phase.DETACHING), reason="third")
    assert reasons(path) == ["first", "second", "third"]
    assert recall(path).phase is Phase.DETACHING


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
    ],
)
def test_a_last_record_that_is_not_understood_is_for_the_operator(path: Path, last: dict[str, Any]) -> None:
    path.parent.mkdir()
    path.write_text(json.dumps({"seq": 1, "kind": "decision", "boot": "boot-1", **last}) + "\n")
    with pytest.raises(JournalError):
        recall(path)


def test_a_number_that_is_none_does_not_stop_the_start(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('{"seq":"seven"}\n[1]\n{"seq":3}\n')
    journal = Journal(path, "boot-1")
    journal.open()
    decide(journal)
    assert list(read(path))[-1]["seq"] == 4
    journal.close()


def test_a_place_where_no_journal_can_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match=r"cannot open the journal .*file/journal.jsonl"):
        Journal(tmp_path / "file" / "journal.jsonl", "boot-1").open()
    with pytest.raises(JournalError, match="cannot read the journal"):
        recall(tmp_path)


# --- rotation ----------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROTATE_BYTES", 4096)


@pytest.mark.usefixtures("small")
def test_rotation_keeps_the_memory_and_one_older_file(journal: Journal, path: Path) -> None:
    for number in range(20):
        decide(journal, reason=str(number))
        assert recall(path).cycle == FULL
    older = path.with_suffix(".old")
    assert sorted(p.name for p in path.parent.iterdir()) == ["journal.jsonl", "journal.old"]
    assert path.stat().st_size < 4096 + 2048
    numbers = [int(reason) for reason in dict.fromkeys([*reasons(older), *reasons(path)])]
    assert numbers == list(range(numbers[0], 20))
    assert [r["seq"] for r in read(path)][-1] == 20


@pytest.mark.usefixtures("small")
def test_a_rotation_that_fails_costs_only_space(journal: Journal, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.with_suffix(".new").mkdir()
    for number in range(8):
        decide(journal, reason=str(number))
    assert len(reasons(path)) == 8
    assert "the journal is not rotated" in caplog.text
    path.with_suffix(".new").rmdir()
    decide(journal, reason="8")
    decide(journal, reason="9")
    assert reasons(path) == ["8", "9"]
    assert len(reasons(path.with_suffix(".old"))) == 9


@pytest.mark.usefixtures("small")
def test_a_crash_between_two_steps_of_a_rotation_loses_nothing(journal: Journal, path: Path) -> None:
    """The older name and half a new file are there, the journal itself still stands under its name."""
    decide(journal, reason="first")
    path.with_suffix(".old").hardlink_to(path)
    path.with_suffix(".new").write_bytes(b'{"seq":')
    before = path.stat().st_ino
    for number in range(10):
        if path.stat().st_ino == before:
            decide(journal, reason=str(number))
    assert recall(path).cycle == FULL
    older = reasons(path.with_suffix(".old"))
    assert older == ["first", *(str(number) for number in range(len(older) - 1))]
    assert reasons(path) == older[-1:]


# --- clocks ------------------------------------------------------------------------------------------------


def test_within_one_boot_times_stay_as_they_are(journal: Journal, path: Path) -> None:
    decide(journal)
    assert recall(path, now=500.0, wall=9000.0).cycle == FULL


def test_after_a_reboot_times_are_moved_into_the_new_boot(journal: Journal, path: Path) -> None:
    """The record was written at 110 s of its boot; 400 s later this boot is 20 s old."""
    decide(journal)
    cycle = recall(path, now=20.0, wall=1510.0, boot_id="boot-2").cycle
    assert cycle is not None
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
    cycle = recall(path, now=20.0, wall=1110.0 - 86400.0, boot_id="boot-2").cycle
    assert cycle is not None
    assert (cycle.started_at, cycle.create_unconfirmed_at, cycle.times.decided) == (20.0, 20.0, 20.0)


# --- boosts that failed --------------------------------------------------------------------------------------


def test_what_boosts_taught_and_what_was_bought_for_nothing_outlives_a_restart(journal: Journal, path: Path) -> None:
    lessons = (Lesson(5, 4), Lesson(7, 6))
    thrift = Waste((UselessBoost(0.4, 2.0, 1000.0),), 3, "nothing came of it")
    journal.decision(Phase.IDLE, AgentState(lessons=lessons, waste=thrift), "idle", now=110.0, wall=1110.0)
    started = recall(path, boot_id="boot-2").state(learned_size_bytes=7)
    assert (started.lessons, started.waste) == (lessons, thrift)


@pytest.mark.parametrize(
    ("boot", "now", "wall", "until"),
    [
        ("boot-1", 150.0, 1150.0, 400.0),  # the same boot: the same clock
        ("boot-2", 20.0, 1150.0, 270.0),  # 250 s are left of 290
        ("boot-2", 20.0, 1110.0 - 86400.0, 310.0),  # a clock a day behind: no longer than it was to be
    ],
)
def test_failed_boosts_keep_the_load_alone_over_a_restart(
    journal: Journal, path: Path, boot: str, now: float, wall: float, until: float
) -> None:
    failed = AgentState(failures=3, cool_until=400.0)
    journal.decision(Phase.ATTACHING, failed, "refused", now=110.0, wall=1110.0)
    memory = recall(path, now=now, wall=wall, boot_id=boot)
    assert (memory.failures, memory.cool_until) == (3, until)
    started = memory.state(learned_size_bytes=7)
    assert (started.failures, started.cool_until, started.learned_size_bytes) == (3, until, 7)


def test_a_cool_down_that_was_over_stays_over(journal: Journal, path: Path) -> None:
    journal.decision(Phase.IDLE, AgentState(cool_until=50.0), "quiet", now=110.0, wall=1110.0)
    memory = recall(path, now=20.0, wall=1110.0 - 86400.0, boot_id="boot-2")
    assert memory.cool_until <= 20.0
