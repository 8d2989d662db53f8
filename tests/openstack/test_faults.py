"""Faults of a real OpenStack with a guest of Nova: no data is lost, no volume leaked."""

from __future__ import annotations

import pytest

from elastio_testbed.openstack.faults import KINDS, Runner, ServiceFault

pytestmark = pytest.mark.guest


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_agent_becomes_idle_without_losing_records_or_leaking_volumes(runner: Runner, kind: ServiceFault) -> None:
    [result] = runner.carry_out([kind])
    assert result.stuck == ""
    assert result.acknowledged_records > 0
    assert result.lost_records == 0
    assert result.left_volumes == ()
    assert result.open_intents == ()
    assert not result.felt, "the fault stopped the writer"
    assert result.came, "the trigger did not occur"
    assert result.met, (result.errors, result.doctor, result.shown)
