"""The ports: protocols through which the agent reaches the outside. Real adapters and the simulator implement them.

Every adapter limits the time of each method, and raises only errors of `elastio.errors`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar, runtime_checkable

from elastio.core import model
from elastio.core.actions import Action, CreateVolume, Effect, Outcome
from elastio.core.cycle import Cycle
from elastio.core.foreign import ForeignVolume
from elastio.core.policy import Policy
from elastio.core.shares import SharePlan
from elastio.core.state import NO_COURSE, AgentState, Course, Decision, Phase
from elastio.strategy.spending import Spend
from elastio.strategy.worth import Advice

JobIn_contra = TypeVar("JobIn_contra", contravariant=True)
ResultOut_co = TypeVar("ResultOut_co", covariant=True)


class VolumeProvider(Protocol):
    """One cloud, seen from one instance. It knows nothing of caches.

    Errors: `TransientError` (a retry may help), `RefusedError`, `QuotaError`, `AuthError`. A call that changes
    something returns once the cloud has *accepted* it; only `describe` shows its effect. A volume whose owner tag does
    not name this machine is never changed: NotOursError.
    """

    def identify(self) -> model.Identity:
        """This machine, as the cloud names it. Raises ProviderError if no metadata service answers."""

    def quote(self, spec: model.VolumeSpec) -> model.Quote:
        """What the cloud would sell for `spec`, checked against the limits of the volume type and of the instance."""

    def create(self, token: str, spec: model.VolumeSpec, tags: Mapping[str, str]) -> model.Volume:
        """Buy a volume; idempotent in `token`. An adapter whose cloud has no tokens lists the volumes first.

        A token that has bought a volume returns that volume, whatever `spec` says: an operator may have changed the
        settings since, and the volume is billed. A volume that it bought for another machine is never returned.

        `tags` are on the volume from its creation on, together with the agent's own, among them the tag `clean`.
        """

    def attach(self, volume_id: model.VolumeId) -> None:
        """Request attachment to this instance. Already attached here: no error.

        A volume that the cloud does not know: TransientError, because it may have been bought a moment ago.
        """

    def detach(self, volume_id: model.VolumeId) -> None:
        """Request detachment, never by force. Not attached, or not known to the cloud: no error."""

    def delete(self, volume_id: model.VolumeId) -> None:
        """Request deletion. Already gone: no error.

        A volume that the cloud does not show counts as gone, even if it was bought a moment ago, so the caller must
        have seen it first.
        """

    def describe(self, volume_id: model.VolumeId) -> model.Volume | None:
        """The volume as the cloud shows it now; None: it does not know it. Of others: `foreign.state_of_others`."""

    def list_owned(self) -> tuple[model.Volume, ...]:
        """Every volume with this agent's tag for this instance, whatever its state."""


# --- what a provider may have besides ---------------------------------------------------------------------

# The agent asks with `isinstance`, and does without. Errors as in `VolumeProvider`.


@runtime_checkable
class TellsNotices(Protocol):
    """Optional for a provider: report that the cloud is about to take this machine away."""

    def notice(self) -> model.Notice | None:
        """The notice in force, or None. Called every few seconds, so it is cheap."""


@runtime_checkable
class AwaitsPurchases(Protocol):
    """Optional for a provider whose cloud has no client tokens: it must know what another process has requested."""

    def sent_before(self, token: str, seconds_ago: float) -> None:
        """A purchase with this token was requested so long ago, maybe by another process, and had no answer."""


@runtime_checkable
class TagsVolumes(Protocol):
    """Optional for a provider: keep the tag from which a janitor learns what a volume may hold."""

    def tag(self, volume_id: model.VolumeId, tag: model.VolumeTag) -> None:
        """Replace the tag. `clean` on a volume that is gone: no error.

        When it returns, the cloud has stored the tag; a volume becomes a cache only after that.
        """


@runtime_checkable
class TakesOver(Protocol):
    """Optional for a provider: become the owner of a volume whose machine is gone."""

    def foreign(self, volume_id: model.VolumeId) -> ForeignVolume | None:
        """The volume and its owner, whoever that is; None: the cloud does not know it.

        The owner is GONE only if the cloud itself says that this machine cannot start again: a credential that may not
        see it proves nothing.
        """

    def take_over(self, volume_id: model.VolumeId) -> model.Volume:
        """Replace the owner tag by this machine's, and the state by `dirty`, in one request. May be repeated.

        The caller has proven that the owner is gone. Returns the volume, which is this machine's own from now on.
        """


@runtime_checkable
class ListsForBacking(Protocol):
    """Optional for a provider: find the volumes of a backing device whose machine is gone. Reads only."""

    def list_for_backing(self) -> tuple[model.Volume, ...]:
        """Every volume whose tag names this provider's backing device, whoever its owner is, as seen from this machine.

        Its state is never FOREIGN or UNLABELED.
        """


@runtime_checkable
class TellsBandwidth(Protocol):
    """Optional for a provider: the bandwidth of a volume that somebody else bought, for `elastio setup` and `init`."""

    def bandwidth_of(self, serial: model.Serial) -> float | None:
        """MB/s that the cloud reserves for the volume of this disk; None: the cloud does not say. Reads only."""


# --- the machine ------------------------------------------------------------------------------------------


class CacheHost(Protocol):
    """The kernel's side of one adaptive device. Methods that change something verify first, and may be repeated.

    Those that may find their work done return an `Effect`. Errors: `HostError`, `DeviceBusyError`, `NotOursError`.
    tests/contract/cache_host.py is the contract, which real bcache and its simulation both keep.
    """

    def scan(self, serials: tuple[model.Serial, ...]) -> model.HostView:
        """Read-only. Shows the disks whose serial is in `serials`, or that are in use as a cache of this device."""

    def tune_backing(self, depth: model.Depth | None = None) -> None:
        """Put in force every setting that does not depend on the phase; each is written only if it differs."""

    def install_cache(self, serial: model.Serial, size_bytes: int, *, flush_mb_s: float | None) -> model.CacheSetUuid:
        """Format the disk as a cache device, register it, and attach it; returns the cache set's UUID.

        A set that is registered and has served no device is attached as it is. Refused while writes are in flight.
        `flush_mb_s` here and below: 0 stops background flushing, None gives it all bandwidth that is left over.
        """

    def register_cache(self, serial: model.Serial, cache_set: model.CacheSetUuid) -> Effect:
        """Returns when the kernel has registered the cache set on that disk."""

    def enter_phase1(self, *, flush_mb_s: float | None) -> None:
        """Boosting: the cache absorbs writes. Refused once writes bypass the cache: see `bypass_cache`."""

    def enter_phase2(self) -> None:
        """Flushing: writeback at full speed, while the cache still absorbs writes."""

    def limit_writes(self, mb_s: float | None) -> None:
        """Limit the write bandwidth of applications, until None removes the limit. `scan` shows it."""

    def set_shares(self, plan: SharePlan | None) -> None:
        """Share the device among cgroups until None ends it, or requests are held back. `scan` shows it."""

    def bypass_cache(self) -> Effect:
        """Writes bypass the clean cache until it is detached. Refused while it is dirty, even without new writes."""

    def wake_writeback(self) -> None:
        """Rewrite one block with what it holds: from then on `state` is dirty until the index has no dirty data.

        Mode `writethrough`, which somebody has set, becomes `writeback`: the cache has every write in both.
        Raises DeviceBusyError while the device is in use: then the next write of its user has the same effect.
        """

    def set_flush(self, mb_s: float | None) -> None:
        """Set the writeback rate while boosting."""

    def detach_cache_set(self, cache_set: model.CacheSetUuid) -> Effect:
        """Start the detach; `scan` shows its end. Refused while dirty."""

    def release_cache_disk(self, serial: model.Serial, size_bytes: int, cache_set: model.CacheSetUuid | None) -> Effect:
        """Returns when the disk has no superblock and no holder, or is gone."""

    def make_durable(self) -> None:
        """Returns when all that the backing device has acknowledged survives a power cut."""

    def help_detach(self) -> None:
        """Hold back, for a moment, the requests that delay the end of a detach. Refused unless one is under way."""

    def write_tombstone(self) -> None:
        """Returns when an adopted volume cannot be mounted without its head. `scan` shows it. May be repeated."""

    def remove_tombstone(self) -> None:
        """Returns when the volume is a plain filesystem again. Refused while it has a cache."""

    def register_backing(self) -> Effect:
        """Register the one unused device that carries our backing superblock."""

    def start_without_cache(self) -> Effect:
        """Run a backing device that waits for its cache; what only that cache holds is lost."""


class Counters(Protocol):
    """Cumulative bytes of the adaptive device, its backing disk and its cache disk (0, 0 while there is none)."""

    def follow(self, view: model.HostView) -> None:
        """Use the device names of the newest scan: they change with every attach."""

    def read(self) -> Mapping[str, tuple[int, int]]:
        """The counters, by `adaptive`, `backing` and `cache`: (read bytes, written bytes). Takes no lock of bcache.

        `counted`: the part of `adaptive` that counts towards a boost, if not all. `requests`: those of the cache disk.
        """


class Clock(Protocol):
    """The two clocks of the agent."""

    def now(self) -> float:
        """CLOCK_BOOTTIME in seconds."""

    def wall(self) -> float:
        """Seconds since the epoch."""


class Reservations(Protocol):
    """Room under caps that several agents share, taken before something is bought. Used in the worker that buys."""

    def reserve(self, action: CreateVolume, quote: model.Quote) -> bool:
        """Reserve durably what this purchase costs at the least; False: that was done before, for the same token.

        Raises RefusedError if the caps have no room, TransientError if that cannot be determined or recorded now.
        """

    def cancel(self, token: str) -> None:
        """Nothing was bought, and will not be. Raises no error: what stays reserved is corrected by the agent."""


class Sharing(Protocol):
    """What the agents that share caps have spent and reserved."""

    def shared(
        self, spend: Spend, spend_at: float, state: AgentState, policy: Policy, *, now: float, wall: float
    ) -> Spend:
        """`spend`, which was read at `spend_at`, with that of the others; states what this agent has spent."""


class Forecaster(Protocol):
    """Forecasts the next burst of one adaptive device, for example from `elastio.accounting.history`."""

    def forecast(self, now: float, wall: float) -> model.Forecast | None:
        """The next burst; None: none is expected. `now` is CLOCK_BOOTTIME, `wall` seconds since the epoch.

        The loop calls it every few seconds, so it must not block: a longer computation runs elsewhere. ElastioError
        counts as None.
        """


class Adviser(Protocol):
    """Says what the past bursts of one adaptive device teach about the next cache, for `policy.model = "money"`."""

    def advise(
        self, sample: model.Sample | None, state: AgentState, policy: Policy, *, offset_s: float
    ) -> Advice | None:
        """What is known now, with one more sample; None: nothing. Called once a sample; must not take milliseconds.

        `offset_s`: seconds since the epoch minus CLOCK_BOOTTIME.
        """


class WorkerPort(Protocol[JobIn_contra, ResultOut_co]):
    """A worker as the loop sees it: runs one job at a time and never delays the loop."""

    @property
    def busy(self) -> bool:
        """A job runs; no other can be submitted."""

    @property
    def trouble(self) -> str:
        """The error of the warm-up, known before the first job; or an empty string."""

    def submit(self, job: JobIn_contra, timeout_s: float) -> None:
        """Start the job. It counts as lost after `timeout_s`."""

    def poll(self) -> ResultOut_co | None:
        """The result of the job, once; None: none yet."""

    def next_event_at(self) -> float | None:
        """When `poll` returns a result at the latest, by the worker's clock; None: no job runs."""


class Journal(Protocol):
    """The records before and after each effect. Methods raise JournalError; then no effect may start."""

    def intend(self, action: Action, state: AgentState, *, now: float, wall: float) -> None:
        """Record an action before its effect; durable when it returns."""

    def outcome(self, outcome: Outcome, *, now: float, wall: float) -> None:
        """Record what came of an action."""

    def note(self, state: AgentState, *, now: float, wall: float) -> None:
        """Record how much is dirty now, and the credits."""

    def decision(
        self, before: Phase, state: AgentState, reason: str, *, now: float, wall: float, course: Course = NO_COURSE
    ) -> None:
        """Record a decision, from phase `before` to the state's, with its reason and its course.

        Durable when it returns.
        """


class Reporter(Protocol):
    """Tells people what was decided, beside the journal. Must not block, and never raises."""

    def decided(self, before: AgentState, decision: Decision, *, now: float, wall: float) -> None:
        """After a decision was recorded, or could not be: `before` is the state that it was made from."""

    def failed(self, text: str, *, wall: float) -> None:
        """Something does not work, after it did, or for another reason than before."""

    def works_again(self, text: str, *, wall: float) -> None:
        """What failed with `text` works, or is no longer needed."""


class NoReport:
    """A reporter that tells nobody."""

    def decided(self, before: AgentState, decision: Decision, *, now: float, wall: float) -> None:
        """See `Reporter`."""

    def failed(self, text: str, *, wall: float) -> None:
        """See `Reporter`."""

    def works_again(self, text: str, *, wall: float) -> None:
        """See `Reporter`."""


class Recorder(Protocol):
    """The cost recorder: writes the ledger on behalf of the loop."""

    def record_cycle(self, cycle: Cycle, *, now: float, wall: float) -> None:
        """Write the cycle's row."""

    def learned(self, size_bytes: int) -> None:
        """Store the learned size."""

    def listed(self, names: frozenset[str], *, wall: float, others: Iterable[tuple[Cycle, float]] = ()) -> None:
        """The cloud shows only volumes of these tokens and IDs: every other bill of this device has ended.

        `others` stand for the volumes that are no cycle's, each with wall clock minus CLOCK_BOOTTIME: they are billed.
        """

    def sampled(self, sample: model.Sample, state: AgentState, *, now: float, wall: float) -> None:
        """Store one sample of throughput and the state after it. Called last, so that it delays no boost."""

    def spend(self, *, wall: float) -> Spend:
        """What was spent since local midnight."""
