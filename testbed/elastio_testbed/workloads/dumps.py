"""A checkpointing application that is reduced to its I/O and sleeps instead of computing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elastio_testbed.experiment import GUEST_MIB, Scaled


@dataclass(frozen=True, slots=True)
class Dumps:
    """`writers` processes, its ranks, that write their shares of each dump between two barriers."""

    writers: int = 2
    program: str = "workload"
    needs_tools: bool = False
    is_checkpointing: bool = True

    def spec(self, scaled: Scaled) -> dict[str, Any]:
        return {"ranks": self.writers, "dumps": scaled.dumps_bytes, "compute_s": scaled.compute_each_s}

    def memory_mib(self, scaled: Scaled) -> int:
        return GUEST_MIB

    def resident_mib(self, scaled: Scaled) -> int:
        return 0

    def moved_bytes(self, scaled: Scaled) -> int:
        return sum(scaled.dumps_bytes)
