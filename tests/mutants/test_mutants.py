"""All mutants, by what has caught them once; and what a patch that no longer fits is taken for.

The hunt that finds such cases: `make mutants`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

import elastio.core

from .broken import BrokenTree
from .campaign import Catch, control_of_tests, play, ran_out_of_time, run_test
from .catalogue import MUTANTS
from .hunt import PLAYS
from .mutant import CONTROL, Mutant, Patch, PatchError, broken_texts, check
from .stored import HUNTED, Caught, missing, store, stored

NAMED = tuple(mutant for mutant in MUTANTS if mutant.test)


@pytest.mark.runs_programs
@pytest.mark.parametrize("mutant", HUNTED, ids=lambda mutant: mutant.name)
def test_a_broken_rule_is_noticed_by_what_caught_it_once(
    mutant: Mutant, record_property: Callable[[str, object], None]
) -> None:
    caught = stored()[mutant.name]
    assert PLAYS[caught.by](caught.what) == "", "the tree as it is has to pass"
    again = play(mutant, caught)
    assert (again.by, again.text != "") == (caught.by, True), again.text
    record_property("mutants", 1)


@pytest.mark.runs_programs
@pytest.mark.parametrize("mutant", NAMED, ids=lambda mutant: mutant.name)
def test_a_broken_rule_that_no_schedule_shows_is_noticed_by_its_test(
    mutant: Mutant, record_property: Callable[[str, object], None]
) -> None:
    catch = run_test(mutant)
    assert catch.by == "test", catch.text
    record_property("mutants", 1)


def test_a_test_that_fails_for_time_is_no_verdict() -> None:
    for named in (
        "TimeoutError: 5 s",
        "subprocess.TimeoutExpired: Command",
        "hypothesis.errors.DeadlineExceeded: Test",
    ):
        assert ran_out_of_time(f"1 failed\nFAILED tests/a.py::test_b[c - d] - {named}\n")
    for named in (
        "AssertionError: TimeoutError",
        "Failed: DID NOT RAISE TimeoutError",
        "elastio.errors.NotOursError: 1",
    ):
        assert not ran_out_of_time(f"1 failed\nFAILED tests/a.py::test_b[c - d] - {named}\n")


@pytest.mark.runs_programs
def test_a_named_test_that_waits_in_vain_has_not_caught_its_mutant(tmp_path: Path) -> None:
    for failure, by in (("TimeoutError", ""), ("AssertionError", "test")):
        (tmp_path / "test_it.py").write_text(f"def test_it():\n    raise {failure}\n")
        assert run_test(replace(NAMED[0], test=str(tmp_path / "test_it.py"))).by == by


@pytest.mark.runs_programs
def test_the_named_tests_pass_in_the_tree_as_it_is() -> None:
    assert control_of_tests(NAMED) == ""


def test_every_mutant_that_is_hunted_has_a_stored_case() -> None:
    assert missing(stored()) == set()
    assert missing({*stored()} - {HUNTED[0].name}) == {HUNTED[0].name}
    assert missing({*stored(), "nobody"}) == {"nobody"}


@pytest.mark.runs_programs
def test_a_stored_case_that_catches_nothing_is_told() -> None:
    free = Caught("storm", "0 | 1s:0:0 | nothing | nobody")
    again = play(HUNTED[0], free)
    assert (again.by, again.is_void) == ("", False), again.text


def test_what_is_stored_is_read_again_without_mutants_that_are_gone(tmp_path: Path) -> None:
    file = tmp_path / "caught_by.json"
    first, second = (mutant.name for mutant in HUNTED[:2])
    store({first: Caught("story", "boost"), "gone": Caught("storm", "")}, file)
    store({second: Caught("crash", "boost/3/killed/nothing")}, file)
    assert stored(file) == {first: Caught("story", "boost"), second: Caught("crash", "boost/3/killed/nothing")}


def test_every_patch_fits_the_sources_as_they_are() -> None:
    assert check(MUTANTS) == []
    assert len(MUTANTS) >= 60
    assert sum(not mutant.test for mutant in MUTANTS) >= 38
    assert all(bool(mutant.test) is bool(mutant.why) for mutant in MUTANTS)


def test_a_hunt_that_fails_proves_nothing() -> None:
    for mutant in (CONTROL, MUTANTS[0]):
        assert not Catch(mutant, "", is_void=True).is_as_it_should_be
    assert Catch(CONTROL, "").is_as_it_should_be
    assert not Catch(CONTROL, "storm").is_as_it_should_be
    assert not Catch(MUTANTS[0], "").is_as_it_should_be


def test_a_patch_that_does_not_fit_proves_nothing(tmp_path: Path) -> None:
    (tmp_path / "rule.py").write_text("if safe:\n    go()\nif safe:\n    stay()\n")
    for old in ("if unsafe:", "if safe:"):
        broken = Mutant("a rule", "", (Patch("rule.py", old, ""),))
        with pytest.raises(PatchError):
            broken_texts(broken, tmp_path)
        assert check((broken,), tmp_path) != []
    fits = Mutant("a rule", "", (Patch("rule.py", "    go()", "    pass"), Patch("rule.py", "    stay()", "    pass")))
    assert broken_texts(fits, tmp_path) == {tmp_path / "rule.py": "if safe:\n    pass\nif safe:\n    pass\n"}
    assert check((fits,), tmp_path) == []


def test_a_broken_module_is_found_without_a_file_that_changed() -> None:
    mutant = next(m for m in MUTANTS if m.name == "bypass early")
    before = [(path, path.read_text()) for path in broken_texts(mutant)]
    spec = BrokenTree(mutant).find_spec("elastio.core.planner", list(elastio.core.__path__))
    assert spec is not None
    assert isinstance(spec.loader, SourceFileLoader)
    code = spec.loader.get_code("elastio.core.planner")
    assert code is not None
    assert any(1e9 in const for const in code.co_consts if isinstance(const, tuple))
    assert BrokenTree(mutant).find_spec("elastio.core.cycle", list(elastio.core.__path__)) is None
    assert all(path.read_text() == text for path, text in before)
