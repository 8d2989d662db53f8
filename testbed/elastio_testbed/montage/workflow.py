"""The workflow in a guest: its program, its images, and one run of it."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from elastio.units import MB, MIB
from elastio_testbed.bars import Asked
from elastio_testbed.machine import DATA, PROGRAMS, SMALL_MIB, Guest
from elastio_testbed.montage.evaluation import SIDE, compute_s, pixels, staged_bytes

SPEC, REPORT, WORK = "/var/tmp/montage.json", "/var/tmp/montage.report", "/dev/shm/montage"
CALL_S, PREPARE_S = 60.0, 300.0
RUN = ["python3", f"{PROGRAMS}/montage.py", "run", SPEC, REPORT]


def memory_mib(asked: Asked) -> int:
    """A step's files are in memory twice: in the folder of the step, and as pages on their way to the device."""
    return SMALL_MIB + round(staged_bytes(asked.scale, asked.bandwidth) / MIB)


def limit_s(asked: Asked, at_mb_s: float) -> float:
    """Timeout of one run at this bandwidth."""
    data_s = staged_bytes(asked.scale, asked.bandwidth) / MB / at_mb_s
    return CALL_S + 4 * (sum(compute_s(asked.scale, asked.bandwidth).values()) + data_s)


def prepare(guest: Guest, asked: Asked) -> None:
    """Copy the program and make the raw images, at full speed; the limit is that of the set-up then."""
    spec = {
        "directory": DATA,
        "work": WORK,
        "side": SIDE,
        "pixels": pixels(asked.scale, asked.bandwidth),
        "compute_s": compute_s(asked.scale, asked.bandwidth),
        "timeout_s": PREPARE_S,
    }
    text = resources.files("elastio_testbed.guest").joinpath("montage.py").read_bytes()
    guest.vm.agent.write_file(f"{PROGRAMS}/montage.py", text)
    guest.vm.agent.write_file(SPEC, json.dumps(spec).encode())
    guest.check(["systemctl", "stop", "recorder"], timeout_s=CALL_S)
    guest.vm.set_limit(guest.serial, None)
    guest.check(["python3", f"{PROGRAMS}/montage.py", "prepare", SPEC], timeout_s=PREPARE_S)
    guest.vm.set_limit(guest.serial, guest.cap_bytes_s)


def forget_pages(guest: Guest) -> None:
    """Let the next run read everything from the device."""
    guest.check(["sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches"], timeout_s=CALL_S)


def report(guest: Guest) -> dict[str, Any]:
    """That of the run before."""
    found: dict[str, Any] = json.loads(guest.vm.agent.read_file(REPORT))
    return found
