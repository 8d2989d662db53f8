"""The parts of the endpoint that need no server: delays, buckets, faults, steps, limits, scale."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterator

import pytest

from elastio_testbed.ec2 import Fault, FaultKind, Scale, serial_of
from elastio_testbed.ec2.buckets import RateBuckets
from elastio_testbed.ec2.faults import CALL_KINDS, IMDS, Faults
from elastio_testbed.ec2.latency import Latency
from elastio_testbed.ec2.limits import refuse_device, refuse_gp3
from elastio_testbed.ec2.log import EventLog
from elastio_testbed.ec2.steps import Steps


class TickingClock:
    """A clock that moves when told to."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def failures() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def steps(failures: list[tuple[str, str]]) -> Iterator[Steps]:
    running = Steps(lambda name, error: failures.append((name, str(error))))
    yield running
    running.close(5)


def test_delays_have_the_median_and_the_p99_they_were_given() -> None:
    latency = Latency(seed=7)
    latency.set("attach", 2.0, 4.0)
    drawn = sorted(latency.draw("attach") for _ in range(20_000))
    assert statistics.median(drawn) == pytest.approx(2.0, rel=0.03)
    assert drawn[int(len(drawn) * 0.99)] == pytest.approx(4.0, rel=0.05)


def test_delays_repeat_with_the_seed_and_follow_the_scale() -> None:
    first, second, other = Latency(3), Latency(3), Latency(4)
    full = [first.draw("create") for _ in range(5)]
    second.scale = 0.5
    assert [second.draw("create") * 2 for _ in range(5)] == pytest.approx(full)
    assert [other.draw("create") for _ in range(5)] != full
    first.scale = 0
    assert first.draw("create") == 0


@pytest.mark.parametrize(
    "bad",
    [
        {"teleport": [1, 2]},
        {"attach": [2, 1]},
        {"attach": [0, 1]},
        {"attach": 3},
        {"attach": ["1", 2]},
        {"latency_scale": -1},
        {"latency_scale": True},
    ],
)
def test_impossible_delays_are_refused_and_change_nothing(bad: dict[str, object]) -> None:
    latency = Latency()
    before = latency.as_dict()
    with pytest.raises(ValueError, match=r"\w"):
        latency.update({"create": [7, 8], **bad})
    assert latency.as_dict() == before


def test_what_latency_shows_it_also_takes() -> None:
    latency, other = Latency(), Latency()
    latency.update({"latency_scale": 0.25, "delete": [3, 9]})
    other.update(latency.as_dict())
    assert other.as_dict() == latency.as_dict()
    assert other.as_dict()["delete"] == [3, 9]


@pytest.mark.parametrize(
    ("action", "narrowed", "capacity", "refill_per_s"),
    [
        ("CreateVolume", True, 100, 5),
        ("DeleteVolume", True, 100, 5),
        ("AttachVolume", True, 50, 5),
        ("DetachVolume", True, 50, 5),
        ("CreateTags", True, 100, 10),
        ("DescribeVolumes", True, 100, 20),
        ("DescribeVolumes", False, 50, 10),
        ("DescribeInstanceTypes", False, 100, 20),
    ],
)
def test_each_action_has_the_documented_budget(action: str, narrowed: bool, capacity: int, refill_per_s: int) -> None:
    clock = TickingClock()
    buckets = RateBuckets(clock=clock)
    assert sum(buckets.take(action, narrowed=narrowed) for _ in range(capacity + 20)) == capacity
    clock.now_s += 2.0
    assert sum(buckets.take(action, narrowed=narrowed) for _ in range(capacity)) == 2 * refill_per_s
    clock.now_s += 3_600
    assert sum(buckets.take(action, narrowed=narrowed) for _ in range(capacity + 20)) == capacity


def test_one_action_does_not_use_up_the_budget_of_another() -> None:
    buckets = RateBuckets(clock=TickingClock())
    buckets.set("AttachVolume", 1, 0)
    assert [buckets.take("AttachVolume") for _ in range(2)] == [True, False]
    assert buckets.take("DetachVolume")


def test_switched_off_buckets_allow_everything() -> None:
    buckets = RateBuckets(enabled=False, clock=TickingClock())
    assert all(buckets.take("AttachVolume") for _ in range(200))


def test_a_fault_hits_as_often_as_it_says_and_only_its_action() -> None:
    faults = Faults()
    faults.add(Fault(FaultKind.THROTTLE, "AttachVolume", times=2))
    assert faults.take("DetachVolume", CALL_KINDS) is None
    hits = [faults.take("AttachVolume", CALL_KINDS) is not None for _ in range(4)]
    assert hits == [True, True, False, False]
    assert faults.pending() == []


def test_a_wildcard_fault_spares_the_metadata_service() -> None:
    faults = Faults()
    faults.add(Fault(FaultKind.DROP_BEFORE, times=None))
    assert faults.take(IMDS, CALL_KINDS) is None
    assert faults.take("DescribeVolumes", CALL_KINDS) is not None


def test_life_cycle_faults_wait_for_their_step() -> None:
    faults = Faults()
    faults.add(Fault(FaultKind.CREATE_ERROR))
    assert faults.take("CreateVolume", CALL_KINDS) is None
    assert faults.take("CreateVolume", {FaultKind.CREATE_ERROR}) is not None


def test_faults_hit_with_their_probability_and_repeat_with_the_seed() -> None:
    def pattern(seed: int) -> list[bool]:
        faults = Faults(seed)
        faults.add(Fault(FaultKind.THROTTLE, times=None, probability=0.25))
        return [faults.take("AttachVolume", CALL_KINDS) is not None for _ in range(2_000)]

    assert sum(pattern(1)) == pytest.approx(500, rel=0.15)
    assert pattern(1) == pattern(1)
    assert pattern(1) != pattern(2)


@pytest.mark.parametrize(
    "bad",
    [
        "throttle",
        {"action": "AttachVolume"},
        {"kind": "explode"},
        {"kind": "throttle", "when": 3},
        {"kind": "throttle", "times": 0},
        {"kind": "throttle", "times": "many"},
        {"kind": "throttle", "probability": 0},
        {"kind": "latency", "seconds": -1},
        {"kind": "error"},
        {"kind": "http", "status": 200},
        {"kind": "stuck_attaching", "action": "DetachVolume"},
    ],
)
def test_faults_that_make_no_sense_are_refused(bad: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Fault.from_json(bad)


def test_settle_waits_for_the_steps_in_flight(steps: Steps) -> None:
    may_end, ended = threading.Event(), threading.Event()

    def step() -> None:
        if may_end.wait(10):
            ended.set()

    steps.later(0, "attach", step)
    with pytest.raises(TimeoutError, match="attach x1"):
        steps.settle(0.01)
    steps.settle(1, only="detach")
    may_end.set()
    steps.settle(10)
    assert ended.is_set()


def test_steps_run_in_the_order_of_their_due_times(steps: Steps) -> None:
    order: list[str] = []
    steps.later(0.05, "second", lambda: order.append("second"))
    steps.later(0, "first", lambda: order.append("first"))
    steps.settle(10)
    assert order == ["first", "second"]


def test_a_step_that_fails_is_reported_and_no_longer_in_flight(steps: Steps, failures: list[tuple[str, str]]) -> None:
    def step() -> None:
        raise OSError("no room")

    steps.later(0, "create", step)
    steps.settle(10)
    assert failures == [("create", "no room")]


def test_closing_drops_the_steps_that_are_not_due() -> None:
    done: list[int] = []
    running = Steps(lambda name, error: None)
    running.later(3_600, "delete", lambda: done.append(1))
    running.close(5)
    running.later(0, "delete", lambda: done.append(2))
    running.settle(1)
    assert done == []


@pytest.mark.parametrize(
    ("size_gib", "iops", "throughput_mib_s", "code"),
    [
        (1, 3_000, 125, None),
        (65_536, 80_000, 2_000, None),
        (16, 8_000, 2_000, None),
        (0, 3_000, 125, "InvalidParameterValue"),
        (65_537, 3_000, 125, "InvalidParameterValue"),
        (100, 2_999, 125, "InvalidParameterValue"),
        (1_000, 80_001, 125, "InvalidParameterValue"),
        (100, 3_000, 124, "InvalidParameterValue"),
        (100, 8_004, 2_001, "InvalidParameterValue"),
        (15, 8_000, 2_000, "InvalidParameterCombination"),
        (100, 7_999, 2_000, "InvalidParameterCombination"),
        (1, 3_001, 125, "InvalidParameterCombination"),
    ],
)
def test_gp3_limits_hold(size_gib: int, iops: int, throughput_mib_s: int, code: str | None) -> None:
    refusal = refuse_gp3(size_gib, iops, throughput_mib_s)
    assert (refusal.code if refusal else None) == code


@pytest.mark.parametrize(
    ("device", "good"),
    [
        ("/dev/sdf", True),
        ("/dev/xvdba", True),
        ("/dev/xvddx", True),
        ("/dev/xvdf", True),
        ("/dev/xvdcy", False),
        ("/dev/xvdea", False),
        ("/dev/sdf1", False),
        ("sdf", False),
    ],
)
def test_device_names_are_checked(device: str, good: bool) -> None:
    assert (refuse_device(device) is None) is good


def test_a_scaled_world_scales_disks_and_refuses_broken_blocks() -> None:
    scale = Scale(gib_bytes=2**20, mib_s_bytes=1_000)
    assert (scale.size_bytes(100), scale.bytes_per_second(125)) == (100 * 2**20, 125_000)
    with pytest.raises(ValueError, match="4096"):
        Scale(gib_bytes=1_000)
    with pytest.raises(ValueError, match="positive"):
        Scale(mib_s_bytes=0)


def test_the_serial_is_the_volume_id_without_its_hyphen() -> None:
    serial = serial_of("vol-0123456789abcdef0")
    assert serial == "vol0123456789abcdef0"
    assert len(serial) == 20


def test_the_log_finds_events_by_kind_and_detail() -> None:
    log = EventLog()
    log.add("call", action="AttachVolume", status=200)
    log.add("call", action="DetachVolume", status=503)
    log.add("volume", volume="vol-1", state="error")
    assert [entry.detail["action"] for entry in log.calls()] == ["AttachVolume", "DetachVolume"]
    assert [entry.detail["status"] for entry in log.calls("DetachVolume")] == [503]
    assert log.entries("volume", state="available") == []
    assert log.entries()[-1].as_dict()["state"] == "error"
