"""The life cycle of a volume: create and delete."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from elastio_testbed.ec2.faults import Fault, FaultKind
from elastio_testbed.ec2.limits import Refusal, refuse_gp3, refuse_quota
from elastio_testbed.ec2.store import LabVolume, VolumeState
from elastio_testbed.ec2.world import ApiError, World

_VOLUME_ID = re.compile(r"vol-[0-9a-f]{8,17}")
# The values of a gp3 volume whose request omits them.
GP3_IOPS, GP3_MIB_S = 3_000, 125


@dataclass(frozen=True)
class NewVolume:
    """The parameters of CreateVolume for a gp3 volume."""

    size_gib: int
    zone: str
    iops: int
    throughput_mib_s: int
    encrypted: bool
    tags: Mapping[str, str]
    kms_key_id: str | None = None


def raise_refusal(refusal: Refusal | None) -> None:
    """Raise the refusal as ApiError, if there is one."""
    if refusal is not None:
        raise ApiError(refusal.code, refusal.message)


def find(world: World, volume_id: str) -> LabVolume:
    """The volume with that id. Raises ApiError InvalidVolume.NotFound, also for a volume that is not yet visible."""
    if not _VOLUME_ID.fullmatch(volume_id):
        text = f"Value ({volume_id}) for parameter volumeId is invalid. Expected: 'vol-...'."
        raise ApiError("InvalidParameterValue", text)
    volume = world.backend.volumes.get(volume_id)
    if not isinstance(volume, LabVolume) or not volume.visible:
        raise ApiError("InvalidVolume.NotFound", f"The volume '{volume_id}' does not exist.")
    return volume


def digest_of(parameters: Mapping[str, object]) -> str:
    """The parameters that must not change for one client token: all but the token and DryRun."""
    kept = {name: value for name, value in parameters.items() if name not in ("ClientToken", "DryRun")}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()


def check_new(world: World, wanted: NewVolume) -> None:
    """Check the parameters as EC2 does before it creates a volume. Raises ApiError."""
    if world.backend.get_zone_by_name(wanted.zone) is None:
        raise ApiError("InvalidZone.NotFound", f"The zone '{wanted.zone}' does not exist.")
    raise_refusal(refuse_gp3(wanted.size_gib, wanted.iops, wanted.throughput_mib_s))
    # The quota is checked before the token: a repeated create at the limit is refused, as on EC2.
    raise_refusal(refuse_quota(world.quota, world.backend.lab_volumes(), wanted.size_gib))


def create(world: World, wanted: NewVolume, token: str | None, digest: str) -> LabVolume:
    """Start creating a volume, or return the one already created with this token. Raises ApiError."""
    if token is not None and token in world.tokens:
        return _made_before(world, token, digest)
    volume = make(world, wanted)
    volume.lab_state, volume.visible = VolumeState.CREATING, False
    volume.history.clear()
    with world.changing(volume):
        if token is not None:
            world.tokens[token] = (digest, volume.id)
    failing = world.faults.take("CreateVolume", {FaultKind.CREATE_ERROR}) is not None
    # EC2 checks the key after it has answered, and reports no reason.
    is_key_unusable = wanted.encrypted and wanted.kms_key_id in world.unusable_keys
    world.timers.after(world.latency.draw("visible"), "visible", lambda: _show(world, volume))
    delay_s = world.latency.draw("create") + extra_delay_s(world, "CreateVolume")
    finish = _finish_delete if is_key_unusable else partial(_finish_create, failing=failing)
    world.timers.after(delay_s, "create", lambda: finish(world, volume))
    return volume


def make(world: World, wanted: NewVolume) -> LabVolume:
    """A volume in state available, without its file."""
    volume = world.backend.create_volume(
        size=wanted.size_gib,
        zone_name=wanted.zone,
        volume_type="gp3",
        iops=wanted.iops,
        throughput=wanted.throughput_mib_s,
        encrypted=wanted.encrypted,
        kms_key_id=wanted.kms_key_id,
    )
    volume.add_tags(dict(wanted.tags))
    return volume


def make_backing(world: World, volume: LabVolume) -> None:
    """Create the volume's sparse file. Raises OSError."""
    with world.backing_path(volume).open("ab") as backing:
        backing.truncate(int(volume.size) * world.scale.gib_bytes)


def extra_delay_s(world: World, action: str) -> float:
    """The seconds that faults add to the transition started by `action`."""
    fault: Fault | None = world.faults.take(action, {FaultKind.SLOW})
    return fault.seconds if fault else 0.0


def _made_before(world: World, token: str, digest: str) -> LabVolume:
    known_digest, volume_id = world.tokens[token]
    if known_digest != digest:
        text = "The client token you have provided was used with other parameters."
        raise ApiError("IdempotentParameterMismatch", text)
    return world.backend.known_volume(volume_id)


def _show(world: World, volume: LabVolume) -> None:
    with world.lock:
        volume.visible = True


def _finish_create(world: World, volume: LabVolume, failing: bool) -> None:
    try:
        if not failing:
            make_backing(world, volume)
    except OSError:
        failing = True
        raise
    finally:
        with world.changing(volume):
            volume.lab_state = VolumeState.ERROR if failing else VolumeState.AVAILABLE


def authorize_taking(world: World, volume: LabVolume) -> None:
    """Raises ApiError where the shipped policy denies detaching and deleting this volume."""
    if world.guards_dirty and volume.tag_map.get("elastio:state") == "dirty":
        raise ApiError("UnauthorizedOperation", "You are not authorized to perform this operation: explicit deny.")


def delete(world: World, volume: LabVolume) -> None:
    """Start deleting a volume. Raises ApiError when its state does not allow it."""
    if volume.attachment is not None:
        text = f"Volume {volume.id} is currently attached to {volume.attachment.instance.id}"
        raise ApiError("VolumeInUse", text)
    if volume.lab_state not in (VolumeState.AVAILABLE, VolumeState.ERROR):
        raise ApiError("IncorrectState", f"The volume '{volume.id}' is '{volume.status}'.")
    with world.changing(volume):
        volume.lab_state = VolumeState.DELETING
    delay_s = world.latency.draw("delete") + extra_delay_s(world, "DeleteVolume")
    world.timers.after(delay_s, "delete", lambda: _finish_delete(world, volume))


def _finish_delete(world: World, volume: LabVolume) -> None:
    world.backing_path(volume).unlink(missing_ok=True)
    with world.changing(volume):
        world.backend.mark_deleted(volume)
