"""The endpoint as Python code uses it."""

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

    `folder`: where the sparse files of the volumes go (made if missing; files of volumes that still exist are
    left there). `latency_scale` multiplies every life-cycle delay. `rate_limits`:
    whether EC2's token buckets are in force. Settable while it runs: `faults`, `latency`, `buckets`, `quota`,
    `unplug_timeout_s`, `busy_retry_s`, `guards_dirty`.
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
        self._world = World(
            region=region,
            folder=folder,
            scale=scale or Scale(),
            latency=self.latency,
            faults=self.faults,
            log=self.log,
            backend=LabBackend(region, _ACCOUNT_ID),
            quota=Quota(),
        )
        imds = Imds(self._world, _ACCOUNT_ID)
        self._application = Application(self._world, self.buckets, imds.answer)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to answer on a free port. Raises RuntimeError when started before."""
        if self._server is not None or self._application.closing.is_set():
            raise RuntimeError("an endpoint is started once; make a new one")
        self._server = HttpServer(self._application)

    def stop(self) -> None:
        """Cut all connections and begin no transition any more; harmless when repeated.

        Raises TimeoutError when a bridge call does not come back within 30 s.
        """
        server, self._server = self._server, None
        if server is not None:
            server.stop(_STOP_TIMEOUT_S)
        self._application.closing.set()
        self._world.timers.close(_STOP_TIMEOUT_S)

    @property
    def port(self) -> int:
        """The port it listens on. Raises RuntimeError when it is not started."""
        if self._server is None:
            raise RuntimeError("the endpoint is not started")
        return self._server.port

    @property
    def url(self) -> str:
        """The endpoint URL for clients on this machine."""
        return self.url_from(HOST)

    def url_from(self, host: str) -> str:
        """The endpoint URL for a guest that reaches this machine's loopback as `host` (QEMU: 10.0.2.2)."""
        return f"http://{host}:{self.port}"

    def imds_url(self, instance_id: str, host: str = HOST) -> str:
        """AWS_EC2_METADATA_SERVICE_ENDPOINT for that instance, seen from `host` as in `url_from`."""
        return f"{self.url_from(host)}/imds/{instance_id}"

    @property
    def region(self) -> str:
        """The one region it serves."""
        return self._world.region

    @property
    def scale(self) -> Scale:
        """How much smaller the disks are than the API says."""
        return self._world.scale

    @property
    def quota(self) -> Quota:
        """The account's quota."""
        return self._world.quota

    @quota.setter
    def quota(self, quota: Quota) -> None:
        self._world.quota = quota

    @property
    def unplug_timeout_s(self) -> float:
        """How long a guest may take to let go of a disk before the attachment becomes `busy`."""
        return self._world.unplug_timeout_s

    @unplug_timeout_s.setter
    def unplug_timeout_s(self, seconds: float) -> None:
        self._world.unplug_timeout_s = seconds

    @property
    def guards_dirty(self) -> bool:
        """Whether detach and delete of what is marked dirty are not authorized, as by the `Deny` of the shipped policy.

        It is all of IAM that there is here, and holds for every caller.
        """
        return self._world.guards_dirty

    @guards_dirty.setter
    def guards_dirty(self, guards: bool) -> None:
        self._world.guards_dirty = guards

    @property
    def busy_retry_s(self) -> float:
        """How often a guest that has not let go of a disk is asked again."""
        return self._world.busy_retry_s

    @busy_retry_s.setter
    def busy_retry_s(self, seconds: float) -> None:
        if seconds <= 0:
            raise SettingError(f"busy_retry_s must be positive, got {seconds}")
        self._world.busy_retry_s = seconds

    def settle(self, timeout_s: float, only: str | None = None) -> None:
        """Wait until no transition is under way (stuck and busy ones are not), or none named `only`.

        The transitions: create, visible, attach, detach, delete. Raises TimeoutError.
        """
        self._world.timers.settle(timeout_s, only)

    def add_instance(self, bridge: DiskBridge | None, instance_type: str = "m5.large", zone: str | None = None) -> str:
        """Register a running machine, without a root volume, and give its instance id.

        `bridge` None: no disks, API only. `zone` None: the region's first. Raises SettingError for a zone or an
        instance type that the region does not have.
        """
        zone = zone or f"{self.region}a"
        with self._world.lock:
            backend = self._world.backend
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
                self._world.bridges[instance_id] = bridge
        return instance_id

    def tear_off(self, volume_id: str, pull: Callable[[str], None]) -> None:
        """Take an attached volume from its machine by surprise; `pull` takes the disk with that serial away.

        Raises KeyError when there never was such a volume, SettingError when it is not attached.
        """
        with self._world.lock:
            volume = self._world.backend.known_volume(volume_id)
        attachments.tear_off(self._world, volume, pull)

    def interrupt_spot(self, instance_id: str, action: str = "terminate", *, in_s: float = 120.0) -> None:
        """Show a spot notice in the metadata of the instance. Raises SettingError for an unknown one."""
        with self._world.lock:
            self._instance(instance_id)
            self._world.spot_notices[instance_id] = spot_notice(action, in_s)

    def schedule_maintenance(self, instance_id: str, code: str, *, in_s: float) -> None:
        """Show a scheduled event (`instance-stop`, ...) in the metadata. Raises SettingError for an unknown one."""
        with self._world.lock:
            self._instance(instance_id)
            self._world.maintenance.setdefault(instance_id, []).append(scheduled_event(code, in_s))

    def encrypt_by_default(self, key_id: str, *, usable: bool = True) -> None:
        """The account encrypts every new volume in the region with this key; one that is not usable makes it vanish."""
        with self._world.lock:
            if not usable:
                self._world.unusable_keys.add(key_id)
            self._world.encrypts, self._world.default_key = True, key_id

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
        """A gp3 volume attached since boot: no delay, no faults. Its file exists when this returns.

        The machine is started with the file at `path` as a disk with `serial`, and a later detach unplugs it. Raises
        SettingError for an unknown instance, ApiError for a volume that EC2 would refuse, OSError for the file.
        """
        world = self._world
        with world.lock:
            zone = self._instance(instance_id).availability_zone or ""
            wanted = volumes.NewVolume(size_gib, zone, "gp3", iops, throughput_mib_s, False, tags or {})
            volumes.check_new(world, wanted)
            volume = volumes.make(world, wanted)
            volumes.make_backing(world, volume)
            attachment = world.backend.attach_volume(volume.id, instance_id, device)
            attachment.plug_tried = attachment.plugged = instance_id in world.bridges
            world.set_attachment(volume, attachment, AttachmentState.ATTACHED)
        return self._row(volume)

    def volumes(self) -> list[VolumeRow]:
        """Every volume there ever was, in the order of their making; `state` "deleted" when gone."""
        with self._world.lock:
            backend = self._world.backend
            known = [*backend.deleted_volumes.values(), *backend.lab_volumes()]
            return [self._row(volume) for volume in sorted(known, key=lambda volume: volume.number)]

    def live_volumes(self) -> list[VolumeRow]:
        """The volumes that are not gone: what an account would pay for."""
        return [row for row in self.volumes() if row.state != VolumeState.DELETED]

    def volume(self, volume_id: str) -> VolumeRow:
        """One volume, gone or not. Raises KeyError when there never was one."""
        with self._world.lock:
            return self._row(self._world.backend.known_volume(volume_id))

    def wait_for(self, volume_id: str, state: str, timeout_s: float) -> VolumeRow:
        """Wait until a volume is in a state, named as in `history` ("available", "in-use/busy", "deleted").

        Raises TimeoutError, with the history, after `timeout_s`, and KeyError when there never was one.
        """
        with self._world.changed:
            volume = self._world.backend.known_volume(volume_id)
            if not self._world.changed.wait_for(lambda: volume.full_status == state, timeout_s):
                seen = " ".join(each for _, each in volume.history)
                raise TimeoutError(f"{volume_id} was not {state} within {timeout_s} s: {seen}")
            return self._row(volume)

    def _row(self, volume: LabVolume) -> VolumeRow:
        with self._world.lock:
            return lab_row(volume, self._world.backing_path(volume))

    def _instance(self, instance_id: str) -> Instance:
        instance = self._world.instance(instance_id)
        if instance is None:
            raise SettingError(f"no instance {instance_id!r}")
        return instance
