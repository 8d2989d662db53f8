"""Detaches that Nova has lost half-way.

Nova marks the volume `detaching` in Cinder, takes the disk from the guest, and asks Cinder to drop the attachment. When
Cinder does not answer just then, Nova gives up without taking the mark back, and refuses to detach what is `detaching`
(nova/virt/block_device.py and cinder/volume/api.py of the 2022.2 release). A tenant may take it back.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from elastio.core.model import Volume, VolumeId, VolumeState


class Detaches:
    """How long each volume has been seen `detaching`, by this process. Safe to use from several threads."""

    def __init__(self, deadline_s: float, seconds: Callable[[], float] = time.monotonic) -> None:
        self._deadline_s, self._seconds = deadline_s, seconds
        self._since: dict[VolumeId, float] = {}

    def is_stuck(self, seen: Volume) -> bool:
        """Whether this volume has been `detaching` at every look for as long as the deadline; asked at every look."""
        if seen.state is not VolumeState.DETACHING:
            self._since.pop(seen.id, None)
            return False
        return self._seconds() - self._since.setdefault(seen.id, self._seconds()) >= self._deadline_s

    def forget(self, volume_id: VolumeId) -> None:
        """Its mark was taken back: the next one counts from its own begin."""
        self._since.pop(volume_id, None)
