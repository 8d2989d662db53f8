"""Runs an experiment: every set-up in turn on fresh guests, checked to the last byte and the last volume."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elastio.units import GB, agbs
from elastio_testbed.ec2 import Ec2Endpoint, Scale
from elastio_testbed.experiment import EXPERIMENTS, Scaled, Setup
from elastio_testbed.hypervisor import GuestError
from elastio_testbed.hypervisor.accel import accelerator
from elastio_testbed.image import GuestImage, build_guest_image
from elastio_testbed.machine import Guest
from elastio_testbed.result import Phase, Result, SetupResult

POLL_S = 1.0
# Beyond what a set-up should take, before it is given up.
PATIENCE = 4.0
IDLE_AGAIN_S = 600.0
# What one MiB/s of the cloud's API is bought as: 125 is the least that gp3 sells.
API_MIB_S = 125


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. `seed` makes the data of the workload."""

    experiment: str
    setups: tuple[Setup, ...]
    scale: float = 1.0
    bandwidth: float = 0.5
    vms: int = 1
    seed: int = 1
    cloud: str = "ec2"

    def scaled(self) -> Scaled:
        return Scaled(EXPERIMENTS[self.experiment], self.scale, self.bandwidth)


@dataclass(slots=True)
class Evidence:
    """Raw records of one set-up, for the picture."""

    timeline: list[dict[str, Any]] = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    volumes: list[dict[str, Any]] = field(default_factory=list)
    dumps: list[dict[str, Any]] = field(default_factory=list)
    serial: str = ""
    cost_report: str = ""  # what `elastio report` prints in the first guest


def run(plan: Plan, say: Callable[[str], None]) -> tuple[Result, dict[Setup, Evidence]]:
    """Every set-up of the plan, one after the other: side by side they would share this machine's processors."""
    image = build_guest_image()
    results, evidence = [], {}
    run_setup = _runner(plan.cloud)
    for setup in plan.setups:
        say(f"{plan.experiment} {setup}: booting {plan.vms} guest(s)")
        result, evidence[setup] = run_setup(plan, setup, image, say)
        results.append(result)
        say(f"{plan.experiment} {setup}: completed in {result.completion_s:.1f} s, {result.agbs:.0f} AGBs")
    accel = accelerator()
    outcome = Result(plan.experiment, plan.scale, plan.bandwidth, plan.vms, accel, tuple(results))
    return outcome, evidence


def open_endpoint(plan: Plan, scaled: Scaled, folder: Path) -> Ec2Endpoint:
    """A cloud whose GiB and MiB/s are worth what the scale says, and as quick as the scale says."""
    scale = Scale(gib_bytes=scaled.unit_bytes, mib_s_bytes=-(-scaled.cache_bytes_s // API_MIB_S))
    return Ec2Endpoint(folder, scale=scale, latency_scale=plan.scale, seed=plan.seed)


def _runner(cloud: str) -> Callable[[Plan, Setup, GuestImage, Callable[[str], None]], tuple[SetupResult, Evidence]]:
    """What runs one set-up in this cloud."""
    if cloud == "ec2":
        return run_setup
    from elastio_testbed.openstack import demo  # noqa: PLC0415  needs the OpenStack SDK

    return demo.run_setup


def run_setup(plan: Plan, setup: Setup, image: GuestImage, say: Callable[[str], None]) -> tuple[SetupResult, Evidence]:
    """One set-up on fresh guests."""
    scaled = plan.scaled()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="elastio-testbed-", dir="/var/tmp")))
        endpoint = stack.enter_context(open_endpoint(plan, scaled, folder / "cloud"))
        guests = [Guest(image, folder / f"vm{n}", f"vm{n}", setup, scaled) for n in range(plan.vms)]
        for guest in guests:
            stack.enter_context(guest.vm)
        return drive(plan, setup, guests, endpoint, say)


def drive(
    plan: Plan, setup: Setup, guests: list[Guest], endpoint: Ec2Endpoint, say: Callable[[str], None]
) -> tuple[SetupResult, Evidence]:
    """From guests that are described to the verdict. `endpoint` is what the cloud bought, and for how long."""
    scaled = plan.scaled()
    for guest in guests:
        guest.prepare(endpoint)
    say(f"{plan.experiment} {setup}: running")
    for guest in guests:
        guest.start_workload(plan.seed)
    _wait_for_workloads(guests, _patience_s(scaled))
    if setup is Setup.ADAPTIVE:
        say(f"{plan.experiment} {setup}: waiting for the caches to be flushed and released")
        for guest in guests:
            guest.wait_for(_is_at_rest, IDLE_AGAIN_S, "the volume to be released")
        endpoint.settle(60)
    return _conclude(setup, guests, endpoint, scaled)


def _patience_s(scaled: Scaled) -> float:
    slowest = sum(scaled.dumps_bytes) / scaled.backing_bytes_s
    return PATIENCE * (slowest + scaled.experiment.compute_s * scaled.time) + 120


def _is_at_rest(status: dict[str, Any]) -> bool:
    return status["phase"] == "idle" and status["owned"] == [] and status["cycle"] is None


def _wait_for_workloads(guests: list[Guest], seconds: float) -> None:
    end = time.monotonic() + seconds
    waiting = list(guests)
    while waiting:
        for guest in list(waiting):
            state = guest.workload_state()
            if state == "done":
                waiting.remove(guest)
            elif state != "running":
                log = guest.check(["journalctl", "--no-pager", "-u", "workload", "-n", "20", "-o", "cat"])
                raise GuestError(f"{guest.name}: {state}: {log}")
        if time.monotonic() > end:
            raise GuestError(f"{waiting[0].name}: the workload is not done after {seconds:.0f} s")
        time.sleep(POLL_S)


# --- concluding ------------------------------------------------------------------------------------------


def _conclude(setup: Setup, guests: list[Guest], endpoint: Ec2Endpoint, scaled: Scaled) -> tuple[SetupResult, Evidence]:
    first = guests[0]
    dumps = [guest.dumps() for guest in guests]
    evidence = Evidence(first.timeline(), [], _volume_rows(endpoint), dumps[0], first.serial)
    reports = []
    if setup is Setup.ADAPTIVE:
        evidence.decisions = first.decisions()
        reports = [guest.report() for guest in guests]
        evidence.cost_report = first.check(["elastio", "report"], timeout_s=60)
    total_s = max(d[-1]["ended"] for d in dumps) - min(d[0]["began"] for d in dumps)
    completion_s = max(d[-1]["ended"] - d[0]["ended"] for d in dumps)
    cache = _cache_agbs(endpoint, scaled)
    backing = sum(agbs(guest.cap_bytes_s / 1e6, scaled.backing_bytes, total_s) for guest in guests)
    left = len(endpoint.live_volumes()) + sum(len(guest.vm.disks()) - 1 for guest in guests)
    verified = [guest.verify() for guest in guests]
    return SetupResult(
        setup=setup,
        completion_s=round(completion_s, 3),
        total_s=round(total_s, 3),
        agbs=round(backing + cache, 3),
        cache_agbs=round(cache, 3),
        app_write_mb_s=round(_write_mb_s(dumps), 3),
        dumps_s=tuple(round(d["ended"] - d["began"], 3) for d in dumps[0]),
        checksums_ok=all(v["ok"] for v in verified),
        volumes_left=left,
        phases=tuple(_phase(p) for report in reports for p in report["phases"] if p["steps"]["boost_s"] is not None),
        checksums={
            f"{g.name}/{k}": c for g, v in zip(guests, verified, strict=True) for k, c in v["checksums"].items()
        },
        ledger_cache_agbs=round(sum(r["vm"]["cache_agbs"] for r in reports), 3) if reports else None,
    ), evidence


def _write_mb_s(dumps: list[list[dict[str, Any]]]) -> float:
    every = [d for guest in dumps for d in guest]
    return float(sum(d["bytes"] for d in every) / sum(d["ended"] - d["began"] for d in every) / 1e6)


def _cache_agbs(endpoint: Ec2Endpoint, scaled: Scaled) -> float:
    """What the cloud saw: every volume from its creation to its end."""
    total = 0.0
    for volume in endpoint.volumes():
        size = volume.size_gib * endpoint.scale.gib_bytes
        ended = volume.deleted_at if volume.deleted_at is not None else time.time()
        bandwidth = volume.throughput_mib_s * endpoint.scale.mib_s_bytes / 1e6
        total += agbs(bandwidth, size, ended - volume.created_at)
    return total


def _volume_rows(endpoint: Ec2Endpoint) -> list[dict[str, Any]]:
    return [
        {
            "id": v.id,
            "serial": v.serial,
            "size_gb": v.size_gib * endpoint.scale.gib_bytes / GB,
            "created_at": v.created_at,
            "deleted_at": v.deleted_at,
        }
        for v in endpoint.volumes()
    ]


def _phase(row: dict[str, Any]) -> Phase:
    steps = row["steps"]
    return Phase(
        size_gb=round(row["sold_size_bytes"] / GB, 4),
        attach_s=steps["boost_s"],
        attached_s=steps["attached_s"],
        dirty_peak_gb=round(row["peak_dirty_bytes"] / GB, 4),
        evicted_gb=round(row["evicted_bytes"] / GB, 4),
        flush_s=steps["flush_s"],
        steps_s={name: steps[f"{name}_s"] for name in ("create", "appear", "format", "attach")},
    )
