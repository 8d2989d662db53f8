"""What a decision is given, what the agent remembers between two of them, and what one answers. Frozen values.

One bought volume is a `cycle.Cycle`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from elastio.codec import Kept
from elastio.core.actions import Action, Outcome, Worker
from elastio.core.cycle import NO_BACKOFF, UNKNOWN_VOLUME, Backoff, Cycle, verb
from elastio.core.model import (
    BackingView,
    CacheState,
    Forecast,
    HostView,
    Identity,
    Notice,
    Request,
    RequestKind,
    Sample,
    Volume,
    VolumeId,
    VolumeState,
    VolumeTag,
)
from elastio.core.phase import Phase as Phase  # noqa: PLC0414  re-exported
from elastio.core.shares import NOT_SHARED, SharePlan
from elastio.strategy.memory import BurstLesson, Memory
from elastio.strategy.spending import Spend
from elastio.strategy.worth import Advice


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that is known at `now` (CLOCK_BOOTTIME) and `wall` (seconds since the epoch).

    `host` is None while the kernel's state is unknown: not scanned yet, too old, or a host action has run since the
    scan. `sample` is set only when there is a new one. `busy`: workers that run an action. `jitter` is uniform in
    [0, 1), because the core uses no random numbers of its own. `forecast` None: no burst is expected, or there is no
    forecaster. `advice` None: no burst is known, or nothing is decided by money. `can_record` False: the last write to
    the journal failed. `spend_at` is when `spend` was last known. `burst`: the last boosted burst that has ended.
    """

    now: float
    wall: float
    host: HostView | None = None
    sample: Sample | None = None
    outcomes: tuple[Outcome, ...] = ()
    requests: tuple[Request, ...] = ()
    busy: frozenset[Worker] = frozenset()
    spend: Spend = field(default_factory=Spend)
    spend_at: float = float("-inf")
    jitter: float = 0.0
    forecast: Forecast | None = None
    advice: Advice | None = None
    can_record: bool = True
    burst: BurstLesson | None = None

    @property
    def backing(self) -> BackingView | None:
        """The backing device; None: the kernel's state is not known, or it does not show the device."""
        return self.host.backing if self.host else None


class FaultKind(StrEnum):
    """Why only an operator can go on."""

    CACHE_MISSING = "cache missing"  # the device waits for a cache that is not there
    CACHE_FAILED = "cache failed"  # bcache dropped the device because its cache failed, or somebody stopped it
    MAY_LACK_DATA = "may lack data"  # the device shows no cache, and the cache volume may hold data that it lacks
    CACHE_STALE = "cache stale"  # a cache is back that writes have bypassed
    INCONSISTENT = "inconsistent"  # the device was started by force without its cache
    FOREIGN_CACHE = "foreign cache"  # a cache set is attached that this agent did not attach
    DUPLICATE_DEVICE = "duplicate device"  # two devices carry the backing UUID
    ATTACHED_ELSEWHERE = "attached elsewhere"  # the volume is attached to another instance
    UNLABELED = "volume unlabeled"  # nothing says any more that the volume is this machine's
    MODE_CHANGED = "mode changed"  # somebody sets another cache mode again and again during a release
    RULE_BROKEN = "rule broken"  # a decision would have broken a safety rule: a bug


# Faults that neither kernel nor cloud show again after a start: the journal keeps them until an operator resumes.
KEPT_FAULTS = frozenset({FaultKind.RULE_BROKEN})


@dataclass(frozen=True, slots=True)
class Fault:
    """What only an operator can resolve; `text` is a sentence for people."""

    kind: FaultKind
    text: str

    def __str__(self) -> str:
        return self.text


class InhibitionReason(StrEnum):
    """Why no boost may begin."""

    SNAPSHOT = "snapshot"  # the backing volume has to be consistent by itself
    STOP = "stop of the agent"
    SHUTDOWN = "shutdown"
    NOTICE = "notice of the cloud"


@dataclass(frozen=True, slots=True)
class Inhibition:
    """No boost begins before `until` (CLOCK_BOOTTIME); with `flush`, an attached cache is flushed and released.

    A state, not a command: in every phase the agent works towards it. `under` is an earlier inhibition, which is in
    force again when this one ends.
    """

    reason: InhibitionReason
    until: float
    flush: bool = True
    under: Inhibition | None = None

    def of(self, reason: InhibitionReason) -> Inhibition | None:
        """The inhibition for this reason, in force or under another one; None: there is none."""
        return self if self.reason is reason else self.under and self.under.of(reason)

    def without(self, reason: InhibitionReason) -> Inhibition | None:
        """What remains once the one for this reason is ended; None: nothing."""
        rest = self.under and self.under.without(reason)
        return rest if self.reason is reason else replace(self, under=rest)

    def left_at(self, now: float) -> Inhibition | None:
        """The inhibition that is in force once this one is over; None: none."""
        return self.under if self.under is None or now < self.under.until else self.under.left_at(now)


@dataclass(frozen=True, slots=True)
class TakeOver:
    """An operator's order to take over the volume of a machine that is gone, until it is carried out.

    `refused` says why it was not, with a code for programs; empty: the cloud has not answered yet. `is_confirmed`: also
    if the cache may be older than the device.
    """

    volume_id: VolumeId
    is_confirmed: bool = False
    backoff: Backoff = NO_BACKOFF
    refused: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """When the cloud listed this agent's volumes, and when it is asked again. CLOCK_BOOTTIME."""

    at: float
    again_at: float


@dataclass(frozen=True, slots=True)
class AgentState:
    """Everything that `decide` keeps from one call to the next; what is `Kept` is in the journal.

    `recovered` is False until the phase has been read from the kernel after a start. `owned` is the last list of this
    agent's volumes; None until the cloud has answered after the start. `listed` None: a new list is needed.

    `loss_accepted_for` is an operator's order to go on without the data of this volume ("unknown": its ID is not
    known); empty: none. `given_up` and `is_stale_accepted` are what remains of it, see `missing_cache`.

    `machine` identifies this machine without the cloud; empty: not known. `create_s` is the shortest time in which the
    cloud recently created a volume, and `appear_s` are the last times from a decision until the disk of the cache
    appeared. `others` are volumes that this machine bought for another backing device.

    `for_backing` is the last list of volumes that any machine bought for this backing device, see `missing_cache`;
    None: the cloud has not answered since a cache is missing.

    `failed_clean_set` is a cache set that failed while it was clean, so that the device runs without it, while the
    device's superblock still names it; empty: none. It must not be attached again.
    """

    phase: Kept[Phase] = Phase.IDLE
    cycle: Kept[Cycle | None] = None
    memory: Kept[Memory] = field(default_factory=Memory)  # of the strategy
    flush_mb_s: float | None = 0.0  # the writeback rate that the last sample asked for; None: no limit
    recovered: bool = False
    boot_id: str = ""  # of the journal's last record; empty: nothing is remembered
    paused: Kept[bool] = False
    inhibition: Kept[Inhibition | None] = None
    loss_accepted_for: Kept[str] = ""
    given_up: Kept[tuple[VolumeId, ...]] = ()
    is_stale_accepted: Kept[bool] = False
    take_over: TakeOver | None = None
    failed_clean_set: Kept[str] = ""
    fault: Kept[Fault | None] = None
    cool_until: Kept[float] = 0.0
    failures: Kept[int] = 0  # boosts in a row that failed before their cache was attached
    machine: str = ""
    create_s: Kept[float | None] = None
    others: tuple[Volume, ...] = ()
    appear_s: Kept[tuple[float, ...]] = ()
    owned: tuple[Volume, ...] | None = None
    listed: Listed | None = None
    backoffs: Mapping[str, Backoff] = field(default_factory=dict)  # of actions that belong to no cycle
    share_plan: SharePlan = NOT_SHARED  # the one that was put in force last
    for_backing: tuple[Volume, ...] | None = None
    identity: Identity | None = None
    notice: Notice | None = None
    waiting_for: str = ""  # what the agent waits for right now, for people

    def backoff_of(self, action: Action | str) -> Backoff:
        """The backoff of this kind of action, which belongs to no cycle; NO_BACKOFF if it was not tried."""
        return self.backoffs.get(verb(action), NO_BACKOFF)

    def with_backoff(self, action: Action | str, backoff: Backoff) -> AgentState:
        """The state with the backoff of this kind of action replaced."""
        return replace(self, backoffs={**self.backoffs, verb(action): backoff})

    @property
    def wants_flush(self) -> bool:
        """An attached cache is to be flushed and released, whatever the load."""
        return self.inhibition is not None and self.inhibition.flush

    @property
    def snapshot_hold(self) -> Inhibition | None:
        """The inhibition for a snapshot; None: there is none.

        It lasts beyond a stop, a shutdown and a notice: a volume that is being copied must stay consistent.
        """
        return self.inhibition and self.inhibition.of(InhibitionReason.SNAPSHOT)

    @property
    def is_stopped(self) -> bool:
        """A decision would have broken a safety rule: nothing is done until an operator resumes."""
        return self.fault is not None and self.fault.kind is FaultKind.RULE_BROKEN

    @property
    def is_cache_stale(self) -> bool:
        """This cycle's cache failed and writes have bypassed it: if it is attached again, its data is stale."""
        return self.cycle is not None and self.failed_clean_set != "" and self.cycle.cache_set == self.failed_clean_set

    @property
    def is_loss_accepted(self) -> bool:
        """An operator accepted the loss of what the cache that is missing now holds."""
        if self.cycle is None:
            return self.loss_accepted_for != ""
        return self.loss_accepted_for == (self.cycle.volume_id or UNKNOWN_VOLUME)

    @property
    def is_mixed(self) -> bool:
        """The device ran without a cache that may have been dirty: a flush may write older data over newer."""
        return self.is_cache_stale and self.cycle is not None and self.cycle.may_lack_data

    def may_run_without_cache(self, backing: BackingView) -> bool:
        """The device waits for a cache set that failed while clean: starting it without the set loses nothing."""
        is_awaited = backing.waits_for_cache and self.failed_clean_set != ""
        is_awaited = is_awaited and self.failed_clean_set == backing.superblock_set
        # It may have been attached again, and have taken writes: the superblock turns dirty late.
        is_back = self.is_cache_stale and self.cycle is not None and self.cycle.may_be_attached
        may_lack_data = self.cycle is not None and self.cycle.may_lack_data
        return is_awaited and backing.state is CacheState.CLEAN and not may_lack_data and not is_back

    def lacks_cache(self, backing: BackingView) -> bool:
        """The device needs a cache that is not there, or may lack what one holds: an operator may give it up."""
        is_inconsistent = backing.state is CacheState.INCONSISTENT
        may_lack_data = self.cycle is not None and (self.cycle.may_lack_data or is_inconsistent)
        return self.phase is Phase.FAULTED and (backing.waits_for_cache or may_lack_data)

    def is_kept(self, volume: Volume) -> bool:
        """The volume is not tagged clean, or an operator gave it up: only an operator may delete it."""
        return volume.tag is not VolumeTag.CLEAN or volume.id == self.loss_accepted_for or volume.id in self.given_up

    def unclaimed(self, backing: BackingView) -> tuple[Volume, ...]:
        """Owned volumes that may hold data which this device lacks: not tagged clean, of no cycle, and not given up.

        While a cycle is open, or a cache is attached or missing, other rules decide which volume is the device's.
        """
        if self.cycle is not None or backing.cache_set is not None or backing.waits_for_cache:
            return ()
        return tuple(v for v in self.in_doubt(self.owned or ()) if v.id != self.loss_accepted_for)

    def in_doubt(self, volumes: tuple[Volume, ...]) -> tuple[Volume, ...]:
        """Those of them that may hold data: they exist, are not tagged clean, and were not given up."""
        there = (v for v in volumes if v.tag is not VolumeTag.CLEAN and not v.state.is_gone)
        return tuple(v for v in there if v.id not in self.given_up)

    @property
    def orphans(self) -> tuple[Volume, ...]:
        """Owned volumes that may be released: not kept, not being deleted, not attached to another instance."""
        there = (v for v in self.owned or () if v.state not in (VolumeState.ELSEWHERE, VolumeState.FOREIGN))
        return tuple(v for v in there if not v.state.is_gone and not self.is_kept(v))


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request: `accepted`, and one sentence for the operator.

    `code` says why it was refused, for programs: a short word that does not change; empty if it was accepted.
    """

    request: Request
    accepted: bool
    text: str
    code: str = ""


@dataclass(frozen=True, slots=True)
class Transition:
    """One event of the table, as it was seen: its name (`detection.Event`), the phases before and after, and why.

    `is_capped`: a cap is why.
    """

    event: str
    before: Phase
    after: Phase
    reason: str
    is_capped: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """A request that was accepted, its answer, and the user who asked; None: not known, or not over the socket."""

    kind: RequestKind
    text: str
    asked_by: int | None = None


@dataclass(frozen=True, slots=True)
class Course:
    """What happened in one decision, in order, for the journal and the log. `ended` is the cycle that it ended."""

    transitions: tuple[Transition, ...] = ()
    orders: tuple[Order, ...] = ()
    ended: Cycle | None = None


NO_COURSE = Course()


@dataclass(frozen=True, slots=True)
class Decision:
    """The new state, at most one safe action, and why.

    `reason` is one sentence, empty if nothing was decided. `records` are cycles whose ledger row changed. `answers`
    has one answer for each request, in order. `wake_at` (CLOCK_BOOTTIME) is when to decide again even if nothing
    happens; None: at the next sample. `course` is what happened, as far as `reason` has no room for it.
    """

    state: AgentState
    actions: tuple[Action, ...] = ()
    reason: str = ""
    records: tuple[Cycle, ...] = ()
    answers: tuple[Answer, ...] = ()
    wake_at: float | None = None
    course: Course = NO_COURSE
