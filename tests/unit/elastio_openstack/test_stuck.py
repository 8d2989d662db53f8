"""How long a volume has been detaching, and when that counts as stuck."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.core.model import Serial, Volume, VolumeId, VolumeState
from elastio_openstack.stuck import DetachTimer

VOLUME = Volume(VolumeId("v-1"), Serial("v-1"), VolumeState.DETACHING, 1 << 30, 64.0, "token-1", "backing", 0.0)


class Seconds:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


def test_detach_is_stuck_after_the_deadline(clock: Seconds) -> None:
    timer = DetachTimer(60.0, clock)
    assert not timer.is_stuck(VOLUME)
    clock.now += 59.0
    assert not timer.is_stuck(VOLUME)
    clock.now += 1.0
    assert timer.is_stuck(VOLUME)


@pytest.mark.parametrize("between", [VolumeState.ATTACHED, VolumeState.AVAILABLE])
def test_another_state_in_between_restarts_the_timer(clock: Seconds, between: VolumeState) -> None:
    timer = DetachTimer(60.0, clock)
    timer.is_stuck(VOLUME)
    clock.now += 50.0
    assert not timer.is_stuck(replace(VOLUME, state=between))
    clock.now += 50.0
    assert not timer.is_stuck(VOLUME)


def test_timers_are_per_volume_and_can_be_reset(clock: Seconds) -> None:
    timer = DetachTimer(60.0, clock)
    timer.is_stuck(VOLUME)
    clock.now += 60.0
    assert not timer.is_stuck(replace(VOLUME, id=VolumeId("v-2")))
    assert timer.is_stuck(VOLUME)
    timer.forget(VOLUME.id)
    assert not timer.is_stuck(VOLUME)
