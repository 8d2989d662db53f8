"""Each kind of fault, as boto3 sees it and as it leaves the volumes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ConnectionClosedError, EndpointConnectionError, ReadTimeoutError

from elastio_testbed.ec2 import Ec2Endpoint, Fault, FaultKind, open_client
from elastio_testbed.ec2.faults import CALL_KINDS, IMDS, Faults

from .account import Account, refusal

_CUT = (ConnectionClosedError, EndpointConnectionError)


def test_throttled_calls_do_nothing_and_a_retry_gets_through(endpoint: Ec2Endpoint, account: Account) -> None:
    endpoint.faults.add(Fault(FaultKind.THROTTLE, "CreateVolume", times=2))
    assert refusal(account.create) == ("RequestLimitExceeded", 503)
    assert endpoint.volumes() == []
    volume_id = account.create(open_client(endpoint, attempts=3))
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
    endpoint: Ec2Endpoint, account: Account, code: str, status: int
) -> None:
    endpoint.faults.add(Fault(FaultKind.ERROR, "CreateVolume", code=code))
    assert refusal(account.create) == (code, status)
    assert endpoint.volumes() == []
    assert endpoint.log.calls("CreateVolume")[0].detail["code"] == code


def test_an_http_fault_answers_a_proxys_page(endpoint: Ec2Endpoint, account: Account) -> None:
    endpoint.faults.add(Fault(FaultKind.HTTP, "DescribeVolumes", status=504))
    assert refusal(account.client.describe_volumes) == ("504", 504)
    assert account.client.describe_volumes()["Volumes"] == []


@pytest.mark.parametrize(("kind", "states"), [(FaultKind.DROP_BEFORE, []), (FaultKind.DROP_AFTER, ["available"])])
def test_a_cut_connection_leaves_the_call_undone_or_done(
    endpoint: Ec2Endpoint, account: Account, kind: FaultKind, states: list[str]
) -> None:
    endpoint.faults.add(Fault(kind, "CreateVolume"))
    with pytest.raises(_CUT):
        account.create()
    endpoint.settle(10)
    assert [row.state for row in endpoint.volumes()] == states
    assert endpoint.log.calls("CreateVolume")[0].detail["status"] is None


@pytest.mark.parametrize(("kind", "states"), [(FaultKind.LATENCY, []), (FaultKind.STALL_AFTER, ["available"])])
def test_a_late_answer_is_lost_and_the_call_undone_or_done(
    endpoint: Ec2Endpoint, kind: FaultKind, states: list[str]
) -> None:
    endpoint.faults.add(Fault(kind, "CreateVolume", seconds=60))
    with pytest.raises(ReadTimeoutError):
        Account(endpoint).create(open_client(endpoint, read_timeout_s=0.5))
    endpoint.settle(10)
    assert [row.state for row in endpoint.volumes()] == states


def test_revoked_credentials_refuse_everything_until_faults_are_cleared(
    endpoint: Ec2Endpoint, account: Account
) -> None:
    endpoint.faults.revoke_credentials()
    assert [refusal(account.client.describe_volumes) for _ in range(3)] == [("AuthFailure", 401)] * 3
    assert refusal(account.create) == ("AuthFailure", 401)
    endpoint.faults.clear()
    assert account.create()


def test_a_volume_without_room_for_its_file_ends_in_error(
    endpoint: Ec2Endpoint, account: Account, tmp_path: Path
) -> None:
    (tmp_path / "volumes").rename(tmp_path / "moved")
    volume_id = account.available()
    (tmp_path / "moved").rename(tmp_path / "volumes")
    assert account.state(volume_id) == "error"
    assert [entry.detail["transition"] for entry in endpoint.log.entries("transition_failed")] == ["create"]


def test_a_stuck_attachment_and_a_stuck_detach_may_come_loose(endpoint: Ec2Endpoint, account: Account) -> None:
    endpoint.faults.add(Fault(FaultKind.STUCK_ATTACHING, seconds=0.05))
    volume_id = account.attached()
    row = endpoint.wait_for(volume_id, "in-use/attached", 10)
    assert list(account.bridge.disks) == [row.serial]
    endpoint.faults.add(Fault(FaultKind.STUCK_DETACHING, seconds=0.05))
    account.client.detach_volume(VolumeId=volume_id)
    row = endpoint.wait_for(volume_id, "available", 10)
    assert "in-use/busy" in [state for _, state in row.history]
    assert account.bridge.disks == {}


@pytest.mark.parametrize(
    ("transition", "during"),
    [("create", "creating"), ("attach", "in-use/attaching"), ("detach", "in-use/detaching"), ("delete", "deleting")],
)
def test_a_slow_step_holds_its_state(endpoint: Ec2Endpoint, account: Account, transition: str, during: str) -> None:
    make: dict[str, Callable[[], str]] = {"create": lambda: "", "detach": account.attached}
    volume_id = make.get(transition, account.available)()
    calls: dict[str, Callable[[], Any]] = {
        "create": account.create,
        "attach": lambda: account.attach(volume_id),
        "detach": lambda: account.client.detach_volume(VolumeId=volume_id),
        "delete": lambda: account.client.delete_volume(VolumeId=volume_id),
    }
    endpoint.faults.add(Fault(FaultKind.SLOW, f"{transition.capitalize()}Volume", seconds=3_600))
    calls[transition]()
    with pytest.raises(TimeoutError):
        endpoint.settle(0.05, only=transition)
    assert account.state(endpoint.volumes()[0].id) == during


def test_faults_reach_the_metadata_service_by_its_own_name_only() -> None:
    faults = Faults()
    faults.add(Fault(FaultKind.DROP_BEFORE, times=None))
    assert faults.take(IMDS, CALL_KINDS) is None
    assert faults.take("DescribeVolumes", CALL_KINDS) is not None
    faults.replace([Fault(FaultKind.HTTP, IMDS)])
    assert faults.take(IMDS, CALL_KINDS) is not None


def test_a_fault_hits_as_often_as_it_says_and_only_its_action() -> None:
    faults = Faults()
    faults.add(Fault(FaultKind.THROTTLE, "AttachVolume", times=2))
    actions = ("DetachVolume", "AttachVolume", "AttachVolume", "AttachVolume")
    assert [faults.take(action, CALL_KINDS) is not None for action in actions] == [False, True, True, False]
    assert faults.pending() == []
