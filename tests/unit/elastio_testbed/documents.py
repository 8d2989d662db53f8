"""Results as the laboratory writes them, with figures for tests."""

from __future__ import annotations

import json
from typing import Any

from elastio_testbed.bandwidth_use import BandwidthUse
from elastio_testbed.conditions import Conditions
from elastio_testbed.evaluation import Evaluation
from elastio_testbed.experiment import Setup
from elastio_testbed.result import Boost, Result, SetupResult, own_share_s
from elastio_testbed.series import series_of
from elastio_testbed.simulated import Simulated
from elastio_testbed.trial import Evidence, Plan

CONDITIONS = Conditions(
    "A processor <at> 3 GHz", 2, 16.0, "qemu", "tcg", "6.12.0-test", "2026-01-02T03:04:05+00:00", "0.1.0, a1b2c3"
)


def boost(size_gb: float, spent: float, bound: float, vm: str = "vm0") -> Boost:
    steps: dict[str, float | None] = {"create": 0.5, "appear": 0.3, "format": 0.4, "attach": 0.3}
    measured = BandwidthUse(60.0, 1.0, 1.0, 0.75)
    return Boost(
        *(size_gb, 1.5, 20.0, 0.2, 0.0, 9.0, steps, vm, 0.6, 0.24, spent, bound),
        bandwidth_use=measured,
        own_share_s=own_share_s(1.5, 0.6),
    )


def setup_result(setup: Setup, completion_s: float, agbs: float, **changes: Any) -> SetupResult:
    figures: dict[str, Any] = {
        "total_s": completion_s + 10,
        "cache_agbs": 0.0,
        "app_write_mb_s": 50.0,
        "dumps_s": (1.0, 2.0),
        "checksums_ok": True,
        "volumes_left": 0,
    }
    return SetupResult(setup=setup, completion_s=completion_s, agbs=agbs, **{**figures, **changes})


def repetition(slow_s: float = 1471, fast_s: float = 1190, adaptive_s: float = 1231) -> Result:
    """The published CM1 figures, unless others are given."""
    boosts = (boost(1.2, 300.0, 100.0), boost(0.4, 120.0, 100.0))
    return Result(
        (
            setup_result(Setup.STATIC_SLOW, slow_s, 100.0),
            setup_result(Setup.STATIC_FAST, fast_s, 266.0),
            setup_result(Setup.ADAPTIVE, adaptive_s, 93.0, cache_agbs=420.0, boosts=boosts),
        )
    )


def evaluation(*repetitions: Result, experiment: str = "cm1", vms: int = 1) -> Evaluation:
    done = repetitions or (repetition(),)
    setups = tuple(s.setup for s in done[0].setups)
    plan = Plan(experiment, setups, 1.0, 0.5, vms, repeat=len(done), side_by_side=True)
    models = {Setup.ADAPTIVE: Simulated(1219.0, 100.0, 400.0)} if Setup.ADAPTIVE in setups else {}
    return Evaluation(plan, CONDITIONS, done, models)


def evidence(setup: Setup) -> Evidence:
    """Ten seconds of 8 MB/s on the device, with a cache volume between 2 and 9 s if the set-up has one."""
    sectors = 8_000_000 // 512
    disk = "vdb" if setup in {Setup.STATIC_SLOW, Setup.STATIC_FAST} else "bcache0"
    timeline = [
        {"t": 100.0 + n, "disks": {disk: [0, n * sectors], "vda": [0, n * 7]}, "serials": {disk: "vm0backing"}}
        for n in range(11)
    ]
    dumps = [{"dump": 0, "began": 100.0, "ended": 108.0, "bytes": 64_000_000}]
    if setup is not Setup.ADAPTIVE:
        return Evidence(timeline, [], [], dumps, "vm0backing")
    decisions = [
        {"from": "idle", "to": "idle", "wall": 100.5},
        {"from": "idle", "to": "attaching", "wall": 101.0},
        {"from": "attaching", "to": "boosting", "wall": 103.0},
        {"from": "boosting", "to": "idle", "wall": 109.0},
    ]
    volumes = [{"id": "vol-1", "serial": "vol1", "size_gb": 1.2, "created_at": 102.0, "deleted_at": 109.0}]
    return Evidence(timeline, decisions, volumes, dumps, "vm0backing")


def document(*repetitions: Result, **changes: Any) -> dict[str, Any]:
    """A document as read from a file."""
    result = evaluation(*repetitions, **changes)
    pictured = [series_of(setup, evidence(setup)).to_json() for setup in result.plan.setups]
    loaded: dict[str, Any] = json.loads(json.dumps({**result.to_json(), "picture": pictured}))
    return loaded
