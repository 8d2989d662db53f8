"""Reading the journal while the agent writes and rotates it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elastio.agent.event_reader import JournalFollower, Narrator
from elastio.agent.journal import Journal
from elastio.core.state import AgentState, Phase
from elastio.errors import JournalError
from tests.fixtures.errors import refused


def decide(journal: Journal, reason: str) -> None:
    journal.decision(Phase.IDLE, AgentState(), reason, now=1.0, wall=1001.0)


def added(follower: JournalFollower) -> list[str]:
    return [record["reason"] for record in follower.added()]


def test_only_what_was_added_comes_with_each_further_call(journal: Journal) -> None:
    decide(journal, "one")
    with JournalFollower(journal.path) as follower:
        assert added(follower) == ["one"]
        assert added(follower) == []
        decide(journal, "two")
        decide(journal, "three")
        assert added(follower) == ["two", "three"]


def test_a_rotation_loses_and_repeats_nothing(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastio.agent.journal.ROTATE_BYTES", 2500)
    with JournalFollower(journal.path) as follower:
        seen = []
        for number in range(12):
            decide(journal, str(number))
            if number % 3 == 2:
                seen += added(follower)
        assert seen == [str(number) for number in range(12)]
    assert journal.path.with_suffix(".old").exists()


def test_a_line_is_read_when_it_is_complete(tmp_path: Path) -> None:
    path, line = tmp_path / "journal.jsonl", json.dumps({"seq": 1, "reason": "whole"})
    path.write_text(line[:10])
    with JournalFollower(path) as follower:
        assert added(follower) == []
        path.write_text(f"{line}\n{{broken\n[]\n")
        assert added(follower) == ["whole"]


def test_a_journal_that_begins_later_is_read_from_its_begin(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with JournalFollower(path) as follower:
        assert [*follower.older(), *follower.added()] == []
        path.write_text('{"seq": 1, "reason": "first"}\n')
        assert added(follower) == ["first"]


def test_a_journal_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with JournalFollower(tmp_path) as follower, refused(JournalError, "journal.unreadable"):
        list(follower.added())


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"wall": "then", "phase": "idle"},
        {"wall": 1.0, "now": 1.0, "phase": "asleep", "cycle": None},
        {"wall": 1.0, "now": 1.0, "phase": "idle", "cycle": {"token": 1}},
        {"wall": 1.0, "now": 1.0, "phase": "idle", "cycle": None, "course": {"transitions": [{}]}},
        {"wall": 1.0, "kind": "outcome"},
    ],
)
def test_a_record_that_is_malformed_tells_nothing(record: dict[str, object]) -> None:
    assert Narrator().take(record) == ()


def test_a_decision_of_an_earlier_release_tells_its_reason() -> None:
    record = {"wall": 1001.0, "now": 1.0, "kind": "decision", "phase": "idle", "cycle": None, "reason": "because"}
    (event,) = Narrator().take(record)
    assert (event.kind.label, event.reason) == ("decided", "because")
