"""What the shell asks of the outside. Real adapters and the simulator implement the same protocols.

Every method is bounded in time by its adapter and raises only errors of `elastio.errors`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar, runtime_checkable

from elastio.core.actions import Action, Effect, Outcome
from elastio.core.cycle import Cycle
from elastio.core.model import (
    CacheSetUuid,
    Forecast,
    HostView,
    Identity,
    Notice,
    Quote,
    Sample,
    Serial,
    Spend,
    Volume,
    VolumeId,
    VolumeSpec,
    VolumeTag,
)
from elastio.core.state import AgentState, Phase

JobIn_contra = TypeVar("JobIn_contra", contravariant=True)
ResultOut_co = TypeVar("ResultOut_co", covariant=True)


class VolumeProvider(Protocol):
    """One cloud, seen from one instance. Eight methods; it knows nothing of caches.

    Errors: `TransientError` (ask again), `RefusedError`, `QuotaError`, `AuthError`. A changing call answers once
    the cloud has *accepted* it: its effect is seen by `describe`, never assumed from the answer. A volume whose owner
    tag does not name this machine is changed by none of them: NotOursError.
    """

    def identify(self) -> Identity:
        """Who this machine is. Raises ProviderError where no metadata service answers."""
        ...

    def quote(self, spec: VolumeSpec) -> Quote:
        """What would really be bought for `spec`, checked against the limits of the type and of the instance."""
        ...

    def create(self, token: str, spec: VolumeSpec, tags: Mapping[str, str]) -> Volume:
        """Buy a volume; idempotent in `token` (an adapter looks first where its cloud has no such thing).

        A token that has bought a volume leads to that volume, whatever `spec` says now: an operator may have changed
        the settings since, and the volume is paid for. What it has bought for another machine is never handed over.

        The tags are on the volume from its first moment, together with this agent's own; its tag is `clean`.
        """
        ...

    def attach(self, volume_id: VolumeId) -> None:
        """Ask for attachment to this instance. Already attached here: no error.

        A volume that the cloud does not know: TransientError. It may have been bought a moment ago.
        """
        ...

    def detach(self, volume_id: VolumeId) -> None:
        """Ask for detachment, never by force. Not attached, or not known to the cloud: no error."""
        ...

    def delete(self, volume_id: VolumeId) -> None:
        """Ask for deletion. Already gone: no error.

        What the cloud does not show counts as gone, also where it was bought a moment ago: see it before.
        """
        ...

    def describe(self, volume_id: VolumeId) -> Volume | None:
        """The volume as the cloud shows it now, or None when the cloud does not know it; FOREIGN is another's."""
        ...

    def list_owned(self) -> tuple[Volume, ...]:
        """Every volume that carries this agent's tag for this instance, whatever its state."""
        ...


@runtime_checkable
class TellsNotices(Protocol):
    """What a provider may do besides: say when the cloud is about to take this machine away."""

    def notice(self) -> Notice | None:
        """The notice that stands, or None. Asked every few seconds, so it is cheap. Errors as in `VolumeProvider`."""
        ...


@runtime_checkable
class TagsVolumes(Protocol):
    """What a provider may do besides: keep the tag that tells a janitor what a volume may hold."""

    def tag(self, volume_id: VolumeId, tag: VolumeTag) -> None:
        """Replace the tag. A volume that is gone needs no `clean`: no error. Errors as in `VolumeProvider`.

        What returns without an error is kept by the cloud: a volume becomes a cache only after that.
        """
        ...


class CacheHost(Protocol):
    """The kernel's side of one adaptive device. Methods that change something verify first, and may be repeated.

    Those that may find their work done return an `Effect`. Errors: `HostError`, `DeviceBusyError`, `NotOursError`.
    """

    def scan(self, serials: tuple[Serial, ...]) -> HostView:
        """Read-only. Lists those disks whose serial is in `serials`, or that are in use as a cache of our device."""
        ...

    def tune_backing(self) -> None:
        """Put in force every setting that does not depend on the phase; each is written only if it differs."""
        ...

    def install_cache(self, serial: Serial, size_bytes: int, *, flush_mb_s: float | None) -> CacheSetUuid:
        """Format the disk as a cache device, register it, and attach it; returns the cache set's UUID.

        A set that is registered and has served no device is attached as it is. Refused while writes are in flight.
        `flush_mb_s` here and below: 0 stops background flushing, None gives it all bandwidth that is left over.
        """
        ...

    def register_cache(self, serial: Serial, cache_set: CacheSetUuid) -> Effect:
        """Returns when the kernel has registered the cache set on that disk."""
        ...

    def enter_phase1(self, *, flush_mb_s: float | None) -> None:
        """Boosting: the cache absorbs writes. Refused once writes bypass the cache: see `bypass_cache`."""
        ...

    def enter_phase2(self) -> None:
        """Flushing: writeback at full speed, while the cache still absorbs writes."""
        ...

    def limit_writes(self, mb_s: float | None) -> None:
        """Limit the write bandwidth of applications, until None removes the limit. `scan` shows it."""
        ...

    def bypass_cache(self) -> Effect:
        """Writes bypass the clean cache until it is detached. Refused while it is dirty, even without new writes."""
        ...

    def wake_writeback(self) -> None:
        """Rewrite one block with what it holds: from then on `state` is dirty until the index has no dirty data.

        Raises DeviceBusyError while the device is in use: then the next write of its user has the same effect.
        """
        ...

    def set_flush(self, mb_s: float | None) -> None:
        """Set the writeback rate while boosting."""
        ...

    def detach_cache_set(self, cache_set: CacheSetUuid) -> Effect:
        """Start the detach; `scan` shows its end. Refused while dirty."""
        ...

    def release_cache_disk(self, serial: Serial, size_bytes: int, cache_set: CacheSetUuid | None) -> Effect:
        """Returns when the disk has no superblock and no holder, or is gone."""
        ...

    def make_durable(self) -> None:
        """Returns when all that the backing device has acknowledged survives a power cut."""
        ...

    def help_detach(self) -> None:
        """Hold back, for a moment, the requests that delay the end of a detach. Refused unless one is under way."""
        ...

    def register_backing(self) -> Effect:
        """Register the one unused device that carries our backing superblock."""
        ...

    def start_without_cache(self) -> Effect:
        """Run a backing device that waits for its cache; what only that cache holds is lost."""
        ...


class Counters(Protocol):
    """Cumulative bytes of the adaptive device, its backing disk and its cache disk (0, 0 while there is none)."""

    def follow(self, view: HostView) -> None:
        """Use the device names of the newest scan: they change with every attach."""
        ...

    def read(self) -> Mapping[str, tuple[int, int]]:
        """Keys `adaptive`, `backing`, `cache`; values (read bytes, written bytes). Takes no lock of bcache."""
        ...


class Clock(Protocol):
    def now(self) -> float:
        """CLOCK_BOOTTIME in seconds."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch."""
        ...


class Forecaster(Protocol):
    """Expects the next burst of one adaptive device, for example from `elastio.accounting.history`."""

    def forecast(self, now: float, wall: float) -> Forecast | None:
        """What is known at once; `now` is CLOCK_BOOTTIME. Asked by the loop every few seconds: never blocks.

        Whatever takes longer is computed elsewhere, and asked for here. None: no burst is expected. May raise
        ElastioError, which counts as None.
        """
        ...


class NoForecast:
    """Knows nothing: the utilization threshold alone decides."""

    def forecast(self, now: float, wall: float) -> Forecast | None:
        """See `Forecaster`."""
        return None


class WorkerPort(Protocol[JobIn_contra, ResultOut_co]):
    """What the loop needs of a worker: one job at a time, which does not delay the loop."""

    @property
    def busy(self) -> bool: ...

    @property
    def trouble(self) -> str:
        """Why a child could not warm up, or an empty string; known before the first job."""
        ...

    def submit(self, job: JobIn_contra, timeout_s: float) -> None: ...

    def poll(self) -> ResultOut_co | None: ...

    def next_event_at(self) -> float | None: ...


class Journal(Protocol):
    """What is written down before and after each effect. Raises JournalError; then no effect may start."""

    def intend(self, action: Action, state: AgentState, *, now: float, wall: float) -> None: ...

    def outcome(self, outcome: Outcome, *, now: float, wall: float) -> None: ...

    def note(self, state: AgentState, *, now: float, wall: float) -> None: ...

    def decision(self, before: Phase, state: AgentState, reason: str, *, now: float, wall: float) -> None: ...


class Recorder(Protocol):
    """Where cycles are accounted; the ledger implements it."""

    def record_cycle(self, cycle: Cycle, *, now: float, wall: float) -> None: ...

    def learned(self, size_bytes: int) -> None: ...

    def listed(self, tokens: frozenset[str], *, wall: float) -> None:
        """The cloud shows only these volumes: every other bill of this device is over."""
        ...

    def sampled(self, sample: Sample, state: AgentState, *, now: float, wall: float) -> None:
        """One sample of throughput, and what was decided on it. Comes last: no boost waits for it."""
        ...

    def spend(self, *, wall: float) -> Spend: ...
