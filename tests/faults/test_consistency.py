"""Readers and writers on the same blocks of real bcache: no read returns stale data."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from elastio_testbed.faults.checker import Checker
from elastio_testbed.faults.consistency import by_hand, checked_guest, through_all_phases
from elastio_testbed.faults.lab import Lab
from elastio_testbed.image import build_guest_image

pytestmark = pytest.mark.guest

SEED = 1


@pytest.fixture(scope="module")
def checked() -> Iterator[tuple[Lab, Checker]]:
    with checked_guest(build_guest_image(), SEED) as made:
        yield made


def test_the_checker_detects_stale_reads_with_writearound_and_on_dirty_data(checked: tuple[Lab, Checker]) -> None:
    lab, checker = checked
    assert by_hand(lab, checker, "none", print) == 0
    assert by_hand(lab, checker, "none", print, over_dirty=True) > 0
    assert by_hand(lab, checker, "writearound", print) > 0


def test_no_read_is_stale_in_any_phase_or_across_any_transition() -> None:
    with checked_guest(build_guest_image(), SEED) as (lab, checker):
        found = through_all_phases(lab, checker, print)
    assert found.is_consistent, found.examples
    assert found.is_complete, found
