"""Steal time: the processor time that this machine's own hypervisor gave to other machines.

In a laboratory that is a virtual machine, it explains figures that cannot be reproduced.
"""

from __future__ import annotations

from dataclasses import dataclass

import psutil

# The fields of psutil's `cpu_times` for work; `user` includes `guest`.
WORKING = ("user", "nice", "system", "irq", "softirq")


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """Seconds since boot over all processors: time used, and steal time."""

    used: float
    steal: float

    def steal_share_since(self, before: ProcessorTime) -> float:
        """The share of steal time in the time wanted since then, from 0 to 1."""
        steal = self.steal - before.steal
        wanted = self.used - before.used + steal
        return round(steal / wanted, 4) if wanted > 0 else 0.0


def processor_time() -> ProcessorTime:
    """The kernel's counters now."""
    times = psutil.cpu_times()
    return ProcessorTime(sum(getattr(times, name) for name in WORKING), times.steal)
