"""The release of a cache volume: each step waits for the proof of the one before; and the tombstone. Pure.

1. The cache set is detached from the backing device (`DetachCacheSet`), once it is drained.
2. The backing device is made durable and the superblock is wiped (`ReleaseCacheDisk`, `MakeDurable`).
3. The volume is tagged clean: from now on a janitor may delete it.
4. The volume is detached from the VM and deleted. A list, not the answer to the deletion, proves that it is gone.

The tombstone of an adopted volume is there before a cache is installed, and until an idle agent sees that bcache names
none: whoever mounted the volume alone meanwhile would see older data. See `elastio.host.tombstone` for how.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from elastio.core import actions
from elastio.core.cycle import Cycle
from elastio.core.model import BackingView, CacheSetUuid, CacheState, Serial, VolumeId, VolumeState, VolumeTag
from elastio.core.policy import Policy
from elastio.core.polling import NextAction, ask, first, poll_volume, tag_volume
from elastio.core.state import AgentState, Observation, Phase


def detaching(state: AgentState, cycle: Cycle, obs: Observation, policy: Policy) -> NextAction:
    """The next step of the release."""
    if cycle.volume_id is None or cycle.serial is None:
        return ask(state, actions.ListVolumes(), obs, "the cloud to show whether a volume was bought")
    host = obs.host
    if host is None or host.backing is None:
        # While the device is unknown, so is whether it has all of the cache's data: the volume stays, and is billed.
        return NextAction(waiting_for=f"the backing device; volume {cycle.volume_id} is kept until it shows")
    if cycle.cache_set is not None and host.backing.cache_set == cycle.cache_set:
        return _towards_detached(cycle, cycle.cache_set, host.backing, obs, policy)
    disk = host.disk(cycle.serial)
    if disk is not None and disk.is_in_use and not cycle.is_gone:
        action = actions.ReleaseCacheDisk(cycle.serial, disk.size_bytes, disk.cache_set or disk.superblock)
        return ask(cycle, action, obs, f"disk {disk.name} to be released")
    if cycle.needs_sync:
        return ask(cycle, actions.MakeDurable(), obs, "the backing device to be durable")
    if cycle.is_unknown(host, obs.now):
        return poll_volume(cycle, obs, f"the cloud to know {cycle.volume_id}, whose disk is there: another project?")
    # An account may forbid detaching and deleting what is tagged dirty. If the tag fails, the release goes on.
    tag = tag_volume(cycle, VolumeTag.CLEAN, obs, policy) if not cycle.is_gone else NextAction()
    plan = _towards_deleted(cycle, cycle.volume_id, cycle.serial, obs)
    return plan if tag.action is None else replace(plan, action=tag.action)


def _towards_detached(
    cycle: Cycle, cache_set: CacheSetUuid, backing: BackingView, obs: Observation, policy: Policy
) -> NextAction:
    # Once the kernel has begun the detach, `state` is "no cache"; the link `cache` disappears at the first instant
    # without a request in flight.
    plan = NextAction(waiting_for="an instant without I/O to finish the detach")
    clean_at, after_s = cycle.times.clean, policy.detach_throttle_after_s
    is_late = clean_at is not None and after_s is not None and obs.now >= clean_at + after_s
    if backing.is_drained:
        plan = ask(cycle, actions.DetachCacheSet(cache_set), obs, "the cache set to be detached")
    elif is_late and backing.state is CacheState.NO_CACHE:
        plan = ask(cycle, actions.HelpDetach(), obs, plan.waiting_for)
    return plan if plan.action else replace(plan, wake_at=obs.now + 0.25)


def _towards_deleted(cycle: Cycle, volume_id: VolumeId, serial: Serial, obs: Observation) -> NextAction:
    """The disk is wiped, or gone: detach the volume, then delete it.

    A disk that the kernel still shows although the cloud has detached the volume must not delay the deletion: it may
    have been connected again with the power.
    """
    poll = poll_volume(cycle, obs, f"volume {volume_id} ({cycle.volume_state or 'unseen'}) to be gone")
    match cycle.volume_state:
        case VolumeState.ATTACHED | VolumeState.ATTACHING | VolumeState.BUSY:
            action: actions.Action = actions.DetachVolume(volume_id, serial)
        case VolumeState.ERROR if obs.host is not None and obs.host.disk(serial) is not None:
            action = actions.DetachVolume(volume_id, serial)
        case VolumeState.AVAILABLE | VolumeState.ERROR:
            action = actions.DeleteVolume(volume_id, serial)
        case VolumeState.CREATING | VolumeState.DETACHING | VolumeState.DELETING | VolumeState.GONE | None:
            return poll  # it changes by itself
        case VolumeState.ELSEWHERE | VolumeState.FOREIGN | VolumeState.UNLABELED:
            return poll  # nothing may be done to it
        case _:
            assert_never(cycle.volume_state)
    if cycle.backoff_of("DescribeVolume").tries == 0:
        return poll  # decide on a new poll, never on a state that is as old as the boost
    return first(ask(cycle, action, obs, poll.waiting_for), poll)


def tombstone_written(cycle: Cycle, backing: BackingView, obs: Observation) -> NextAction:
    """Before a cache is installed, for which writes stay held back; nothing where it is there, or none is needed."""
    if backing.has_tombstone is not False:
        return NextAction()
    return ask(cycle, actions.WriteTombstone(), obs, "the tombstone of the adopted volume")


def tombstone_removed(state: AgentState, obs: Observation) -> NextAction:
    """As soon as no cache can be needed. Not after a fault: what the kernel shows may be an older copy."""
    backing = obs.backing
    if backing is None or not backing.may_lose_tombstone or state.phase is not Phase.IDLE:
        return NextAction()
    return ask(state, actions.RemoveTombstone(), obs, "the adopted volume to be a plain filesystem again")
