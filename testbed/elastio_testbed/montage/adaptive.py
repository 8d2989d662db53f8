"""The workflow on an adaptive device whose caches learn their bandwidth: one burst after the other."""

from __future__ import annotations

import time

from elastio.units import agbs
from elastio_testbed.bars import Asked
from elastio_testbed.console import Say
from elastio_testbed.experiment import Experiment, Scaled, Setup
from elastio_testbed.image import GuestImage
from elastio_testbed.machine import Guest, Tables
from elastio_testbed.montage import workflow
from elastio_testbed.montage.evaluation import BEST, DOUBLED, PROFILED, STOP_GAIN, Adaptive, Burst, mb_s
from elastio_testbed.trial import Plan, running_guest, volume_agbs
from elastio_testbed.workloads.dumps import Dumps

BURSTS = 3
# The slow volume has a quarter of the inflection, and the first cache half of it. The data volume is five times as
# large as the smallest cache, as in the other experiments. No step computes as long as caches are kept.
BACKING_GB, FIRST_CACHE_GB, INACTIVITY_S = 3.0, 0.6, 15.0
# Of the cloud's delays.
DELAYS = 0.12
BOOST_S, AT_REST_S = 120, 300.0


def volumes(asked: Asked) -> Scaled:
    """The volumes of both set-ups; of the static one only the size counts, and its limit is set for each run."""
    slow, first = mb_s(PROFILED, 1.0), mb_s(BEST, 1.0) / 2
    published = Experiment("montage", (), 0.0, BACKING_GB, slow, first, FIRST_CACHE_GB, Dumps(), INACTIVITY_S)
    return Scaled(published, asked.scale, asked.bandwidth)


def run_adaptive(asked: Asked, image: GuestImage, say: Say) -> Adaptive:
    """Raises HypervisorError."""
    scaled = volumes(asked)
    plan = Plan("demo", (Setup.ADAPTIVE,), scale=DELAYS, bandwidth=asked.bandwidth, seed=asked.seed)
    options = {"memory_mib": workflow.memory_mib(asked)}
    with running_guest(plan, Setup.ADAPTIVE, image, scaled, **options) as (guest, endpoint):
        guest.check(["elastio", "pause"], timeout_s=workflow.CALL_S)
        learned: Tables = {
            "cache": {"bandwidth": '"learned"', "max_bandwidth_mb_s": mb_s(DOUBLED, asked.bandwidth)},
            "policy": {"stop_gain": STOP_GAIN},
        }
        guest.write_config(endpoint, learned)
        guest.check(["systemctl", "reload", "elastiod"], timeout_s=workflow.CALL_S)
        workflow.prepare(guest, asked)
        guest.check(["elastio", "resume"], timeout_s=workflow.CALL_S)
        began = time.time()
        bursts = tuple(_burst(guest, asked, number, say) for number in range(1, BURSTS + 1))
        seconds = time.time() - began
        return Adaptive(
            bursts=bursts,
            learned_mb_s=guest.status()["learned_bandwidth_mb_s"],
            cache_agbs=sum(volume_agbs(volume, endpoint.scale) for volume in endpoint.volumes()),
            backing_agbs=agbs(mb_s(PROFILED, asked.bandwidth), scaled.backing_bytes, seconds),
            static_agbs=agbs(mb_s(BEST, asked.bandwidth), scaled.backing_bytes, seconds),
        )


def _burst(guest: Guest, asked: Asked, number: int, say: Say) -> Burst:
    """A cache that is there when the workflow begins, and is released before this returns."""
    say(f"montage: burst {number} of {BURSTS} of the adaptive set-up")
    workflow.forget_pages(guest)
    guest.check(["elastio", "boost", "--wait", "--timeout", str(BOOST_S)], timeout_s=BOOST_S + 30)
    at_mb_s = guest.status()["learned_bandwidth_mb_s"]
    unit = ["systemd-run", "--wait", "--collect", "--unit=workload"]
    guest.check([*unit, *workflow.RUN], timeout_s=workflow.limit_s(asked, mb_s(PROFILED, asked.bandwidth)))
    report = workflow.report(guest)
    guest.wait_for(lambda status: status["cycle"] is None and status["owned"] == [], AT_REST_S, "the cache to be gone")
    return Burst(at_mb_s, report["workflow_s"], report["mosaic"])
