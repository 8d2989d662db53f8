"""Bonnie++ as in the published micro-benchmark: three runs with pauses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elastio.units import MIB
from elastio_testbed.experiment import GUEST_MIB, Scaled, Workload

# Bonnie++ writes its file, rewrites it (reads and writes), and reads it.
PASSES = 4
# The benchmark's own six processes need this much.
LEAST_MEMORY_MIB = 48


@dataclass(frozen=True, slots=True)
class Bonnie(Workload):
    """One run for each dump of the experiment, on a file of the dump's size, with `compute_s` as the pauses.

    The published VM has 2 GB of memory and blocks of 32 KiB. A guest cannot be scaled down that far; only the benchmark
    is limited to its share of memory, page cache included, so that its file does not fit.
    """

    memory_gb: float = 2.0
    chunk_kib: int = 32
    # Bonnie++'s default number of random reads takes the same time at any size, so it is scaled with the data.
    seeks: int = 8192
    program: str = "bonnie"
    needs_tools: bool = True
    is_checkpointing: bool = False
    writers: int = 1

    def spec(self, scaled: Scaled) -> dict[str, Any]:
        return {
            "files_mib": [size // MIB for size in scaled.dumps_bytes],
            "pause_s": scaled.compute_each_s,
            "memory_mib": max(LEAST_MEMORY_MIB, scaled.bytes_of(self.memory_gb) // MIB),
            "chunk_kib": self.chunk_kib,
            "seeks": max(1, round(self.seeks * scaled.time * scaled.bandwidth)),
            "timeout_s": 120 + 4 * self.moved_bytes(scaled) / scaled.backing_bytes_s,
        }

    def memory_mib(self, scaled: Scaled) -> int:
        return GUEST_MIB + scaled.bytes_of(self.memory_gb) // MIB

    def moved_bytes(self, scaled: Scaled) -> int:
        return PASSES * sum(scaled.dumps_bytes)
