"""Carries out one action through the ports and returns its outcome. The only place where actions have effects.

Before a volume is detached or deleted it scans the kernel once more, because the decision was made on an older scan.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias, assert_never

from elastio.core.actions import (
    Action,
    AttachVolume,
    BypassCache,
    CreateVolume,
    DeleteVolume,
    DescribeVolume,
    DetachCacheSet,
    DetachVolume,
    Effect,
    EnterPhase1,
    EnterPhase2,
    HelpDetach,
    Identify,
    InstallCache,
    LimitWrites,
    ListForBacking,
    ListVolumes,
    MakeDurable,
    Outcome,
    OutcomeKind,
    PollNotice,
    RegisterBacking,
    RegisterCache,
    ReleaseCacheDisk,
    SetFlush,
    SetShares,
    StartWithoutCache,
    TagVolume,
    TakeOverVolume,
    TuneBacking,
    Value,
    WakeWriteback,
    Worker,
    worker_of,
)
from elastio.core.foreign import why_not_taken_over
from elastio.core.invariants import why_not_release
from elastio.core.model import NoticeView, Purchase, Quote, Serial, Volume
from elastio.core.policy import quote_refusal
from elastio.errors import AuthError, ElastioError, NotOursError, QuotaError, RefusedError
from elastio.optional_ports import ListsForBacking, TagsVolumes, TakesOver, TellsNotices
from elastio.ports import CacheHost, NoReservations, Reservations, VolumeProvider

# Errors for which a retry within this boost will not help.
FINAL = (RefusedError, QuotaError, AuthError, NotOursError)


RepairAction: TypeAlias = MakeDurable | HelpDetach | RegisterBacking | RegisterCache | StartWithoutCache
ReleaseAction: TypeAlias = WakeWriteback | DetachCacheSet | ReleaseCacheDisk | RepairAction
PhaseAction: TypeAlias = TuneBacking | EnterPhase1 | EnterPhase2 | BypassCache | LimitWrites | SetShares | SetFlush
PlainHostAction: TypeAlias = PhaseAction | ReleaseAction
ReadAction: TypeAlias = DescribeVolume | Identify | ListVolumes | ListForBacking | PollNotice


def _require_within_caps(quote: Quote, action: CreateVolume) -> None:
    code, text = quote_refusal(
        quote,
        needs_price=action.needs_price,
        most_cost=action.most_cost,
        least_s=action.least_s,
        max_size_bytes=action.max_size_bytes,
    )
    if code:
        raise RefusedError(text, code=code)


class Executor:
    """Runs inside a worker. `provider` opens the cloud on first use, because its SDK is slow to load.

    `seconds` is a monotonic clock.
    """

    def __init__(
        self,
        host: CacheHost,
        provider: Callable[[], VolumeProvider],
        seconds: Callable[[], float] = time.monotonic,
        reservations: Reservations | None = None,
    ) -> None:
        self._host, self._provider, self._seconds = host, provider, seconds
        self._reservations = reservations or NoReservations()

    def run(self, action: Action) -> Outcome:
        """The outcome of the action. Never raises ElastioError: a failure is an outcome."""
        began = self._seconds()
        try:
            value = self._carry_out(action)
        except ElastioError as error:
            kind = OutcomeKind.REFUSED if isinstance(error, FINAL) else OutcomeKind.RETRY
            return Outcome(action, kind, error=str(error), seconds=self._seconds() - began, code=error.code)
        return Outcome(action, OutcomeKind.DONE, value, seconds=self._seconds() - began)

    def _carry_out(self, action: Action) -> Value:
        match action:
            case CreateVolume():
                return self._buy(action)
            case DescribeVolume() | Identify() | ListVolumes() | ListForBacking() | PollNotice():
                return self._read(action)
            case InstallCache():
                return self._host.install_cache(action.serial, action.size_bytes, flush_mb_s=action.flush_mb_s)
            case TakeOverVolume():
                return self._take_over(action)
            case TagVolume():
                self._tag(action)
            case AttachVolume() | DetachVolume() | DeleteVolume():
                self._move_volume(action)
            case _:
                return self._on_host(action)
        return None

    def _read(self, action: ReadAction) -> Value:
        match action:
            case DescribeVolume():
                return self._provider().describe(action.volume_id)
            case Identify():
                return self._provider().identify()
            case ListVolumes():
                return self._provider().list_owned()
            case ListForBacking():
                return self._list_for_backing()
            case PollNotice():
                return self._notice()
            case _:
                assert_never(action)

    def _list_for_backing(self) -> tuple[Volume, ...]:
        """Raises RefusedError where the provider cannot: no volume is known then, which is not the same as none."""
        provider = self._provider()
        if not isinstance(provider, ListsForBacking):
            text = "this provider cannot list the volumes that other machines bought for this backing device"
            raise RefusedError(text, code="provider.list_for_backing")
        return provider.list_for_backing()

    def _take_over(self, action: TakeOverVolume) -> Volume:
        """Everything is asked again here, just before the change."""
        provider = self._provider()
        if not isinstance(provider, TakesOver):
            text = "this provider cannot prove that a machine is gone, so no volume can be taken over"
            raise RefusedError(text, code="provider.take_over")
        seen = provider.foreign(action.volume_id)
        serials = () if seen is None else (seen.volume.serial,)
        code, refused = why_not_taken_over(seen, action, self._host.scan(serials))
        if refused:
            raise NotOursError(f"{refused}; nothing was changed", code=code)
        return provider.take_over(action.volume_id)

    def _buy(self, action: CreateVolume) -> Purchase:
        """Where caps are shared, what it costs at the least is reserved before, at the price of the quote."""
        provider = self._provider()
        quote = provider.quote(action.spec)
        _require_within_caps(quote, action)
        is_new = self._reservations.reserve(action, quote) if action.shared is not None else False
        try:
            return Purchase(provider.create(action.token, quote.spec, {}), quote)
        except FINAL:
            if is_new:  # an earlier try may have bought it
                self._reservations.cancel(action.token)
            raise

    def _notice(self) -> NoticeView:
        provider = self._provider()
        if not isinstance(provider, TellsNotices):
            return NoticeView(supported=False)
        return NoticeView(supported=True, notice=provider.notice())

    def _tag(self, action: TagVolume) -> None:
        """Without effect on a cloud without tags, which has no janitor that reads them."""
        provider = self._provider()
        if isinstance(provider, TagsVolumes):
            provider.tag(action.volume_id, action.tag)

    def _move_volume(self, action: AttachVolume | DetachVolume | DeleteVolume) -> None:
        provider = self._provider()
        match action:
            case AttachVolume():
                provider.attach(action.volume_id)
            case DetachVolume():
                self._require_releasable(action.serial)
                provider.detach(action.volume_id)
            case DeleteVolume():
                self._require_releasable(action.serial)
                provider.delete(action.volume_id)
            case _:
                assert_never(action)

    def _require_releasable(self, serial: Serial) -> None:
        reason = why_not_release(serial, self._host.scan((serial,)))
        if reason:
            raise NotOursError(f"the volume with serial {serial} is kept: {reason}", code="may-hold-data")

    def _on_host(self, action: PlainHostAction) -> Effect | None:
        host = self._host
        match action:
            case TuneBacking():
                host.tune_backing(action.depth)
            case EnterPhase1():
                host.enter_phase1(flush_mb_s=action.flush_mb_s)
            case EnterPhase2():
                host.enter_phase2()
            case LimitWrites():
                host.limit_writes(action.mb_s)
            case SetShares():
                host.set_shares(action.plan)
            case BypassCache():
                return host.bypass_cache()
            case SetFlush():
                host.set_flush(action.mb_s)
            case _:
                return self._release(action)
        return None

    def _release(self, action: ReleaseAction) -> Effect | None:
        host = self._host
        match action:
            case WakeWriteback():
                host.wake_writeback()
            case DetachCacheSet():
                return host.detach_cache_set(action.cache_set)
            case ReleaseCacheDisk():
                return host.release_cache_disk(action.serial, action.size_bytes, action.cache_set)
            case _:
                return self._repair(action)
        return None

    def _repair(self, action: RepairAction) -> Effect | None:
        host = self._host
        match action:
            case MakeDurable():
                host.make_durable()
            case HelpDetach():
                host.help_detach()
            case RegisterBacking():
                return host.register_backing()
            case RegisterCache():
                return host.register_cache(action.serial, action.cache_set)
            case StartWithoutCache():
                return host.start_without_cache()
            case _:
                assert_never(action)
        return None


def lost(action: Action, seconds: float) -> Outcome:
    """The outcome of an action whose worker did not answer within `seconds`."""
    text = f"no answer within {seconds:.0f} s: it may or may not have happened"
    return Outcome(action, OutcomeKind.UNKNOWN, error=text, seconds=seconds, code="worker.timeout")


# Time-outs of actions, after which the worker's child is killed: above the adapter's own.
TIMEOUTS_S: dict[type[Action], float] = {
    InstallCache: 90.0,
    DetachCacheSet: 60.0,
    ReleaseCacheDisk: 60.0,
    MakeDurable: 60.0,
}
HOST_TIMEOUT_S = 30.0
CLOUD_TIMEOUT_S = 60.0


def timeout_of(action: Action) -> float:
    """Seconds that a worker gives the action."""
    default = CLOUD_TIMEOUT_S if worker_of(action) is Worker.CLOUD else HOST_TIMEOUT_S
    return TIMEOUTS_S.get(type(action), default)
