"""A volume as a record of the laboratory, and as a response of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elastio_testbed.ec2.store import LabAttachment, LabVolume, VolumeState


@dataclass(frozen=True)
class Purchase:
    """One volume of any cloud. Times are seconds of the Unix epoch; `deleted_at` None: it exists.

    `history` has (time, state), oldest first, as far as the cloud records it: creating, available, deleted, and with
    "/<attachment state>" appended while attached, as in in-use/attaching and in-use/attached.
    """

    id: str
    serial: str
    size_gib: int
    throughput_mib_s: float
    created_at: float
    deleted_at: float | None
    history: tuple[tuple[float, str], ...]


@dataclass(frozen=True)
class VolumeRow(Purchase):
    """One volume of the endpoint at one time.

    `state` is creating, available, in-use, deleting, error or deleted; `attachment_state` is attaching,
    attached, detaching, busy or None. `path` is the volume's sparse file.
    """

    state: str
    iops: int | None
    zone: str
    tags: Mapping[str, str]
    attachment_state: str | None
    instance_id: str | None
    device: str | None
    path: Path

    def as_dict(self) -> dict[str, object]:
        """The record as plain data."""
        return {**asdict(self), "path": str(self.path)}


def lab_row(volume: LabVolume, path: Path) -> VolumeRow:
    """The present record of a volume. Call with the lock of its world held."""
    attachment = volume.lab_attachment
    return VolumeRow(
        id=volume.id,
        serial=volume.serial,
        size_gib=int(volume.size),
        throughput_mib_s=volume.throughput_mib_s,
        created_at=volume.history[0][0],
        deleted_at=volume.history[-1][0] if volume.status == VolumeState.DELETED else None,
        history=tuple(volume.history),
        state=volume.status,
        iops=volume.iops,
        zone=volume.availability_zone or "",
        tags=volume.tag_map,
        attachment_state=attachment.state.value if attachment else None,
        instance_id=attachment.instance.id if attachment else None,
        device=attachment.device if attachment else None,
        path=path,
    )


def api_attachment(attachment: LabAttachment) -> dict[str, Any]:
    """An attachment in the responses of AttachVolume, DetachVolume and DescribeVolumes."""
    return {
        "VolumeId": attachment.volume.id,
        "InstanceId": attachment.instance.id,
        "Device": attachment.device,
        "State": attachment.state.value,
        "AttachTime": attachment.attach_time,
        "DeleteOnTermination": False,
    }


def api_volume(volume: LabVolume) -> dict[str, Any]:
    """A volume in the responses of CreateVolume and DescribeVolumes."""
    attachment = volume.lab_attachment
    row = {
        "VolumeId": volume.id,
        "State": volume.status,
        "Size": int(volume.size),
        "VolumeType": volume.volume_type,
        "AvailabilityZone": volume.availability_zone,
        "CreateTime": volume.create_time,
        "Encrypted": volume.encrypted,
        "MultiAttachEnabled": False,
        "SnapshotId": volume.snapshot_id or "",
        "Attachments": [api_attachment(attachment)] if attachment else [],
    }
    optional = {"Iops": volume.iops, "Throughput": volume.throughput, "KmsKeyId": volume.kms_key_id}
    row |= {name: value for name, value in optional.items() if value is not None}
    if tags := volume.tag_map:
        row["Tags"] = [{"Key": key, "Value": value} for key, value in tags.items()]
    return row
