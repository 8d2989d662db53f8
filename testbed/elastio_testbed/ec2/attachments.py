"""The life cycle of an attachment: attach and detach."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from moto.ec2.models.instances import Instance

from elastio.units import MIB
from elastio_testbed.ec2.faults import FaultKind
from elastio_testbed.ec2.limits import max_attachments, refuse_device
from elastio_testbed.ec2.store import AttachmentState, LabAttachment, LabVolume, VolumeState
from elastio_testbed.ec2.volumes import extra_delay_s, raise_refusal
from elastio_testbed.ec2.world import ApiError, World


def attach(world: World, volume: LabVolume, instance: Instance, device: str) -> LabAttachment:
    """Start attaching. Raises ApiError where EC2 refuses."""
    _check_attach(world, volume, instance, device)
    attachment = world.backend.attach_volume(volume.id, instance.id, device)
    world.set_attachment(volume, attachment, AttachmentState.ATTACHING)
    delay_s = world.latency.draw("attach") + extra_delay_s(world, "AttachVolume")
    stuck = world.faults.take("AttachVolume", {FaultKind.STUCK_ATTACHING})
    if stuck is None:
        world.timers.after(delay_s, "attach", partial(_finish_attach, world, volume, attachment))
    elif stuck.seconds:
        # Not counted: `settle` does not wait for a stuck transition.
        finish = partial(_finish_attach, world, volume, attachment)
        world.timers.after(stuck.seconds, "attach", finish, counted=False)
    return attachment


def _check_attach(world: World, volume: LabVolume, instance: Instance, device: str) -> None:
    raise_refusal(refuse_device(device))
    if volume.attachment is not None:
        raise ApiError("VolumeInUse", f"{volume.id} is already attached to an instance")
    if volume.lab_state is not VolumeState.AVAILABLE:
        raise ApiError("IncorrectState", f"Volume '{volume.id}' is not 'available'.")
    if volume.availability_zone != instance.availability_zone:
        text = f"The volume '{volume.id}' is not in the same availability zone as instance '{instance.id}'"
        raise ApiError("InvalidVolume.ZoneMismatch", text)
    if device in instance.block_device_mapping:
        text = f"Invalid value '{device}' for unixDevice. Attachment point {device} is already in use"
        raise ApiError("InvalidParameterValue", text)
    limit = max_attachments(world.backend.describe_instance_types([instance.instance_type]))
    if len(instance.block_device_mapping) >= limit:
        text = f"The instance '{instance.id}' already has the maximum of {limit} attachments."
        raise ApiError("AttachmentLimitExceeded", text)


def _finish_attach(world: World, volume: LabVolume, attachment: LabAttachment) -> None:
    """Plug the disk; then the state is `attached`. After a bridge failure it stays `attaching`, as on EC2."""
    with volume.bridge_lock:
        with world.lock:
            if volume.attachment is not attachment or attachment.state is not AttachmentState.ATTACHING:
                return
            bridge = world.bridges.get(attachment.instance.id)
            bytes_per_second = volume.throughput_mib_s * world.scale.mib_s_bytes
            iops = volume.iops and round(volume.iops * world.scale.mib_s_bytes / MIB)
            attachment.plug_tried = bridge is not None
        if bridge is not None:
            path = world.backing_path(volume)
            bridge.plug(volume.serial, path, bytes_per_second=bytes_per_second, iops=iops)
            world.log.add("bridge", volume=volume.id, instance=attachment.instance.id, did="plug")
        with world.lock:
            attachment.plugged = bridge is not None
            if attachment.state is AttachmentState.ATTACHING:  # no detach was requested meanwhile
                world.set_attachment(volume, attachment, AttachmentState.ATTACHED)


def detach(world: World, volume: LabVolume, instance_id: str | None, device: str | None) -> LabAttachment:
    """Start detaching; retry where the attachment is `busy`. Raises ApiError where EC2 refuses."""
    attachment = volume.lab_attachment
    if attachment is None or attachment.state is AttachmentState.DETACHING:
        state = volume.status if attachment is None else attachment.state
        raise ApiError("IncorrectState", f"Volume '{volume.id}' is in the '{state}' state.")
    if instance_id not in (None, attachment.instance.id) or device not in (None, attachment.device):
        text = f"The volume '{volume.id}' is not attached to instance '{instance_id}' as device '{device}'."
        raise ApiError("InvalidAttachment.NotFound", text)
    world.set_attachment(volume, attachment, AttachmentState.DETACHING)
    delay_s = world.latency.draw("detach") + extra_delay_s(world, "DetachVolume")
    stuck = world.faults.take("DetachVolume", {FaultKind.STUCK_DETACHING})
    if stuck is None:
        world.timers.after(delay_s, "detach", partial(_finish_detach, world, volume, attachment))
    else:
        world.timers.after(delay_s, "detach", partial(_become_busy, world, volume, attachment, stuck.seconds))
    return attachment


def _become_busy(world: World, volume: LabVolume, attachment: LabAttachment, retry_s: float) -> None:
    with world.lock:
        if volume.attachment is not attachment:
            return
        world.set_attachment(volume, attachment, AttachmentState.BUSY)
        if not retry_s or attachment.retrying:
            return
        attachment.retrying = True

    def retry() -> None:
        attachment.retrying = False
        _finish_detach(world, volume, attachment)

    world.timers.after(retry_s, "detach", retry, counted=False)


def _finish_detach(world: World, volume: LabVolume, attachment: LabAttachment) -> None:
    with volume.bridge_lock:
        if volume.attachment is not attachment:
            return
        try:
            _unplug(world, volume, attachment)
        except Exception as error:
            # Whatever the bridge raised: the guest still has the disk.
            world.log.add("transition_failed", transition="detach", volume=volume.id, error=repr(error))
            _become_busy(world, volume, attachment, world.busy_retry_s)
            return
        _release(world, volume, attachment)


def tear_off(world: World, volume: LabVolume, pull: Callable[[str], None]) -> None:
    """Remove an attached volume from its machine without a request, between two I/O requests.

    `pull` removes the disk with that serial. While the machine keeps the dead device the attachment is `busy`.
    """
    with volume.bridge_lock:
        attachment = volume.lab_attachment
        if attachment is None or attachment.state is not AttachmentState.ATTACHED:
            raise ValueError(f"{volume.id} is not attached")
        world.set_attachment(volume, attachment, AttachmentState.DETACHING)
        try:
            pull(volume.serial)
        except Exception as error:
            # The disk is dead nevertheless; continue as with any detach that the guest delays.
            world.log.add("transition_failed", transition="tear_off", volume=volume.id, error=repr(error))
            _become_busy(world, volume, attachment, world.busy_retry_s)
            return
        world.log.add("bridge", volume=volume.id, instance=attachment.instance.id, did="tear off")
        _release(world, volume, attachment)


def _unplug(world: World, volume: LabVolume, attachment: LabAttachment) -> None:
    """Unplug the disk, if it may be plugged. Raises what the bridge raises."""
    bridge = world.bridges.get(attachment.instance.id)
    if bridge is None or not attachment.plug_tried:
        return
    try:
        bridge.unplug(volume.serial, world.unplug_timeout_s)
    except Exception:
        if attachment.plugged:
            raise
        world.log.add("bridge", volume=volume.id, instance=attachment.instance.id, did="nothing to unplug")
        return
    world.log.add("bridge", volume=volume.id, instance=attachment.instance.id, did="unplug")


def _release(world: World, volume: LabVolume, attachment: LabAttachment) -> None:
    """End the attachment; the volume is available again."""
    with world.changing(volume):
        attachment.instance.block_device_mapping.pop(attachment.device, None)
        volume.attachment = None


def leave(world: World, volume: LabVolume) -> None:
    """End the attachment of a volume whose machine is gone: there is nobody who could hold the disk."""
    with volume.bridge_lock:
        attachment = volume.lab_attachment
        if attachment is None:
            return
        _unplug(world, volume, attachment)
        _release(world, volume, attachment)
