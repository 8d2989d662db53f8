"""The short selection of faults strikes one device while a second one boosts beside it: nothing is lost on either."""

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

SEED, DEVICES = 2, 2


@pytest.fixture(scope="module")
def results() -> Mapping[str, RunResult]:
    """The result of each kind's run, all in one guest. The evidence of failures is kept."""
    name = f"two-devices-{time.strftime('%Y%m%d-%H%M%S')}"
    evidence = Path(__file__).parents[2] / "out" / "faults" / name
    found = carry_out(plan(len(SELECTION), SEED, SELECTION), SEED, evidence, print, devices=DEVICES)
    return {result.planned.kind: result for result in found}


@pytest.mark.parametrize("kind", SELECTION)
def test_a_fault_loses_no_record_and_leaves_no_volume_on_either_device(
    results: Mapping[str, RunResult], kind: str
) -> None:
    assert_nothing_is_lost_or_left(results[kind])
