"""A checkpointing application that is reduced to its I/O and sleeps instead of computing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elastio_testbed.experiment import Scaled, Workload


@dataclass(frozen=True, slots=True)
class Dumps(Workload):
    """`writers` processes, its ranks, that write their shares of each dump between two barriers."""

    writers: int = 2
    program: str = "workload"
    needs_tools: bool = False
    is_checkpointing: bool = True

    def spec(self, scaled: Scaled) -> dict[str, Any]:
        return {"ranks": self.writers, "dumps": scaled.dumps_bytes, "compute_s": scaled.compute_each_s}
