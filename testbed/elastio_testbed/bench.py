"""What the idle daemon costs: processor time and memory in a guest, at the default sampling interval."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from elastio_testbed.experiment import Setup
from elastio_testbed.guest.footprint import spin
from elastio_testbed.hypervisor.accel import accelerator
from elastio_testbed.image import build_guest_image
from elastio_testbed.trial import Plan, running_guest

SETTLE_S = 30


def footprint(seconds: float, suite: str | None = None) -> dict[str, Any]:
    """Percent of one processor and MiB of memory, measured over `seconds`.

    Under emulation the guest's processor is many times slower than the host's: `native_cpu_pct` is divided by
    `slowdown`, the ratio of the same Python loop's duration, and so an estimate.
    """
    image = build_guest_image(suite=suite)
    plan = Plan("demo", (Setup.ADAPTIVE,), scale=0.1)
    with running_guest(plan, Setup.ADAPTIVE, image, sample_interval_s=1) as (guest, _):
        program = resources.files("elastio_testbed.guest").joinpath("footprint.py").read_bytes()
        guest.vm.agent.write_file("/opt/testbed/footprint.py", program)
        guest.check(["systemctl", "stop", "recorder"])
        guest.check(["sleep", str(SETTLE_S)], timeout_s=SETTLE_S + 60)
        command = ["python3", "/opt/testbed/footprint.py", "elastiod", str(seconds)]
        seen = json.loads(guest.check(command, timeout_s=seconds + 120))
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
    }
