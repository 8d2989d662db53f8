"""Elastic cycles that do not end as they began: the load returns, or the daemon dies."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import MIB, Lab

pytestmark = pytest.mark.guest

# Leaves room in the cache: writes past a full cache at the reduced speed of the backing volume do not count as load.
FIRST_MIB = 200


def test_load_that_returns_while_flushing_boosts_again_on_the_same_volume(lab: Lab) -> None:
    bought = len(lab.cloud.volumes())
    lab.burst("before", FIRST_MIB)
    lab.wait_for_phase("boosting")
    lab.guest.vm.set_limit(lab.guest.serial, lab.guest.cap_bytes_s // 8)  # until the load returns
    lab.wait_for_phase("flushing")
    lab.burst("during", MIB)
    lab.wait_for_phase("boosting")
    lab.guest.vm.set_limit(lab.guest.serial, lab.guest.cap_bytes_s)
    assert len(lab.cloud.volumes()) == bought + 1
    lab.wait_for_rest()

    assert lab.left() == ([], ())
    assert lab.is_intact("before", FIRST_MIB)
    assert lab.is_intact("during", MIB)


def test_a_daemon_killed_while_boosting_ends_the_phase_clean_after_its_restart(lab: Lab) -> None:
    bought = len(lab.cloud.volumes())
    lab.burst("killed", MIB)
    lab.wait_for_phase("boosting")
    lab.guest.check(["systemctl", "kill", "--signal=KILL", "--kill-whom=main", "elastiod"])
    lab.wait_for_rest()

    assert len(lab.cloud.volumes()) >= bought + 1
    assert lab.left() == ([], ())
    assert lab.is_intact("killed", MIB)
    restarts = lab.guest.check(["systemctl", "show", "elastiod", "-P", "NRestarts"])
    assert int(restarts) >= 1
