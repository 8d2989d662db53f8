"""A volume that another machine bought, and whether this one may take it over. Pure.

A cache volume belongs to the machine that its owner tag names. If that machine is gone for good, nobody flushes the
cache, and no agent may touch the volume. Taking it over means to become its owner, and nothing else: from then on it is
a volume of this machine like any other, and the rules of every such volume apply to it. So everything that can be wrong
has to be found before.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from elastio.core.actions import TakeOverVolume
from elastio.core.model import HostView, Volume, VolumeState


class OwnerState(StrEnum):
    """What the cloud proves about the machine that a volume's owner tag names."""

    SELF = "this machine"
    GONE = "gone"  # deleted for good: it can never start again
    THERE = "there"  # also a stopped machine: it may start again and continue
    UNKNOWN = "unknown"  # no owner tag, or not a machine that this credential can be sure about


# The states of volumes that are not this machine's.
OF_OTHERS = frozenset({VolumeState.FOREIGN, VolumeState.UNLABELED})


def state_of_others(state: VolumeState, owner: str | None) -> VolumeState:
    """As a machine sees it whose volume it is not, by the owner that the label names; empty or None: it names none."""
    if owner:
        return VolumeState.FOREIGN
    return state if state.is_gone else VolumeState.UNLABELED


@dataclass(frozen=True, slots=True)
class ForeignVolume:
    """A volume and its owner. `volume.state` is as seen from this machine, whoever owns it (never FOREIGN)."""

    volume: Volume
    owner: str
    owner_state: OwnerState


_FREE = (VolumeState.AVAILABLE, VolumeState.ATTACHING, VolumeState.ATTACHED)


def why_not_taken_over(seen: ForeignVolume | None, action: TakeOverVolume, host: HostView) -> tuple[str, str]:
    """Why the volume stays with its owner: a code and a sentence; both empty: this machine may take it over.

    Everything that is not proven counts as a reason.
    """
    name = action.volume_id
    if seen is None:
        return "volume.unknown", f"the cloud does not know volume {name}"
    volume = seen.volume
    if volume.backing_uuid != action.backing_uuid:
        other = volume.backing_uuid or "none"
        text = f"volume {name} was not bought for backing device {action.backing_uuid}: its tag elastio:backing has "
        return "volume.backing", f"{text}{other}"
    if seen.owner_state is OwnerState.THERE:
        return (
            "volume.owner",
            f"the machine that bought volume {name} still exists ({seen.owner}): start the agent there",
        )
    if seen.owner_state is OwnerState.UNKNOWN:
        owner = seen.owner or "no owner tag"
        return "volume.owner", f"it cannot be proven that the machine that bought volume {name} is gone ({owner})"
    if volume.state is VolumeState.ELSEWHERE:
        return "volume.elsewhere", f"volume {name} is attached to another machine: detach it there first"
    if volume.state not in _FREE:
        return "volume.state", f"volume {name} is {volume.state}"
    return _why_not_this_cache(volume, action, host)


def _why_not_this_cache(volume: Volume, action: TakeOverVolume, host: HostView) -> tuple[str, str]:
    """By the superblocks, as far as the kernel shows the disk now. What is not attached is checked when it appears."""
    backing = host.backing
    needed = (backing.cache_set or backing.superblock_set) if backing is not None else None
    if needed != action.cache_set:
        return "device.changed", f"the backing device no longer needs cache set {action.cache_set}"
    disk = host.disk(volume.serial)
    if disk is None:
        if action.is_attached:
            text = f"cache set {action.cache_set} is attached to the device, and it is not on volume {volume.id}"
            return "volume.other_set", text
        return "", ""
    carried = disk.cache_set or disk.superblock
    if carried != action.cache_set:
        text = f"disk {disk.name} of volume {volume.id} carries {f'cache set {carried}' if carried else 'no cache set'}"
        return "volume.other_set", f"{text}, and the device needs {action.cache_set}"
    return "", ""
