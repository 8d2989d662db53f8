from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from elastio.host.sysfs import wait_for
from tests.parts import GUESTS, ROOT, Parts, budgets, counted, table, together, too_few

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
    assert together(budgets()["seconds"]) <= 900
    assert (ROOT / ".ci/run").read_text().splitlines()[-1] == "make test"
    assert re.search(r"^test: .*\n\tpython3 -m tests\.parts$", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_guests_and_what_runs_beside_them_count_once() -> None:
    assert together({"lint": 1.0, GUESTS: 4.0, "lowest": 2.0, "long": 3.0}) == 1 + 5
    assert together({"lint": 1.0, GUESTS: 9.0, "lowest": 2.0}) == 1 + 9
    assert together({"lint": 1.0, "long": 3.0}) == 4


def played(folder: Path, *targets: str) -> Parts:
    """A `Makefile` of these targets, whose parts were run; `wait` in one of them is what does not end by itself."""
    root = folder / "root"
    root.mkdir()
    os.mkfifo(root / "wait")
    (root / "Makefile").write_text("\n".join(f"{target}\n" for target in targets))
    parts = Parts({}, folder, root)
    parts.run([target.partition(":")[0] for target in targets])
    return parts


@pytest.mark.runs_programs
def test_what_comes_after_the_guests_runs_beside_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = played(tmp_path, f"{GUESTS}:\n\t@cat wait", "unit:\n\t@nice > wait")
    assert (parts.code, set(parts.took)) == (0, {GUESTS, "unit"})
    assert capsys.readouterr().out.splitlines()[-2:] == [f"--- {GUESTS}", str(os.nice(0) + 5)]


@pytest.mark.runs_programs
@pytest.mark.parametrize("failing", [GUESTS, "unit"])
def test_the_first_that_fails_ends_the_other(tmp_path: Path, failing: str) -> None:
    rules = {name: "@exit 3" if name == failing else "@cat wait" for name in (GUESTS, "unit")}
    parts = played(tmp_path, *(f"{name}:\n\t{rule}" for name, rule in rules.items()), "never:\n\t@true")
    assert (parts.code, set(parts.took)) == (2, {failing})
    assert wait_for(lambda: not is_read(tmp_path / "root/wait"), 10.0), "what was killed ends a little later"


def is_read(fifo: Path) -> bool:
    """Whether a process waits for what is written to it."""
    try:
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return False
    return True


def test_every_file_of_guest_tests_is_run() -> None:
    # They are named one by one, since their order decides how long all of them take.
    listed = (ROOT / "Makefile").read_text().partition("SLOW_TESTS := ")[2].partition("FAST_TESTS")[0]
    files = {f"e2e/{path.stem}" for path in (ROOT / "tests/e2e").glob("test_*.py")}
    assert set(re.findall(r"e2e/\w+", listed)) == files
