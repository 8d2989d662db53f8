"""The purchases of a set-up, as its cloud reports them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from elastio_testbed.ec2 import Purchase, Scale


class Billing(Protocol):
    """The cache volumes of one set-up."""

    @property
    def scale(self) -> Scale:
        """The real size of a GiB and a MiB/s of the cloud's API."""

    def volumes(self) -> Sequence[Purchase]:
        """Every cache volume that was bought, including deleted ones."""

    def live_volumes(self) -> Sequence[object]:
        """The volumes that are billed now."""

    def settle(self, timeout_s: float) -> None:
        """Wait until no volume is between two states. Raises TimeoutError."""
