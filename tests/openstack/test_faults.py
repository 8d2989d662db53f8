"""What a real OpenStack does wrong, with a guest that Nova runs: no data lost, no volume left."""

from __future__ import annotations

import pytest

from elastio_testbed.openstack.faults import KINDS, Runner, ServiceFault

pytestmark = pytest.mark.guest


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_agent_comes_to_rest_with_every_record_and_no_volume(runner: Runner, kind: ServiceFault) -> None:
    [result] = runner.carry_out([kind])
    assert result.stuck == ""
    assert result.acknowledged_records > 0
    assert result.lost_records == 0
    assert result.left_volumes == ()
    assert result.open_intents == ()
    assert not result.felt, "applications noticed it"
    assert result.came, "the fault did not strike where it was to"
    assert result.met, (result.errors, result.doctor, result.shown)
