"""The state of one volume of the simulated cloud, and the slots of the machine that it plugs disks into."""

from __future__ import annotations

from dataclasses import dataclass, field

from elastio.core.foreign import state_of_others
from elastio.core.model import Serial, Volume, VolumeId, VolumeSpec, VolumeState, VolumeTag
from elastio.errors import DeviceBusyError
from elastio.strategy.tariff import Tariff
from elastio.units import GIB, agbs
from elastio_sim.disk import SimDisk
from elastio_sim.faults import Meter
from elastio_sim.kernel import SimKernel
from elastio_sim.prices import TARIFF

FOREIGN_SERIAL = Serial("vol0foreign000000000")


@dataclass(frozen=True, slots=True)
class CloudTimes:
    """Bounds in seconds, as measured on EC2 with gp3; a value is drawn between them.

    `visible`: from creation until the volume can be described. `shows_after`: the share of an attachment after which
    the guest sees the disk. `forgotten`: how long a deleted volume is still described. `patience`: the time-out of a
    client.
    """

    call: tuple[float, float] = (0.15, 0.4)
    create: tuple[float, float] = (1.0, 3.0)
    visible: tuple[float, float] = (0.0, 1.5)
    attach: tuple[float, float] = (1.5, 4.0)
    detach: tuple[float, float] = (1.5, 4.0)
    delete: tuple[float, float] = (1.0, 3.0)
    shows_after: float = 0.6
    forgotten: float = 30.0
    patience: float = 10.0


@dataclass(frozen=True, slots=True)
class SimAccount:
    """Who buys, for which backing device, in which steps sizes are sold, and at which prices.

    `volume_limit` volumes may be in the account, of `quota_bytes` in all (None: no limit), and `slots` attached to the
    machine, whatever their devices.
    """

    backing_uuid: str
    instance_id: str = "i-0000000000000001"
    volume_limit: int = 20
    quota_bytes: int | None = None
    slots: int = 20
    size_step_bytes: int = GIB
    tariff: Tariff = TARIFF


@dataclass(frozen=True, slots=True)
class CallTiming:
    """`seed` decides the delays that are drawn; `meter` adds up what calls take."""

    seed: int = 0
    meter: Meter = field(default_factory=Meter)


@dataclass(slots=True)
class CloudVolume:
    """One volume, alive or deleted. Times are `SimClock.elapsed`; a planned change whose `changes` differs is void."""

    id: VolumeId
    serial: Serial
    token: str
    spec: VolumeSpec
    created_at: float
    created_wall: float
    state: VolumeState = VolumeState.CREATING
    owner: str = ""
    backing_uuid: str = ""
    tag: VolumeTag = VolumeTag.CLEAN
    tags: dict[str, str] = field(default_factory=dict)
    visible_at: float = 0.0
    settled_at: float = 0.0
    leave_at: float = 0.0
    deleted_at: float | None = None
    plugged: bool = False
    leaving: bool = False
    changes: int = 0

    @classmethod
    def bought(cls, number: str, token: str, spec: VolumeSpec, now: float, wall: float) -> CloudVolume:
        """A new volume. Its serial is the id without the dash, as with NVMe volumes of EC2."""
        return cls(VolumeId(f"vol-{number}"), Serial(f"vol{number}"), token, spec, now, wall)

    @property
    def size_bytes(self) -> int:
        return self.spec.size_bytes

    def agbs(self, now: float) -> float:
        """Its cost from purchase to deletion, or until `now`."""
        until = self.deleted_at if self.deleted_at is not None else now
        return agbs(self.spec.bandwidth_mb_s, self.size_bytes, until - self.created_at)

    def view(self, owner: str) -> Volume:
        """The volume as `ports.VolumeProvider` describes it to one machine."""
        return Volume(
            id=self.id,
            serial=self.serial,
            state=self.state if self.owner == owner else state_of_others(self.state, self.owner),
            size_bytes=self.size_bytes,
            bandwidth_mb_s=self.spec.bandwidth_mb_s,
            token=self.token,
            backing_uuid=self.backing_uuid,
            created_wall=self.created_wall,
            tag=self.tag,
        )


class DiskSlots:
    """A machine's slots for disks, as the cloud sees them; here without a machine: every disk fits, none is in use."""

    def plug(self, serial: Serial, size_bytes: int, mb_s: float) -> None:
        """A volume appears; one that was plugged before has kept its content."""

    def plug_foreign(self, size_bytes: int) -> None:
        """A disk of the same size with a filesystem appears that is not the agent's."""

    def unplug(self, serial: Serial) -> bool:
        """False while the machine uses the disk."""
        return True

    def pull(self, serial: Serial) -> None:
        """Surprise removal."""

    def destroy(self, serial: Serial) -> None:
        """The content is deleted."""


class KernelSlots(DiskSlots):
    """The slots of a simulated machine."""

    def __init__(self, kernel: SimKernel) -> None:
        self._kernel = kernel

    def plug(self, serial: Serial, size_bytes: int, mb_s: float) -> None:
        self._kernel.plug(self._kernel.away.get(serial) or SimDisk(serial, size_bytes, mb_s))

    def plug_foreign(self, size_bytes: int) -> None:
        if FOREIGN_SERIAL not in self._kernel.disks:
            self._kernel.plug(SimDisk(FOREIGN_SERIAL, size_bytes, 100.0, signature="ext4"))

    def unplug(self, serial: Serial) -> bool:
        try:
            self._kernel.unplug(serial)
        except DeviceBusyError:
            return False
        return True

    def pull(self, serial: Serial) -> None:
        self._kernel.pull(serial)

    def destroy(self, serial: Serial) -> None:
        self._kernel.destroy(serial)
