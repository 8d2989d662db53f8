"""Encrypted volumes that come to nothing, and why.

EC2 validates a KMS key after it has answered (API reference of CreateVolume: "Amazon EC2 asynchronously validates the
KMS key"): where the instance's role may not use it, the volume that was just sold fails or is gone without a reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from elastio.core.model import Volume, VolumeId, VolumeState
from elastio.errors import RefusedError

AWS_KEY = "alias/aws/ebs"  # which every principal of the account may use through EC2
GRANTS = "kms:CreateGrant, kms:Decrypt and kms:GenerateDataKeyWithoutPlaintext"
# Shorter than the agent waits for a new volume to be seen at all: eventual consistency takes seconds.
UNSEEN_S = 50.0


class Encrypted:
    """The encrypted volumes of this process that were not ready yet when they were last seen."""

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._young: dict[VolumeId, tuple[str, float]] = {}  # the key, and until when nobody need see it

    def born(self, shown: Mapping[str, Any]) -> None:
        """What CreateVolume answered; encryption by default shows in it as well."""
        if shown.get("Encrypted"):
            key = str(shown.get("KmsKeyId") or "the account's default key")
            self._young[VolumeId(str(shown["VolumeId"]))] = key, self._seconds() + UNSEEN_S

    def judge(self, volume_id: VolumeId, seen: Volume | None) -> None:
        """Raises RefusedError, once a volume, where it has failed, or was there and is no more, before it was ready."""
        if volume_id not in self._young:
            return
        key, until = self._young[volume_id]
        if seen is not None and seen.state is VolumeState.CREATING:
            self._young[volume_id] = key, 0.0
            return
        if seen is None and self._seconds() < until:
            return
        del self._young[volume_id]
        if seen is None or seen.state is VolumeState.ERROR:
            raise RefusedError(
                f"{volume_id} came to nothing while EC2 made it: it is encrypted with {key}, which the instance's role "
                f"may not be allowed to use; allow {GRANTS} on that key."
            )
