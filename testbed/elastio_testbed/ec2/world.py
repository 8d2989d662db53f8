"""Everything an endpoint knows, and the errors it answers with."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instances import Instance

from elastio_testbed.ec2.bridge import DiskBridge, Scale
from elastio_testbed.ec2.faults import Faults
from elastio_testbed.ec2.latency import Latency
from elastio_testbed.ec2.limits import Quota
from elastio_testbed.ec2.log import EventLog
from elastio_testbed.ec2.store import LabAttachment, LabBackend, LabVolume
from elastio_testbed.ec2.timers import StateTimers


class ApiError(EC2ClientError):
    """An answer with an EC2 error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)


@dataclass
class World:
    """The state of one endpoint. `lock` guards all of it; no delay and no bridge call happens under it."""

    region: str
    folder: Path
    scale: Scale
    latency: Latency
    faults: Faults
    log: EventLog
    backend: LabBackend
    quota: Quota
    timers: StateTimers = field(init=False)
    changed: threading.Condition = field(init=False)
    lock: threading.RLock = field(default_factory=threading.RLock)
    bridges: dict[str, DiskBridge] = field(default_factory=dict)
    unplug_timeout_s: float = 10.0
    # EC2 completes a busy detach when the guest unmounts: the bridge is asked again this often.
    busy_retry_s: float = 2.0
    # Client token -> (digest of the parameters, volume id).
    tokens: dict[str, tuple[str, str]] = field(default_factory=dict)
    # Whether the one `Deny` of the shipped policy holds, for everybody: what is marked dirty is not taken away.
    guards_dirty: bool = False
    # Whether the account encrypts by default: moto keeps this for all endpoints of the process together.
    encrypts: bool = False
    # The key of volumes that name none: AWS's own, unless the account has chosen another.
    default_key: str = "alias/aws/ebs"
    unusable_keys: set[str] = field(default_factory=set)
    maintenance: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    spot_notices: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.changed = threading.Condition(self.lock)
        self.timers = StateTimers(
            lambda name, error: self.log.add("transition_failed", transition=name, error=repr(error))
        )

    def _note_failure(self, transition: str, error: Exception) -> None:
        self.log.add("transition_failed", transition=transition, error=repr(error))

    def backing_path(self, volume: LabVolume) -> Path:
        """The sparse file behind a volume."""
        return self.folder / f"{volume.id}.raw"

    def instance(self, instance_id: str) -> Instance | None:
        """The instance with this id, or None."""
        instances = (each for reservation in self.backend.reservations.values() for each in reservation.instances)
        return next((each for each in instances if each.id == instance_id), None)

    @contextmanager
    def changing(self, volume: LabVolume) -> Iterator[None]:
        """Change the state of a volume: under the lock, with history and log kept."""
        with self.lock:
            before = len(volume.history)
            yield
            volume.record_state()
            if len(volume.history) > before:
                self.log.add("volume", volume=volume.id, state=volume.history[-1][1])
                self.changed.notify_all()

    def set_attachment(self, volume: LabVolume, attachment: LabAttachment, state: str) -> None:
        """Move an attachment on, in DescribeVolumes and DescribeInstances alike."""
        with self.changing(volume):
            attachment.status = state
            mapped = attachment.instance.block_device_mapping.get(attachment.device)
            if mapped is not None:
                mapped.status = state
