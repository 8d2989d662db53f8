"""A case that a copy of the process plays ends as it does alone, and leaves nothing behind."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from .branches import Branches
from .campaign import run_case, run_cases
from .test_every_point import sampled


@dataclass(frozen=True)
class Numbered:
    number: int


FIRST, SECOND, LAST = map(Numbered, range(3))
POINTS = ("before", "at", "after")


@pytest.mark.parametrize("scenario", ["shared", "boost"])
def test_a_case_ends_as_it_does_alone(scenario: str) -> None:
    chosen = sorted(sampled(scenario)[::40], key=lambda case: case.number)
    ends = run_cases(chosen)
    assert ends == [run_case(case) for case in chosen]
    assert len({end.at_s for end in ends}) > 1


def test_what_a_copy_writes_is_undone(tmp_path: Path) -> None:
    kept, played = tmp_path / "kept", list[Numbered]()
    kept.write_text("")

    def begin(case: Numbered, point: str) -> None:
        played.append(case)
        kept.write_text(f"{kept.read_text()}{point}")
        (tmp_path / point).touch()

    branches = Branches[Numbered, str]((LAST, FIRST, SECOND), begin, lambda case, why: why, tmp_path)

    def run() -> list[str]:
        for point in POINTS:
            branches(point)
        return [f"{kept.read_text()} {len(played)}"]

    assert branches.play(run) == ["before 1", "at 1", "after 1"]
    assert played == [LAST]
    assert set(tmp_path.iterdir()) == {kept, tmp_path / "after"}


def test_a_copy_without_an_answer_is_told(tmp_path: Path) -> None:
    def begin(case: Numbered, point: str) -> None:
        if case is FIRST:
            os._exit(3)
        if case is SECOND:
            raise AttributeError("a bug of the agent")

    branches = Branches[Numbered, str](
        (FIRST, SECOND, LAST), begin, lambda case, why: f"{case.number}: {why}", tmp_path
    )

    def run() -> list[str]:
        for point in POINTS:
            branches(point)
        return ["the last"]

    assert branches.play(run) == ["0: its process ended with 3", "1: its process ended with 1", "the last"]
