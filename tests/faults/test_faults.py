"""The short selection of the fault campaign: a run of each group, on real bcache."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from elastio_testbed.faults.campaign import carry_out
from elastio_testbed.faults.kinds import SELECTION
from elastio_testbed.faults.plan import plan
from elastio_testbed.faults.run_result import RunResult

pytestmark = pytest.mark.guest

SEED = 1
# As many as two processors bear; each is replaced only where a run has left it unfit.
GUESTS = 2


@pytest.fixture(scope="module")
def evidence() -> Path:
    """Not where pytest tidies up: what a run has lost is looked at later."""
    place = Path(__file__).parents[2] / "out" / "faults" / f"selection-{time.strftime('%Y%m%d-%H%M%S')}"
    place.mkdir(parents=True)
    return place


@pytest.fixture(scope="module")
def results(evidence: Path) -> Mapping[str, RunResult]:
    """What came of the run of each kind."""
    told = carry_out(plan(len(SELECTION), SEED, SELECTION), SEED, evidence, print, guests=GUESTS)
    return {result.planned.kind: result for result in told}


@pytest.mark.parametrize("kind", SELECTION)
def test_a_fault_leaves_no_volume_and_loses_no_record_but_one_that_the_kernel_is_witnessed_to_have_lost(
    results: Mapping[str, RunResult], kind: str
) -> None:
    result = results[kind]
    assert result.stuck == ""
    assert result.acknowledged_records > 0
    # A torn record has two witnesses in the run's own kernel log and writer: see `tears`.
    assert (result.lost_records - result.torn_records, result.unverified_records) == (0, 0)
    assert result.leaked_volumes == ()
    assert not result.interrupted
    assert not result.missed, "the fault did not strike where it was to"


def test_evidence_is_kept_of_nothing_but_failures(results: Mapping[str, RunResult], evidence: Path) -> None:
    assert all(result.is_sound for result in results.values())
    assert list(evidence.iterdir()) == []
