from __future__ import annotations

import re
from pathlib import Path

from tests.parts import ROOT, budgets, counted, table, too_few

SECONDS = {"lint": 5, "long": 300}


def test_what_takes_longer_than_its_budget_is_told() -> None:
    lines = list(table({"lint": 4.0, "long": 301.0}, SECONDS))
    assert [line.split()[0] for line in lines] == ["part", "lint", "long", "together", "ABOVE"]
    assert ["ABOVE" in line for line in lines] == [False, False, False, False, True]
    assert not any("ABOVE" in line for line in table({"lint": 5.0, "long": 300.0}, SECONDS))


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


def test_every_part_is_a_target_and_all_of_them_are_what_ci_runs() -> None:
    targets = re.findall(r"^([a-z0-9]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(budgets()["seconds"]) <= set(targets)
    assert sum(budgets()["seconds"].values()) <= 1000
    assert (ROOT / ".ci/run").read_text().splitlines()[-1] == "make test"
    assert re.search(r"^test: .*\n\tpython3 -m tests\.parts$", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_every_file_of_guest_tests_is_run() -> None:
    # They are named one by one, since their order decides how long all of them take.
    listed = (ROOT / "Makefile").read_text().partition("SLOW_TESTS := ")[2].partition("FAST_TESTS")[0]
    files = {f"e2e/{path.stem}" for path in (ROOT / "tests/e2e").glob("test_*.py")}
    assert set(re.findall(r"e2e/\w+", listed)) == files
