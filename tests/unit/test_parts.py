from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests import parts
from tests.parts import COUNTED, GUESTS, ROOT, budgets, counted, groups, main, table, too_few

SECONDS = {"lint": 5, "long": 300}


def test_what_takes_longer_than_its_budget_is_told() -> None:
    lines = list(table({"lint": 4.0, "long": 301.0}, SECONDS, 305.0))
    assert [line.split()[0] for line in lines] == ["part", "lint", "long", "together", "ABOVE"]
    assert ["ABOVE" in line for line in lines] == [False, False, False, False, True]
    assert not any("ABOVE" in line for line in table({"lint": 5.0, "long": 300.0}, SECONDS, 305.0))


def test_what_runs_beside_the_guests_begins_with_them_and_counts_once() -> None:
    assert groups(["lint", COUNTED, "unit", GUESTS]) == [("lint",), (GUESTS, COUNTED), ("unit",)]
    assert groups([GUESTS, "lint"]) == [(GUESTS,), ("lint",)]
    both = list(table({GUESTS: 40.0, COUNTED: 50.0}, {GUESTS: 45, COUNTED: 60}, 50.0))[-1]
    assert both.split() == ["together", "50", "s", "60", "s"]


@pytest.mark.runs_programs
@pytest.mark.parametrize(("failing", "code"), [(None, 0), (GUESTS, 1), (COUNTED, 1), ("few", 1)])
def test_both_that_run_beside_each_other_end_and_either_may_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], failing: str | None, code: int
) -> None:
    played = tmp_path / "long.xml"
    counts = "".join(f'<property name="{n}" value="{0 if failing == "few" else 9999}"/>' for n in budgets()["counts"])
    report = f"<testsuites><testcase><properties>{counts}</properties></testcase></testsuites>"
    recipes = (f"{GUESTS}:\n\t@echo guests\n", f"{COUNTED}:\n\t@nice\n\t@echo '{report}' >long.xml\n")
    makefile = "".join(recipe + ("\t@false\n" if recipe.startswith(f"{failing}:") else "") for recipe in recipes)
    (tmp_path / "Makefile").write_text(makefile + "after:\n\t@echo afterwards\n")
    monkeypatch.setattr(parts, "ROOT", tmp_path)
    monkeypatch.setattr(parts, "PLAYED", played)
    known = budgets()
    monkeypatch.setattr(parts, "budgets", lambda: {**known, "seconds": {**known["seconds"], "after": 1}})
    assert main([COUNTED, GUESTS, "after"]) == code
    shown = capfd.readouterr().out.splitlines()
    assert [line in shown for line in ("guests", "19")] == [True, True]
    assert ("afterwards" in shown) is (failing is None)


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


@pytest.mark.runs_programs
def test_ctrl_c_ends_all_that_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Makefile").write_text("one two:\n\t@sleep 20\n")
    monkeypatch.setattr(parts, "ROOT", tmp_path)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    with (tmp_path / "output").open("w") as output:
        running = {"one": parts.begin("one", None), "two": parts.begin("two", output)}
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        try:
            with pytest.raises(KeyboardInterrupt):
                parts.wait(running)
        finally:
            signal.signal(signal.SIGALRM, before)
    assert [process.poll() is None for process in running.values()] == [False, False]


def test_every_part_is_a_target_and_all_of_them_are_what_ci_runs() -> None:
    targets = re.findall(r"^([a-z0-9]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(budgets()["seconds"]) <= set(targets)
    seconds = budgets()["seconds"]
    assert sum(max(seconds[part] for part in group) for group in groups(list(seconds))) <= 900
    assert (ROOT / ".ci/run").read_text().splitlines()[-1] == "make test"
    assert re.search(r"^test: .*\n\tpython3 -m tests\.parts$", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_every_file_of_guest_tests_is_run() -> None:
    # They are named one by one, since their order decides how long all of them take.
    listed = (ROOT / "Makefile").read_text().partition("SLOW_TESTS := ")[2].partition("FAST_TESTS")[0]
    files = {f"e2e/{path.stem}" for path in (ROOT / "tests/e2e").glob("test_*.py")}
    assert set(re.findall(r"e2e/\w+", listed)) == files
