"""What the simulated devices have moved."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Traffic:
    """Cumulative bytes of one block device."""

    read: int = 0
    written: int = 0


@dataclass(slots=True)
class Traffics:
    """Cumulative bytes of the three devices, as /proc/diskstats counts them."""

    adaptive: Traffic = field(default_factory=Traffic)
    backing: Traffic = field(default_factory=Traffic)
    cache: Traffic = field(default_factory=Traffic)
