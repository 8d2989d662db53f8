"""What must never happen: each rule, and that a healthy decision passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elastio.core.actions import (
    Action,
    AttachVolume,
    BypassCache,
    CreateVolume,
    DeleteVolume,
    DetachCacheSet,
    DetachVolume,
    EnterPhase1,
    EnterPhase2,
    InstallCache,
    LimitWrites,
    RegisterBacking,
    ReleaseCacheDisk,
    RemoveTombstone,
    SetFlush,
    StartWithoutCache,
    TagVolume,
    TakeOverVolume,
    WakeWriteback,
    WriteTombstone,
)
from elastio.core.cycle import Cycle, Timestamps, Trigger
from elastio.core.invariants import check
from elastio.core.model import CacheMode, CacheState, HostView, Serial, VolumeId, VolumeSpec, VolumeTag
from elastio.core.state import AgentState, Decision, Phase, TakeOver
from elastio.errors import InvariantError
from elastio.units import GIB
from tests.fixtures.errors import refused
from tests.values import (
    FAILED_CLEAN,
    FORMATTED,
    LITTLE,
    NOW,
    OTHER_SET,
    POLICY,
    SERIAL,
    SET,
    VOLUME_ID,
    backing,
    cached,
    cycle,
    disk,
    drained,
    host,
    seen,
    state,
    volume,
)

REGISTERED = disk(cache_set=SET, superblock=SET)
MISSING = backing(state=CacheState.DIRTY, running=False)
UNBOUGHT = cycle(volume_id=None, serial=None, cache_set=None, volume=None)
DISK_1, DISK_2 = Serial("disk-1"), Serial("disk-2")
BOOSTED = cycle(times=Timestamps(boosted=NOW - 5, detaching=NOW - 4))
NOT_BY_US = cycle(times=Timestamps(boosted=NOW - 5, durable=NOW))
ON_DISK_1 = replace(BOOSTED, backing_serial=DISK_1)
CREATE = CreateVolume("token", VolumeSpec(10 * GIB, 80), POLICY.caps.max_size_bytes)
LARGER = VolumeSpec(POLICY.caps.max_size_bytes + 1, 80)
DETACH, DELETE = DetachVolume(VOLUME_ID, SERIAL), DeleteVolume(VOLUME_ID, SERIAL)
INSTALL = InstallCache(SERIAL, 10 * GIB, 0.0)
RELEASE = ReleaseCacheDisk(SERIAL, 10 * GIB, SET)


def check_decision(action: Action, of: Cycle | None, view: HostView | None) -> None:
    check(Decision(state(Phase.DETACHING, of), (action,)), seen(view), POLICY)


RELEASED = replace(BOOSTED, times=replace(BOOSTED.times, released=NOW))
DURABLE = replace(BOOSTED, times=replace(BOOSTED.times, durable=NOW))
FOUND = cycle(trigger=Trigger.ORPHAN, tag=VolumeTag.CLEAN, times=Timestamps(created=NOW, durable=NOW))
TAGGED_SINCE = replace(FOUND, volume=volume(tag=VolumeTag.DIRTY))

ALLOWED: list[tuple[Action, Cycle | None, HostView | None]] = [
    (CREATE, UNBOUGHT, None),
    (DETACH, RELEASED, host(backing(), disk())),
    (DETACH, DURABLE, host(backing())),
    (DELETE, DURABLE, host(backing())),
    (DELETE, cycle(), host(backing())),  # it was never in front
    (DELETE, cycle(volume=volume(tag=VolumeTag.DIRTY)), host(backing())),  # this agent has tagged it
    (DELETE, FOUND, host(backing())),
    # Its tag was set clean after its release, and the cloud shows that late.
    (DELETE, replace(DURABLE, trigger=Trigger.ORPHAN, volume=volume(tag=VolumeTag.DIRTY)), host(backing())),
    (INSTALL, cycle(), host(backing(), disk())),
    (INSTALL, cycle(), host(backing(), REGISTERED)),
    (INSTALL, cycle(backing_serial=DISK_1), host(backing(disk_serial=DISK_1), disk())),
    (EnterPhase1(flush_mb_s=0.0), BOOSTED, host(cached(), FORMATTED)),
    (EnterPhase2(), BOOSTED, host(cached(), FORMATTED)),
    (BypassCache(), BOOSTED, host(cached(dirty_bytes=LITTLE), FORMATTED)),
    (WakeWriteback(), BOOSTED, host(cached(state=CacheState.CLEAN), FORMATTED)),
    (SetFlush(None), BOOSTED, host(cached(), FORMATTED)),
    (DetachCacheSet(SET), BOOSTED, host(drained(), FORMATTED)),
    (DetachCacheSet(SET), BOOSTED, host(drained(dirty_bytes=1), FORMATTED)),  # the kernel flushes it first
    (RELEASE, BOOSTED, host(backing(), REGISTERED)),
    (RegisterBacking(), BOOSTED, host(None)),
    (WriteTombstone(), cycle(), host(backing(has_tombstone=False))),
    (INSTALL, cycle(), host(backing(has_tombstone=True), disk())),
    (TagVolume(VOLUME_ID, VolumeTag.DIRTY), BOOSTED, host(cached(), FORMATTED)),
    (TagVolume(VOLUME_ID, VolumeTag.CLEAN), RELEASED, host(backing())),
]


@pytest.mark.parametrize(("action", "of", "view"), ALLOWED, ids=lambda v: type(v).__name__)
def test_a_healthy_action_passes(action: Action, of: Cycle | None, view: HostView | None) -> None:
    check_decision(action, of, view)


# --- take over ---------------------------------------------------------------------------------------------

WAITING = backing(state=CacheState.DIRTY, running=False, superblock_set=SET)
TAKE = TakeOverVolume(VOLUME_ID, POLICY.backing_uuid, SET, is_attached=False)
ORDERED = state(Phase.FAULTED, None, take_over=TakeOver(VOLUME_ID))


def check_take_over(before: AgentState, action: TakeOverVolume, view: HostView | None) -> None:
    check(Decision(before, (action,)), seen(view), POLICY)


def test_volume_is_taken_over_by_order_for_the_set_that_the_device_needs() -> None:
    check_take_over(ORDERED, TAKE, host(WAITING))
    check_take_over(ORDERED, replace(TAKE, is_attached=True), host(cached()))


@pytest.mark.parametrize(
    ("before", "action", "view"),
    [
        (replace(ORDERED, take_over=None), TAKE, host(WAITING)),
        (ORDERED, replace(TAKE, volume_id=VolumeId("vol-other")), host(WAITING)),
        (replace(ORDERED, phase=Phase.IDLE), TAKE, host(WAITING)),
        (ORDERED, replace(TAKE, backing_uuid="another"), host(WAITING)),
        (replace(ORDERED, cycle=BOOSTED), TAKE, host(WAITING)),
        (ORDERED, replace(TAKE, cache_set=OTHER_SET), host(WAITING)),
        (ORDERED, replace(TAKE, cache_set=OTHER_SET), host(cached())),
        (ORDERED, TAKE, host(None)),
        (ORDERED, TAKE, None),
    ],
    ids=[
        "no order",
        "other volume",
        "not faulted",
        "other device",
        "own cache",
        "other set",
        "attached set",
        "no device",
        "no scan",
    ],
)
def test_volume_of_another_machine_is_not_touched_otherwise(
    before: AgentState, action: TakeOverVolume, view: HostView | None
) -> None:
    with refused(InvariantError, "action.TakeOverVolume"):
        check_take_over(before, action, view)


FORBIDDEN: list[tuple[str, Action, Cycle | None, HostView | None]] = [
    ("no cycle has this token", CREATE, None, None),
    ("no cycle has this token", replace(CREATE, token="other"), UNBOUGHT, None),
    ("has its volume already", CREATE, cycle(), None),
    ("larger than the cap", replace(CREATE, spec=LARGER), UNBOUGHT, None),
    ("not been made durable", DETACH, BOOSTED, host(backing(), disk())),
    ("not been made durable", DELETE, BOOSTED, host(backing())),
    ("not been made durable", DELETE, cycle(trigger=Trigger.ORPHAN), host(backing())),
    ("do not say clean", DETACH, TAGGED_SINCE, host(backing(), disk())),
    ("do not say clean", DELETE, TAGGED_SINCE, host(backing())),
    ("do not say clean", TagVolume(VOLUME_ID, VolumeTag.CLEAN), TAGGED_SINCE, host(backing())),
    ("do not say clean", DELETE, replace(FOUND, volume=volume(tag=VolumeTag.UNKNOWN)), host(backing())),
    ("do not say clean", DELETE, replace(FOUND, volume=None, tag=VolumeTag.DIRTY), host(backing())),
    ("not this cycle's", DETACH, None, host(backing())),
    ("not this cycle's", replace(DELETE, volume_id=VolumeId("vol-other")), BOOSTED, host(backing())),
    ("its cache set is attached", DETACH, BOOSTED, host(cached(), FORMATTED)),
    ("its cache set is attached", DELETE, BOOSTED, host(drained(), FORMATTED)),
    ("state is unknown", DETACH, DURABLE, None),
    ("state is unknown", DELETE, DURABLE, host(None)),
    ("its cache is missing", DELETE, DURABLE, host(MISSING)),
    ("its cache is missing", DETACH, DURABLE, host(MISSING, disk())),
    ("still carries a cache set", DETACH, DURABLE, host(backing(), REGISTERED)),
    ("still carries a cache set", DELETE, DURABLE, host(backing(), disk(held=True))),
    ("not the volume of this cycle", INSTALL, None, host(backing(), disk())),
    ("not the volume of this cycle", replace(INSTALL, serial=Serial("other")), cycle(), host(backing(), disk())),
    ("may hold data", INSTALL, BOOSTED, host(backing(), disk())),
    ("state is unknown", INSTALL, cycle(), None),
    ("has a cache set", INSTALL, cycle(), host(cached(), disk())),
    (
        "another backing disk",
        INSTALL,
        cycle(backing_serial=DISK_1),
        host(backing(disk_serial=DISK_2), disk()),
    ),
    ("not tagged dirty", INSTALL, cycle(tag=VolumeTag.CLEAN), host(backing(), disk())),
    (
        "another backing disk",
        DELETE,
        replace(DURABLE, backing_serial=DISK_1),
        host(backing(disk_serial=DISK_2)),
    ),
    ("neither this agent nor the kernel", DELETE, NOT_BY_US, host(backing())),
    ("neither this agent nor the kernel", DETACH, NOT_BY_US, host(backing())),
    ("cannot be held back so long", BypassCache(), BOOSTED, host(cached(), FORMATTED)),
    ("index holds dirty", BypassCache(), BOOSTED, host(cached(state=CacheState.CLEAN, dirty_bytes=1), FORMATTED)),
    ("another backing disk", DetachCacheSet(SET), ON_DISK_1, host(drained(disk_serial=DISK_2), FORMATTED)),
    ("is not this cycle's", EnterPhase1(flush_mb_s=None), BOOSTED, host(cached(cache_set=OTHER_SET))),
    ("is not this cycle's", EnterPhase2(), BOOSTED, host(backing())),
    ("is not this cycle's", BypassCache(), BOOSTED, host(backing())),
    ("in flight", EnterPhase1(flush_mb_s=0.0), BOOSTED, host(cached(cache_mode=CacheMode.NONE), FORMATTED)),
    ("is not this cycle's", SetFlush(None), BOOSTED, None),
    ("is not this cycle's", LimitWrites(0.0), BOOSTED, host(backing())),
    ("not clean", DetachCacheSet(SET), BOOSTED, host(cached(cache_mode=CacheMode.NONE), FORMATTED)),
    ("may still be absorbed", DetachCacheSet(SET), BOOSTED, host(drained(cache_mode=CacheMode.WRITEBACK), FORMATTED)),
    ("is not this cycle's", DetachCacheSet(OTHER_SET), BOOSTED, host(drained(), FORMATTED)),
    ("state is unknown", RELEASE, BOOSTED, None),
    ("not been made durable", TagVolume(VOLUME_ID, VolumeTag.CLEAN), BOOSTED, host(backing())),
    ("not this cycle's", TagVolume(VolumeId("vol-2"), VolumeTag.CLEAN), RELEASED, host(backing())),
    ("no cache of this agent", RegisterBacking(), cycle(), host(None)),
    ("without its cache", INSTALL, cycle(), host(backing(has_tombstone=False), disk())),
    ("no adopted volume", WriteTombstone(), cycle(), host(backing())),
    ("no adopted volume, or unknown", WriteTombstone(), cycle(), None),
    ("no cache is to be attached", WriteTombstone(), None, host(backing(has_tombstone=False))),
    ("not idle", RemoveTombstone(), None, host(backing(has_tombstone=True))),
    ("a cycle", RemoveTombstone(), cycle(), host(backing(has_tombstone=True))),
    ("no operator accepted the loss", StartWithoutCache(VOLUME_ID), BOOSTED, host(MISSING)),
    ("dirty data was on it", DELETE, replace(BOOSTED, may_lack_data=True), host(backing())),
    ("dirty data was on it", DETACH, replace(BOOSTED, may_lack_data=True), host(backing())),
    (
        "older than the backing device",
        AttachVolume(VOLUME_ID),
        BOOSTED,
        host(backing(state=CacheState.CLEAN, running=False)),
    ),
    ("gone past it", AttachVolume(VOLUME_ID), cycle(times=Timestamps(installing=NOW)), host(FAILED_CLEAN)),
    ("still attached", RELEASE, BOOSTED, host(drained(), FORMATTED)),
]


ADOPTED = backing(has_tombstone=True)


def check_removal(view: HostView | None, **changes: Any) -> None:
    before = replace(state(Phase.IDLE, None), **{"recovered": True, **changes})
    check(Decision(before, (RemoveTombstone(),)), seen(view), POLICY)


def test_a_tombstone_is_removed_where_nobody_can_need_it() -> None:
    check_removal(host(ADOPTED))


@pytest.mark.parametrize(
    ("view", "changes"),
    [
        (None, {}),
        (host(backing()), {}),
        (host(ADOPTED), {"recovered": False}),
        (host(ADOPTED), {"cycle": cycle()}),
        (host(replace(ADOPTED, cache_set=SET)), {}),
        (host(replace(ADOPTED, state=CacheState.CLEAN)), {}),
        (host(replace(ADOPTED, state=CacheState.DIRTY, running=False)), {}),
    ],
)
def test_a_tombstone_stays_where_there_may_be_a_cache(view: HostView | None, changes: dict[str, Any]) -> None:
    with refused(InvariantError, "action.RemoveTombstone"):
        check_removal(view, **changes)


@pytest.mark.parametrize(
    ("action", "of", "view"), [case[1:] for case in FORBIDDEN], ids=[case[0] for case in FORBIDDEN]
)
def test_a_dangerous_action_is_rejected(action: Action, of: Cycle | None, view: HostView | None) -> None:
    with refused(InvariantError, f"action.{type(action).__name__}"):
        check_decision(action, of, view)
