"""From Cinder's picture of a volume to the agent's, and the metadata that make a volume ours. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from elastio.core.model import Serial, Volume, VolumeId, VolumeState, VolumeTag
from elastio.units import GIB

OWNER_KEY = "elastio:owner"  # the server's id
CYCLE_KEY = "elastio:cycle"
BACKING_KEY = "elastio:backing"
BANDWIDTH_KEY = "elastio:bandwidth-mb-s"  # Cinder shows a volume's type, but to a tenant not what that is worth
EXPIRES_KEY = "elastio:expires"
STATE_KEY = "elastio:state"  # what a janitor may assume; born "clean", and whatever is not clean counts as dirty
SERIAL_CHARACTERS = 20  # what virtio-blk has room for; Nova gives it the volume's id

_STATES = {
    "creating": VolumeState.CREATING,
    "downloading": VolumeState.CREATING,
    "available": VolumeState.AVAILABLE,
    "detaching": VolumeState.DETACHING,
    "deleting": VolumeState.DELETING,
}
# Nova reserves a volume before it attaches it; `in-use` is told apart by the attachments.
_TAKEN = ("reserved", "attaching", "in-use", "detaching")
FAILED_DELETE = "error_deleting"


def is_taken(shown: Mapping[str, Any]) -> bool:
    """Whether Cinder keeps this volume for some server: then its attachments tell for which one."""
    return shown.get("status") in _TAKEN


def state_of(shown: Mapping[str, Any], server_id: str, attachments: Sequence[Mapping[str, Any]] = ()) -> VolumeState:
    """The state as this server sees it. Every `error...`, and a state Cinder may add one day, counts as ERROR.

    `attachments` are Cinder's own records: the volume itself shows those only that are complete.
    """
    status = str(shown.get("status", ""))
    if status in _TAKEN:
        servers = {str(a.get("server_id")) for a in shown.get("attachments") or ()}
        servers |= {str(a.get("instance")) for a in attachments}
        if servers and server_id not in servers:
            return VolumeState.ELSEWHERE
        if status == "in-use":
            return VolumeState.ATTACHED if servers else VolumeState.ATTACHING
        return _STATES.get(status, VolumeState.ATTACHING)
    return _STATES.get(status, VolumeState.ERROR)


def volume_of(shown: Mapping[str, Any], server_id: str, attachments: Sequence[Mapping[str, Any]] = ()) -> Volume:
    """One volume of an answer."""
    labels: Mapping[str, str] = shown.get("metadata") or {}
    return Volume(
        id=VolumeId(str(shown["id"])),
        serial=serial_of(str(shown["id"])),
        state=state_of(shown, server_id, attachments),
        size_bytes=int(shown.get("size") or 0) * GIB,
        bandwidth_mb_s=_number(labels.get(BANDWIDTH_KEY)),
        token=labels.get(CYCLE_KEY, ""),
        backing_uuid=labels.get(BACKING_KEY, ""),
        created_wall=_wall(shown.get("created_at")),
        tag=tag_of(labels),
    )


def tag_of(labels: Mapping[str, str]) -> VolumeTag:
    """What the metadata say; anything else than a tag, and none at all, is unknown."""
    try:
        return VolumeTag(labels.get(STATE_KEY, VolumeTag.UNKNOWN))
    except ValueError:
        return VolumeTag.UNKNOWN


def serial_of(volume_id: str) -> Serial:
    """What the guest's disk shows: the first 20 characters of the id, hyphens included."""
    return Serial(volume_id[:SERIAL_CHARACTERS])


def name_of(token: str) -> str:
    """The volume's name. Cinder has no client token, so what was bought is found again by name and metadata."""
    return f"elastio-{token}"


def expires(wall: float, lifetime_s: float) -> str:
    """UTC time of the metadata `elastio:expires`, up to the full hour."""
    hours = math.ceil((wall + lifetime_s) / 3600)
    return datetime.fromtimestamp(hours * 3600, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _wall(created: object) -> float:
    """Cinder writes UTC without saying so; the answer to a create has microseconds, its database has none."""
    try:
        return datetime.fromisoformat(str(created)).replace(tzinfo=UTC, microsecond=0).timestamp()
    except ValueError:
        return 0.0


def _number(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0
