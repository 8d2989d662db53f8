"""The short selection of the fault campaign: a run of each group, on real bcache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from elastio_testbed.faults.kinds import SELECTION
from elastio_testbed.faults.plan import PlannedRun, plan
from elastio_testbed.faults.runner import Runner
from elastio_testbed.image import build_guest_image

pytestmark = pytest.mark.guest

SEED = 1
RUNS = plan(len(SELECTION), SEED, SELECTION)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """One guest for all runs, replaced only where a run has left it unfit."""
    with Runner(build_guest_image(), SEED, tmp_path_factory.mktemp("evidence"), print) as made:
        yield made


@pytest.mark.parametrize("run", RUNS, ids=[run.kind for run in RUNS])
def test_a_fault_loses_no_acknowledged_record_and_leaves_no_volume(runner: Runner, run: PlannedRun) -> None:
    [story] = runner.carry_out([run])
    assert story.stuck == ""
    assert story.acknowledged_records > 0
    assert (story.lost_records, story.unverified_records, story.examples) == (0, 0, ())
    assert story.leaked_volumes == ()
    assert not story.interrupted
    assert not story.missed, "the fault did not strike where it was to"


def test_evidence_is_kept_of_nothing_but_failures(runner: Runner) -> None:
    assert isinstance(runner.evidence, Path)
    assert list(runner.evidence.iterdir()) == []
