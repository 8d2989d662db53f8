from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.config import schema
from elastio.units import GIB
from elastio_sim.host import HostTimes
from elastio_testbed.catalogue import EXPERIMENTS
from elastio_testbed.ec2 import Ec2Endpoint
from elastio_testbed.ec2.latency import DEFAULT_DELAYS, Delay
from elastio_testbed.experiment import Scaled, Setup
from elastio_testbed.image import GuestImage
from elastio_testbed.machine import Guest, config_text
from elastio_testbed.operation_timings import TYPICAL, OperationTimings, operations_s, timings_of
from elastio_testbed.simulated import policy_of, profile_of, simulate

SCALED = Scaled(EXPERIMENTS["cm1"], 0.12, 0.5)
SETUPS = (Setup.STATIC_SLOW, Setup.STATIC_FAST, Setup.ADAPTIVE)


def record(kind: str, action: str, now: float, verdict: str = "done") -> dict[str, object]:
    return {"kind": kind, "action": action, "now": now, "verdict": verdict}


def test_static_set_ups_are_limited_by_their_bandwidth() -> None:
    found = simulate(SCALED, (Setup.STATIC_SLOW, Setup.STATIC_FAST))
    later = sum(SCALED.dumps_bytes[1:])
    assert found[Setup.STATIC_SLOW].completion_s == pytest.approx(
        3 * SCALED.compute_each_s + later / SCALED.backing_bytes_s, rel=0.01
    )
    assert found[Setup.STATIC_FAST].completion_s == pytest.approx(
        3 * SCALED.compute_each_s + later / SCALED.cache_bytes_s, rel=0.01
    )


def test_the_adaptive_set_up_lies_between_the_static_ones() -> None:
    slow, fast, adaptive = (simulate(SCALED, SETUPS)[s] for s in SETUPS)
    assert fast.completion_s < adaptive.completion_s < slow.completion_s
    assert adaptive.agbs < fast.agbs / 2


def test_cost_is_proportional_to_the_number_of_vms() -> None:
    one, two = (simulate(SCALED, (Setup.STATIC_FAST,), vms)[Setup.STATIC_FAST] for vms in (1, 2))
    assert two.agbs == pytest.approx(2 * one.agbs)
    assert two.completion_s == one.completion_s


def test_slower_operations_in_the_guest_make_the_simulated_run_slower() -> None:
    slow = OperationTimings(HostTimes(format=4.0), 2.0, (1.0, 1.0))
    quick, tired = (simulate(SCALED, (Setup.ADAPTIVE,), 1, took)[Setup.ADAPTIVE] for took in (TYPICAL, slow))
    assert tired.completion_s > quick.completion_s + 3


def test_an_application_whose_dumps_differ_has_no_model() -> None:
    uneven = Scaled(replace(EXPERIMENTS["cm1"], dumps_gb=(5.0, 4.0, 2.0)), 0.12, 0.5)
    assert profile_of(uneven) is None
    assert simulate(uneven, SETUPS) == {}


def test_the_policy_is_that_of_the_guests_configuration(tmp_path: Path) -> None:
    guest = Guest(
        GuestImage(tmp_path, tmp_path, tmp_path, tmp_path, "digest", "bookworm"),
        tmp_path,
        "vm0",
        Setup.ADAPTIVE,
        SCALED,
    )
    guest.backing_uuid = "0b6f4c1e-5d0c-4a57-9d55-6f3a4b1c2d3e"
    with Ec2Endpoint(tmp_path / "cloud") as endpoint:
        tables = guest.config_tables(endpoint)
    changed = schema.parse(tomllib.loads(config_text(tables, {"policy": {"attach_timeout_s": 45}}))).policy()
    assert changed.attach_timeout_s == 45
    configured = schema.parse(tomllib.loads(config_text(tables))).policy()
    assert configured.min_size_bytes == pytest.approx(SCALED.least_cache_gib * GIB, abs=1024)
    # What a simulated run does not need, and what is rounded in the file.
    others = {name: getattr(configured, name) for name in ("on_shutdown", "notice_poll_s", "min_size_bytes")}
    assert configured == replace(policy_of(SCALED, guest.backing_uuid), **others)


def test_operations_last_from_their_intent_to_their_outcome() -> None:
    journal = [
        record("intent", "InstallCache", 10.0),
        {"kind": "decision", "now": 10.2},
        record("outcome", "InstallCache", 11.5),
        record("intent", "InstallCache", 20.0),
        record("outcome", "InstallCache", 60.0, "unknown"),
        record("outcome", "AttachVolume", 70.0),
    ]
    assert operations_s(journal) == {"InstallCache": [1.5]}


def test_the_simulators_timings_are_measured_medians() -> None:
    journal = []
    for n, seconds in enumerate((1.0, 9.0, 2.0)):
        journal += [record("intent", "InstallCache", 100.0 * n), record("outcome", "InstallCache", 100.0 * n + seconds)]
    found = timings_of(journal)
    assert found.host.format + found.host.register + found.superblock_s == pytest.approx(2.0)
    assert found.host.release == TYPICAL.host.release
    assert timings_of([]).host.release == TYPICAL.host.release
    assert timings_of([]).call_s == TYPICAL.call_s


def test_the_mean_of_a_delay_is_that_of_many_draws() -> None:
    import random

    delay, rng = Delay(1.5, 4.0), random.Random(7)
    drawn = sum(delay.draw(rng) for _ in range(20_000)) / 20_000
    assert delay.mean_s() == pytest.approx(drawn, rel=0.02)
    assert all(delay.mean_s() > delay.median_s for delay in DEFAULT_DELAYS.values())
