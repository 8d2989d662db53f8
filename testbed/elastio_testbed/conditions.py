"""The conditions that a result was measured under."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from elastio.units import GIB
from elastio_testbed.hypervisor.accel import accelerator


@dataclass(frozen=True, slots=True)
class Conditions:
    """`machine` is the host's processor, `kernel` the guests' kernel, `date` the begin of the run (ISO 8601, UTC)."""

    machine: str
    processors: int
    memory_gib: float
    accelerator: str
    kernel: str
    date: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def observe(kernel: str) -> Conditions:
    """This machine, now."""
    return Conditions(
        machine=processor_name(Path("/proc/cpuinfo").read_text()),
        processors=os.cpu_count() or 1,
        memory_gib=round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIB, 1),
        accelerator=accelerator(),
        kernel=kernel,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def processor_name(cpuinfo: str) -> str:
    """The first processor's name in /proc/cpuinfo's text; `unknown` where it shows none."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return " ".join(value.split())
    return "unknown"
