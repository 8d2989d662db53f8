"""`ports.VolumeProvider` as a cloud in this process: states take time, effects show late, everything is billed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

from elastio.core.foreign import ForeignVolume, OwnerState
from elastio.core.model import Identity, Notice, Quote, Volume, VolumeId, VolumeSpec, VolumeState, VolumeTag
from elastio.errors import AuthError, ElastioError, NotOursError, QuotaError, RefusedError, TransientError
from elastio.units import GB, GIB, format_size
from elastio_sim.clock import ROUNDING_S, SimClock, Timers
from elastio_sim.cloud import CallTiming, CloudTimes, CloudVolume, DiskSlots, SimAccount
from elastio_sim.faults import Fault, FaultInjector, FaultMode, FaultPlan, T
from elastio_sim.settings import parse_settings

CLOUD_ERRORS: dict[FaultMode, tuple[type[ElastioError], str]] = {
    FaultMode.REFUSE: (RefusedError, "the cloud refuses this request"),
    FaultMode.THROTTLE: (TransientError, "too many requests"),
    FaultMode.QUOTA: (QuotaError, "the volume limit of the account is reached"),
    FaultMode.EXPIRED: (AuthError, "the credentials have expired"),
    FaultMode.HANG: (TransientError, "no answer"),
    FaultMode.LATE_SUCCESS: (TransientError, "no answer"),
    FaultMode.LOSE_REPLY: (TransientError, "the answer was lost"),
}
BESIDE_S = 0.1
IN_SLOT = frozenset({VolumeState.ATTACHING, VolumeState.ATTACHED, VolumeState.DETACHING, VolumeState.BUSY})
LARGEST_BYTES = 16384 * GIB
FASTEST_MB_S = 1000.0
SLOWEST_MB_S = 1.0


class SimProvider:
    """The cloud. `calls.seconds` is the duration of the last call; `tick` applies what is due."""

    def __init__(
        self,
        clock: SimClock,
        account: SimAccount,
        disks: DiskSlots,
        faults: FaultPlan | None = None,
        times: CloudTimes | None = None,
        timing: CallTiming | None = None,
    ) -> None:
        self.clock = clock
        self.account = account
        self.volumes: dict[VolumeId, CloudVolume] = {}
        self.announced: Notice | None = None
        self.gone: set[str] = set()  # machines that can never start again
        # The same cloud, as the agents of other devices of this machine call it: each of them plugs its own disks.
        self.beside: tuple[SimProvider, ...] = ()
        self._timers = Timers(clock)
        timing = timing or CallTiming()
        self.calls = FaultInjector(faults or FaultPlan(), self._timers.later, CLOUD_ERRORS, timing.meter)
        self._disks = disks
        self._times = times or CloudTimes()
        self._random = Random(timing.seed)

    # --- the eight calls -------------------------------------------------------------------------------------

    def identify(self) -> Identity:
        account = self.account
        return self._call(
            "identify",
            lambda _: Identity("sim", account.instance_id, "sim-1a", "sim-1", "sim.large", FASTEST_MB_S),
        )

    def quote(self, spec: VolumeSpec) -> Quote:
        """Sizes are sold in whole steps of the account. Raises RefusedError beyond the limits of the type."""
        return self._call("quote", lambda _: self._quote(spec))

    def create(self, token: str, spec: VolumeSpec, tags: Mapping[str, str]) -> Volume:
        return self._call("create", lambda fault: self._create(token, spec, tags, fault))

    def attach(self, volume_id: VolumeId) -> None:
        self._call("attach", lambda fault: self._of(volume_id)._attach(volume_id, fault))

    def detach(self, volume_id: VolumeId) -> None:
        """A disk in use makes the volume BUSY until the guest releases it."""
        self._call("detach", lambda fault: self._of(volume_id)._detach(volume_id, fault))

    def delete(self, volume_id: VolumeId) -> None:
        """Refused while attached, and for volumes of others."""
        self._call("delete", lambda fault: self._of(volume_id)._delete(volume_id, fault))

    def describe(self, volume_id: VolumeId) -> Volume | None:
        """A new volume can be described only some time after its purchase."""
        return self._call("describe", lambda _: self._of(volume_id)._describe(volume_id))

    def list_owned(self) -> tuple[Volume, ...]:
        return self._call("list_owned", lambda _: self._list())

    # --- beside the port ---------------------------------------------------------------------------------------

    def notice(self) -> Notice | None:
        return self.calls.run("notice", BESIDE_S, lambda _: self.announced)

    def tag(self, volume_id: VolumeId, tag: VolumeTag) -> None:
        self.calls.run("tag", BESIDE_S, lambda _: self._tag(volume_id, tag))

    def foreign(self, volume_id: VolumeId) -> ForeignVolume | None:
        return self._call("foreign", lambda _: self._foreign(volume_id))

    def take_over(self, volume_id: VolumeId) -> Volume:
        return self._call("take_over", lambda _: self._take_over(volume_id))

    def list_for_backing(self) -> tuple[Volume, ...]:
        return self._call("list_for_backing", lambda _: self._list_for_backing())

    def _list_for_backing(self) -> tuple[Volume, ...]:
        every = (v for p in (self, *self.beside) for v in p.volumes.values() if p._shows(v))
        return tuple(v.view(v.owner) for v in every if v.backing_uuid == self.account.backing_uuid)

    def _foreign(self, volume_id: VolumeId) -> ForeignVolume | None:
        volume = self.volumes.get(volume_id)
        if volume is None or not self._shows(volume):
            return None
        owner_state = OwnerState.GONE if volume.owner in self.gone else OwnerState.THERE
        if volume.owner in ("", self.account.instance_id):
            owner_state = OwnerState.SELF if volume.owner else OwnerState.UNKNOWN
        return ForeignVolume(volume.view(volume.owner), volume.owner, owner_state)

    def _take_over(self, volume_id: VolumeId) -> Volume:
        volume = self._find(volume_id)
        volume.owner, volume.tag = self.account.instance_id, VolumeTag.DIRTY
        return volume.view(self.account.instance_id)

    def _tag(self, volume_id: VolumeId, tag: VolumeTag) -> None:
        volume = self._of_machine(volume_id)
        if volume is not None:
            self._require_own(volume)
            volume.tag = tag
        elif tag is not VolumeTag.CLEAN:
            raise TransientError(f"there is no volume {volume_id} to be tagged {tag}")

    # --- for worlds and tests --------------------------------------------------------------------------------

    def tick(self) -> None:
        """Apply everything that is due."""
        self._timers.settle()
        for volume in self.volumes.values():
            if volume.leaving and self.clock.elapsed() + ROUNDING_S >= volume.leave_at:
                self._try_to_leave(volume)

    def next_event_at(self) -> float | None:
        """`clock.elapsed()` of the next change that happens by itself, or None."""
        return None if self._timers.next_at == math.inf else self._timers.next_at

    def quiet_until(self) -> float:
        """`clock.elapsed()` before which `tick` has nothing to do."""
        tries = (v.leave_at for v in self.volumes.values() if v.leaving)
        return min(self._timers.next_at, min(tries, default=math.inf))

    def bill_agbs(self) -> float:
        """What all volumes so far really cost: bandwidth x size x time from purchase to deletion."""
        now = self.clock.elapsed()
        return sum(v.agbs(now) for v in self.volumes.values())

    def bill_cost(self) -> float:
        """What all volumes so far really cost, in the currency of the tariff: billed for the least time at least."""
        now, tariff = self.clock.elapsed(), self.account.tariff
        ends = ((v, now if v.deleted_at is None else v.deleted_at) for v in self.volumes.values())
        return sum(tariff.cost(v.spec, end - v.created_at) for v, end in ends)

    def existing(self) -> tuple[CloudVolume, ...]:
        """Volumes that are billed now, whether or not they are listed yet."""
        return tuple(v for v in self.volumes.values() if v.deleted_at is None)

    def add_foreign_volume(self, size_bytes: int = 10 * GB, *, mb_s: float = 100.0, token: str = "") -> VolumeId:
        """A volume in the same account that is not the agent's."""
        volume = self._new_volume(token, VolumeSpec(size_bytes, mb_s))
        volume.owner, volume.backing_uuid, volume.state = "", "", VolumeState.AVAILABLE
        volume.visible_at = self.clock.elapsed()
        return volume.id

    def move(self, instance_id: str, *, is_gone: bool = True) -> None:
        """Calls now come from another machine. The last one is deleted, or only stopped; its disks are detached."""
        self.gone |= {self.account.instance_id} if is_gone else set()
        self.account = replace(self.account, instance_id=instance_id)
        for volume in self.volumes.values():
            if volume.plugged or volume.state is VolumeState.ATTACHING:
                self.vanish(volume.id)

    # --- inside: requests ------------------------------------------------------------------------------------

    def _call(self, op: str, call: Callable[[Fault | None], T]) -> T:
        self.tick()
        low, high = self._times.call
        return self.calls.run(op, self._random.uniform(low, high), call)

    def _quote(self, spec: VolumeSpec) -> Quote:
        step = self.account.size_step_bytes
        size = math.ceil(spec.size_bytes / step) * step
        if not 0 < size <= LARGEST_BYTES:
            raise RefusedError(f"a volume has 1 to {LARGEST_BYTES // GIB} GiB, not {spec.size_bytes} bytes")
        if not SLOWEST_MB_S <= spec.bandwidth_mb_s <= FASTEST_MB_S:
            raise RefusedError(f"a volume has {SLOWEST_MB_S:g} to {FASTEST_MB_S:g} MB/s, not {spec.bandwidth_mb_s:g}")
        sold = VolumeSpec(size, spec.bandwidth_mb_s, spec.iops or 3000)
        return self.account.tariff.quote(sold)

    def _create(self, token: str, spec: VolumeSpec, tags: Mapping[str, str], fault: Fault | None) -> Volume:
        for volume in self.volumes.values():
            if volume.token == token and volume.owner != self.account.instance_id:
                raise RefusedError(f"the token {token} has bought a volume for another machine")
            if volume.token == token:
                return volume.view(self.account.instance_id)
        sold = self._quote(spec).spec
        existing = [v for p in (self, *self.beside) for v in p.existing()]
        if len(existing) >= self.account.volume_limit:
            raise QuotaError(f"{self.account.volume_limit} volumes are the limit of this account")
        quota = self.account.quota_bytes
        if quota is not None and sum(v.size_bytes for v in existing) + sold.size_bytes > quota:
            raise QuotaError(f"{format_size(quota)} are the quota of this account")
        volume = self._new_volume(token, sold)
        volume.tags.update(tags)
        if fault is not None and fault.kind is FaultMode.UNSEEN:
            volume.visible_at += fault.seconds
        fails = fault is not None and fault.kind is FaultMode.VOLUME_ERROR
        state = VolumeState.ERROR if fails else VolumeState.AVAILABLE
        self._move_on(volume, VolumeState.CREATING, state, self._draw(self._times.create, fault))
        return volume.view(self.account.instance_id)

    def _new_volume(self, token: str, spec: VolumeSpec) -> CloudVolume:
        now = self.clock.elapsed()
        number = f"{self._random.getrandbits(68):017x}"
        volume = CloudVolume.bought(number, token, spec, now, self.clock.wall())
        volume.owner, volume.backing_uuid = self.account.instance_id, self.account.backing_uuid
        volume.visible_at = now + self._draw(self._times.visible, None)
        self.volumes[volume.id] = volume
        return volume

    def _of_machine(self, volume_id: VolumeId) -> CloudVolume | None:
        """The volume, also one that another agent of this machine has bought: the cloud does not tell them apart."""
        return next((p.volumes[volume_id] for p in (self, *self.beside) if volume_id in p.volumes), None)

    def _of(self, volume_id: VolumeId) -> SimProvider:
        """The one whose disks the volume belongs to."""
        return next((p for p in self.beside if volume_id in p.volumes), self)

    def _attach(self, volume_id: VolumeId, fault: Fault | None) -> None:
        volume = self.volumes.get(volume_id)
        if volume is None or not self._shows(volume):
            raise TransientError(f"there is no volume {volume_id}, or it does not show yet")
        self._require_own(volume)
        if volume.state in {VolumeState.ATTACHING, VolumeState.ATTACHED}:
            return
        if volume.state in {VolumeState.CREATING, VolumeState.DETACHING, VolumeState.BUSY}:
            raise TransientError(f"volume {volume_id} is {volume.state}: it cannot be attached yet")
        if volume.state is not VolumeState.AVAILABLE:
            raise RefusedError(f"volume {volume_id} is {volume.state}: it cannot be attached")
        if sum(v.state in IN_SLOT for p in (self, *self.beside) for v in p.volumes.values()) >= self.account.slots:
            raise QuotaError(f"{self.account.slots} volumes are attached: this machine takes no more")
        if fault is not None and fault.kind is FaultMode.VOLUME_ERROR:
            self._move_on(volume, VolumeState.ATTACHING, VolumeState.ERROR, self._draw(self._times.attach, None))
            return
        seconds = self._draw(self._times.attach, fault)
        # The guest sees the disk before the API reports it, or at the same time: what is scheduled first happens first.
        self._timers.later(seconds * self._times.shows_after, lambda: self._plug(volume, fault))
        self._move_on(volume, VolumeState.ATTACHING, VolumeState.ATTACHED, seconds)

    def _detach(self, volume_id: VolumeId, fault: Fault | None) -> None:
        volume = self.volumes.get(volume_id)
        nowhere = {VolumeState.AVAILABLE, VolumeState.ERROR, VolumeState.DELETING, VolumeState.GONE}
        if volume is None or not self._shows(volume):
            return
        self._require_own(volume)
        if volume.leaving or volume.state in nowhere:
            return
        if volume.state not in {VolumeState.ATTACHED, VolumeState.ATTACHING}:
            raise TransientError(f"volume {volume_id} is {volume.state}: it cannot be detached now")
        volume.changes += 1
        volume.state, volume.leaving = VolumeState.DETACHING, True
        volume.leave_at = self.clock.elapsed() + self._draw(self._times.detach, fault)
        if fault is not None and fault.kind is FaultMode.STUCK_BUSY:
            volume.state, volume.leave_at = VolumeState.BUSY, volume.leave_at + fault.seconds
        self._timers.later(volume.leave_at - self.clock.elapsed(), lambda: self._try_to_leave(volume))

    def _delete(self, volume_id: VolumeId, fault: Fault | None) -> None:
        volume = self.volumes.get(volume_id)
        if volume is None or not self._shows(volume):
            return  # as on EC2, a volume that is not described yet counts as gone
        self._require_own(volume)
        if volume.state in {VolumeState.DELETING, VolumeState.GONE}:
            return
        if volume.state is VolumeState.CREATING:
            raise TransientError(f"volume {volume_id} is still being created")
        if volume.state not in {VolumeState.AVAILABLE, VolumeState.ERROR} or volume.plugged:
            raise RefusedError(f"volume {volume_id} is {volume.state}: detach it first")
        volume.deleted_at = self.clock.elapsed()
        self._disks.destroy(volume.serial)
        self._move_on(volume, VolumeState.DELETING, VolumeState.GONE, self._draw(self._times.delete, fault))

    def _describe(self, volume_id: VolumeId) -> Volume | None:
        volume = self.volumes.get(volume_id)
        return volume.view(self.account.instance_id) if volume is not None and self._shows(volume) else None

    def _list(self) -> tuple[Volume, ...]:
        every = (v for p in (self, *self.beside) for v in p.volumes.values() if p._shows(v))
        return tuple(v.view(self.account.instance_id) for v in every if v.owner == self.account.instance_id)

    # --- inside: what follows --------------------------------------------------------------------------------

    def _require_own(self, volume: CloudVolume) -> None:
        if volume.owner != self.account.instance_id:
            raise NotOursError(f"volume {volume.id} does not carry this agent's tag: left alone")

    def _find(self, volume_id: VolumeId) -> CloudVolume:
        volume = self.volumes.get(volume_id)
        if volume is None or volume.state in {VolumeState.DELETING, VolumeState.GONE}:
            raise RefusedError(f"there is no volume {volume_id}")
        return volume

    def _shows(self, volume: CloudVolume) -> bool:
        now = self.clock.elapsed()
        if volume.state is VolumeState.GONE and volume.settled_at + self._times.forgotten <= now:
            return False
        return now >= volume.visible_at

    def _move_on(self, volume: CloudVolume, now: VolumeState, then: VolumeState, seconds: float) -> None:
        volume.state = now
        volume.changes += 1
        change = volume.changes

        def arrive() -> None:
            if volume.changes == change:
                volume.state, volume.settled_at = then, self.clock.elapsed()

        self._timers.later(seconds, arrive)

    def _plug(self, volume: CloudVolume, fault: Fault | None) -> None:
        if volume.state is not VolumeState.ATTACHING or volume.plugged:
            return
        kind = fault.kind if fault is not None else None
        if kind is FaultMode.WRONG_DEVICE:
            self._disks.plug_foreign(volume.size_bytes)
        volume.plugged = True
        size = volume.size_bytes // 2 if kind is FaultMode.WRONG_SIZE else volume.size_bytes
        self._disks.plug(volume.serial, size, volume.spec.bandwidth_mb_s)

    def _try_to_leave(self, volume: CloudVolume) -> None:
        if not volume.leaving:
            return
        if volume.plugged and not self._disks.unplug(volume.serial):
            volume.state = VolumeState.BUSY
            return
        volume.leaving, volume.plugged = False, False
        volume.state, volume.settled_at = VolumeState.AVAILABLE, self.clock.elapsed()

    def vanish(self, volume_id: VolumeId) -> None:
        """The cloud removes a volume from the machine by itself, as a failing host does. It is still billed."""
        volume = self._find(volume_id)
        self._disks.pull(volume.serial)
        volume.plugged, volume.leaving = False, False
        volume.changes += 1
        volume.state, volume.settled_at = VolumeState.AVAILABLE, self.clock.elapsed()

    def _draw(self, bounds: tuple[float, float], fault: Fault | None) -> float:
        seconds = self._random.uniform(*bounds)
        return seconds + (fault.seconds if fault is not None and fault.kind is FaultMode.STUCK else 0.0)


class _SelfDriven(SimProvider):
    """Time passes during calls only: each takes its own duration."""

    def _call(self, op: str, call: Callable[[Fault | None], T]) -> T:
        try:
            return super()._call(op, call)
        finally:
            self.clock.advance(min(self.calls.seconds, self._times.patience))


def open_provider(settings: Mapping[str, object], backing_uuid: str) -> SimProvider:
    """A cloud without a machine, for `provider = "sim"` where nothing else advances the clock.

    Settings: `seed` (number), `faults` (see `FaultPlan.parse`). Raises ConfigError for others.
    """
    parsed = parse_settings(settings)
    faults = FaultPlan.parse(parsed.faults)
    return _SelfDriven(SimClock(), SimAccount(backing_uuid), DiskSlots(), faults, timing=CallTiming(parsed.seed))
