"""The conditions that a result was measured under."""

from __future__ import annotations

import os
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from elastio.units import GIB
from elastio_testbed.hypervisor.accel import accelerator


@dataclass(frozen=True, slots=True)
class Conditions:
    """`machine` is the host's processor, `kernel` the guests' kernel, `date` the begin of the run (ISO 8601, UTC).

    `code`: the version, and the commit of the checkout where it is one.
    """

    machine: str
    processors: int
    memory_gib: float
    accelerator: str
    kernel: str
    date: str
    code: str = ""

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
        code=code(),
    )


def code() -> str:
    """What is measured: `0.1.0, a1b2c3d4e5f6`, with `-dirty` where the checkout has changes of its own."""
    root = Path(__file__).resolve().parents[2]
    told = subprocess.run(
        ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return ", ".join(filter(None, (version("elastio"), told.stdout.strip())))


def processor_name(cpuinfo: str) -> str:
    """The first processor's name in /proc/cpuinfo's text; `unknown` where it shows none."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return " ".join(value.split())
    return "unknown"
