"""Detaches that Nova gave up half-way.

Nova sets the volume's status in Cinder to `detaching`, removes the disk from the guest, and asks Cinder to delete the
attachment. If Cinder does not respond, Nova gives up without resetting the status, and refuses to detach a volume that
is `detaching` (nova/virt/block_device.py and cinder/volume/api.py of the 2022.2 release). A tenant may reset it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from elastio.core.model import Volume, VolumeId, VolumeState


class DetachTimer:
    """How long this process has seen each volume `detaching`. Safe to use from several threads."""

    def __init__(self, deadline_s: float, seconds: Callable[[], float] = time.monotonic) -> None:
        self._deadline_s, self._seconds = deadline_s, seconds
        self._since: dict[VolumeId, float] = {}

    def is_stuck(self, seen: Volume) -> bool:
        """Whether the volume was `detaching` in every poll for as long as the deadline. To be called in every poll."""
        if seen.state is not VolumeState.DETACHING:
            self._since.pop(seen.id, None)
            return False
        return self._seconds() - self._since.setdefault(seen.id, self._seconds()) >= self._deadline_s

    def forget(self, volume_id: VolumeId) -> None:
        """Stop the volume's timer: its status was reset."""
        self._since.pop(volume_id, None)
