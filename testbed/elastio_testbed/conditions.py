"""The conditions of a measurement."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from elastio.units import GIB
from elastio_testbed.hypervisor import chosen_accelerator, chosen_hypervisor
from elastio_testbed.image.debian import chosen_suite


@dataclass(frozen=True, slots=True)
class Conditions:
    """`machine` is the host's processor, `hypervisor` what the guests are on, `kernel` their kernel.

    `date`: the start of the run (ISO 8601, UTC). `code`: the version, and the commit if the code is a checkout.
    """

    machine: str
    processors: int
    memory_gib: float
    hypervisor: str
    accelerator: str
    kernel: str
    date: str
    code: str = ""


def observe(kernel: str, hypervisor: str | None = None) -> Conditions:
    """The conditions of this machine now; `hypervisor` None: the chosen one."""
    return Conditions(
        machine=processor_name(Path("/proc/cpuinfo").read_text()),
        processors=os.cpu_count() or 1,
        memory_gib=round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIB, 1),
        hypervisor=chosen_hypervisor(hypervisor),
        accelerator=chosen_accelerator(hypervisor),
        kernel=kernel,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        code=code(),
    )


def guests_on(suite: str | None) -> dict[str, str]:
    """What guests are on, and their release of Debian, for a result's document. Raises HypervisorError, ImageError."""
    return {"hypervisor": chosen_hypervisor(), "suite": chosen_suite(suite)}


def code() -> str:
    """The measured code: `0.1.0, a1b2c3d4e5f6`, with `-dirty` if the checkout has uncommitted changes."""
    root = Path(__file__).resolve().parents[2]
    described = subprocess.run(
        ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return ", ".join(filter(None, (version("elastio"), described.stdout.strip())))


def processor_name(cpuinfo: str) -> str:
    """The name of the first processor in the text of /proc/cpuinfo, or `unknown`."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return " ".join(value.split())
    return "unknown"
