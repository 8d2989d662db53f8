"""What a set-up asks of its cloud besides guests: which volumes were bought, of what size, for how long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from elastio_testbed.ec2 import Scale


class Purchase(Protocol):
    """One volume's life so far; times in seconds of the Unix epoch.

    `history` holds (when, state) as far as the cloud knows it: creating, available, in-use/attaching,
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
        """None while it is there."""
        ...

    @property
    def history(self) -> Sequence[tuple[float, str]]: ...


class Billing(Protocol):
    """The volumes of one set-up, as the cloud has them."""

    @property
    def scale(self) -> Scale:
        """What a GiB and a MiB/s of the cloud's API are worth."""
        ...

    def volumes(self) -> Sequence[Purchase]:
        """Every volume that was bought for a cache, deleted ones too."""
        ...

    def live_volumes(self) -> Sequence[object]:
        """Those of them that are paid for now."""
        ...

    def settle(self, timeout_s: float) -> None:
        """Wait until no volume is between two states. Raises TimeoutError."""
        ...
