"""What EC2 refuses, and with which code; idempotency; paging and filters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from elastio_testbed.ec2 import Ec2Endpoint, MemoryBridge, Quota, Scale, open_client


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Ec2Endpoint]:
    scale = Scale(gib_bytes=2**20)
    with Ec2Endpoint(tmp_path, scale=scale, latency_scale=0, rate_limits=False) as running:
        yield running


@pytest.fixture
def client(endpoint: Ec2Endpoint) -> Any:
    return open_client(endpoint)


@pytest.fixture
def instance_id(endpoint: Ec2Endpoint) -> str:
    return endpoint.add_instance(MemoryBridge())


def create(client: Any, **other: Any) -> str:
    wanted = {"AvailabilityZone": "us-east-1a", "Size": 10, "VolumeType": "gp3", **other}
    return str(client.create_volume(**wanted)["VolumeId"])


def ready(endpoint: Ec2Endpoint, client: Any, **other: Any) -> str:
    volume_id = create(client, **other)
    endpoint.settle(10)
    return volume_id


def attach(client: Any, volume_id: str, instance_id: str, device: str = "/dev/sdf") -> Any:
    return client.attach_volume(VolumeId=volume_id, InstanceId=instance_id, Device=device)


def refusal(call: Any, *arguments: Any, **parameters: Any) -> tuple[str, int]:
    with pytest.raises(ClientError) as caught:
        call(*arguments, **parameters)
    response = caught.value.response
    return str(response["Error"]["Code"]), int(response["ResponseMetadata"]["HTTPStatusCode"])


def test_the_same_token_gives_the_same_volume_and_other_parameters_a_mismatch(
    endpoint: Ec2Endpoint, client: Any
) -> None:
    volume_id = create(client, ClientToken="once")
    assert create(client, ClientToken="once") == volume_id
    assert refusal(create, client, ClientToken="once", Size=11) == ("IdempotentParameterMismatch", 400)
    assert create(client, ClientToken="twice") != volume_id
    assert len(endpoint.volumes()) == 2


def test_a_token_remembers_a_volume_that_is_gone(endpoint: Ec2Endpoint, client: Any) -> None:
    volume_id = ready(endpoint, client, ClientToken="once")
    client.delete_volume(VolumeId=volume_id)
    endpoint.settle(10)
    again = client.create_volume(AvailabilityZone="us-east-1a", Size=10, VolumeType="gp3", ClientToken="once")
    assert again["VolumeId"] == volume_id
    assert endpoint.live_volumes() == []


def test_without_a_token_every_create_is_a_volume_of_its_own(endpoint: Ec2Endpoint, client: Any) -> None:
    assert create(client) != create(client)
    assert len(endpoint.volumes()) == 2


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"Throughput": 3_000, "Iops": 16_000}, "InvalidParameterValue"),
        ({"Throughput": 1_000}, "InvalidParameterCombination"),
        ({"Iops": 8_000}, "InvalidParameterCombination"),
        ({"Size": 70_000}, "InvalidParameterValue"),
        ({"AvailabilityZone": "us-east-1z"}, "InvalidZone.NotFound"),
        ({"ClientToken": "x" * 65}, "InvalidParameterValue"),
        ({"VolumeType": "io2"}, "InvalidParameterDependency"),
    ],
)
def test_impossible_volumes_are_refused_and_not_made(
    endpoint: Ec2Endpoint, client: Any, parameters: dict[str, Any], code: str
) -> None:
    wanted = {"Size": 10, **parameters}
    assert refusal(create, client, **wanted)[0] == code
    assert endpoint.volumes() == []


def test_a_dry_run_says_whether_it_would_and_does_nothing(endpoint: Ec2Endpoint, client: Any) -> None:
    assert refusal(create, client, DryRun=True) == ("DryRunOperation", 412)
    assert refusal(create, client, DryRun=True, Size=100, Iops=80_001)[0] == "InvalidParameterValue"
    assert endpoint.volumes() == []


def test_the_quota_limits_volumes_and_storage_and_comes_before_the_token(endpoint: Ec2Endpoint, client: Any) -> None:
    endpoint.quota = Quota(max_volumes=2, max_gib=25)
    ready(endpoint, client, ClientToken="once")
    assert refusal(create, client, Size=16) == ("VolumeLimitExceeded", 400)
    second = ready(endpoint, client)
    assert refusal(create, client, Size=1)[0] == "VolumeLimitExceeded"
    assert refusal(create, client, ClientToken="once")[0] == "VolumeLimitExceeded"
    client.delete_volume(VolumeId=second)
    endpoint.settle(10)
    assert create(client, Size=15)


def test_an_attached_volume_is_neither_attached_again_nor_deleted(
    endpoint: Ec2Endpoint, client: Any, instance_id: str
) -> None:
    volume_id = ready(endpoint, client)
    attach(client, volume_id, instance_id)
    endpoint.settle(10)
    assert refusal(attach, client, volume_id, instance_id, "/dev/sdg") == ("VolumeInUse", 400)
    assert refusal(client.delete_volume, VolumeId=volume_id) == ("VolumeInUse", 400)
    assert endpoint.volume(volume_id).device == "/dev/sdf"


def test_detaching_what_is_not_attached_there_is_refused(endpoint: Ec2Endpoint, client: Any, instance_id: str) -> None:
    other = endpoint.add_instance(None)
    volume_id = ready(endpoint, client)
    assert refusal(client.detach_volume, VolumeId=volume_id)[0] == "IncorrectState"
    attach(client, volume_id, instance_id)
    endpoint.settle(10)
    wrong = refusal(client.detach_volume, VolumeId=volume_id, InstanceId=other)
    assert wrong[0] == "InvalidAttachment.NotFound"
    assert refusal(client.detach_volume, VolumeId=volume_id, Device="/dev/sdz")[0] == wrong[0]
    endpoint.latency.set("detach", 3_600, 3_600)
    endpoint.latency.scale = 1
    client.detach_volume(VolumeId=volume_id, InstanceId=instance_id, Device="/dev/sdf")
    assert refusal(client.detach_volume, VolumeId=volume_id)[0] == "IncorrectState"


def test_a_used_or_impossible_device_name_is_refused(endpoint: Ec2Endpoint, client: Any, instance_id: str) -> None:
    first, second = ready(endpoint, client), ready(endpoint, client)
    attach(client, first, instance_id)
    assert refusal(attach, client, second, instance_id)[0] == "InvalidParameterValue"
    assert refusal(attach, client, second, instance_id, "/dev/nvme1")[0] == "InvalidParameterValue"
    attach(client, second, instance_id, "/dev/sdg")
    endpoint.settle(10)
    assert endpoint.volume(second).attachment_state == "attached"


def test_an_instance_takes_no_more_volumes_than_its_type_does(endpoint: Ec2Endpoint, client: Any) -> None:
    types = client.describe_instance_types(InstanceTypes=["m5.large"])["InstanceTypes"]
    limit = types[0]["EbsInfo"]["MaximumEbsAttachments"]
    instance_id = endpoint.add_instance(None, "m5.large")
    for number in range(limit):
        endpoint.add_volume(instance_id, size_gib=1, device=f"/dev/xvdb{chr(ord('a') + number % 26)}{number}")
    volume_id = ready(endpoint, client)
    assert refusal(attach, client, volume_id, instance_id)[0] == "AttachmentLimitExceeded"


def test_a_volume_of_another_zone_and_unknown_things_are_refused(
    endpoint: Ec2Endpoint, client: Any, instance_id: str
) -> None:
    elsewhere = ready(endpoint, client, AvailabilityZone="us-east-1b")
    here = ready(endpoint, client)
    unknown = "vol-0123456789abcdef0"
    assert refusal(attach, client, elsewhere, instance_id)[0] == "InvalidVolume.ZoneMismatch"
    assert refusal(attach, client, here, "i-0123456789abcdef0")[0] == "InvalidInstanceID.NotFound"
    assert refusal(attach, client, unknown, instance_id)[0] == "InvalidVolume.NotFound"
    assert refusal(client.delete_volume, VolumeId=unknown)[0] == "InvalidVolume.NotFound"
    assert refusal(client.describe_volumes, VolumeIds=[here, unknown])[0] == "InvalidVolume.NotFound"
    assert refusal(client.describe_volumes, VolumeIds=["disk-1"])[0] == "InvalidParameterValue"


def test_pages_show_every_volume_once_even_when_some_go_meanwhile(endpoint: Ec2Endpoint, client: Any) -> None:
    made = [create(client) for _ in range(12)]
    endpoint.settle(10)
    first = client.describe_volumes(MaxResults=5)
    client.delete_volume(VolumeId=made[4])
    endpoint.settle(10)
    second = client.describe_volumes(MaxResults=5, NextToken=first["NextToken"])
    third = client.describe_volumes(MaxResults=5, NextToken=second["NextToken"])
    seen = [row["VolumeId"] for page in (first, second, third) for row in page["Volumes"]]
    assert seen == made
    assert "NextToken" not in third
    assert refusal(client.describe_volumes, MaxResults=4)[0] == "InvalidParameterValue"
    assert refusal(client.describe_volumes, MaxResults=5, NextToken="?")[0] == "InvalidNextToken"
    both = refusal(client.describe_volumes, MaxResults=5, VolumeIds=[made[0]])
    assert both[0] == "InvalidParameterCombination"


def test_volumes_are_found_by_tag_state_and_instance(endpoint: Ec2Endpoint, client: Any, instance_id: str) -> None:
    tags = [{"ResourceType": "volume", "Tags": [{"Key": "owner", "Value": "me"}]}]
    mine, other = ready(endpoint, client, TagSpecifications=tags), ready(endpoint, client)
    attach(client, other, instance_id)
    endpoint.settle(10)

    def found(name: str, value: str) -> list[str]:
        answer = client.describe_volumes(Filters=[{"Name": name, "Values": [value]}])
        return [row["VolumeId"] for row in answer["Volumes"]]

    assert found("tag:owner", "me") == [mine]
    assert found("status", "available") == [mine]
    assert found("attachment.instance-id", instance_id) == [other]
    assert found("attachment.status", "attached") == [other]
    assert refusal(found, "colour", "red")[0] == "InvalidParameterValue"
    client.create_tags(Resources=[other], Tags=[{"Key": "owner", "Value": "me"}])
    assert found("tag:owner", "me") == [mine, other]


def test_the_limits_of_an_instance_type_are_ec2s_own(client: Any) -> None:
    answer = client.describe_instance_types(InstanceTypes=["m5.large"])
    limits = answer["InstanceTypes"][0]["EbsInfo"]["EbsOptimizedInfo"]
    assert (limits["BaselineThroughputInMBps"], limits["MaximumThroughputInMBps"]) == (81.25, 593.75)


def test_an_action_that_nobody_has_and_a_foreign_region_are_refused(endpoint: Ec2Endpoint, client: Any) -> None:
    stranger = open_client(endpoint, region="eu-west-1")
    assert refusal(client.describe_volume_status)[0] == "InvalidAction"
    assert refusal(stranger.describe_volumes) == ("AuthFailure", 401)


def test_another_region_has_its_own_zones(tmp_path: Path) -> None:
    with Ec2Endpoint(tmp_path / "west", region="eu-west-1", latency_scale=0) as west:
        assert refusal(create, open_client(west))[0] == "InvalidZone.NotFound"
        assert create(open_client(west), AvailabilityZone="eu-west-1b")


def test_an_unknown_zone_or_type_makes_no_instance(endpoint: Ec2Endpoint) -> None:
    with pytest.raises(ValueError, match="us-east-1z"):
        endpoint.add_instance(None, zone="us-east-1z")
    with pytest.raises(ValueError, match=r"m5\.enormous"):
        endpoint.add_instance(None, "m5.enormous")
    with pytest.raises(ValueError, match="i-none"):
        endpoint.add_volume("i-none", size_gib=1)
