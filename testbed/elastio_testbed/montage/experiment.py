"""`elastio-testbed run montage`: the workflow at six bandwidths of a static volume, then on an adaptive device."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from elastio.strategy.bandwidth import Curve
from elastio.units import MB
from elastio_testbed.bars import Asked
from elastio_testbed.conditions import observe
from elastio_testbed.console import Say
from elastio_testbed.experiment import Setup
from elastio_testbed.hypervisor import GuestError
from elastio_testbed.image import GuestImage, build_guest_image
from elastio_testbed.machine import DATA, Guest
from elastio_testbed.montage import workflow
from elastio_testbed.montage.adaptive import run_adaptive, volumes
from elastio_testbed.montage.evaluation import (
    PROFILED,
    PUBLISHED_MBIT_S,
    STOP_GAIN,
    Found,
    Run,
    bars,
    curve_of,
    figures,
    mb_s,
)
from elastio_testbed.trial import Plan, running_guest

# In an image of their own.
PACKAGES = ("montage",)


def montage_result(asked: Asked, keep: Callable[[Mapping[str, Any]], None], say: Say) -> dict[str, Any]:
    """Run it; `keep` gets the document after each run. Raises HypervisorError, ImageError."""
    image = build_guest_image(extra=PACKAGES, suite=asked.suite)
    document: dict[str, Any] = {}

    def noted(found: Found, conditions: Mapping[str, Any]) -> None:
        nonlocal document
        document = _document(asked, conditions, found)
        keep(document)

    found, conditions = _static(asked, image, noted, say)
    noted(replace(found, adaptive=run_adaptive(asked, image, say)), conditions)
    return document


def _static(
    asked: Asked, image: GuestImage, noted: Callable[[Found, Mapping[str, Any]], None], say: Say
) -> tuple[Found, Mapping[str, Any]]:
    plan = Plan("demo", (Setup.STATIC_SLOW,), bandwidth=asked.bandwidth, seed=asked.seed)
    options = {"memory_mib": workflow.memory_mib(asked)}
    found = Found()
    with running_guest(plan, Setup.STATIC_SLOW, image, volumes(asked), **options) as (guest, _):
        conditions = asdict(observe(guest.check(["uname", "-r"])))
        workflow.prepare(guest, asked)
        curve = None
        for mbit_s in (PROFILED, *(each for each in PUBLISHED_MBIT_S if each != PROFILED)):
            profile = _profiled(guest, asked, mbit_s, say)
            if curve is None:
                curve = _curve(profile)
                found = replace(found, best_mb_s=curve.inflection_mb_s(STOP_GAIN), profile=profile)
            found = replace(found, runs=(*found.runs, _run(guest, asked, mbit_s, profile, curve)))
            noted(found, conditions)
    return found, conditions


def _profiled(guest: Guest, asked: Asked, mbit_s: int, say: Say) -> dict[str, Any]:
    """The document of `elastio profile` for the workflow at this bandwidth."""
    say(f"montage: {mbit_s} Mb/s")
    at_mb_s = mb_s(mbit_s, asked.bandwidth)
    guest.vm.set_limit(guest.serial, round(at_mb_s * MB))
    workflow.forget_pages(guest)
    command = ["env", "-C", DATA, "elastio", "profile", "--json", "--", *workflow.RUN]
    found: dict[str, Any] = json.loads(guest.check(command, timeout_s=workflow.limit_s(asked, at_mb_s)))
    return found


def _curve(profile: Mapping[str, Any]) -> Curve:
    """Raises GuestError where there is none."""
    curve = curve_of(profile)
    if curve is None:
        raise GuestError(f"nothing of the workflow waited for bandwidth at {PROFILED} Mb/s")
    return curve


def _run(guest: Guest, asked: Asked, mbit_s: int, profile: Mapping[str, Any], curve: Curve) -> Run:
    """What was measured in the run that has just ended."""
    report = workflow.report(guest)
    at_mb_s = mb_s(mbit_s, asked.bandwidth)
    return Run(
        mbit_s=mbit_s,
        mb_s=round(at_mb_s, 4),
        seconds=round(profile["seconds"], 3),
        predicted_s=None if mbit_s == PROFILED else round(curve.time_s(at_mb_s), 3),
        workflow_s=report["workflow_s"],
        over_s=round(sum(step["over_s"] for step in report["steps"]), 3),
        wait_classes_s=tuple(round(each, 2) for each in profile["wait_classes_s"]),
        mosaic=report["mosaic"],
    )


def _document(asked: Asked, conditions: Mapping[str, Any], found: Found) -> dict[str, Any]:
    shown = ("seconds", "measured_mb_s", "account", "waited_s")
    return {
        "experiment": "montage",
        **conditions,
        "scale": asked.scale,
        "bandwidth": asked.bandwidth,
        **{name: None if value is None else round(value, 3) for name, value in figures(found).items()},
        "absent": [],
        "bars": [bar.to_json() for bar in bars(found)],
        "runs": [run.to_json() for run in sorted(found.runs, key=lambda run: run.mbit_s)],
        "best_mb_s": found.best_mb_s,
        "profile": {key: found.profile[key] for key in shown},
        "adaptive": None if found.adaptive is None else found.adaptive.to_json(),
    }
