"""The purchases of a set-up, as its cloud reports them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from elastio_testbed.ec2 import Scale


class Purchase(Protocol):
    """One volume. Times are seconds of the Unix epoch.

    `history` has (time, state) as far as the cloud records it: creating, available, in-use/attaching,
    in-use/attached, deleted.
    """

    @property
    def id(self) -> str: ...

    @property
    def serial(self) -> str: ...

    @property
    def size_gib(self) -> int: ...

    @property
    def throughput_mib_s(self) -> float: ...

    @property
    def created_at(self) -> float: ...

    @property
    def deleted_at(self) -> float | None:
        """None while the volume exists."""
        ...

    @property
    def history(self) -> Sequence[tuple[float, str]]: ...


class Billing(Protocol):
    """The cache volumes of one set-up."""

    @property
    def scale(self) -> Scale:
        """The real size of a GiB and a MiB/s of the cloud's API."""
        ...

    def volumes(self) -> Sequence[Purchase]:
        """Every cache volume that was bought, including deleted ones."""
        ...

    def live_volumes(self) -> Sequence[object]:
        """The volumes that are billed now."""
        ...

    def settle(self, timeout_s: float) -> None:
        """Wait until no volume is between two states. Raises TimeoutError."""
        ...
