"""Each kind of fault, as boto3 sees it and as it leaves the volumes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    EndpointConnectionError,
    ReadTimeoutError,
)

from elastio_testbed.ec2 import Ec2Endpoint, Fault, FaultKind, MemoryBridge, Scale, open_client

_CUT = (ConnectionClosedError, EndpointConnectionError)


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Ec2Endpoint]:
    scale = Scale(gib_bytes=2**20)
    with Ec2Endpoint(tmp_path, scale=scale, latency_scale=0, rate_limits=False) as running:
        yield running


@pytest.fixture
def client(endpoint: Ec2Endpoint) -> Any:
    return open_client(endpoint)


@pytest.fixture
def bridge() -> MemoryBridge:
    return MemoryBridge()


@pytest.fixture
def instance_id(endpoint: Ec2Endpoint, bridge: MemoryBridge) -> str:
    return endpoint.add_instance(bridge)


def create(client: Any) -> str:
    return str(client.create_volume(AvailabilityZone="us-east-1a", Size=10, VolumeType="gp3")["VolumeId"])


def ready(endpoint: Ec2Endpoint, client: Any) -> str:
    volume_id = create(client)
    endpoint.settle(10)
    return volume_id


def attach(client: Any, volume_id: str, instance_id: str) -> Any:
    return client.attach_volume(VolumeId=volume_id, InstanceId=instance_id, Device="/dev/sdf")


def attached(endpoint: Ec2Endpoint, client: Any, instance_id: str) -> str:
    volume_id = ready(endpoint, client)
    attach(client, volume_id, instance_id)
    endpoint.settle(10)
    return volume_id


def refusal(call: Any, *arguments: Any, **parameters: Any) -> tuple[str, int]:
    with pytest.raises(ClientError) as caught:
        call(*arguments, **parameters)
    response = caught.value.response
    return str(response["Error"]["Code"]), int(response["ResponseMetadata"]["HTTPStatusCode"])


def test_throttled_calls_do_nothing_and_a_retry_gets_through(endpoint: Ec2Endpoint, client: Any) -> None:
    endpoint.faults.add(Fault(FaultKind.THROTTLE, "CreateVolume", times=2))
    assert refusal(create, client) == ("RequestLimitExceeded", 503)
    assert endpoint.volumes() == []
    volume_id = create(open_client(endpoint, attempts=3))
    assert [row.id for row in endpoint.volumes()] == [volume_id]
    calls = [(entry.detail["fault"], entry.detail["status"]) for entry in endpoint.log.calls("CreateVolume")]
    assert calls == [("throttle", 503), ("throttle", 503), (None, 200)]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("InternalError", 500),
        ("Unavailable", 503),
        ("UnauthorizedOperation", 403),
        ("InsufficientVolumeCapacity", 500),
        ("VolumeLimitExceeded", 400),
    ],
)
def test_an_error_fault_answers_its_code_and_does_nothing(
    endpoint: Ec2Endpoint, client: Any, code: str, status: int
) -> None:
    endpoint.faults.add(Fault(FaultKind.ERROR, "CreateVolume", code=code))
    assert refusal(create, client) == (code, status)
    assert endpoint.volumes() == []
    assert endpoint.log.calls("CreateVolume")[0].detail["code"] == code


def test_an_http_fault_answers_a_proxys_page(endpoint: Ec2Endpoint, client: Any) -> None:
    endpoint.faults.add(Fault(FaultKind.HTTP, "DescribeVolumes", status=504))
    assert refusal(client.describe_volumes) == ("504", 504)
    assert client.describe_volumes()["Volumes"] == []


def test_a_connection_cut_before_leaves_nothing_done(endpoint: Ec2Endpoint, client: Any) -> None:
    endpoint.faults.add(Fault(FaultKind.DROP_BEFORE, "CreateVolume"))
    with pytest.raises(_CUT):
        create(client)
    assert endpoint.volumes() == []
    assert endpoint.log.calls("CreateVolume")[0].detail["status"] is None


def test_a_connection_cut_after_leaves_the_volume_behind(endpoint: Ec2Endpoint, client: Any) -> None:
    endpoint.faults.add(Fault(FaultKind.DROP_AFTER, "CreateVolume"))
    with pytest.raises(_CUT):
        create(client)
    endpoint.settle(10)
    assert [row.state for row in endpoint.volumes()] == ["available"]


def test_the_sdks_own_token_makes_one_volume_of_a_lost_answer(endpoint: Ec2Endpoint) -> None:
    endpoint.faults.add(Fault(FaultKind.DROP_AFTER, "CreateVolume", times=2))
    volume_id = create(open_client(endpoint, attempts=3))
    assert [row.id for row in endpoint.volumes()] == [volume_id]
    assert len(endpoint.log.calls("CreateVolume")) == 3


def test_attach_detach_and_delete_answer_wrongly_after_a_lost_answer_though_all_is_well(
    endpoint: Ec2Endpoint, instance_id: str
) -> None:
    client = open_client(endpoint, attempts=2)
    volume_id = ready(endpoint, client)
    gone = "InvalidVolume.NotFound"  # when the retry came after the end
    calls: list[tuple[str, Callable[[], Any], set[str], str]] = [
        ("AttachVolume", lambda: attach(client, volume_id, instance_id), {"VolumeInUse"}, "in-use/attached"),
        ("DetachVolume", lambda: client.detach_volume(VolumeId=volume_id), {"IncorrectState"}, "available"),
        ("DeleteVolume", lambda: client.delete_volume(VolumeId=volume_id), {"IncorrectState", gone}, "deleted"),
    ]
    for action, call, codes, done in calls:
        endpoint.faults.add(Fault(FaultKind.DROP_AFTER, action))
        assert refusal(call)[0] in codes
        endpoint.wait_for(volume_id, done, 30)


def test_an_answer_later_than_the_clients_patience_is_lost_but_done(endpoint: Ec2Endpoint) -> None:
    endpoint.faults.add(Fault(FaultKind.STALL_AFTER, "CreateVolume", seconds=60))
    with pytest.raises(ReadTimeoutError):
        create(open_client(endpoint, read_timeout_s=0.5))
    endpoint.settle(10)
    assert [row.state for row in endpoint.volumes()] == ["available"]


def test_a_late_call_is_done_late(endpoint: Ec2Endpoint, client: Any) -> None:
    endpoint.faults.add(Fault(FaultKind.LATENCY, "CreateVolume", seconds=60))
    with pytest.raises(ReadTimeoutError):
        create(open_client(endpoint, read_timeout_s=0.5))
    assert endpoint.volumes() == []
    endpoint.faults.add(Fault(FaultKind.LATENCY, "CreateVolume", seconds=0.01))
    assert create(client) == endpoint.volumes()[0].id
    assert endpoint.log.calls("CreateVolume")[-1].detail["fault"] == "latency"


def test_revoked_credentials_refuse_everything_until_faults_are_cleared(endpoint: Ec2Endpoint, client: Any) -> None:
    endpoint.faults.revoke_credentials()
    assert [refusal(client.describe_volumes) for _ in range(3)] == [("AuthFailure", 401)] * 3
    assert refusal(create, client) == ("AuthFailure", 401)
    endpoint.faults.clear()
    endpoint.faults.revoke_credentials("UnauthorizedOperation")
    assert refusal(create, client) == ("UnauthorizedOperation", 403)
    endpoint.faults.clear()
    assert create(client)


def test_a_failed_create_ends_in_error_and_burns_its_token(endpoint: Ec2Endpoint, client: Any) -> None:
    endpoint.faults.add(Fault(FaultKind.CREATE_ERROR))
    wanted = {"AvailabilityZone": "us-east-1a", "Size": 10, "VolumeType": "gp3", "ClientToken": "once"}
    volume_id = client.create_volume(**wanted)["VolumeId"]
    endpoint.settle(10)
    shown = client.describe_volumes(VolumeIds=[volume_id])["Volumes"][0]
    assert shown["State"] == "error"
    assert client.create_volume(**wanted)["VolumeId"] == volume_id
    assert not endpoint.volume(volume_id).path.exists()
    client.delete_volume(VolumeId=volume_id)
    endpoint.settle(10)
    assert endpoint.live_volumes() == []


def test_a_volume_without_room_for_its_file_ends_in_error(endpoint: Ec2Endpoint, client: Any, tmp_path: Path) -> None:
    tmp_path.rename(tmp_path.with_name("moved"))
    volume_id = ready(endpoint, client)
    tmp_path.with_name("moved").rename(tmp_path)
    assert endpoint.volume(volume_id).state == "error"
    assert "FileNotFoundError" in str(endpoint.log.entries("step_failed")[0].detail["error"])


def test_a_stuck_attachment_stays_attaching_until_it_is_detached(
    endpoint: Ec2Endpoint, client: Any, instance_id: str, bridge: MemoryBridge
) -> None:
    endpoint.faults.add(Fault(FaultKind.STUCK_ATTACHING))
    volume_id = attached(endpoint, client, instance_id)
    assert endpoint.volume(volume_id).attachment_state == "attaching"
    assert bridge.disks == {}
    client.detach_volume(VolumeId=volume_id)
    endpoint.settle(10)
    attach(client, volume_id, instance_id)
    endpoint.settle(10)
    assert endpoint.volume(volume_id).attachment_state == "attached"


def test_a_stuck_attachment_may_come_loose(
    endpoint: Ec2Endpoint, client: Any, instance_id: str, bridge: MemoryBridge
) -> None:
    endpoint.faults.add(Fault(FaultKind.STUCK_ATTACHING, seconds=0.05))
    volume_id = ready(endpoint, client)
    attach(client, volume_id, instance_id)
    row = endpoint.wait_for(volume_id, "in-use/attached", 10)
    assert list(bridge.disks) == [row.serial]


def test_a_stuck_detach_is_busy_until_it_is_tried_again(
    endpoint: Ec2Endpoint, client: Any, instance_id: str, bridge: MemoryBridge
) -> None:
    volume_id = attached(endpoint, client, instance_id)
    endpoint.faults.add(Fault(FaultKind.STUCK_DETACHING))
    client.detach_volume(VolumeId=volume_id)
    endpoint.settle(10)
    row = endpoint.volume(volume_id)
    assert (row.state, row.attachment_state, list(bridge.disks)) == ("in-use", "busy", [row.serial])
    assert refusal(client.delete_volume, VolumeId=volume_id)[0] == "VolumeInUse"
    client.detach_volume(VolumeId=volume_id)
    endpoint.settle(10)
    assert (endpoint.volume(volume_id).state, bridge.disks) == ("available", {})


def test_a_stuck_detach_may_come_loose(
    endpoint: Ec2Endpoint, client: Any, instance_id: str, bridge: MemoryBridge
) -> None:
    volume_id = attached(endpoint, client, instance_id)
    endpoint.faults.add(Fault(FaultKind.STUCK_DETACHING, seconds=0.05))
    client.detach_volume(VolumeId=volume_id)
    row = endpoint.wait_for(volume_id, "available", 10)
    assert "in-use/busy" in [state for _, state in row.history]
    assert bridge.disks == {}


@pytest.mark.parametrize("step", ["create", "attach", "detach", "delete"])
def test_a_slow_step_holds_its_state(endpoint: Ec2Endpoint, client: Any, instance_id: str, step: str) -> None:
    endpoint.faults.add(Fault(FaultKind.SLOW, f"{step.capitalize()}Volume", seconds=3_600))
    calls: dict[str, Callable[[str], Any]] = {
        "create": lambda _: create(client),
        "attach": lambda volume_id: attach(client, volume_id, instance_id),
        "detach": lambda volume_id: client.detach_volume(VolumeId=volume_id),
        "delete": lambda volume_id: client.delete_volume(VolumeId=volume_id),
    }
    volume_id = ""
    for name, call in calls.items():
        made = call(volume_id)
        volume_id = volume_id or made
        if name == step:
            break
        if name == "detach":
            endpoint.wait_for(volume_id, "available", 10)
        endpoint.settle(10)
    with pytest.raises(TimeoutError, match=f"{step} x1"):
        endpoint.settle(0.05, only=step)
    during = {"create": "creating", "attach": "attaching", "detach": "detaching", "delete": "deleting"}
    row = endpoint.volumes()[0]
    assert during[step] in (row.state, row.attachment_state)


def test_calls_beyond_the_budget_are_refused_and_not_done(endpoint: Ec2Endpoint, client: Any) -> None:
    endpoint.buckets.enabled = True
    endpoint.buckets.set("CreateVolume", 2, 0)
    made = [create(client) for _ in range(2)]
    assert refusal(create, client) == ("RequestLimitExceeded", 503)
    assert [row.id for row in endpoint.volumes()] == made
    endpoint.faults.add(Fault(FaultKind.DROP_BEFORE, "CreateVolume"))
    assert refusal(create, client)[0] == "RequestLimitExceeded"
    assert len(endpoint.faults.pending()) == 1
    endpoint.faults.clear()
    endpoint.buckets.enabled = False
    assert create(client)


def test_asking_for_every_volume_is_dearer_than_for_some(endpoint: Ec2Endpoint, client: Any) -> None:
    volume_id = ready(endpoint, client)
    endpoint.buckets.enabled = True
    with pytest.raises(ClientError, match="RequestLimitExceeded"):
        _describe(client, 500)  # 50 at once, 10/s after that
    shown = _describe(client, 60, VolumeIds=[volume_id]) + _describe(client, 30, MaxResults=5)
    assert [row["VolumeId"] for row in shown] == [volume_id] * 90


def test_a_mixture_of_faults_leaves_nothing_when_the_caller_looks_before_it_acts(
    endpoint: Ec2Endpoint, instance_id: str, bridge: MemoryBridge
) -> None:
    kinds = [FaultKind.THROTTLE, FaultKind.DROP_BEFORE, FaultKind.DROP_AFTER, FaultKind.HTTP]
    endpoint.faults.add(*(Fault(kind, times=None, probability=0.08) for kind in kinds))
    client = open_client(endpoint)
    goals = ["available", "in-use/attached", "available", "deleted"]
    for cycle in range(5):
        volume_id = _until_made(client, f"cycle-{cycle}")
        for goal, action in zip(goals, ["", "attach", "detach", "delete"], strict=True):
            for _ in range(50):
                endpoint.settle(10)
                seen = [state for _, state in endpoint.volume(volume_id).history]
                if seen[-1] == goal and (action != "detach" or "in-use/detaching" in seen):
                    break
                _try(client, action, volume_id, instance_id)
            endpoint.wait_for(volume_id, goal, 10)
    assert (endpoint.live_volumes(), bridge.disks) == ([], {})
    assert len(endpoint.volumes()) == 5
    hit = [entry for entry in endpoint.log.calls() if entry.detail["fault"]]
    assert hit
    assert endpoint.log.entries("handler_failed") == []


def _describe(client: Any, times: int, **narrowing: Any) -> list[Any]:
    return [row for _ in range(times) for row in client.describe_volumes(**narrowing)["Volumes"]]


def _until_made(client: Any, token: str) -> str:
    wanted = {"AvailabilityZone": "us-east-1a", "Size": 10, "VolumeType": "gp3", "ClientToken": token}
    for _ in range(50):
        try:
            return str(client.create_volume(**wanted)["VolumeId"])
        except (BotoCoreError, ClientError):
            continue
    raise AssertionError("no volume in 50 tries")


def _try(client: Any, action: str, volume_id: str, instance_id: str) -> None:
    calls = {
        "attach": lambda: attach(client, volume_id, instance_id),
        "detach": lambda: client.detach_volume(VolumeId=volume_id),
        "delete": lambda: client.delete_volume(VolumeId=volume_id),
    }
    try:
        calls[action]()
    except (BotoCoreError, ClientError):
        return  # what counts is the state, which the caller reads next


# --- a volume that is torn off -------------------------------------------------------------------------------------


def test_a_volume_that_was_torn_off_is_available_and_can_be_attached_again(
    endpoint: Ec2Endpoint, client: Any, bridge: MemoryBridge, instance_id: str
) -> None:
    volume_id = attached(endpoint, client, instance_id)
    endpoint.tear_off(volume_id, lambda serial: bridge.unplug(serial, 1.0))
    assert endpoint.volume(volume_id).state == "available"
    assert bridge.disks == {}
    client.attach_volume(VolumeId=volume_id, InstanceId=instance_id, Device="/dev/sdf")
    endpoint.wait_for(volume_id, "in-use/attached", 10)
    assert len(bridge.disks) == 1


def test_a_machine_that_keeps_the_dead_device_leaves_the_volume_busy_until_it_lets_go(
    endpoint: Ec2Endpoint, client: Any, bridge: MemoryBridge, instance_id: str
) -> None:
    volume_id = attached(endpoint, client, instance_id)
    endpoint.busy_retry_s, bridge.holds_on = 0.01, True
    endpoint.tear_off(volume_id, lambda serial: bridge.unplug(serial, 1.0))
    assert endpoint.volume(volume_id).attachment_state in ("busy", "detaching")
    bridge.holds_on = False
    endpoint.wait_for(volume_id, "available", 10)
    assert bridge.disks == {}


def test_only_an_attached_volume_can_be_torn_off(endpoint: Ec2Endpoint, client: Any) -> None:
    volume_id = ready(endpoint, client)
    with pytest.raises(ValueError, match="is not attached"):
        endpoint.tear_off(volume_id, lambda serial: None)
