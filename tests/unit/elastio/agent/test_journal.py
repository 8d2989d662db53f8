"""The journal keeps its records through power cuts, full disks and rotation."""

from __future__ import annotations

import errno
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.agent import journal as module
from elastio.agent.journal import Journal, read
from elastio.codec import encode
from elastio.core.actions import AttachVolume, Outcome, OutcomeKind
from elastio.core.model import Purchase, Quote, VolumeId
from elastio.core.state import AgentState, Phase
from elastio.errors import HostError, JournalError, UnsyncedError
from elastio.host.locks import lock_device
from tests.fixtures.synced import syncs
from tests.values import present, volume

from .journals import CREATE, FULL, SPEC, STATE, decide, reasons, recall


def test_what_an_effect_waits_for_is_on_the_disk(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    journal.note(STATE, now=110.0, wall=1110.0)
    assert synced == []
    journal.intend(CREATE, STATE, now=110.0, wall=1110.0)
    assert len(synced) == 1
    decide(journal)
    assert len(synced) == 2


def test_a_note_tells_how_much_is_dirty_and_is_no_decision(journal: Journal, path: Path) -> None:
    decide(journal)
    journal.note(replace(STATE, cycle=replace(FULL, dirty_bytes=99)), now=111.0, wall=1111.0)
    remembered = present(recall(path).state.cycle)
    assert remembered.dirty_bytes == 99
    assert [r["kind"] for r in read(path)] == ["decision", "note"]


def test_an_outcome_changes_nothing_that_is_remembered(journal: Journal, path: Path) -> None:
    decide(journal)
    bought = Purchase(volume(), Quote(SPEC, "USD", 0.1, 60.0, "list of 2026"))
    journal.outcome(Outcome(CREATE, OutcomeKind.DONE, bought, seconds=0.25), now=112.0, wall=1112.0)
    assert recall(path).state.cycle == FULL
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
        "code": "",
        "value": encode(bought),
    }


def test_an_intent_says_what_is_about_to_happen(journal: Journal, path: Path) -> None:
    journal.intend(AttachVolume(VolumeId("vol-1")), STATE, now=1.0, wall=2.0)
    (record,) = read(path)
    assert (record["kind"], record["action"], record["with"]) == ("intent", "AttachVolume", {"volume_id": "vol-1"})


def test_a_journal_that_is_not_open_takes_nothing(path: Path) -> None:
    with pytest.raises(JournalError):
        decide(Journal(path, "boot-1"))


def test_a_torn_last_line_is_cut_off_and_written_over(journal: Journal, path: Path) -> None:
    decide(journal, reason="first")
    journal.close()
    with path.open("ab") as file:
        file.write(b'{"seq":2,"kind":"decision","phase":"idle","cyc')
    assert recall(path).state.phase is Phase.BOOSTING
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
        with pytest.raises(JournalError) as full:
            decide(journal, AgentState(), reason="half")
        assert (full.value.code, isinstance(full.value, UnsyncedError)) == ("ENOSPC", False)
        assert path.stat().st_size == size + 40
        assert recall(path).state.phase is Phase.BOOSTING
        with pytest.raises(JournalError):
            decide(journal, AgentState(), reason="none")
    decide(journal, AgentState(phase=Phase.DETACHING), reason="second")
    decide(journal, AgentState(phase=Phase.DETACHING), reason="third")
    assert reasons(path) == ["first", "second", "third"]
    assert recall(path).state.phase is Phase.DETACHING


def test_what_was_written_and_not_synced_may_be_found_and_the_error_says_so(
    journal: Journal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    decide(journal, reason="first")
    monkeypatch.setattr(os, "fdatasync", fails)
    with pytest.raises(UnsyncedError):
        decide(journal, AgentState(phase=Phase.DETACHING), reason="second")
    assert reasons(path) == ["first", "second"]


def test_a_malformed_sequence_number_does_not_prevent_the_start(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('{"seq":"seven"}\n[1]\n{"seq":3}\n')
    journal = Journal(path, "boot-1")
    journal.open()
    decide(journal)
    assert list(read(path))[-1]["seq"] == 4
    journal.close()


def test_a_place_where_no_journal_can_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError) as unopened:
        Journal(tmp_path / "file" / "journal.jsonl", "boot-1").open()
    with pytest.raises(JournalError) as unread:
        recall(tmp_path)
    assert (unopened.value.code, unread.value.code) == ("EEXIST", "EISDIR")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROTATE_BYTES", 4600)


@pytest.mark.usefixtures("small")
def test_rotation_keeps_the_memory_and_one_older_file(journal: Journal, path: Path) -> None:
    for number in range(20):
        decide(journal, reason=str(number))
        assert recall(path).state.cycle == FULL
    older = path.with_suffix(".old")
    assert sorted(p.name for p in path.parent.iterdir()) == ["journal.jsonl", "journal.old"]
    assert path.stat().st_size < 4096 + 2048
    numbers = [int(reason) for reason in dict.fromkeys([*reasons(older), *reasons(path)])]
    assert numbers == list(range(numbers[0], 20))
    assert [r["seq"] for r in read(path)][-1] == 20


@pytest.mark.usefixtures("small")
def test_a_new_file_is_durable_before_it_takes_the_name_and_the_name_afterwards(
    journal: Journal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = syncs(monkeypatch)
    while not any("->" in done for done in seen):
        decide(journal)
    assert seen[-3:] == ["journal.new", "journal.new -> journal.jsonl", path.parent.name]


@pytest.mark.usefixtures("small")
def test_a_rotation_that_fails_costs_only_space(journal: Journal, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.with_suffix(".new").mkdir()
    for number in range(8):
        decide(journal, reason=str(number))
    assert len(reasons(path)) == 8
    assert caplog.records
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
    assert recall(path).state.cycle == FULL
    older = reasons(path.with_suffix(".old"))
    assert older == ["first", *(str(number) for number in range(len(older) - 1))]
    assert reasons(path) == older[-1:]


@pytest.fixture
def _open_mask() -> Iterator[None]:
    """As a careless service manager leaves it: what is private is so by its own mode."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_open_mask")
def test_journal_and_lock_are_private_whatever_the_mask(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "state" / "journal.jsonl", "boot")
    journal.open()
    journal.close()
    os.close(lock_device(tmp_path / "run", "uuid"))
    assert stat.S_IMODE(journal.path.stat().st_mode) & 0o037 == 0
    assert stat.S_IMODE((tmp_path / "run" / "uuid.lock").stat().st_mode) == 0o600


def test_a_journal_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("precious\n")
    (tmp_path / "journal.jsonl").symlink_to(target)
    with pytest.raises(JournalError):
        Journal(tmp_path / "journal.jsonl", "boot").open()
    assert target.read_text() == "precious\n"


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "uuid.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HostError):
        lock_device(tmp_path, "uuid")
    assert not (tmp_path / "elsewhere").exists()
