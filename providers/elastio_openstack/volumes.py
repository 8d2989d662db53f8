"""Turns Cinder's description of a volume into the agent's; the metadata that make a volume ours. Pure."""

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
BANDWIDTH_KEY = "elastio:bandwidth-mb-s"  # Cinder shows a tenant the volume's type, but not its bandwidth
EXPIRES_KEY = "elastio:expires"
STATE_KEY = "elastio:state"  # what a janitor may assume; "clean" when created, and any other value counts as dirty
SERIAL_CHARACTERS = 20  # of virtio-blk's serial, which Nova sets to the volume's id

_STATES = {
    "creating": VolumeState.CREATING,
    "downloading": VolumeState.CREATING,
    "available": VolumeState.AVAILABLE,
    "detaching": VolumeState.DETACHING,
    "deleting": VolumeState.DELETING,
}
# Nova reserves a volume before it attaches it; the attachments of an `in-use` one show where it is.
_TAKEN = ("reserved", "attaching", "in-use", "detaching")
FAILED_DELETE = "error_deleting"


def is_taken(shown: Mapping[str, Any]) -> bool:
    """Whether the volume is reserved for, or attached to, some server; its attachments show which."""
    return shown.get("status") in _TAKEN


def state_of(shown: Mapping[str, Any], server_id: str, attachments: Sequence[Mapping[str, Any]] = ()) -> VolumeState:
    """The state as this server sees it. Every `error...` and every unknown state counts as ERROR.

    `attachments` are Cinder's own records: the volume itself shows only complete ones.
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
    """One volume of a response."""
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
    """The value of the state key; UNKNOWN for another value and without the key."""
    try:
        return VolumeTag(labels.get(STATE_KEY, VolumeTag.UNKNOWN))
    except ValueError:
        return VolumeTag.UNKNOWN


def serial_of(volume_id: str) -> Serial:
    """The serial of the guest's disk: the first 20 characters of the id, including hyphens."""
    return Serial(volume_id[:SERIAL_CHARACTERS])


def name_of(token: str) -> str:
    """The volume's name. Cinder has no client token: name and metadata identify what a token bought."""
    return f"elastio-{token}"


def expires(wall: float, lifetime_s: float) -> str:
    """The UTC time of the metadata `elastio:expires`, rounded up to the hour."""
    hours = math.ceil((wall + lifetime_s) / 3600)
    return datetime.fromtimestamp(hours * 3600, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _wall(created: object) -> float:
    """Cinder's times are UTC without a zone. The response to a create has microseconds, its database has none."""
    try:
        return datetime.fromisoformat(str(created)).replace(tzinfo=UTC, microsecond=0).timestamp()
    except ValueError:
        return 0.0


def _number(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0
