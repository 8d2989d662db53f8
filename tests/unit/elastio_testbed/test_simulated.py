from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.sim.host import HostTimes
from elastio_testbed.catalogue import EXPERIMENTS
from elastio_testbed.ec2.latency import DEFAULT_DELAYS, Delay
from elastio_testbed.experiment import Scaled, Setup
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


def test_the_policy_is_the_guests_configuration() -> None:
    policy = policy_of(SCALED, "uuid")
    assert policy.backing_bandwidth_mb_s == pytest.approx(16.5)
    assert policy.cache_bandwidth_mb_s == pytest.approx(64.0)
    assert policy.initial_size_bytes % SCALED.unit_bytes == 0
    assert policy.size_step_bytes == SCALED.unit_bytes


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
