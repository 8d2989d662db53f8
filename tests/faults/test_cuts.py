"""Power cuts right after an fsync: no acknowledged record is lost, and the control proves that a loss is detected."""

from __future__ import annotations

import pytest

from elastio_testbed.cuts.command import trial

pytestmark = pytest.mark.guest

SEED, CUTS, CONTROL_CUTS = 1, 5, 2


def test_no_record_is_lost_in_any_phase_but_dm_writecache_loses_one() -> None:
    found = trial(CUTS, CONTROL_CUTS, SEED, None, "ext4", print)
    assert found["control_loses"], found["stories"]
    assert found["lost"] == 0, found["stories"]
    assert found["sound"]
