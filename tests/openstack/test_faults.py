"""What a real OpenStack does wrong, with a guest that Nova runs: no data lost, no volume left."""

from __future__ import annotations

import pytest

from elastio_testbed.openstack.faults import KINDS, Kind, Runner

pytestmark = pytest.mark.guest


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_agent_comes_to_rest_with_every_record_and_no_volume(runner: Runner, kind: Kind) -> None:
    [story] = runner.carry_out([kind])
    assert story.stuck == ""
    assert story.acknowledged_records > 0
    assert story.lost_records == 0
    assert story.left_volumes == ()
    assert story.open_intents == ()
    assert not story.felt, "applications noticed it"
    assert story.came, "the fault did not strike where it was to"
    assert story.met, (story.errors, story.doctor, story.shown)
