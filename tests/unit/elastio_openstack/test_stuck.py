"""How long a volume has been detaching, and when that counts as stuck."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.core.model import Serial, Volume, VolumeId, VolumeState
from elastio_openstack.stuck import DetachTimer
from elastio_sim.clock import SimClock

VOLUME = Volume(VolumeId("v-1"), Serial("v-1"), VolumeState.DETACHING, 1 << 30, 64.0, "token-1", "backing", 0.0)


def test_detach_is_stuck_after_the_deadline() -> None:
    clock = SimClock()
    timer = DetachTimer(60.0, clock.now)
    assert not timer.is_stuck(VOLUME)
    clock.advance(59.0)
    assert not timer.is_stuck(VOLUME)
    clock.advance(1.0)
    assert timer.is_stuck(VOLUME)


@pytest.mark.parametrize("between", [VolumeState.ATTACHED, VolumeState.AVAILABLE])
def test_another_state_in_between_restarts_the_timer(between: VolumeState) -> None:
    clock = SimClock()
    timer = DetachTimer(60.0, clock.now)
    timer.is_stuck(VOLUME)
    clock.advance(50.0)
    assert not timer.is_stuck(replace(VOLUME, state=between))
    clock.advance(50.0)
    assert not timer.is_stuck(VOLUME)


def test_timers_are_per_volume_and_can_be_reset() -> None:
    clock = SimClock()
    timer = DetachTimer(60.0, clock.now)
    timer.is_stuck(VOLUME)
    clock.advance(60.0)
    assert not timer.is_stuck(replace(VOLUME, id=VolumeId("v-2")))
    assert timer.is_stuck(VOLUME)
    timer.forget(VOLUME.id)
    assert not timer.is_stuck(VOLUME)
