"""Some of the mutants, and what a patch that no longer fits is taken for. All of them: `make mutants`."""

from __future__ import annotations

from pathlib import Path

import pytest

from .campaign import CONTROL, Catch, run
from .catalogue import MUTANTS
from .mutant import Mutant, Patch, PatchError, check

# One of each kind, among those that are caught soon.
QUICK = (
    "bypass early everywhere",
    "dirty index bypassed",
    "drained while absorbing",
    "release before the detach",
    "detach a disk with its superblock",
    "no fsync at all",
    "another token at each try",
    "limits stay",
)
FEW_PAIRS = 60
BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


@pytest.mark.runs_programs
@pytest.mark.parametrize("name", QUICK)
def test_a_broken_rule_is_noticed_without_any_unit_test(name: str) -> None:
    assert run(BY_NAME[name], FEW_PAIRS).by in ("storm", "crash")


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
        with pytest.raises(PatchError):
            Patch("rule.py", old, "if True:").apply(tmp_path)
        assert check((Mutant("a rule", "", (Patch("rule.py", old, ""),)),), tmp_path) != []
    Patch("rule.py", "    go()", "    pass").apply(tmp_path)
    assert "go()" not in (tmp_path / "rule.py").read_text()
