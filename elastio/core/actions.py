"""Everything the agent can do, as values. `decide` returns them; only the executor carries them out.

Each action is idempotent: doing it twice leaves what doing it once leaves. Reads (`ListVolumes`,
`DescribeVolume`, `Identify`, `PollNotice`) are not journalled; every other action is, before it starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TypeAlias

from elastio.core.model import (
    CacheSetUuid,
    Identity,
    NoticeView,
    Purchase,
    Serial,
    Volume,
    VolumeId,
    VolumeSpec,
    VolumeTag,
)


class Worker(StrEnum):
    """Actions of one worker run one after the other; workers run beside each other and beside the sampling."""

    CLOUD = "cloud"
    HOST = "host"


# --- the cloud -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateVolume:
    """Buy a volume. However often it is asked with one token, one volume results.

    Refused when what is really sold for `spec` is larger than `max_size_bytes`: sizes are sold in steps; and, where a
    cap in currency `needs_price`, when nobody knows what it costs.
    """

    token: str
    spec: VolumeSpec
    max_size_bytes: int
    needs_price: bool = False


@dataclass(frozen=True, slots=True)
class AttachVolume:
    volume_id: VolumeId


@dataclass(frozen=True, slots=True)
class DetachVolume:
    volume_id: VolumeId
    serial: Serial


@dataclass(frozen=True, slots=True)
class DeleteVolume:
    volume_id: VolumeId
    serial: Serial


@dataclass(frozen=True, slots=True)
class DescribeVolume:
    volume_id: VolumeId


@dataclass(frozen=True, slots=True)
class ListVolumes:
    """Look for every volume that carries this agent's tag."""


@dataclass(frozen=True, slots=True)
class Identify:
    """Ask the cloud who this machine is."""


@dataclass(frozen=True, slots=True)
class PollNotice:
    """Ask the cloud whether it is about to take this machine away. Clouds without such notices say so."""


@dataclass(frozen=True, slots=True)
class TagVolume:
    """Write the tag that tells a janitor whether the volume may hold data. Nothing waits for it."""

    volume_id: VolumeId
    tag: VolumeTag


# --- the host --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TuneBacking:
    """Bound the bytes in flight on the backing disk, choose its scheduler, set bcache's knobs for safety."""


@dataclass(frozen=True, slots=True)
class InstallCache:
    """Make the disk with this serial a cache device and put it in front in writeback mode: the start of phase 1.

    One action, because a saturated application waits for it. Refused unless the disk is provably the volume bought.
    `flush_mb_s` as in `EnterPhase1`.
    """

    serial: Serial
    size_bytes: int
    flush_mb_s: float | None


@dataclass(frozen=True, slots=True)
class EnterPhase1:
    """Application I/O first: writes go to the cache, flushing at most at `flush_mb_s`.

    MB/s; 0 stops flushing, None flushes with all that applications leave over on the backing disk.
    """

    flush_mb_s: float | None


@dataclass(frozen=True, slots=True)
class EnterPhase2:
    """Flush at full speed; writes still go to the cache. Can be reversed by `EnterPhase1`."""


@dataclass(frozen=True, slots=True)
class LimitWrites:
    """Hold applications' writes to so many MB/s, so that a flush that must come to an end does; None: no limit."""

    mb_s: float | None


@dataclass(frozen=True, slots=True)
class BypassCache:
    """The end of phase 2: the cache is clean, and stays so, because writes bypass it. Cannot be reversed.

    Refused while anything is dirty, though it holds all requests back for a moment to let the last of it be flushed.
    """


@dataclass(frozen=True, slots=True)
class WakeWriteback:
    """Make the kernel see the dirty data that only its index knows, so that it is flushed in mode writeback.

    After a power cut the superblock may say clean over a dirty index, and the writeback thread then sleeps.
    """


@dataclass(frozen=True, slots=True)
class SetFlush:
    """Set the pace of background flushing within phase 1, as `EnterPhase1` counts it."""

    mb_s: float | None


@dataclass(frozen=True, slots=True)
class DetachCacheSet:
    """Take the clean cache set off the backing device, with the backing device made durable before."""

    cache_set: CacheSetUuid


@dataclass(frozen=True, slots=True)
class ReleaseCacheDisk:
    """Make the backing device durable, unregister the cache set, wipe its superblock: the disk may leave."""

    serial: Serial
    size_bytes: int
    cache_set: CacheSetUuid | None


@dataclass(frozen=True, slots=True)
class MakeDurable:
    """Make the backing device durable: its cache is gone, and the disk that would be released with it."""


@dataclass(frozen=True, slots=True)
class HelpDetach:
    """Hold the applications' requests back for a moment, so that a detach finds its instant without any."""


@dataclass(frozen=True, slots=True)
class RegisterBacking:
    """Register the backing device that the kernel let go of after its cache died. It then waits for its cache."""


@dataclass(frozen=True, slots=True)
class RegisterCache:
    """Register a cache disk that came back; the kernel puts the device together."""

    serial: Serial
    cache_set: CacheSetUuid


@dataclass(frozen=True, slots=True)
class StartWithoutCache:
    """Start the backing device and give up what only its cache holds.

    `given_up`: the volume, where an operator has decided so; or the cache set, where the device has outlived it.
    """

    given_up: str


CloudAction: TypeAlias = (
    CreateVolume
    | AttachVolume
    | DetachVolume
    | DeleteVolume
    | DescribeVolume
    | ListVolumes
    | Identify
    | PollNotice
    | TagVolume
)
HostAction: TypeAlias = (
    TuneBacking
    | InstallCache
    | EnterPhase1
    | EnterPhase2
    | BypassCache
    | LimitWrites
    | WakeWriteback
    | SetFlush
    | DetachCacheSet
    | ReleaseCacheDisk
    | MakeDurable
    | HelpDetach
    | RegisterBacking
    | RegisterCache
    | StartWithoutCache
)
Action: TypeAlias = CloudAction | HostAction

CLOUD_ACTIONS = (
    CreateVolume,
    AttachVolume,
    DetachVolume,
    DeleteVolume,
    DescribeVolume,
    ListVolumes,
    Identify,
    PollNotice,
    TagVolume,
)
READS = (DescribeVolume, ListVolumes, Identify, PollNotice)


def worker_of(action: Action) -> Worker:
    """The worker an action runs in."""
    return Worker.CLOUD if isinstance(action, CLOUD_ACTIONS) else Worker.HOST


def gives_back(action: Action) -> bool:
    """True for what only ends a restraint on applications: it is done even where it cannot be written down."""
    return action == LimitWrites(None)


def is_read(action: Action) -> bool:
    """True for actions that change nothing."""
    return isinstance(action, READS)


# --- what came of it -----------------------------------------------------------------------------------------


class OutcomeKind(StrEnum):
    DONE = "done"
    RETRY = "retry"  # failed in a way that may pass
    REFUSED = "refused"  # failed in a way that asking again will not cure
    UNKNOWN = "unknown"  # no answer in time: it may or may not have happened


class Effect(Enum):
    """What a change of the host found, where it may be repeated. The journal keeps it with the outcome."""

    CHANGED = "changed"
    ALREADY = "already"  # an earlier try, udev or the kernel had done it


Value: TypeAlias = Purchase | Identity | Volume | tuple[Volume, ...] | CacheSetUuid | NoticeView | Effect | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one action. An outcome is counted, never believed: the next look shows the truth."""

    action: Action
    kind: OutcomeKind
    value: Value = None
    error: str = ""
    seconds: float = 0.0
