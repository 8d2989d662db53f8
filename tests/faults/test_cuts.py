"""One append, one fsync, and the power is cut: nothing that was acknowledged is lost, and the harness sees a loss."""

from __future__ import annotations

import pytest

from elastio_testbed.cuts.command import trial

pytestmark = pytest.mark.guest

SEED, CUTS, CONTROL_CUTS = 1, 4, 2


def test_no_record_of_one_fsync_is_lost_in_any_phase_where_dm_writecache_loses() -> None:
    found = trial(CUTS, CONTROL_CUTS, SEED, None, "ext4", print)
    assert found["control_loses"], found["stories"]
    assert found["lost"] == 0, found["stories"]
    assert found["sound"]
