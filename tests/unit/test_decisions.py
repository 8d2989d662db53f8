"""The record of decisions: the same for the same sources, and different where a decision is."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastio.core import machine
from tests.decisions import differences, line_of, play

NAME = "3 | 1s:0:0 8s:60:0 9s:0:0 99s:60:0 | create#1=refuse:1 | nobody"


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    file = tmp_path / "decisions"
    file.write_text(line_of(NAME) + "\n")
    return file


def test_the_same_sources_decide_the_same(recorded: Path) -> None:
    assert list(differences(recorded)) == []


def test_a_decision_that_is_another_one_is_shown(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "FAILED_COOL_DOWN_S", 61.0)
    (text,) = differences(recorded)
    assert NAME in text


def test_a_recording_shows_the_decision_of_a_number() -> None:
    recording = play(NAME, 0)
    assert '"phase": "idle"' in recording.text
    assert len(recording.digests) > 10
