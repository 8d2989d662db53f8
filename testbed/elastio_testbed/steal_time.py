"""How much of this machine's processor time its own hypervisor gave to others.

A laboratory in a virtual machine measures its neighbours, too: what they took explains a figure that does not repeat.
"""

from __future__ import annotations

from dataclasses import dataclass

import psutil

# Fields of psutil's `cpu_times` in which something was done; `guest` is contained in `user`.
WORKING = ("user", "nice", "system", "irq", "softirq")


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """Seconds since boot, over all processors: `used` here, and `steal` while something here was ready to run."""

    used: float
    steal: float

    def steal_share_since(self, before: ProcessorTime) -> float:
        """Of the time that was wanted since then, the share that was not given: 0 to 1."""
        steal = self.steal - before.steal
        wanted = self.used - before.used + steal
        return round(steal / wanted, 4) if wanted > 0 else 0.0


def processor_time() -> ProcessorTime:
    """As the kernel counts it."""
    times = psutil.cpu_times()
    return ProcessorTime(sum(getattr(times, name) for name in WORKING), times.steal)
