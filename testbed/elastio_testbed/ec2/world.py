"""The state of an endpoint, and its error responses."""

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
    """A response with an EC2 error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)


@dataclass
class World:
    """The state of one endpoint, guarded by `lock`; delays and bridge calls happen without the lock."""

    region: str
    folder: Path
    scale: Scale
    latency: Latency
    faults: Faults
    log: EventLog
    backend: LabBackend
    quota: Quota = field(default_factory=Quota)
    timers: StateTimers = field(init=False)
    changed: threading.Condition = field(init=False)
    lock: threading.RLock = field(default_factory=threading.RLock)
    bridges: dict[str, DiskBridge] = field(default_factory=dict)
    unplug_timeout_s: float = 10.0
    # EC2 completes a busy detach when the guest unmounts: the interval between the bridge's attempts.
    busy_retry_s: float = 2.0
    # Client token -> (digest of the parameters, volume id).
    tokens: dict[str, tuple[str, str]] = field(default_factory=dict)
    # Whether the `Deny` of the shipped policy applies, to every caller: volumes tagged dirty are neither detached nor
    # deleted. This is the only part of IAM here.
    guards_dirty: bool = False
    # Whether the account encrypts by default: moto keeps one value for all endpoints of the process.
    encrypts: bool = False
    # The key of volumes that name none: AWS's own, unless the account has another.
    default_key: str = "alias/aws/ebs"
    unusable_keys: set[str] = field(default_factory=set)
    maintenance: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    spot_notices: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.changed = threading.Condition(self.lock)
        self.timers = StateTimers(
            lambda transition, error: self.log.add("transition_failed", transition=transition, error=repr(error))
        )

    def backing_path(self, volume: LabVolume) -> Path:
        """The volume's sparse file."""
        return self.folder / f"{volume.id}.raw"

    def instance(self, instance_id: str) -> Instance | None:
        """The instance with this id, or None."""
        instances = (each for reservation in self.backend.reservations.values() for each in reservation.instances)
        return next((each for each in instances if each.id == instance_id), None)

    @contextmanager
    def changing(self, volume: LabVolume) -> Iterator[None]:
        """Change the state of a volume under the lock; history and log are updated."""
        with self.lock:
            before = len(volume.history)
            yield
            volume.record_state()
            if len(volume.history) > before:
                self.log.add("volume", volume=volume.id, state=volume.history[-1][1])
                self.changed.notify_all()

    def set_attachment(self, volume: LabVolume, attachment: LabAttachment, state: str) -> None:
        """Change the state of an attachment, in DescribeVolumes and DescribeInstances."""
        with self.changing(volume):
            attachment.status = state
            mapped = attachment.instance.block_device_mapping.get(attachment.device)
            if mapped is not None:
                mapped.status = state
