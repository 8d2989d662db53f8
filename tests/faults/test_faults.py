"""The short selection of the fault campaign on real bcache: one run of each group."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from elastio_testbed.faults.campaign import carry_out
from elastio_testbed.faults.kinds import SELECTION
from elastio_testbed.faults.plan import plan
from elastio_testbed.faults.run_result import RunResult
from tests.faults.verdict import assert_nothing_is_lost_or_left

pytestmark = pytest.mark.guest

SEED = 1
# As many as two processors can run; each is replaced only after a failed run.
GUESTS = 2


@pytest.fixture(scope="module")
def evidence() -> Path:
    """A folder that pytest does not delete: the evidence is needed later."""
    place = Path(__file__).parents[2] / "out" / "faults" / f"selection-{time.strftime('%Y%m%d-%H%M%S')}"
    place.mkdir(parents=True)
    return place


@pytest.fixture(scope="module")
def results(evidence: Path) -> Mapping[str, RunResult]:
    """The result of each kind's run."""
    results = carry_out(plan(len(SELECTION), SEED, SELECTION), SEED, evidence, print, guests=GUESTS)
    return {result.planned.kind: result for result in results}


@pytest.mark.parametrize("kind", SELECTION)
def test_a_fault_leaves_no_volume_and_loses_no_record_unless_the_kernel_provably_lost_it(
    results: Mapping[str, RunResult], kind: str
) -> None:
    result = results[kind]
    assert_nothing_is_lost_or_left(result)
    assert not result.missed, "the fault did not strike at its trigger"


def test_evidence_is_kept_of_a_run_that_lost_a_record_or_missed_its_trigger_and_of_no_other(
    results: Mapping[str, RunResult], evidence: Path
) -> None:
    assert all(result.is_sound for result in results.values())
    losing = {result.evidence for result in results.values() if result.lost_records or result.missed}
    assert {folder.name for folder in evidence.iterdir()} == losing
