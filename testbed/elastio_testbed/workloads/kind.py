"""What the laboratory asks of an application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from elastio_testbed.experiment import Scaled

# What a guest of the laboratory has without anything of the application's own.
GUEST_MIB = 1536


class Workload(Protocol):
    """One application, sized for a guest by a scaled experiment.

    `program` is a module of `elastio_testbed.guest` that understands `run SPEC REPORT` and `verify SPEC`, as told in
    `guest/reporting.py`. `needs_tools`: it uses packages that the everyday guest image lacks. `is_checkpointing`: it
    computes without I/O and writes dumps of the experiment's sizes, one after the other, and nothing else.
    """

    @property
    def program(self) -> str: ...

    @property
    def needs_tools(self) -> bool: ...

    @property
    def is_checkpointing(self) -> bool: ...

    @property
    def writers(self) -> int:
        """How many of its processes write a dump at once."""
        ...

    def spec(self, scaled: Scaled) -> dict[str, Any]:
        """What the program in the guest is told, beside `directory` and `seed`."""
        ...

    def memory_mib(self, scaled: Scaled) -> int:
        """Memory of one guest, the same in every set-up."""
        ...

    def resident_mib(self, scaled: Scaled) -> int:
        """Of that memory, what its processes keep for their data."""
        ...

    def moved_bytes(self, scaled: Scaled) -> int:
        """Bytes read and written by one guest over the whole run: no set-up is slower than these at backing speed."""
        ...
