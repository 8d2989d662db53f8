"""The way of a volume out of the machine: each step waits for the proof of the one before.

1. The cache set leaves the backing device (`DetachCacheSet`), which it may only when it is drained.
2. The backing device is made durable and the superblock is wiped (`ReleaseCacheDisk`, `MakeDurable`).
3. The volume is tagged clean: from here on a janitor may delete it.
4. The volume is detached from the VM, and deleted. A list, not the answer to the deletion, proves that it is gone.

A step that fails is asked for again; a step that was done needs no memory, because the scan shows it.
"""

from __future__ import annotations

from dataclasses import replace

from elastio.core.actions import (
    Action,
    DeleteVolume,
    DetachCacheSet,
    DetachVolume,
    HelpDetach,
    ListVolumes,
    MakeDurable,
    ReleaseCacheDisk,
)
from elastio.core.cycle import Cycle
from elastio.core.model import BackingView, CacheState, VolumeState, VolumeTag
from elastio.core.next_action import NextAction, ask, first, poll_volume, tag_volume
from elastio.core.observation import Observation
from elastio.core.policy import Policy
from elastio.core.state import AgentState


def detaching(state: AgentState, cycle: Cycle, obs: Observation, policy: Policy) -> NextAction:
    """Inside out: cache set off the backing device, superblock off the disk, disk off the VM, volume deleted."""
    if cycle.volume_id is None or cycle.serial is None:
        return ask(ListVolumes(), state.list_backoff, obs, "the cloud to show whether a volume was bought")
    host = obs.host
    if host is None or host.backing is None:
        # Without it nobody can tell whether all of the cache's data is on it, so the volume stays, and is paid for.
        return NextAction(waiting_for=f"the backing device: volume {cycle.volume_id} is kept until it is there")
    if cycle.cache_set is not None and host.backing.cache_set == cycle.cache_set:
        return _towards_detached(cycle, cycle.cache_set, host.backing, obs, policy)
    disk = host.disk(cycle.serial)
    is_gone = cycle.volume_state in (VolumeState.GONE, VolumeState.DELETING)
    if disk is not None and disk.is_in_use and not is_gone:
        action: Action = ReleaseCacheDisk(cycle.serial, disk.size_bytes, disk.cache_set or disk.superblock)
        return ask(action, cycle.backoff_of(action), obs, f"disk {disk.name} to be released")
    if cycle.needs_sync:
        action = MakeDurable()
        return ask(action, cycle.backoff_of(action), obs, "the backing device to be durable")
    # An account may refuse to detach or delete what is tagged dirty. One that refuses the tag is no reason to stay.
    tag = tag_volume(cycle, VolumeTag.CLEAN, obs, policy) if not is_gone else NextAction()
    plan = _towards_deleted(cycle, obs)
    return plan if tag.action is None else replace(plan, action=tag.action)


def _towards_detached(
    cycle: Cycle, cache_set: str, backing: BackingView, obs: Observation, policy: Policy
) -> NextAction:
    if not backing.is_drained:
        # Once the kernel has taken the detach, `state` is "no cache" and the link goes at the first instant
        # without a request in flight.
        waiting = "an instant without I/O to finish the detach"
        help_at = _help_at(cycle, policy)
        if help_at is not None and backing.state is CacheState.NO_CACHE and obs.now >= help_at:
            action: Action = HelpDetach()
            plan = ask(action, cycle.backoff_of(action), obs, waiting)
            return plan if plan.action else NextAction(None, obs.now + 0.25, plan.waiting_for)
        return NextAction(wake_at=obs.now + 0.25, waiting_for=waiting)
    if cycle.cache_set is None:
        return NextAction()
    action = DetachCacheSet(cycle.cache_set)
    plan = ask(action, cycle.backoff_of(action), obs, "the cache set to be detached")
    return plan if plan.action else NextAction(None, obs.now + 0.25, plan.waiting_for)


def _help_at(cycle: Cycle, policy: Policy) -> float | None:
    """When applications may be held back for a moment; None: never."""
    if policy.detach_throttle_after_s is None or cycle.times.clean is None:
        return None
    return cycle.times.clean + policy.detach_throttle_after_s


def _towards_deleted(cycle: Cycle, obs: Observation) -> NextAction:
    """By now the disk is wiped, or gone. One that the kernel still shows although the cloud has detached the volume (it
    was plugged in again with the power) must not keep the volume on the bill."""
    volume_id, serial = cycle.volume_id, cycle.serial
    if volume_id is None or serial is None:
        return NextAction()
    poll = poll_volume(cycle, obs, f"volume {volume_id} ({cycle.volume_state or 'unseen'}) to be gone")
    match cycle.volume_state:
        case VolumeState.ATTACHED | VolumeState.ATTACHING | VolumeState.BUSY:
            action: Action = DetachVolume(volume_id, serial)
        case VolumeState.ERROR if obs.host is not None and obs.host.disk(serial) is not None:
            action = DetachVolume(volume_id, serial)
        case VolumeState.AVAILABLE | VolumeState.ERROR:
            action = DeleteVolume(volume_id, serial)
        case _:
            return poll
    if cycle.backoff_of("DescribeVolume").tries == 0:
        return poll  # decide on a fresh poll, never on a state that is a whole boost old
    return first(ask(action, cycle.backoff_of(action), obs, poll.waiting_for), poll)
