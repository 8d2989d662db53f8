"""moto's EC2 objects, extended with EBS's life cycle. No global of moto is changed."""

from __future__ import annotations

import threading
import time
from enum import StrEnum
from typing import Any

from moto.ec2.models import EC2Backend
from moto.ec2.models.elastic_block_store import Volume, VolumeAttachment


class VolumeState(StrEnum):
    """The state of a volume without regard to its attachment, which the API shows as `in-use`."""

    CREATING = "creating"
    AVAILABLE = "available"
    ERROR = "error"
    DELETING = "deleting"
    DELETED = "deleted"


class AttachmentState(StrEnum):
    """The states of an attachment, as DescribeVolumes shows them."""

    ATTACHING = "attaching"
    ATTACHED = "attached"
    DETACHING = "detaching"
    BUSY = "busy"


class LabAttachment(VolumeAttachment):
    """An attachment with the state of its disk."""

    def __init__(self, volume: LabVolume, instance: Any, device: str, status: AttachmentState) -> None:
        super().__init__(volume, instance, device, status)
        self.plug_tried = False
        self.plugged = False
        self.retrying = False

    @property
    def state(self) -> AttachmentState:
        """The present state."""
        return AttachmentState(self.status)


class LabVolume(Volume):
    """A volume with a state and a history of states, as (epoch seconds, state).

    `number` counts the volumes of the endpoint; it is the order of paging.
    """

    def __init__(self, *args: Any, number: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.number = number
        self.lab_state = VolumeState.AVAILABLE
        self.visible = True
        self.history: list[tuple[float, str]] = []
        self.last_tags: dict[str, str] = {}
        # Bridge calls for one serial are not concurrent.
        self.bridge_lock = threading.Lock()

    @property
    def tag_map(self) -> dict[str, str]:
        """Its tags; of a deleted volume, its last ones. (moto's get_tags searches the tags of all resources.)"""
        return dict(self.ec2_backend.tags.get(self.id, self.last_tags))

    @property
    def serial(self) -> str:
        """The serial of its disk in the guest: its id without the hyphen, 20 characters, as on EBS's NVMe disks."""
        return self.id.replace("-", "")

    @property
    def throughput_mib_s(self) -> int:
        """The throughput in MiB/s."""
        return int(self.throughput or 0)

    @property
    def lab_attachment(self) -> LabAttachment | None:
        """The attachment, if there is one."""
        assert self.attachment is None or isinstance(self.attachment, LabAttachment)
        return self.attachment

    @property
    def status(self) -> str:
        """The state that the API shows: `in-use` as soon as there is an attachment."""
        return "in-use" if self.attachment else self.lab_state.value

    @property
    def full_status(self) -> str:
        """The state, with the attachment's state after a slash if there is one."""
        attachment = self.lab_attachment
        return self.status if attachment is None else f"{self.status}/{attachment.state}"

    def record_state(self) -> None:
        """Append the present state to the history, if it has changed."""
        state = self.full_status
        if not self.history or self.history[-1][1] != state:
            self.history.append((time.time(), state))


class LabBackend(EC2Backend):
    """moto's EC2 backend with LabVolume and LabAttachment, also for RunInstances.

    `deleted_volumes` serves idempotency tokens and the list of all volumes.
    """

    def __init__(self, region_name: str, account_id: str) -> None:
        self.deleted_volumes: dict[str, LabVolume] = {}
        super().__init__(region_name, account_id)

    def _load_amis(self) -> None:
        """Load none: 1,300 images would take a second and 100 MB, and no machine boots from them."""

    def create_volume(self, *args: Any, **kwargs: Any) -> LabVolume:
        """A volume that is available at once; the caller starts its life cycle."""
        made = super().create_volume(*args, **kwargs)
        volume = LabVolume(  # type: ignore[abstract]  # moto's own are as abstract: CloudFormation's
            self,
            volume_id=made.id,
            size=made.size,
            zone=made.zone,
            snapshot_id=made.snapshot_id,
            encrypted=made.encrypted,
            kms_key_id=made.kms_key_id,
            volume_type=made.volume_type,
            iops=made.iops,
            throughput=made.throughput,
            number=len(self.volumes) + len(self.deleted_volumes),
        )
        self.volumes[made.id] = volume
        volume.record_state()
        return volume

    def attach_volume(
        self, volume_id: str, instance_id: str, device_path: str, delete_on_termination: bool = False
    ) -> LabAttachment:
        """An attachment in state attached; the caller starts its life cycle."""
        super().attach_volume(volume_id, instance_id, device_path, delete_on_termination)
        volume = self.volumes[volume_id]
        assert isinstance(volume, LabVolume)
        instance = self.get_instance(instance_id)
        attachment = LabAttachment(  # type: ignore[abstract]  # as above
            volume, instance, device_path, AttachmentState.ATTACHED
        )
        volume.attachment = attachment
        return attachment

    def lab_volumes(self) -> list[LabVolume]:
        """The volumes that are not deleted, in the order of their creation."""
        return [volume for volume in self.volumes.values() if isinstance(volume, LabVolume)]

    def known_volume(self, volume_id: str) -> LabVolume:
        """A volume, deleted or not. Raises KeyError."""
        volume = self.volumes.get(volume_id) or self.deleted_volumes[volume_id]
        assert isinstance(volume, LabVolume)
        return volume

    def mark_deleted(self, volume: LabVolume) -> None:
        """Remove the volume from the API."""
        volume.lab_state = VolumeState.DELETED
        volume.record_state()
        volume.last_tags = self.tags.pop(volume.id, {})
        self.deleted_volumes[volume.id] = volume
        self.volumes.pop(volume.id, None)
