"""A volume of another machine is taken over only if everything is proven."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elastio.core.actions import TakeOverVolume
from elastio.core.foreign import ForeignVolume, OwnerState, why_not_taken_over
from elastio.core.model import CacheState, HostView, VolumeState, VolumeTag
from tests.values import OTHER_SET, SET, VOLUME_ID, backing, cached, disk, host, volume

WAITING = backing(state=CacheState.DIRTY, running=False, superblock_set=SET)
TAKE = TakeOverVolume(VOLUME_ID, "uuid", SET, is_attached=False)
ATTACHED = replace(TAKE, is_attached=True)
THERE = disk(superblock=SET)


def foreign(owner_state: OwnerState = OwnerState.GONE, **changes: Any) -> ForeignVolume:
    free = volume(VolumeState.AVAILABLE, tag=VolumeTag.DIRTY)
    return ForeignVolume(replace(free, **changes), "owner", owner_state)


@pytest.mark.parametrize(
    ("seen", "action", "view"),
    [
        (foreign(), TAKE, host(WAITING)),
        (foreign(OwnerState.SELF), TAKE, host(WAITING)),  # the answer to an earlier try was lost
        (foreign(tag=VolumeTag.CLEAN), TAKE, host(WAITING)),  # an agent that tags nothing
        (foreign(state=VolumeState.ATTACHED), TAKE, host(WAITING, THERE)),
        (foreign(state=VolumeState.ATTACHED), ATTACHED, host(cached(), disk(superblock=SET, cache_set=SET))),
    ],
)
def test_volume_whose_machine_is_gone_may_be_taken_over(
    seen: ForeignVolume, action: TakeOverVolume, view: HostView
) -> None:
    assert why_not_taken_over(seen, action, view) == ("", "")


@pytest.mark.parametrize(
    ("seen", "action", "view", "code"),
    [
        (None, TAKE, host(WAITING), "volume.unknown"),
        (foreign(backing_uuid="another"), TAKE, host(WAITING), "volume.backing"),
        (foreign(backing_uuid=""), TAKE, host(WAITING), "volume.backing"),
        (foreign(OwnerState.THERE), TAKE, host(WAITING), "volume.owner"),
        (foreign(OwnerState.UNKNOWN), TAKE, host(WAITING), "volume.owner"),
        (foreign(state=VolumeState.ELSEWHERE), TAKE, host(WAITING), "volume.elsewhere"),
        *((foreign(state=s), TAKE, host(WAITING), "volume.state") for s in (VolumeState.DELETING, VolumeState.ERROR)),
        (foreign(), TAKE, host(WAITING, disk(superblock=OTHER_SET)), "volume.other_set"),
        (foreign(), TAKE, host(WAITING, disk()), "volume.other_set"),
        (foreign(), ATTACHED, host(cached()), "volume.other_set"),
        (foreign(), TAKE, host(replace(WAITING, superblock_set=OTHER_SET)), "device.changed"),
        (foreign(), TAKE, host(backing()), "device.changed"),
        (foreign(), TAKE, host(None), "device.changed"),
    ],
)
def test_everything_else_is_a_reason(
    seen: ForeignVolume | None, action: TakeOverVolume, view: HostView, code: str
) -> None:
    assert why_not_taken_over(seen, action, view)[0] == code
