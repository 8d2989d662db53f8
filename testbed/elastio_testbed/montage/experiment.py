"""`elastio-testbed run montage`: one guest, one volume, and the workflow at each of six bandwidths."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib import resources
from typing import Any

from elastio.core.inflection import Curve
from elastio.units import MB, MIB
from elastio_testbed.bars import Asked
from elastio_testbed.conditions import observe
from elastio_testbed.console import Say
from elastio_testbed.experiment import Experiment, Scaled, Setup
from elastio_testbed.hypervisor import GuestError
from elastio_testbed.image import build_guest_image
from elastio_testbed.machine import DATA, PROGRAMS, SMALL_MIB, Guest
from elastio_testbed.montage.evaluation import (
    PROFILED,
    PUBLISHED_MBIT_S,
    SIDE,
    Run,
    bars,
    compute_s,
    curve_of,
    figures,
    mb_s,
    pixels,
    staged_bytes,
)
from elastio_testbed.trial import Plan, running_guest
from elastio_testbed.workloads.dumps import Dumps

# In an image of their own.
PACKAGES = ("montage",)
# Of the volume only the size counts: its bandwidth is set for each run.
VOLUMES = Experiment("montage", (), 0.0, 2.0, 64.0, 64.0, 1.0, Dumps())
SPEC, REPORT, WORK = "/var/tmp/montage.json", "/var/tmp/montage.report", "/dev/shm/montage"
CALL_S, PREPARE_S = 60.0, 300.0
PROGRAM = ["python3", f"{PROGRAMS}/montage.py"]


def montage_result(asked: Asked, keep: Callable[[Mapping[str, Any]], None], say: Say) -> dict[str, Any]:
    """Run it; `keep` gets the document after each run. Raises HypervisorError, ImageError."""
    scaled = Scaled(VOLUMES, 1.0, asked.bandwidth)
    plan = Plan("demo", (Setup.STATIC_SLOW,), bandwidth=asked.bandwidth, seed=asked.seed)
    # A step's files are in memory twice: the folder of the step, and pages on their way to the device.
    options = {"memory_mib": SMALL_MIB + round(staged_bytes(asked.scale, asked.bandwidth) / MIB)}
    image = build_guest_image(extra=PACKAGES, suite=asked.suite)
    runs: list[Run] = []
    found: dict[str, Any] = {}
    with running_guest(plan, Setup.STATIC_SLOW, image, scaled, **options) as (guest, _):
        conditions = asdict(observe(guest.check(["uname", "-r"])))
        _prepare(guest, asked)
        profile = _profiled(guest, asked, PROFILED, say)
        curve = curve_of(profile)
        for mbit_s in (PROFILED, *(each for each in PUBLISHED_MBIT_S if each != PROFILED)):
            document = profile if mbit_s == PROFILED else _profiled(guest, asked, mbit_s, say)
            runs.append(_run(guest, asked, mbit_s, document, curve))
            found = _document(asked, conditions, profile, runs)
            keep(found)
    return found


def _prepare(guest: Guest, asked: Asked) -> None:
    """Copy the program and make the raw images, at full speed."""
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
    guest.check([*PROGRAM, "prepare", SPEC], timeout_s=PREPARE_S)


def _profiled(guest: Guest, asked: Asked, mbit_s: int, say: Say) -> dict[str, Any]:
    """The document of `elastio profile` for the workflow at this bandwidth."""
    say(f"montage: {mbit_s} Mb/s")
    at_mb_s = mb_s(mbit_s, asked.bandwidth)
    guest.vm.set_limit(guest.serial, round(at_mb_s * MB))
    guest.check(["sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches"], timeout_s=CALL_S)
    expected_s = sum(compute_s(asked.scale, asked.bandwidth).values())
    expected_s += staged_bytes(asked.scale, asked.bandwidth) / MB / at_mb_s
    command = ["elastio", "profile", "--json", "--", *PROGRAM, "run", SPEC, REPORT]
    text = guest.check(["env", "-C", DATA, *command], timeout_s=CALL_S + 4 * expected_s)
    found: dict[str, Any] = json.loads(text)
    return found


def _run(guest: Guest, asked: Asked, mbit_s: int, profile: Mapping[str, Any], curve: Curve | None) -> Run:
    """What was measured; the report in the guest is that of the run before. Raises GuestError: nothing to predict."""
    if curve is None:
        raise GuestError(f"nothing of the workflow waited for bandwidth at {PROFILED} Mb/s")
    report = json.loads(guest.vm.agent.read_file(REPORT))
    at_mb_s = mb_s(mbit_s, asked.bandwidth)
    return Run(
        mbit_s=mbit_s,
        mb_s=round(at_mb_s, 4),
        seconds=round(profile["seconds"], 3),
        predicted_s=None if mbit_s == PROFILED else round(curve.time_s(at_mb_s), 3),
        over_s=round(sum(step["over_s"] for step in report["steps"]), 3),
        wait_classes_s=tuple(round(each, 2) for each in profile["wait_classes_s"]),
        mosaic=report["mosaic"],
    )


def _document(
    asked: Asked, conditions: Mapping[str, Any], profile: Mapping[str, Any], runs: Sequence[Run]
) -> dict[str, Any]:
    ordered = sorted(runs, key=lambda run: run.mbit_s)
    return {
        "experiment": "montage",
        **conditions,
        "scale": asked.scale,
        "bandwidth": asked.bandwidth,
        **{name: None if value is None else round(value, 3) for name, value in figures(runs).items()},
        "absent": [],
        "bars": [bar.to_json() for bar in bars(runs)],
        "runs": [run.to_json() for run in ordered],
        "profile": {
            key: profile[key] for key in ("seconds", "measured_mb_s", "account", "waited_s", "inflection_mb_s")
        },
    }
