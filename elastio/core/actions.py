"""Everything the agent can do, as values. `decide` returns them; only the executor carries them out.

Each action is idempotent: repeating it changes nothing. Reads (`ListVolumes`, `ListForBacking`, `DescribeVolume`,
`Identify`, `PollNotice`) are not journalled; every other action is, before it starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TypeAlias

from elastio.core.model import (
    CacheSetUuid,
    Depth,
    Identity,
    NoticeView,
    Purchase,
    Serial,
    Volume,
    VolumeId,
    VolumeSpec,
    VolumeTag,
)
from elastio.core.shares import SharePlan
from elastio.strategy.spending import Limits


class Worker(StrEnum):
    """Actions of one worker run one after the other; workers run in parallel, also to the sampling."""

    CLOUD = "cloud"
    HOST = "host"


# --- the cloud -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateVolume:
    """Buy a volume. Repeated requests with one token buy one volume.

    Refused if the cloud rounds `spec` up to more than `max_size_bytes`, if a cap in currency needs the price
    (`needs_price`) and it is unknown, or if `least_s` of the volume, or the least billed time, cost more than
    `most_cost` (None: no limit). `shared`: the caps that other agents share; refused unless they have room for it.
    `unconfirmed_s` ago it was requested without an answer (None: never).
    """

    token: str
    spec: VolumeSpec
    max_size_bytes: int
    needs_price: bool = False
    most_cost: float | None = None
    least_s: float = 0.0
    shared: Limits | None = None
    unconfirmed_s: float | None = None


@dataclass(frozen=True, slots=True)
class AttachVolume:
    """Request attachment of the volume to this instance."""

    volume_id: VolumeId


@dataclass(frozen=True, slots=True)
class DetachVolume:
    """Request detachment of the volume, never by force. Refused if it may hold data."""

    volume_id: VolumeId
    serial: Serial


@dataclass(frozen=True, slots=True)
class DeleteVolume:
    """Request deletion of the volume. Refused if it may hold data."""

    volume_id: VolumeId
    serial: Serial


@dataclass(frozen=True, slots=True)
class DescribeVolume:
    """Poll the state of one volume."""

    volume_id: VolumeId


@dataclass(frozen=True, slots=True)
class ListVolumes:
    """List every volume that carries this agent's tag."""


@dataclass(frozen=True, slots=True)
class ListForBacking:
    """List every volume that was bought for this backing device, whichever machine owns it."""


@dataclass(frozen=True, slots=True)
class Identify:
    """Ask the cloud for this machine's identity."""


@dataclass(frozen=True, slots=True)
class PollNotice:
    """Ask the cloud whether it is about to take this machine away. A cloud without such notices reports so."""


@dataclass(frozen=True, slots=True)
class TagVolume:
    """Write the tag from which a janitor learns whether the volume may hold data."""

    volume_id: VolumeId
    tag: VolumeTag


@dataclass(frozen=True, slots=True)
class TakeOverVolume:
    """Become the owner of a volume whose machine is gone, and tag it dirty. Refused unless everything is proven.

    `cache_set` is the one that the backing device has (`is_attached`), or that its superblock names.
    """

    volume_id: VolumeId
    backing_uuid: str
    cache_set: CacheSetUuid
    is_attached: bool


# --- the host --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TuneBacking:
    """Limit the requests in flight on the disks, choose the scheduler, apply bcache's safety settings.

    `depth` None: nothing is known of the load.
    """

    depth: Depth | None = None


@dataclass(frozen=True, slots=True)
class InstallCache:
    """Make the disk with this serial a cache set and attach it in writeback mode: the start of phase 1.

    One action, because a saturated application waits for it. Refused unless the disk is provably the volume that was
    bought. `flush_mb_s` as in `EnterPhase1`.
    """

    serial: Serial
    size_bytes: int
    flush_mb_s: float | None


@dataclass(frozen=True, slots=True)
class EnterPhase1:
    """Put application I/O first: writes go to the cache, and background flushing is limited to `flush_mb_s`.

    In MB/s; 0 stops flushing, None flushes with all bandwidth that applications leave free on the backing disk.
    """

    flush_mb_s: float | None


@dataclass(frozen=True, slots=True)
class EnterPhase2:
    """Flush at full speed; writes still go to the cache. Can be reversed by `EnterPhase1`."""


# A limit that holds all writes back: as good as nothing, for the kernel knows no limit of zero.
HELD_MB_S = 0.0


@dataclass(frozen=True, slots=True)
class LimitWrites:
    """Limit applications' writes to `mb_s` MB/s; None lifts the limit.

    So that a flush can finish under load, or that no write is in flight when the cache's disk appears.
    """

    mb_s: float | None


@dataclass(frozen=True, slots=True)
class SetShares:
    """Share the adaptive device among cgroups by this plan; None ends that."""

    plan: SharePlan | None


@dataclass(frozen=True, slots=True)
class BypassCache:
    """End phase 2: let writes bypass the clean cache, so that it stays clean. Cannot be reversed.

    Holds all requests back for a moment while the last dirty data is flushed; refused if some is still dirty then.
    """


@dataclass(frozen=True, slots=True)
class WakeWriteback:
    """Wake the writeback thread, so that it flushes dirty data which only bcache's index knows.

    After a power cut the superblock may say "clean" although the index holds dirty data; the thread then sleeps.
    """


@dataclass(frozen=True, slots=True)
class SetFlush:
    """Set the writeback rate within phase 1, in MB/s as in `EnterPhase1`."""

    mb_s: float | None


@dataclass(frozen=True, slots=True)
class DetachCacheSet:
    """Make the backing device durable, then detach the clean cache set from it."""

    cache_set: CacheSetUuid


@dataclass(frozen=True, slots=True)
class ReleaseCacheDisk:
    """Make the backing device durable, unregister the cache set and wipe its superblock: the disk may be detached."""

    serial: Serial
    size_bytes: int
    cache_set: CacheSetUuid | None


@dataclass(frozen=True, slots=True)
class MakeDurable:
    """Make the backing device durable, where the cache disk is gone and `ReleaseCacheDisk` cannot do it."""


@dataclass(frozen=True, slots=True)
class HelpDetach:
    """Hold applications' requests back for a moment: a detach finishes in an instant without requests in flight."""


@dataclass(frozen=True, slots=True)
class WriteTombstone:
    """Move the first sectors of an adopted volume to its head: nobody can mount it without its cache then."""


@dataclass(frozen=True, slots=True)
class RemoveTombstone:
    """Put the first sectors of an adopted volume back. Refused while it has a cache, or its superblock names one."""


@dataclass(frozen=True, slots=True)
class RegisterBacking:
    """Register the backing device that the kernel dropped when its cache failed. It then waits for its cache."""


@dataclass(frozen=True, slots=True)
class RegisterCache:
    """Register a cache disk that is back; the kernel then attaches its cache set."""

    serial: Serial
    cache_set: CacheSetUuid


@dataclass(frozen=True, slots=True)
class StartWithoutCache:
    """Start the backing device without its cache, and give up what only the cache holds.

    `given_up` is a volume's ID if an operator accepted the loss, or a cache set's UUID if the set failed while clean.
    """

    given_up: str


CloudAction: TypeAlias = (
    CreateVolume
    | AttachVolume
    | DetachVolume
    | DeleteVolume
    | DescribeVolume
    | ListVolumes
    | ListForBacking
    | Identify
    | PollNotice
    | TagVolume
    | TakeOverVolume
)
HostAction: TypeAlias = (
    TuneBacking
    | InstallCache
    | EnterPhase1
    | EnterPhase2
    | BypassCache
    | LimitWrites
    | SetShares
    | WakeWriteback
    | SetFlush
    | DetachCacheSet
    | ReleaseCacheDisk
    | MakeDurable
    | HelpDetach
    | WriteTombstone
    | RemoveTombstone
    | RegisterBacking
    | RegisterCache
    | StartWithoutCache
)
Action: TypeAlias = CloudAction | HostAction


def worker_of(action: Action) -> Worker:
    """The worker that runs the action."""
    return Worker.CLOUD if isinstance(action, CloudAction) else Worker.HOST


def lifts_limit(action: Action) -> bool:
    """True if the action only lifts limits on applications: it is carried out even if it cannot be journalled."""
    return action in (LimitWrites(None), SetShares(None))


def is_read(action: Action) -> bool:
    """True for actions that change nothing."""
    return isinstance(action, DescribeVolume | ListVolumes | ListForBacking | Identify | PollNotice)


# --- outcomes ------------------------------------------------------------------------------------------------


class OutcomeKind(StrEnum):
    """How an action ended."""

    DONE = "done"
    RETRY = "retry"  # failed; a retry may succeed
    REFUSED = "refused"  # failed; a retry will not help
    UNKNOWN = "unknown"  # no answer in time: it may or may not have happened


class Effect(Enum):
    """What a change of the host found, where it may be repeated. The journal keeps it with the outcome."""

    CHANGED = "changed"
    ALREADY = "already"  # an earlier try, udev or the kernel had done it


Value: TypeAlias = Purchase | Identity | Volume | tuple[Volume, ...] | CacheSetUuid | NoticeView | Effect | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one action, in `seconds`. It sets the backoff; what is true is seen by the next scan or poll.

    `code` is that of the error (`elastio.errors.ElastioError.code`); empty: the error has none, or there was none.
    """

    action: Action
    kind: OutcomeKind
    value: Value = None
    error: str = ""
    seconds: float = 0.0
    code: str = ""
    is_quota: bool = False  # the error is a QuotaError
