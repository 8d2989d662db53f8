"""What the idle daemon costs: processor time and memory in a guest, at the default sampling interval."""

from __future__ import annotations

import json
import statistics
from importlib import resources
from typing import Any

from elastio_testbed.experiment import Setup
from elastio_testbed.guest.footprint import spin
from elastio_testbed.hypervisor.qemu.accel import accelerator
from elastio_testbed.image import build_guest_image
from elastio_testbed.machine import PROGRAMS, Guest
from elastio_testbed.trial import Plan, running_guest

SETTLE_S = 30
# Starts of the daemon of each kind: what one of them takes differs by some tenths of a MiB from another's.
STARTS = 3
START_S = 120
DROP_IN = "/run/systemd/system/elastiod.service.d/unlogged.conf"
UNLOGGED = f"[Service]\nExecStart=\nExecStart=/usr/bin/python3 -I {PROGRAMS}/unlogged_daemon.py\n"


def footprint(seconds: float, suite: str | None = None) -> dict[str, Any]:
    """Percent of one processor and MiB of memory, measured over `seconds`.

    Under emulation the guest's processor is many times slower than the host's: `native_cpu_pct` is divided by
    `slowdown`, the ratio of the same Python loop's duration, and so an estimate. `event_log_mib` is what the event log
    takes: the difference between the medians of several starts with it and without it.
    """
    image = build_guest_image(suite=suite)
    plan = Plan("demo", (Setup.ADAPTIVE,), scale=0.1)
    with running_guest(plan, Setup.ADAPTIVE, image, sample_interval_s=1) as (guest, _):
        for name in ("footprint", "unlogged_daemon"):
            program = resources.files("elastio_testbed.guest").joinpath(f"{name}.py").read_bytes()
            guest.vm.agent.write_file(f"{PROGRAMS}/{name}.py", program)
        guest.check(["systemctl", "stop", "recorder"])
        guest.check(["sleep", str(SETTLE_S)], timeout_s=SETTLE_S + 60)
        seen = _measured(guest, seconds)
        with_log, without = _with_and_without_log(guest)
    slowdown = seen["spin_s"] / spin()
    cpu_pct = seen["cpu_s"] / seen["seconds"] * 100
    return {
        "accelerator": accelerator(),
        "seconds": round(seen["seconds"], 1),
        "processes": seen["processes"],
        "pss_mib": round(seen["pss_mib"], 1),
        "guest_cpu_pct": round(cpu_pct, 2),
        "slowdown": round(slowdown, 1),
        "native_cpu_pct": round(cpu_pct / slowdown, 2),
        "pss_with_event_log_mib": [round(mib, 2) for mib in with_log],
        "pss_without_event_log_mib": [round(mib, 2) for mib in without],
        "event_log_mib": round(statistics.median(with_log) - statistics.median(without), 2),
    }


def _measured(guest: Guest, seconds: float) -> dict[str, Any]:
    command = ["python3", f"{PROGRAMS}/footprint.py", "elastiod", str(seconds)]
    found: dict[str, Any] = json.loads(guest.check(command, timeout_s=seconds + 120))
    return found


def _with_and_without_log(guest: Guest) -> tuple[list[float], list[float]]:
    """MiB after each of several starts, in turns: with the event log, and without it."""
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(STARTS):
        for sizes, text in zip(found, ("", UNLOGGED), strict=True):
            guest.vm.agent.write_file(DROP_IN, text.encode())
            guest.check(["systemctl", "daemon-reload"], timeout_s=START_S)
            guest.check(["systemctl", "restart", "elastiod"], timeout_s=START_S)
            guest.wait_for(lambda status: status["owned"] is not None, START_S, "the cloud to be asked")
            sizes.append(_measured(guest, SETTLE_S)["pss_mib"])
    return found
