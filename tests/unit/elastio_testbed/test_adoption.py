"""The result of the laboratory's adoptions: one difference, one raw mount or one lost record makes it unsound."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio_testbed.adopted import CASES, LAYOUTS
from elastio_testbed.adoption import Case, summary
from elastio_testbed.faults.kinds import OF_ADOPTED
from elastio_testbed.faults.plan import plan
from elastio_testbed.faults.run_result import RunResult
from elastio_testbed.machine import MAKE_FILESYSTEM

GOOD = Case("disk", "ext4", sums_equal=True, raw_mounts=0, cut_dirty=True, outage_s=(0.8, 0.3))
RUN = RunResult(plan(1, 1, OF_ADOPTED)[0], acknowledged_records=10, recovery_s=1.0, rest_s=2.0)


def test_what_is_the_same_everywhere_is_sound() -> None:
    found = summary([GOOD, replace(GOOD, layout="lv", outage_s=(0.1, 1.5))], [RUN, replace(RUN, missed=True)])
    assert (found["sound"], found["sums_equal"], found["outage_s"], found["cuts"]) == (True, True, 1.5, 2)
    assert found["missed_moments"] == 1, "a fault that struck late proves nothing of its moment"


@pytest.mark.parametrize(
    ("case", "run"),
    [
        (replace(GOOD, sums_equal=False), RUN),
        (replace(GOOD, raw_mounts=1), RUN),
        (replace(GOOD, cut_dirty=False), RUN),
        (GOOD, replace(RUN, lost_records=1)),
        (GOOD, replace(RUN, leaked_volumes=("vol-1",))),
        (GOOD, replace(RUN, stuck="no answer")),
    ],
)
def test_one_difference_makes_it_unsound(case: Case, run: RunResult) -> None:
    assert summary([GOOD, case], [RUN, run])["sound"] is False


def test_every_layout_is_played_and_every_file_system() -> None:
    found = [case.split("/") for case in CASES]
    assert {layout for layout, _ in found} == LAYOUTS.keys()
    assert {filesystem for _, filesystem in found} == MAKE_FILESYSTEM.keys()
