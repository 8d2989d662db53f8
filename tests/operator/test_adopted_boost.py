"""Volumes with data are adopted, boosted and released, and faults strike while a tombstone moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastio_testbed.adopted import CASES, PACKAGES
from elastio_testbed.adoption import CUT_CASES, played
from elastio_testbed.faults.campaign import carry_out
from elastio_testbed.faults.kinds import OF_ADOPTED
from elastio_testbed.faults.plan import plan
from elastio_testbed.image import build_guest_image
from tests.faults.verdict import assert_nothing_is_lost_or_left

pytestmark = pytest.mark.guest

SEED, RUNS = 4, 8


@pytest.mark.parametrize("name", CASES)
def test_a_volume_with_data_is_what_it_was_after_its_boost(name: str) -> None:
    case = played(name, build_guest_image(extra=PACKAGES), SEED)
    assert (case.sums_equal, case.cut_dirty, case.raw_mounts) == (True, True, 0)


@pytest.mark.parametrize("name", CUT_CASES)
def test_whatever_ends_the_move_of_a_piece_nothing_is_lost_or_left(name: str, tmp_path: Path) -> None:
    for result in carry_out(plan(RUNS, SEED, OF_ADOPTED), SEED, tmp_path, print, adopted=name):
        assert_nothing_is_lost_or_left(result)
        assert not result.missed
