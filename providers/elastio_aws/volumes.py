"""Turns EC2's description of a volume into the agent's; the tags that make a volume ours. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from elastio.core.model import Serial, Volume, VolumeId, VolumeState, VolumeTag
from elastio.errors import TransientError
from elastio_aws.settings import Scale

OWNER_TAG = "elastio:owner"  # the instance's ARN, which the IAM policy compares with the caller's
CYCLE_TAG = "elastio:cycle"
BACKING_TAG = "elastio:backing"
EXPIRES_TAG = "elastio:expires"
STATE_TAG = "elastio:state"  # what a janitor may assume; "clean" when created, and any other value counts as dirty
NAME_TAG = "Name"
_ID = re.compile(r"vol-[0-9A-Za-z]+")

_UNATTACHED = {
    "creating": VolumeState.CREATING,
    "available": VolumeState.AVAILABLE,
    # eventual consistency: in use, but the attachment is not shown yet
    "in-use": VolumeState.ATTACHING,
    "deleting": VolumeState.DELETING,
    "deleted": VolumeState.GONE,
    "error": VolumeState.ERROR,
}
_ATTACHMENT = {
    "attaching": VolumeState.ATTACHING,
    "attached": VolumeState.ATTACHED,
    "detaching": VolumeState.DETACHING,
    "busy": VolumeState.BUSY,
}


def state_of(shown: Mapping[str, Any], instance_id: str) -> VolumeState:
    """The state as this instance sees it.

    EC2 reports `in-use` as soon as it begins to attach, so the state of an active attachment is more exact than the
    volume's own. An unknown state counts as ERROR.
    """
    own = str(shown.get("State", ""))
    alive = [a for a in shown.get("Attachments") or () if a.get("State") in _ATTACHMENT]
    if own not in ("available", "in-use") or not alive:
        return _UNATTACHED.get(own, VolumeState.ERROR)
    here = [a for a in alive if a.get("InstanceId") == instance_id]
    return _ATTACHMENT[here[0]["State"]] if here else VolumeState.ELSEWHERE


def volume_of(
    shown: Mapping[str, Any], instance_id: str, scale: Scale, tags: Mapping[str, str] | None = None
) -> Volume:
    """One volume of a response. `tags` replaces tags that the response does not show yet.

    Raises TransientError for a malformed id: a truncated one may be that of another volume.
    """
    if not _ID.fullmatch(str(shown.get("VolumeId"))):
        text = f"EC2 returned a volume with a malformed id ({str(shown.get('VolumeId'))[:40]!r})."
        raise TransientError(text, code="response.malformed")
    labels = {**(tags or {}), **tags_of(shown)}
    created = shown.get("CreateTime")
    return Volume(
        id=VolumeId(shown["VolumeId"]),
        serial=serial_of(shown["VolumeId"]),
        state=state_of(shown, instance_id),
        size_bytes=int(shown.get("Size") or 0) * scale.gib_bytes,
        bandwidth_mb_s=scale.mb_s(int(shown.get("Throughput") or 0)),
        token=labels.get(CYCLE_TAG, ""),
        backing_uuid=labels.get(BACKING_TAG, ""),
        created_wall=created.timestamp() if isinstance(created, datetime) else 0.0,
        tag=tag_of(labels),
        iops=scale.iops(shown.get("Iops")),
    )


def serial_of(volume_id: str) -> Serial:
    """The serial of the guest's disk: the id without its hyphen; 20 characters, the most NVMe has."""
    return Serial(volume_id.replace("-", ""))


def id_of(serial: Serial) -> VolumeId | None:
    """The id of the volume with this serial; None for a disk that is no volume of EBS."""
    named = f"vol-{serial[3:].removeprefix('-')}" if serial.startswith("vol") else ""
    return VolumeId(named) if _ID.fullmatch(named) else None


def reserved_mb_s(shown: Mapping[str, Any], scale: Scale) -> float | None:
    """MB/s that the volume always has; None for a type other than gp3."""
    throughput = shown.get("Throughput")
    return scale.mb_s(int(throughput)) if shown.get("VolumeType") == "gp3" and throughput else None


def tags_of(shown: Mapping[str, Any]) -> dict[str, str]:
    """EC2's list of tags as a dictionary."""
    return {str(tag["Key"]): str(tag["Value"]) for tag in shown.get("Tags") or () if "Key" in tag and "Value" in tag}


def tag_of(tags: Mapping[str, str]) -> VolumeTag:
    """The value of the state tag; UNKNOWN for another value and without the tag."""
    try:
        return VolumeTag(tags.get(STATE_TAG, VolumeTag.UNKNOWN))
    except ValueError:
        return VolumeTag.UNKNOWN


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """A dictionary as EC2's list of tags, sorted: requests with the same token must be identical."""
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]


def expires(wall: float, lifetime_s: float) -> str:
    """The UTC time of the tag `elastio:expires`, rounded up to the hour.

    Requests with the same client token must have the same tags. Whole hours make a create that is repeated after a
    restart identical in nearly all cases.
    """
    hours = math.ceil((wall + lifetime_s) / 3600)
    return datetime.fromtimestamp(hours * 3600, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def first_alive(volumes: Iterable[Volume]) -> Volume | None:
    """The first that is neither deleted nor being deleted."""
    return next((v for v in volumes if v.state not in (VolumeState.DELETING, VolumeState.GONE)), None)
