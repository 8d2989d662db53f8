"""The endpoint's interface for Python code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from moto.ec2.models.instances import Instance

from elastio_testbed.ec2 import attachments, volumes
from elastio_testbed.ec2.application import Application
from elastio_testbed.ec2.bridge import DiskBridge, Scale
from elastio_testbed.ec2.buckets import RateBuckets
from elastio_testbed.ec2.errors import SettingError
from elastio_testbed.ec2.faults import Faults
from elastio_testbed.ec2.imds import Imds, scheduled_event, spot_notice
from elastio_testbed.ec2.latency import Latency
from elastio_testbed.ec2.limits import Quota
from elastio_testbed.ec2.log import EventLog
from elastio_testbed.ec2.rows import VolumeRow, lab_row
from elastio_testbed.ec2.server import HOST, HttpServer
from elastio_testbed.ec2.store import AttachmentState, LabBackend, LabVolume, VolumeState
from elastio_testbed.ec2.world import World

# The account that moto answers for.
_ACCOUNT_ID = "123456789012"
_STOP_TIMEOUT_S = 30.0


class Ec2Endpoint:
    """An EC2-compatible API on 127.0.0.1 whose volumes become disks of virtual machines.

    `folder`: directory for the sparse files of the volumes (created if missing; files of existing volumes are kept
    at the end). `latency_scale`: factor for every delay of the life cycle. `rate_limits`: whether calls are throttled
    as on EC2. Can be changed at run time: `faults`, `latency`, `buckets`, `quota`, `guards_dirty`, and the times in
    `world`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        region: str = "us-east-1",
        scale: Scale | None = None,
        latency_scale: float = 1.0,
        rate_limits: bool = True,
        seed: int = 1,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._server: HttpServer | None = None
        self.log = EventLog()
        self.faults = Faults(seed)
        self.latency = Latency(seed, latency_scale)
        self.buckets = RateBuckets(enabled=rate_limits)
        self.world = World(
            region=region,
            folder=folder,
            scale=scale or Scale(),
            latency=self.latency,
            faults=self.faults,
            log=self.log,
            backend=LabBackend(region, _ACCOUNT_ID),
            quota=Quota(),
        )
        imds = Imds(self.world, _ACCOUNT_ID)
        self._application = Application(self.world, self.buckets, imds.answer)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start serving on a free port. Raises RuntimeError for an endpoint that was started before."""
        if self._server is not None or self._application.closing.is_set():
            raise RuntimeError("an endpoint can be started only once; create a new one")
        self._server = HttpServer(self._application)

    def stop(self) -> None:
        """Close all connections and start no more transitions. May be repeated.

        Raises TimeoutError when a bridge call does not return within 30 s.
        """
        server, self._server = self._server, None
        if server is not None:
            server.stop(_STOP_TIMEOUT_S)
        self._application.closing.set()
        self.world.timers.close(_STOP_TIMEOUT_S)

    @property
    def port(self) -> int:
        """The listening port. Raises RuntimeError before `start`."""
        if self._server is None:
            raise RuntimeError("the endpoint is not started")
        return self._server.port

    @property
    def url(self) -> str:
        """The endpoint URL for clients on this machine."""
        return self.url_from(HOST)

    def url_from(self, host: str) -> str:
        """The endpoint URL for a guest that reaches the host as `host` (QEMU: 10.0.2.2)."""
        return f"http://{host}:{self.port}"

    def imds_url(self, instance_id: str, host: str = HOST) -> str:
        """AWS_EC2_METADATA_SERVICE_ENDPOINT of that instance; `host` as in `url_from`."""
        return f"{self.url_from(host)}/imds/{instance_id}"

    @property
    def region(self) -> str:
        """The only region served."""
        return self.world.region

    @property
    def scale(self) -> Scale:
        """The ratio between sizes of the API and of the disks."""
        return self.world.scale

    @property
    def quota(self) -> Quota:
        """The account's quota."""
        return self.world.quota

    @quota.setter
    def quota(self, quota: Quota) -> None:
        self.world.quota = quota

    @property
    def guards_dirty(self) -> bool:
        """Whether DetachVolume and DeleteVolume are denied for volumes tagged dirty, as by the shipped IAM policy.

        This is the only part of IAM here. It applies to every caller.
        """
        return self.world.guards_dirty

    @guards_dirty.setter
    def guards_dirty(self, guards: bool) -> None:
        self.world.guards_dirty = guards

    def settle(self, timeout_s: float, only: str | None = None) -> None:
        """Wait until no transition is pending (create, visible, attach, detach, delete), or none named `only`.

        Stuck and busy attachments do not count. Raises TimeoutError.
        """
        self.world.timers.settle(timeout_s, only)

    def add_instance(self, bridge: DiskBridge | None, instance_type: str = "m5.large", zone: str | None = None) -> str:
        """Register a running machine without a root volume, and return its instance id.

        `bridge` None: attachments exist in the API only. `zone` None: the region's first. Raises SettingError for an
        unknown zone or instance type.
        """
        zone = zone or f"{self.region}a"
        with self.world.lock:
            backend = self.world.backend
            if backend.get_zone_by_name(zone) is None:
                raise SettingError(f"no zone {zone!r} in {self.region}")
            if not backend.describe_instance_types(filters={"instance-type": [instance_type]}):
                raise SettingError(f"no instance type {instance_type!r}")
            reservation = backend.run_instances(
                "ami-00000000",
                1,
                None,
                [],
                instance_type=instance_type,
                is_instance_type_default=False,
                placement=zone,
                region_name=self.region,
                block_device_mappings=[],
            )
            instance_id = str(reservation.instances[0].id)
            if bridge is not None:
                self.world.bridges[instance_id] = bridge
        return instance_id

    def tear_off(self, volume_id: str, pull: Callable[[str], None]) -> None:
        """Remove an attached volume from its machine by surprise; `pull` removes the disk with that serial.

        Raises KeyError for an unknown volume, SettingError for one that is not attached.
        """
        with self.world.lock:
            volume = self.world.backend.known_volume(volume_id)
        attachments.tear_off(self.world, volume, pull)

    def interrupt_spot(self, instance_id: str, action: str = "terminate", *, in_s: float = 120.0) -> None:
        """Show a spot notice in the metadata of the instance. Raises SettingError for an unknown instance."""
        with self.world.lock:
            self._instance(instance_id)
            self.world.spot_notices[instance_id] = spot_notice(action, in_s)

    def schedule_maintenance(self, instance_id: str, code: str, *, in_s: float) -> None:
        """Show a scheduled event, such as `instance-stop`, in the metadata. Raises SettingError as `interrupt_spot`."""
        with self.world.lock:
            self._instance(instance_id)
            self.world.maintenance.setdefault(instance_id, []).append(scheduled_event(code, in_s))

    def encrypt_by_default(self, key_id: str, *, usable: bool = True) -> None:
        """Encrypt every new volume of the account with this key. With an unusable key, new volumes disappear."""
        with self.world.lock:
            if not usable:
                self.world.unusable_keys.add(key_id)
            self.world.encrypts, self.world.default_key = True, key_id

    def add_volume(
        self,
        instance_id: str,
        *,
        size_gib: int,
        device: str = "/dev/sdb",
        iops: int = 3_000,
        throughput_mib_s: int = 125,
        tags: Mapping[str, str] | None = None,
    ) -> VolumeRow:
        """A gp3 volume attached since boot, without delays and faults. Its file exists when this returns.

        The caller starts the machine with the file at `path` as a disk with `serial`; a later detach unplugs it.
        Raises SettingError for an unknown instance, ApiError for a volume that EC2 refuses, OSError for the file.
        """
        world = self.world
        with world.lock:
            zone = self._instance(instance_id).availability_zone or ""
            wanted = volumes.NewVolume(size_gib, zone, iops, throughput_mib_s, False, tags or {})
            volumes.check_new(world, wanted)
            volume = volumes.make(world, wanted)
            volumes.make_backing(world, volume)
            attachment = world.backend.attach_volume(volume.id, instance_id, device)
            attachment.plug_tried = attachment.plugged = instance_id in world.bridges
            world.set_attachment(volume, attachment, AttachmentState.ATTACHED)
        return self._row(volume)

    def volumes(self) -> list[VolumeRow]:
        """All volumes in the order of their creation; deleted ones have `state` "deleted"."""
        with self.world.lock:
            backend = self.world.backend
            known = [*backend.deleted_volumes.values(), *backend.lab_volumes()]
            return [self._row(volume) for volume in sorted(known, key=lambda volume: volume.number)]

    def live_volumes(self) -> list[VolumeRow]:
        """The volumes that are not deleted: those that an account is billed for."""
        return [row for row in self.volumes() if row.state != VolumeState.DELETED]

    def volume(self, volume_id: str) -> VolumeRow:
        """One volume, deleted or not. Raises KeyError for an unknown volume."""
        with self.world.lock:
            return self._row(self.world.backend.known_volume(volume_id))

    def wait_for(self, volume_id: str, state: str, timeout_s: float) -> VolumeRow:
        """Wait until a volume is in a state, named as in `history` ("available", "in-use/busy", "deleted").

        Raises TimeoutError after `timeout_s`, KeyError for an unknown volume.
        """
        with self.world.changed:
            volume = self.world.backend.known_volume(volume_id)
            if not self.world.changed.wait_for(lambda: volume.full_status == state, timeout_s):
                seen = " ".join(each for _, each in volume.history)
                raise TimeoutError(f"{volume_id} was not {state} within {timeout_s} s: {seen}")
            return self._row(volume)

    def _row(self, volume: LabVolume) -> VolumeRow:
        with self.world.lock:
            return lab_row(volume, self.world.backing_path(volume))

    def _instance(self, instance_id: str) -> Instance:
        instance = self.world.instance(instance_id)
        if instance is None:
            raise SettingError(f"no instance {instance_id!r}")
        return instance
