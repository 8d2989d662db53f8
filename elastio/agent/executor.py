"""Carries out one action through the ports and returns its outcome. The only place where actions have effects.

Before a volume is detached or deleted it scans the kernel once more, because the decision was made on an older scan.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from elastio.core import actions
from elastio.core.actions import Action, CreateVolume, Effect, Outcome, OutcomeKind, Value, Worker, worker_of
from elastio.core.foreign import why_not_taken_over
from elastio.core.invariants import why_not_release
from elastio.core.model import CacheSetUuid, NoticeView, Purchase, Quote, Serial, Volume
from elastio.errors import AuthError, ElastioError, NotOursError, QuotaError, RefusedError
from elastio.ports import (
    AwaitsPurchases,
    CacheHost,
    ListsForBacking,
    Reservations,
    TagsVolumes,
    TakesOver,
    TellsNotices,
    VolumeProvider,
)
from elastio.strategy.caps import quote_refusal

# Errors for which a retry within this boost will not help.
FINAL = (RefusedError, QuotaError, AuthError, NotOursError)


# Actions that are one call: of the kernel, and of the cloud.
ON_HOST: dict[type[Action], Callable[[CacheHost, Any], CacheSetUuid | Effect | None]] = {
    actions.TuneBacking: lambda host, a: host.tune_backing(a.depth),
    actions.InstallCache: lambda host, a: host.install_cache(a.serial, a.size_bytes, flush_mb_s=a.flush_mb_s),
    actions.EnterPhase1: lambda host, a: host.enter_phase1(flush_mb_s=a.flush_mb_s),
    actions.EnterPhase2: lambda host, _: host.enter_phase2(),
    actions.BypassCache: lambda host, _: host.bypass_cache(),
    actions.LimitWrites: lambda host, a: host.limit_writes(a.mb_s),
    actions.SetShares: lambda host, a: host.set_shares(a.plan),
    actions.WakeWriteback: lambda host, _: host.wake_writeback(),
    actions.SetFlush: lambda host, a: host.set_flush(a.mb_s),
    actions.DetachCacheSet: lambda host, a: host.detach_cache_set(a.cache_set),
    actions.ReleaseCacheDisk: lambda host, a: host.release_cache_disk(a.serial, a.size_bytes, a.cache_set),
    actions.MakeDurable: lambda host, _: host.make_durable(),
    actions.HelpDetach: lambda host, _: host.help_detach(),
    actions.WriteTombstone: lambda host, _: host.write_tombstone(),
    actions.RemoveTombstone: lambda host, _: host.remove_tombstone(),
    actions.RegisterBacking: lambda host, _: host.register_backing(),
    actions.RegisterCache: lambda host, a: host.register_cache(a.serial, a.cache_set),
    actions.StartWithoutCache: lambda host, _: host.start_without_cache(),
}
IN_CLOUD: dict[type[Action], Callable[[VolumeProvider, Any], Value]] = {
    actions.AttachVolume: lambda cloud, a: cloud.attach(a.volume_id),
    actions.DetachVolume: lambda cloud, a: cloud.detach(a.volume_id),
    actions.DeleteVolume: lambda cloud, a: cloud.delete(a.volume_id),
    actions.DescribeVolume: lambda cloud, a: cloud.describe(a.volume_id),
    actions.ListVolumes: lambda cloud, _: cloud.list_owned(),
    actions.Identify: lambda cloud, _: cloud.identify(),
}


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
        self._reservations = reservations

    def run(self, action: Action) -> Outcome:
        """The outcome of the action. Never raises ElastioError: a failure is an outcome."""
        began = self._seconds()
        try:
            value = self._carry_out(action)
        except ElastioError as error:
            kind = OutcomeKind.REFUSED if isinstance(error, FINAL) else OutcomeKind.RETRY
            took_s, is_quota = self._seconds() - began, isinstance(error, QuotaError)
            return Outcome(action, kind, error=str(error), seconds=took_s, code=error.code, is_quota=is_quota)
        return Outcome(action, OutcomeKind.DONE, value, seconds=self._seconds() - began)

    def _carry_out(self, action: Action) -> Value:
        if type(action) in ON_HOST:
            return ON_HOST[type(action)](self._host, action)
        match action:
            case actions.CreateVolume():
                return self._buy(action)
            case actions.ListForBacking():
                return self._list_for_backing()
            case actions.PollNotice():
                return self._notice()
            case actions.TakeOverVolume():
                return self._take_over(action)
            case actions.TagVolume():
                self._tag(action)
                return None
            case actions.DetachVolume() | actions.DeleteVolume():
                self._require_releasable(action.serial)
            case _:
                pass
        return IN_CLOUD[type(action)](self._provider(), action)

    def _list_for_backing(self) -> tuple[Volume, ...]:
        """Raises RefusedError where the provider cannot: no volume is known then, which is not the same as none."""
        provider = self._provider()
        if not isinstance(provider, ListsForBacking):
            text = "this provider cannot list the volumes that other machines bought for this backing device"
            raise RefusedError(text, code="provider.list_for_backing")
        return provider.list_for_backing()

    def _take_over(self, action: actions.TakeOverVolume) -> Volume:
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
        if action.unconfirmed_s is not None and isinstance(provider, AwaitsPurchases):
            provider.sent_before(action.token, action.unconfirmed_s)
        quote = provider.quote(action.spec)
        _require_within_caps(quote, action)
        room = None if action.shared is None else self._reservations
        is_new = room is not None and room.reserve(action, quote)
        try:
            return Purchase(provider.create(action.token, quote.spec, {}), quote)
        except FINAL:
            if room is not None and is_new:  # an earlier try may have bought it
                room.cancel(action.token)
            raise

    def _notice(self) -> NoticeView:
        provider = self._provider()
        if not isinstance(provider, TellsNotices):
            return NoticeView(supported=False)
        return NoticeView(supported=True, notice=provider.notice())

    def _tag(self, action: actions.TagVolume) -> None:
        """Without effect on a cloud without tags, which has no janitor that reads them."""
        provider = self._provider()
        if isinstance(provider, TagsVolumes):
            provider.tag(action.volume_id, action.tag)

    def _require_releasable(self, serial: Serial) -> None:
        reason = why_not_release(serial, self._host.scan((serial,)))
        if reason:
            raise NotOursError(f"the volume with serial {serial} is kept: {reason}", code="may-hold-data")


def lost(action: Action, seconds: float) -> Outcome:
    """The outcome of an action whose worker did not answer within `seconds`."""
    text = f"no answer within {seconds:.0f} s: it may or may not have happened"
    return Outcome(action, OutcomeKind.UNKNOWN, error=text, seconds=seconds, code="worker.timeout")


# Time-outs of actions, after which the worker's child is killed: above the adapter's own.
TIMEOUTS_S: dict[type[Action], float] = {
    actions.InstallCache: 90.0,
    actions.DetachCacheSet: 60.0,
    actions.ReleaseCacheDisk: 60.0,
    actions.MakeDurable: 60.0,
}
HOST_TIMEOUT_S = 30.0
CLOUD_TIMEOUT_S = 60.0


def timeout_of(action: Action) -> float:
    """Seconds that a worker gives the action."""
    default = CLOUD_TIMEOUT_S if worker_of(action) is Worker.CLOUD else HOST_TIMEOUT_S
    return TIMEOUTS_S.get(type(action), default)
