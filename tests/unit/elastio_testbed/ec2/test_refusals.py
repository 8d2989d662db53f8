"""What EC2 refuses, and with which code; idempotency, paging, filters, call budgets, metadata tokens."""

from __future__ import annotations

import http.client
from contextlib import closing
from typing import Any

import pytest

from elastio_testbed.ec2 import Ec2Endpoint, Quota
from elastio_testbed.ec2.buckets import RateBuckets
from elastio_testbed.ec2.limits import refuse_device, refuse_gp3

from .account import Account, refusal

TTL = "X-aws-ec2-metadata-token-ttl-seconds"
TOKEN = "X-aws-ec2-metadata-token"
UNKNOWN = "vol-0123456789abcdef0"


def test_the_same_token_gives_the_same_volume_and_other_parameters_a_mismatch(
    endpoint: Ec2Endpoint, account: Account
) -> None:
    volume_id = account.available(ClientToken="once")
    assert account.create(ClientToken="once") == volume_id
    assert refusal(account.create, ClientToken="once", Size=11) == ("IdempotentParameterMismatch", 400)
    assert account.create(ClientToken="twice") != volume_id
    assert account.create() != account.create()
    account.delete(volume_id)
    assert account.create(ClientToken="once") == volume_id
    assert len(endpoint.live_volumes()) == 3


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"Throughput": 1_000}, "InvalidParameterCombination"),
        ({"Size": 70_000}, "InvalidParameterValue"),
        ({"AvailabilityZone": "us-east-1z"}, "InvalidZone.NotFound"),
        ({"ClientToken": "x" * 65}, "InvalidParameterValue"),
        ({"VolumeType": "io2"}, "UnsupportedOperation"),
        ({"DryRun": True}, "DryRunOperation"),
        ({"DryRun": True, "Size": 100, "Iops": 80_001}, "InvalidParameterValue"),
    ],
)
def test_a_volume_that_is_refused_is_not_made(
    endpoint: Ec2Endpoint, account: Account, parameters: dict[str, Any], code: str
) -> None:
    assert refusal(account.create, **parameters)[0] == code
    assert endpoint.volumes() == []


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
def test_gp3_has_its_documented_limits(size_gib: int, iops: int, throughput_mib_s: int, code: str | None) -> None:
    refused = refuse_gp3(size_gib, iops, throughput_mib_s)
    assert (refused.code if refused else None) == code


def test_the_quota_limits_volumes_and_storage_and_comes_before_the_token(
    endpoint: Ec2Endpoint, account: Account
) -> None:
    endpoint.quota = Quota(max_volumes=2, max_gib=25)
    account.available(ClientToken="once")
    assert refusal(account.create, Size=16) == ("VolumeLimitExceeded", 400)
    second = account.available()
    assert refusal(account.create, Size=1)[0] == "VolumeLimitExceeded"
    assert refusal(account.create, ClientToken="once")[0] == "VolumeLimitExceeded"
    account.delete(second)
    assert account.create(Size=15)


def test_detaching_what_is_not_attached_there_is_refused(endpoint: Ec2Endpoint, account: Account) -> None:
    detach, other = account.client.detach_volume, endpoint.add_instance(None)
    volume_id = account.available()
    assert refusal(detach, VolumeId=volume_id)[0] == "IncorrectState"
    account.attach(volume_id)
    endpoint.settle(10)
    assert refusal(detach, VolumeId=volume_id, InstanceId=other)[0] == "InvalidAttachment.NotFound"
    assert refusal(detach, VolumeId=volume_id, Device="/dev/sdz")[0] == "InvalidAttachment.NotFound"
    endpoint.latency.set("detach", 3_600, 3_600)
    endpoint.latency.scale = 1
    detach(VolumeId=volume_id, InstanceId=account.instance_id)
    assert refusal(detach, VolumeId=volume_id)[0] == "IncorrectState"


def test_a_used_or_impossible_device_name_is_refused(endpoint: Ec2Endpoint, account: Account) -> None:
    account.attached()
    second = account.available()
    assert refusal(account.attach, second)[0] == "InvalidParameterValue"
    assert refusal(account.attach, second, "/dev/nvme1")[0] == "InvalidParameterValue"
    account.attach(second, "/dev/sdg")
    endpoint.settle(10)
    assert account.state(second) == "in-use/attached"


def test_device_names_are_those_of_the_documentation() -> None:
    names = ("/dev/sdf", "/dev/xvdba", "/dev/xvddx", "/dev/xvdf", "/dev/xvdcy", "/dev/xvdea", "/dev/sdf1", "sdf")
    assert [name for name in names if refuse_device(name)] == list(names[4:])


def test_an_instance_takes_no_more_volumes_than_its_type_does(endpoint: Ec2Endpoint, account: Account) -> None:
    types = account.client.describe_instance_types(InstanceTypes=["m5.large"])["InstanceTypes"]
    for number in range(types[0]["EbsInfo"]["MaximumEbsAttachments"]):
        endpoint.add_volume(account.instance_id, size_gib=1, device=f"/dev/xvdb{chr(ord('a') + number % 26)}{number}")
    assert refusal(account.attach, account.available())[0] == "AttachmentLimitExceeded"


def test_a_volume_of_another_zone_and_unknown_things_are_refused(account: Account) -> None:
    elsewhere, here = account.available(AvailabilityZone="us-east-1b"), account.available()
    describe = account.client.describe_volumes
    assert refusal(account.attach, elsewhere)[0] == "InvalidVolume.ZoneMismatch"
    assert refusal(account.attach, here, instance_id="i-0123456789abcdef0")[0] == "InvalidInstanceID.NotFound"
    assert refusal(account.attach, UNKNOWN)[0] == "InvalidVolume.NotFound"
    assert refusal(account.delete, UNKNOWN)[0] == "InvalidVolume.NotFound"
    assert refusal(describe, VolumeIds=[here, UNKNOWN])[0] == "InvalidVolume.NotFound"
    assert refusal(describe, VolumeIds=["disk-1"])[0] == "InvalidParameterValue"


def test_pages_show_every_volume_once_even_when_some_go_meanwhile(endpoint: Ec2Endpoint, account: Account) -> None:
    made = [account.create() for _ in range(12)]
    endpoint.settle(10)
    describe = account.client.describe_volumes
    first = describe(MaxResults=5)
    account.delete(made[4])
    second = describe(MaxResults=5, NextToken=first["NextToken"])
    third = describe(MaxResults=5, NextToken=second["NextToken"])
    assert [row["VolumeId"] for page in (first, second, third) for row in page["Volumes"]] == made
    assert "NextToken" not in third
    assert refusal(describe, MaxResults=4)[0] == "InvalidParameterValue"
    assert refusal(describe, MaxResults=5, NextToken="?")[0] == "InvalidNextToken"
    assert refusal(describe, MaxResults=5, VolumeIds=[made[0]])[0] == "InvalidParameterCombination"


def test_volumes_are_found_by_state_and_instance_and_not_by_an_unknown_filter(account: Account) -> None:
    free, used = account.available(), account.attached()

    def found(name: str, value: str) -> list[str]:
        answer = account.client.describe_volumes(Filters=[{"Name": name, "Values": [value]}])
        return [row["VolumeId"] for row in answer["Volumes"]]

    assert found("status", "available") == [free]
    assert found("attachment.instance-id", account.instance_id) == [used]
    assert refusal(found, "colour", "red")[0] == "InvalidParameterValue"


def test_an_unknown_action_is_refused(account: Account) -> None:
    assert refusal(account.client.describe_volume_status)[0] == "InvalidAction"


@pytest.mark.parametrize(
    ("action", "narrowed", "capacity", "refill_per_s"),
    [
        ("CreateVolume", True, 100, 5),
        ("AttachVolume", True, 50, 5),
        ("CreateTags", True, 100, 10),
        ("DescribeVolumes", True, 100, 20),
        ("DescribeVolumes", False, 50, 10),
        ("DescribeInstanceTypes", False, 100, 20),
    ],
)
def test_each_action_has_the_documented_budget(action: str, narrowed: bool, capacity: int, refill_per_s: int) -> None:
    now_s = [1_000.0]
    buckets = RateBuckets(clock=lambda: now_s[0])
    assert sum(buckets.take(action, narrowed=narrowed) for _ in range(capacity + 20)) == capacity
    assert buckets.take("DetachVolume")
    now_s[0] += 2.0
    assert sum(buckets.take(action, narrowed=narrowed) for _ in range(capacity)) == 2 * refill_per_s


def test_calls_beyond_the_budget_are_refused_and_not_done(endpoint: Ec2Endpoint, account: Account) -> None:
    endpoint.buckets.enabled = True
    made: list[str] = []

    def spend_all() -> None:
        for _ in range(50):  # on a slow machine the bucket is refilled before the call arrives
            while endpoint.buckets.take("CreateVolume"):
                continue
            made.append(account.create())

    assert refusal(spend_all) == ("RequestLimitExceeded", 503)
    assert [row.id for row in endpoint.volumes()] == made


def metadata(endpoint: Ec2Endpoint, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
    with closing(http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=10)) as connection:
        connection.request(method, f"/imds/{path}", headers=headers)
        response = connection.getresponse()
        return response.status, response.read().decode()


def test_metadata_needs_a_token_of_its_own_instance(endpoint: Ec2Endpoint, account: Account) -> None:
    me, other = account.instance_id, endpoint.add_instance(None)
    path = f"{me}/latest/meta-data/instance-id"
    tokens = {who: metadata(endpoint, "PUT", f"{who}/latest/api/token", {TTL: "60"})[1] for who in (me, other)}
    assert metadata(endpoint, "GET", path, {TOKEN: tokens[me]}) == (200, me)
    for headers in ({}, {TOKEN: "guessed"}, {TOKEN: tokens[other]}):
        assert metadata(endpoint, "GET", path, headers) == (401, "")


def test_metadata_is_refused_without_a_lifetime_and_of_unknown_instances_and_paths(
    endpoint: Ec2Endpoint, account: Account
) -> None:
    me = account.instance_id
    token = {TOKEN: metadata(endpoint, "PUT", f"{me}/latest/api/token", {TTL: "60"})[1]}
    for headers in ({}, {TTL: "0"}, {TTL: "21601"}, {TTL: "an hour"}):  # a lifetime of up to six hours is required
        assert metadata(endpoint, "PUT", f"{me}/latest/api/token", headers)[0] == 400
    assert metadata(endpoint, "PUT", "i-none/latest/api/token", {TTL: "60"})[0] == 404
    assert metadata(endpoint, "GET", f"{me}/latest/meta-data/colour", token)[0] == 404
    assert metadata(endpoint, "GET", f"{me}/latest/api/token", {})[0] == 405
    assert metadata(endpoint, "POST", f"{me}/latest/meta-data/instance-id", token)[0] == 405
