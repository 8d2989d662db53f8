"""How long a volume has been detaching, and when that is too long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.core.model import Serial, Volume, VolumeId, VolumeState
from elastio_openstack.stuck import Detaches

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


def test_detach_is_stuck_once_it_has_been_seen_for_as_long_as_the_deadline(clock: Seconds) -> None:
    detaches = Detaches(60.0, clock)
    assert not detaches.is_stuck(VOLUME)
    clock.now += 59.0
    assert not detaches.is_stuck(VOLUME)
    clock.now += 1.0
    assert detaches.is_stuck(VOLUME)


@pytest.mark.parametrize("between", [VolumeState.ATTACHED, VolumeState.AVAILABLE])
def test_another_state_in_between_begins_the_count_anew(clock: Seconds, between: VolumeState) -> None:
    detaches = Detaches(60.0, clock)
    detaches.is_stuck(VOLUME)
    clock.now += 50.0
    assert not detaches.is_stuck(replace(VOLUME, state=between))
    clock.now += 50.0
    assert not detaches.is_stuck(VOLUME)


def test_volumes_are_counted_apart_and_a_forgotten_one_from_its_next_look(clock: Seconds) -> None:
    detaches = Detaches(60.0, clock)
    detaches.is_stuck(VOLUME)
    clock.now += 60.0
    assert not detaches.is_stuck(replace(VOLUME, id=VolumeId("v-2")))
    assert detaches.is_stuck(VOLUME)
    detaches.forget(VOLUME.id)
    assert not detaches.is_stuck(VOLUME)
