"""Values for tests of the core: one healthy machine, changed by keyword."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from elastio.core.boosting import situation_of
from elastio.core.cycle import Backoff, CacheUse, Cycle, Timestamps, Trigger
from elastio.core.model import (
    BackingView,
    CacheMode,
    CacheSetUuid,
    CacheState,
    DiskView,
    HostView,
    Identity,
    Rates,
    Request,
    RequestKind,
    Sample,
    Serial,
    Volume,
    VolumeId,
    VolumeSpec,
    VolumeState,
    VolumeTag,
)
from elastio.core.planner import LAST_S
from elastio.core.policy import Policy
from elastio.core.state import AgentState, Fault, FaultKind, Listed, Observation, Phase
from elastio.strategy.memory import Boost, LoadWatch, Memory
from elastio.strategy.situation import Situation
from elastio.units import GIB, MB

T = TypeVar("T")

SET = CacheSetUuid("11111111-0000-4000-8000-000000000001")
OTHER_SET = CacheSetUuid("22222222-0000-4000-8000-000000000002")
SERIAL = Serial("vol00000000000000001")
VOLUME_ID = VolumeId("vol-00000000000000001")
POLICY = Policy(backing_bandwidth_mb_s=20, cache_bandwidth_mb_s=80, backing_uuid="uuid")
NOW = 1000.0
WALL = 1_767_225_600.0


def present(value: T | None) -> T:
    """The value, which must be there."""
    assert value is not None
    return value


def ask(
    function: Callable[[Memory, Situation, Policy], T], of: AgentState, obs: Observation, policy: Policy = POLICY
) -> T:
    """What a function of the strategy answers to the mechanism in this state."""
    return function(of.memory, situation_of(of, obs, policy), policy)


def told(
    function: Callable[[Memory, Situation, Policy], Memory], of: AgentState, obs: Observation, policy: Policy = POLICY
) -> AgentState:
    """The state whose memory is that of the strategy after the function."""
    memory = ask(function, of, obs, policy)
    return of if memory is of.memory else replace(of, memory=memory)


def backing(**changes: Any) -> BackingView:
    """A tuned backing device without a cache."""
    plain = BackingView(
        running=True,
        state=CacheState.NO_CACHE,
        cache_mode=CacheMode.WRITEBACK,
        cache_set=None,
        dirty_bytes=0,
        writeback_running=True,
        tuned=True,
        size_bytes=50 * GIB,
    )
    return replace(plain, **changes)


def cached(**changes: Any) -> BackingView:
    """In phase 1 with dirty data."""
    plain = backing(cache_set=SET, state=CacheState.DIRTY, dirty_bytes=GIB)
    return replace(plain, **changes)


def drained(**changes: Any) -> BackingView:
    """In phase 2, flushed to the end."""
    plain = cached(state=CacheState.CLEAN, cache_mode=CacheMode.NONE, dirty_bytes=0, flush_full_speed=True)
    return replace(plain, **changes)


def disk(**changes: Any) -> DiskView:
    """The cycle's disk, blank."""
    plain = DiskView("vdc", SERIAL, 10 * GIB, cache_set=None, superblock=None, held=False)
    return replace(plain, **changes)


def host(view: BackingView | None, *disks: DiskView) -> HostView:
    return HostView(at=NOW, boot_id="boot", backing=view, disks=disks)


def volume(state: VolumeState = VolumeState.ATTACHED, **changes: Any) -> Volume:
    plain = Volume(VOLUME_ID, SERIAL, state, 10 * GIB, 80, "token", "uuid", WALL - 100, VolumeTag.CLEAN)
    return replace(plain, **changes)


def cycle(**changes: Any) -> Cycle:
    """A cycle whose volume is bought, attached and formatted; with fields of its own, or of its use, replaced."""
    plain = Cycle(
        token="token",
        trigger=Trigger.LOAD,
        spec=VolumeSpec(10 * GIB, 80),
        started_at=NOW - 20,
        started_wall=WALL - 20,
        volume_id=VOLUME_ID,
        serial=SERIAL,
        cache_set=SET,
        volume=volume(),
        seen=True,
        opened_wall=WALL - 19,
        tag=VolumeTag.DIRTY,
        times=Timestamps(decided=NOW - 20, created=NOW - 19),
    )
    of_use = {name: changes.pop(name) for name in CacheUse.__slots__ if name in changes}
    return replace(replace(plain, use=CacheUse(**of_use)), **changes)


# Ten seconds into a boost.
BOOSTED = Timestamps(decided=NOW - 20, created=NOW - 19, boosted=NOW - 10)


def boosted(**changes: object) -> Cycle:
    return cycle(times=BOOSTED, dirty_bytes=GIB, dirty_wall=WALL - 60, peak_dirty_bytes=2 * GIB, **changes)


FORMATTED = disk(cache_set=SET, superblock=SET, held=True)
# The kernel runs the device without a cache that failed while it was clean.
FAILED_CLEAN = backing(state=CacheState.CLEAN, superblock_set=SET)
# After a boot it waits for that cache.
WAITS_FOR_CLEAN = backing(state=CacheState.CLEAN, running=False, superblock_set=SET)
WAITS_FOR_DIRTY = host(backing(state=CacheState.DIRTY, running=False))
CACHE_MISSING = Fault(FaultKind.CACHE_MISSING, "the cache is missing")

IDENTITY = Identity("sim", "i-0", "zone-a", "region-a", "large")


def state(phase: Phase, of: Cycle | None = None, **changes: Any) -> AgentState:
    """A recovered agent that has listed its volumes and knows who it is."""
    plain = AgentState(phase=phase, cycle=of, recovered=True, owned=(), identity=IDENTITY)
    plain = replace(plain, listed=Listed(NOW - 1, NOW + 600))
    if phase is Phase.FAULTED:  # whoever owns them
        plain = replace(plain, for_backing=(), backoffs={"ListForBacking": Backoff(0, NOW + 600)})
    return changed(plain, **changes)


def changed(before: AgentState, **changes: Any) -> AgentState:
    """The state with fields of its own, or of the strategy's memory or of its boost, replaced."""
    of_boost = {name: changes.pop(name) for name in Boost.__slots__ if name in changes}
    of_memory = {name: changes.pop(name) for name in Memory.__slots__ if name in changes}
    memory = replace(before.memory, **of_memory)
    return replace(before, **changes, memory=replace(memory, boost=replace(memory.boost, **of_boost)))


def seen(view: HostView | None = None, **changes: Any) -> Observation:
    return replace(Observation(now=NOW, wall=WALL, host=view), **changes)


def busy_sample(mb_s: float = 20.0) -> Sample:
    return Sample(NOW, 1.0, Rates(write_mb_s=mb_s))


HIGH = LoadWatch(above_since=NOW - 5, utilization=1.0)
QUIET = LoadWatch(below_since=NOW - 100, utilization=0.0)

RELEASED = replace(BOOSTED, durable=NOW - 2, released=NOW - 2)
UNBOUGHT = cycle(volume_id=None, serial=None, cache_set=None, volume=None, seen=False, opened_wall=None)

# Little enough dirty data to bypass the cache, and much.
LITTLE = int(LAST_S * POLICY.backing_bandwidth_mb_s * MB)
MUCH = 10 * LITTLE


def flushing(**changes: Any) -> AgentState:
    """Phase 2 began five seconds ago with much dirty data, and nobody has asked for it."""
    times = Timestamps(boosted=NOW - 60, quiet=NOW - 5)
    return state(Phase.FLUSHING, cycle(times=times, flush_started_dirty_bytes=MUCH, **changes), load=QUIET)


def at_full_speed(**changes: Any) -> BackingView:
    return cached(**{"flush_full_speed": True, "dirty_bytes": MUCH, **changes})


def faulted(of: Cycle | None = None, **changes: Any) -> AgentState:
    """Its cache is missing."""
    return state(Phase.FAULTED, of, **{"fault": CACHE_MISSING, **changes})


def asked(kind: RequestKind) -> tuple[Request, ...]:
    return (Request(kind),)
