"""The endpoint's interface for Python code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Self

from elastio_testbed.ec2 import attachments, volumes
from elastio_testbed.ec2.application import Application
from elastio_testbed.ec2.bridge import DiskBridge, Scale
from elastio_testbed.ec2.buckets import RateBuckets
from elastio_testbed.ec2.faults import Faults
from elastio_testbed.ec2.imds import Imds, scheduled_event, spot_notice
from elastio_testbed.ec2.latency import Latency
from elastio_testbed.ec2.log import EventLog
from elastio_testbed.ec2.rows import VolumeRow, lab_row
from elastio_testbed.ec2.server import HOST, HttpServer
from elastio_testbed.ec2.store import AttachmentState, LabBackend, LabVolume, VolumeState
from elastio_testbed.ec2.world import World

REGION = "us-east-1"
# The account that moto answers for.
_ACCOUNT_ID = "123456789012"
_STOP_TIMEOUT_S = 30.0


class Ec2Endpoint(World):
    """An EC2-compatible API on 127.0.0.1 whose volumes become disks of virtual machines.

    `folder`: directory for the sparse files of the volumes (created if missing; files of existing volumes are kept
    at the end). `latency_scale`: factor for every delay of the life cycle. `rate_limits`: whether calls are throttled
    as on EC2. Can be changed at run time: `faults`, `latency`, `buckets`, and all fields of `World` with a default.
    """

    def __init__(
        self,
        folder: Path,
        *,
        scale: Scale | None = None,
        latency_scale: float = 1.0,
        rate_limits: bool = True,
        seed: int = 1,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(
            region=REGION,
            folder=folder,
            scale=scale or Scale(),
            latency=Latency(seed, latency_scale),
            faults=Faults(seed),
            log=EventLog(),
            backend=LabBackend(REGION, _ACCOUNT_ID),
        )
        self.buckets = RateBuckets(enabled=rate_limits)
        self._server: HttpServer | None = None
        self._application = Application(self, self.buckets, Imds(self, _ACCOUNT_ID).answer)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
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
            server.end(_STOP_TIMEOUT_S)
        self._application.closing.set()
        self.timers.close(_STOP_TIMEOUT_S)

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

    def settle(self, timeout_s: float, only: str | None = None) -> None:
        """Wait until no transition is pending (create, visible, attach, detach, delete), or none named `only`.

        Stuck and busy attachments do not count. Raises TimeoutError.
        """
        self.timers.settle(timeout_s, only)

    def add_instance(self, bridge: DiskBridge | None, instance_type: str = "m5.large") -> str:
        """Register a running machine in the region's first zone, without a root volume, and return its instance id.

        `bridge` None: attachments exist in the API only.
        """
        with self.lock:
            reservation = self.backend.run_instances(
                "ami-00000000",
                1,
                None,
                [],
                instance_type=instance_type,
                is_instance_type_default=False,
                placement=f"{self.region}a",
                region_name=self.region,
                block_device_mappings=[],
            )
            instance_id = str(reservation.instances[0].id)
            if bridge is not None:
                self.bridges[instance_id] = bridge
        return instance_id

    def tear_off(self, volume_id: str, pull: Callable[[str], None]) -> None:
        """Remove an attached volume from its machine by surprise; `pull` removes the disk with that serial.

        Raises KeyError for an unknown volume, ValueError for one that is not attached.
        """
        with self.lock:
            volume = self.backend.known_volume(volume_id)
        attachments.tear_off(self, volume, pull)

    def terminate(self, instance_id: str) -> None:
        """The machine, which is off, is gone for good: EC2 shows it as terminated, and its volumes are available.

        None of them is deleted with it: the agent's are never set to be. Raises KeyError for an unknown instance.
        """
        with self.lock:
            instance = self.instance(instance_id)
            if instance is None:
                raise KeyError(instance_id)
            attached = [v for v in self.backend.lab_volumes() if v.attachment and v.attachment.instance is instance]
        for volume in attached:
            attachments.leave(self, volume)
        with self.lock:
            self.backend.terminate_instances([instance_id])
            self.bridges.pop(instance_id, None)

    def interrupt_spot(self, instance_id: str, action: str = "terminate", *, in_s: float = 120.0) -> None:
        """Show a spot notice in the metadata of the instance: terminate, stop or hibernate."""
        with self.lock:
            self.spot_notices[instance_id] = spot_notice(action, in_s)

    def schedule_maintenance(self, instance_id: str, code: str, *, in_s: float) -> None:
        """Show a scheduled event, such as `instance-stop`, in the metadata of the instance."""
        with self.lock:
            self.maintenance.setdefault(instance_id, []).append(scheduled_event(code, in_s))

    def encrypt_by_default(self, key_id: str, *, usable: bool = True) -> None:
        """Encrypt every new volume of the account with this key. With an unusable key, new volumes disappear."""
        with self.lock:
            if not usable:
                self.unusable_keys.add(key_id)
            self.encrypts, self.default_key = True, key_id

    def add_volume(self, instance_id: str, *, size_gib: int, device: str) -> VolumeRow:
        """A gp3 volume attached since boot, without delays and faults. Its file exists when this returns.

        The caller starts the machine with the file at `path` as a disk with `serial`; a later detach unplugs it.
        Raises ApiError for an unknown instance or a volume that EC2 refuses, OSError for the file.
        """
        with self.lock:
            wanted = volumes.NewVolume(
                size_gib, f"{self.region}a", volumes.GP3_IOPS, volumes.GP3_MIB_S, encrypted=False, tags={}
            )
            volumes.check_new(self, wanted)
            volume = volumes.make(self, wanted)
            volumes.make_backing(self, volume)
            attachment = self.backend.attach_volume(volume.id, instance_id, device)
            attachment.plug_tried = attachment.plugged = instance_id in self.bridges
            self.set_attachment(volume, attachment, AttachmentState.ATTACHED)
        return self._row(volume)

    def volumes(self) -> list[VolumeRow]:
        """All volumes in the order of their creation; deleted ones have `state` "deleted"."""
        with self.lock:
            known = [*self.backend.deleted_volumes.values(), *self.backend.lab_volumes()]
            return [self._row(volume) for volume in sorted(known, key=lambda volume: volume.number)]

    def live_volumes(self) -> list[VolumeRow]:
        """The volumes that are not deleted: those that an account is billed for."""
        return [row for row in self.volumes() if row.state != VolumeState.DELETED]

    def volume(self, volume_id: str) -> VolumeRow:
        """One volume, deleted or not. Raises KeyError for an unknown volume."""
        with self.lock:
            return self._row(self.backend.known_volume(volume_id))

    def wait_for(self, volume_id: str, state: str, timeout_s: float) -> VolumeRow:
        """Wait until a volume is in a state, named as in `history` ("available", "in-use/busy", "deleted").

        Raises TimeoutError after `timeout_s`, KeyError for an unknown volume.
        """
        with self.changed:
            volume = self.backend.known_volume(volume_id)
            if not self.changed.wait_for(lambda: volume.full_status == state, timeout_s):
                seen = " ".join(each for _, each in volume.history)
                raise TimeoutError(f"{volume_id} was not {state} within {timeout_s} s: {seen}")
            return self._row(volume)

    def _row(self, volume: LabVolume) -> VolumeRow:
        with self.lock:
            return lab_row(volume, self.backing_path(volume))
