"""What the shell asks of the outside. Real adapters and the simulator implement the same protocols.

Every method is bounded in time by its adapter and raises only errors of `elastio.errors`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from elastio.model import CacheSetUuid, Forecast, HostView, Identity, Quote, Serial, Volume, VolumeId, VolumeSpec


class VolumeProvider(Protocol):
    """One cloud, seen from one instance. Eight methods; it knows nothing of caches.

    Errors: `TransientError` (ask again), `RefusedError`, `QuotaError`, `AuthError`. A changing call answers once
    the cloud has *accepted* it: its effect is seen by `describe`, never assumed from the answer.
    """

    def identify(self) -> Identity:
        """Who this machine is. Raises ProviderError where no metadata service answers."""
        ...

    def quote(self, spec: VolumeSpec) -> Quote:
        """What would really be bought for `spec`, checked against the limits of the type and of the instance."""
        ...

    def create(self, token: str, spec: VolumeSpec, tags: Mapping[str, str]) -> Volume:
        """Buy a volume; idempotent in `token` (an adapter looks first where its cloud has no such thing).

        The tags are on the volume from its first moment, together with this agent's own.
        """
        ...

    def attach(self, volume_id: VolumeId) -> None:
        """Ask for attachment to this instance. Already attached here: no error."""
        ...

    def detach(self, volume_id: VolumeId) -> None:
        """Ask for detachment, never by force. Not attached: no error."""
        ...

    def delete(self, volume_id: VolumeId) -> None:
        """Ask for deletion of a volume that carries this agent's tag. Already gone: no error."""
        ...

    def describe(self, volume_id: VolumeId) -> Volume | None:
        """The volume as the cloud shows it now, or None when the cloud does not know it."""
        ...

    def list_owned(self) -> tuple[Volume, ...]:
        """Every volume that carries this agent's tag for this instance, whatever its state."""
        ...


class CacheHost(Protocol):
    """The kernel's side of one adaptive device. Mutating methods verify before they touch and are idempotent.

    Errors: `HostError`, `DeviceBusyError`, `NotOursError`.
    """

    def look(self, serials: tuple[Serial, ...]) -> HostView:
        """Read-only. Lists those disks whose serial is in `serials`, or that are in use as a cache of our device."""
        ...

    def tune_backing(self) -> None: ...

    def format_cache(self, serial: Serial, size_bytes: int) -> CacheSetUuid:
        """Write a cache superblock; returns the set's UUID. Repeating is safe: a set that served nobody is kept."""
        ...

    def register_cache(self, serial: Serial, cache_set: CacheSetUuid) -> None:
        """Returns when the kernel knows the cache set on that disk; registered already: no error."""
        ...

    def attach_cache_set(self, cache_set: CacheSetUuid, serial: Serial, *, flush_mb_s: float | None) -> None:
        """`flush_mb_s` here and below: 0 stops background flushing, None gives it all that is left over."""
        ...

    def enter_phase1(self, *, flush_mb_s: float | None) -> None: ...

    def enter_phase2(self) -> None: ...

    def set_flush(self, mb_s: float | None) -> None: ...

    def detach_cache_set(self, cache_set: CacheSetUuid) -> None:
        """Starts the detach; its end is seen by `look`. Refused while dirty."""
        ...

    def release_cache_disk(self, serial: Serial, size_bytes: int, cache_set: CacheSetUuid | None) -> None:
        """Returns when the disk carries no superblock and nothing holds it."""
        ...


class Counters(Protocol):
    """Cumulative bytes of the adaptive device, its backing disk and its cache disk (0, 0 while there is none)."""

    def follow(self, view: HostView) -> None:
        """Use the device names of the newest look: they change with every attach."""
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
    """Expects the next burst of one adaptive device, for example from `elastio.history`."""

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
