"""Encrypted volumes that fail while they are created, and why.

EC2 validates a KMS key after its response (API reference of CreateVolume: "Amazon EC2 asynchronously validates the KMS
key"): if the instance's role may not use it, the new volume fails or disappears without a reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from elastio.core.model import Volume, VolumeId, VolumeState
from elastio.errors import RefusedError

AWS_KEY = "alias/aws/ebs"  # which every principal of the account may use through EC2
KEY_PERMISSIONS = "kms:CreateGrant, kms:Decrypt and kms:GenerateDataKeyWithoutPlaintext"
# Shorter than the agent waits for a new volume to be visible: eventual consistency takes seconds.
VISIBILITY_S = 50.0


class PendingEncrypted:
    """The encrypted volumes that this process created and has not seen available yet."""

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._pending: dict[VolumeId, tuple[str, float]] = {}  # the key, and until when it may be invisible

    def created(self, shown: Mapping[str, Any]) -> None:
        """Record a response of CreateVolume; it also shows encryption by default."""
        if shown.get("Encrypted"):
            key = str(shown.get("KmsKeyId") or "the account's default key")
            self._pending[VolumeId(str(shown["VolumeId"]))] = key, self._seconds() + VISIBILITY_S

    def check(self, volume_id: VolumeId, seen: Volume | None) -> None:
        """Raises RefusedError, once for each volume, if it failed or disappeared before it was available."""
        if volume_id not in self._pending:
            return
        key, until = self._pending[volume_id]
        if seen is not None and seen.state is VolumeState.CREATING:
            self._pending[volume_id] = key, 0.0
            return
        if seen is None and self._seconds() < until:
            return
        del self._pending[volume_id]
        if seen is None or seen.state is VolumeState.ERROR:
            raise RefusedError(
                f"{volume_id} failed while EC2 created it: it is encrypted with {key}, and the instance's role may not "
                f"be allowed to use that key; allow {KEY_PERMISSIONS} on it.",
                code="volume.kms-key",
            )
