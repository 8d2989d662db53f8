from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.parts import ROOT, Budgets, Parts, budgets, counted, limit, main, table, too_few

SECONDS = {"lint": 5, "long": 300}


def test_what_takes_longer_than_its_budget_is_told() -> None:
    lines = list(table({"lint": 4.0, "long": 301.0}, SECONDS, 303.0))
    assert [line.split()[0] for line in lines] == ["part", "lint", "long", "together", "ABOVE"]
    assert ["ABOVE" in line for line in lines] == [False, False, False, False, True]
    assert lines[3].split() == ["together", "303", "s"]
    assert not any("ABOVE" in line for line in table({"lint": 5.0, "long": 300.0}, SECONDS, 300.0))


def test_fewer_cases_than_have_to_be_played_are_told() -> None:
    least = {"cases": 10, "points": 3}
    assert too_few({"cases": 10, "points": 4}, least) == []
    assert len(too_few({"cases": 9, "points": 4}, least)) == 1
    assert len(too_few({}, least)) == 2


def test_what_tests_have_recorded_is_summed(tmp_path: Path) -> None:
    def case(name: str, value: int) -> str:
        return f'<testcase><properties><property name="{name}" value="{value}"/></properties></testcase>'

    report = tmp_path / "long.xml"
    report.write_text(f"<testsuites><testsuite>{case('a', 2)}{case('b', 5)}{case('a', 3)}</testsuite></testsuites>")
    assert counted(report) == {"a": 5, "b": 5}


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Parts]:
    """Plays parts that are commands of a Makefile of their own: `main` runs with `one` and `two` beside it."""

    def played(makefile: str) -> Parts:
        (tmp_path / "Makefile").write_text(makefile)
        monkeypatch.setattr("tests.parts.ROOT", tmp_path)
        seconds = dict.fromkeys(("first", "one", "two", "main", "long", "last"), 1)
        beside = {"one": "main", "two": "main", "long": "last"}
        monkeypatch.setattr("tests.parts.PLAYED", tmp_path / "long.xml")
        known = Budgets(seconds, {"cases": 10}, beside, ["two"])
        parts = Parts(known)
        parts.run_all([*known.seconds])
        return parts

    return played


# `main` ends only after `one`, which therefore has to run at the same time.
MAKEFILE = """
first: ; @true
one: ; @nice > one; {one}
two: ; @nice > two
main: ; @for i in $$(seq 600); do test -e one && exit 0; sleep 0.05; done; exit 1
long: ; @echo '<a><property name="cases" value="{cases}"/></a>' > long.xml
last: ; @touch last
"""


@pytest.mark.runs_programs
def test_parts_run_beside_the_one_they_belong_to(play: Callable[[str], Parts], tmp_path: Path) -> None:
    parts = play(MAKEFILE.format(one="true", cases=10))
    assert parts.code == 0
    assert parts.took.keys() == {"first", "one", "two", "main", "long", "last"}
    assert (tmp_path / "last").exists()


@pytest.mark.runs_programs
def test_a_part_yields_to_the_one_beside_which_it_runs_if_it_is_named(
    play: Callable[[str], Parts], tmp_path: Path
) -> None:
    play(MAKEFILE.format(one="true", cases=10))
    own = os.nice(0)
    assert [int((tmp_path / part).read_text()) for part in ("one", "two")] == [own, min(own + 19, 19)]


@pytest.mark.runs_programs
def test_a_part_beside_another_fails_that_played_too_few_cases(
    play: Callable[[str], Parts], capfd: pytest.CaptureFixture[str]
) -> None:
    parts = play(MAKEFILE.format(one="true", cases=9))
    assert parts.code != 0
    assert "TOO FEW: 9 cases" in capfd.readouterr().out


@pytest.mark.runs_programs
def test_a_part_that_has_recorded_nothing_has_played_nothing(
    play: Callable[[str], Parts], capfd: pytest.CaptureFixture[str]
) -> None:
    parts = play(MAKEFILE.format(one="true", cases=10).replace("> long.xml", ""))
    assert parts.code != 0
    assert "TOO FEW: 0 cases" in capfd.readouterr().out


@pytest.mark.runs_programs
def test_a_part_that_fails_beside_another_ends_all(
    play: Callable[[str], Parts], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    parts = play(MAKEFILE.format(one="echo why; false", cases=10))
    assert parts.code != 0
    assert parts.took.keys() == {"first", "one", "main"}
    assert not (tmp_path / "two").exists()
    assert not (tmp_path / "last").exists()
    assert "why" in capfd.readouterr().out


@pytest.mark.runs_programs
def test_a_part_that_waits_for_ever_is_ended_and_so_is_what_it_started(
    play: Callable[[str], Parts], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.parts.limit", lambda seconds: 2 * seconds)
    parts = play(MAKEFILE.format(one="echo $$$$ > pid; sleep 60", cases=10))
    assert parts.code != 0
    assert "HUNG: one" in capfd.readouterr().out
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()
    assert not (tmp_path / "last").exists()


def test_no_part_is_ended_within_its_budget_on_a_slow_machine() -> None:
    assert all(limit(seconds) >= max(600, 10 * seconds) for seconds in budgets().seconds.values())


def test_a_part_that_does_not_exist_is_refused() -> None:
    assert main(["lint", "unti"]) == 2


def test_every_part_is_a_target_and_all_of_them_are_what_ci_runs() -> None:
    targets = re.findall(r"^([a-z0-9]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    seconds, beside = budgets().seconds, budgets().beside
    assert seconds.keys() <= set(targets)
    assert beside.keys() | set(beside.values()) <= seconds.keys()
    assert set(budgets().yielding) <= beside.keys()
    assert sum(seconds[part] for part in seconds if part not in beside) <= 960
    assert (ROOT / ".ci/run").read_text().splitlines()[-1] == "make test"
    assert re.search(r"^test: .*\n\t\$\(PYTHON\) -m tests\.parts$", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_every_file_of_guest_tests_is_run() -> None:
    # They are named one by one, since their order decides how long all of them take.
    listed = (ROOT / "Makefile").read_text().partition("SLOW_TESTS := ")[2].partition("FAST_TESTS")[0]
    files = {f"e2e/{path.stem}" for path in (ROOT / "tests/e2e").glob("test_*.py")}
    assert set(re.findall(r"e2e/\w+", listed)) == files
