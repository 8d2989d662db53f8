"""Volumes and attachments live through their states in their own time, driven by boto3 over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from elastio_testbed.ec2 import Ec2Endpoint, MemoryBridge, Scale, open_client

_NEVER_S = 3_600.0
_SCALE = Scale(gib_bytes=2**20, mib_s_bytes=2**10)


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Ec2Endpoint]:
    with Ec2Endpoint(tmp_path / "volumes", scale=_SCALE, latency_scale=0, rate_limits=False) as running:
        yield running


@pytest.fixture
def bridge() -> MemoryBridge:
    return MemoryBridge()


@pytest.fixture
def instance_id(endpoint: Ec2Endpoint, bridge: MemoryBridge) -> str:
    return endpoint.add_instance(bridge)


@pytest.fixture
def client(endpoint: Ec2Endpoint) -> Any:
    return open_client(endpoint)


def create(client: Any, **other: Any) -> str:
    wanted = {"AvailabilityZone": "us-east-1a", "Size": 100, "VolumeType": "gp3", **other}
    return str(client.create_volume(**wanted)["VolumeId"])


def ready(endpoint: Ec2Endpoint, client: Any, **other: Any) -> str:
    volume_id = create(client, **other)
    endpoint.settle(10)
    return volume_id


def code_of(call: Any, **parameters: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    return str(caught.value.response["Error"]["Code"])


def never(endpoint: Ec2Endpoint, step: str) -> None:
    endpoint.latency.set(step, _NEVER_S, _NEVER_S)
    endpoint.latency.scale = 1


def test_a_volume_lives_through_all_its_states_and_leaves_nothing(
    endpoint: Ec2Endpoint, client: Any, instance_id: str, bridge: MemoryBridge
) -> None:
    tags = [{"ResourceType": "volume", "Tags": [{"Key": "owner", "Value": instance_id}]}]
    volume_id = ready(endpoint, client, Iops=8_000, Throughput=1_000, TagSpecifications=tags)
    client.attach_volume(VolumeId=volume_id, InstanceId=instance_id, Device="/dev/sdf")
    endpoint.settle(10)
    disk = bridge.disks[volume_id.replace("-", "")]
    attached = client.describe_volumes(VolumeIds=[volume_id])["Volumes"][0]
    client.detach_volume(VolumeId=volume_id)
    endpoint.settle(10)
    client.delete_volume(VolumeId=volume_id)
    endpoint.settle(10)

    assert (disk.size_bytes, disk.bytes_per_second, disk.iops) == (100 * 2**20, 1_000 * 2**10, 8_000)
    assert (attached["State"], attached["Attachments"][0]["State"]) == ("in-use", "attached")
    assert attached["Throughput"] == 1_000
    assert attached["Tags"] == [{"Key": "owner", "Value": instance_id}]
    assert not attached["Attachments"][0]["DeleteOnTermination"]
    row = endpoint.volume(volume_id)
    assert [state for _, state in row.history] == [
        "creating",
        "available",
        "in-use/attaching",
        "in-use/attached",
        "in-use/detaching",
        "available",
        "deleting",
        "deleted",
    ]
    assert row.tags == {"owner": instance_id}
    assert client.describe_tags()["Tags"] == []
    assert row.deleted_at is not None
    assert row.created_at <= row.deleted_at
    assert code_of(client.describe_volumes, VolumeIds=[volume_id]) == "InvalidVolume.NotFound"
    assert (bridge.disks, endpoint.live_volumes(), row.path.exists()) == ({}, [], False)


def test_a_volume_is_creating_and_cannot_be_used_until_it_is_available(
    endpoint: Ec2Endpoint, client: Any, instance_id: str
) -> None:
    endpoint.latency.set("visible", 0.001, 0.002)
    never(endpoint, "create")
    volume_id = create(client)
    endpoint.settle(10, only="visible")
    attach = {"VolumeId": volume_id, "InstanceId": instance_id, "Device": "/dev/sdf"}
    assert client.describe_volumes(VolumeIds=[volume_id])["Volumes"][0]["State"] == "creating"
    assert code_of(client.attach_volume, **attach) == "IncorrectState"
    assert code_of(client.delete_volume, VolumeId=volume_id) == "IncorrectState"


def test_a_new_volume_is_not_found_until_it_is_visible(endpoint: Ec2Endpoint, client: Any) -> None:
    endpoint.latency.set("create", 0.001, 0.002)
    never(endpoint, "visible")
    volume_id = create(client, ClientToken="one")
    endpoint.settle(10, only="create")
    assert endpoint.volume(volume_id).state == "available"
    assert code_of(client.describe_volumes, VolumeIds=[volume_id]) == "InvalidVolume.NotFound"
    assert code_of(client.delete_volume, VolumeId=volume_id) == "InvalidVolume.NotFound"
    assert client.describe_volumes()["Volumes"] == []
    assert create(client, ClientToken="one") == volume_id


def test_a_deleting_volume_is_still_shown(endpoint: Ec2Endpoint, client: Any) -> None:
    volume_id = ready(endpoint, client)
    never(endpoint, "delete")
    client.delete_volume(VolumeId=volume_id)
    assert client.describe_volumes(VolumeIds=[volume_id])["Volumes"][0]["State"] == "deleting"
    assert endpoint.volume(volume_id).deleted_at is None
    assert code_of(client.delete_volume, VolumeId=volume_id) == "IncorrectState"


def test_a_volume_is_in_use_while_it_is_still_attaching(
    endpoint: Ec2Endpoint, client: Any, instance_id: str, bridge: MemoryBridge
) -> None:
    volume_id = ready(endpoint, client)
    bridge.gate.clear()
    client.attach_volume(VolumeId=volume_id, InstanceId=instance_id, Device="/dev/sdf")
    assert bridge.entered.wait(10)
    shown = client.describe_volumes(VolumeIds=[volume_id])["Volumes"][0]
    machine = client.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]
    bridge.gate.set()
    endpoint.settle(10)
    assert (shown["State"], shown["Attachments"][0]["State"]) == ("in-use", "attaching")
    assert machine["BlockDeviceMappings"][0]["Ebs"]["Status"] == "attaching"
    assert endpoint.volume(volume_id).attachment_state == "attached"


def test_a_detach_during_a_slow_plug_takes_the_disk_out_after_it(
    endpoint: Ec2Endpoint, client: Any, instance_id: str, bridge: MemoryBridge
) -> None:
    volume_id = ready(endpoint, client)
    bridge.gate.clear()
    client.attach_volume(VolumeId=volume_id, InstanceId=instance_id, Device="/dev/sdf")
    assert bridge.entered.wait(10)
    client.detach_volume(VolumeId=volume_id)
    bridge.gate.set()
    endpoint.settle(10)
    assert endpoint.volume(volume_id).state == "available"
    assert bridge.disks == {}
    assert [entry.detail["did"] for entry in endpoint.log.entries("bridge")] == ["plug", "unplug"]
    assert endpoint.log.entries("step_failed") == []


def test_a_guest_that_does_not_let_go_makes_the_attachment_busy_until_it_does(
    endpoint: Ec2Endpoint, client: Any, instance_id: str, bridge: MemoryBridge
) -> None:
    volume_id = ready(endpoint, client)
    client.attach_volume(VolumeId=volume_id, InstanceId=instance_id, Device="/dev/sdf")
    endpoint.settle(10)
    endpoint.unplug_timeout_s = 7.5
    bridge.holds_on = True
    client.detach_volume(VolumeId=volume_id)
    endpoint.settle(10)
    shown = client.describe_volumes(VolumeIds=[volume_id])["Volumes"][0]
    assert (shown["State"], shown["Attachments"][0]["State"]) == ("in-use", "busy")
    assert code_of(client.delete_volume, VolumeId=volume_id) == "VolumeInUse"
    assert bridge.unplug_timeouts_s[0] == 7.5
    bridge.holds_on = False
    client.detach_volume(VolumeId=volume_id)
    endpoint.settle(10)
    assert (endpoint.volume(volume_id).state, bridge.disks) == ("available", {})


def test_a_busy_detach_completes_by_itself_when_the_guest_lets_go(
    endpoint: Ec2Endpoint, client: Any, instance_id: str, bridge: MemoryBridge
) -> None:
    endpoint.busy_retry_s = 0.02
    row = endpoint.add_volume(instance_id, size_gib=8, plug=True)
    bridge.holds_on = True
    client.detach_volume(VolumeId=row.id)
    endpoint.wait_for(row.id, "in-use/busy", 10)
    bridge.holds_on = False
    endpoint.wait_for(row.id, "available", 10)
    assert bridge.disks == {}
    with pytest.raises(ValueError, match="positive"):
        endpoint.busy_retry_s = 0


def test_a_machine_that_cannot_plug_leaves_the_attachment_attaching_and_detachable(
    endpoint: Ec2Endpoint, client: Any, instance_id: str, bridge: MemoryBridge
) -> None:
    volume_id = ready(endpoint, client)
    bridge.broken = True
    client.attach_volume(VolumeId=volume_id, InstanceId=instance_id, Device="/dev/sdf")
    endpoint.settle(10)
    assert endpoint.volume(volume_id).attachment_state == "attaching"
    assert "no free slot" in str(endpoint.log.entries("step_failed")[0].detail["error"])
    client.detach_volume(VolumeId=volume_id)
    endpoint.settle(10)
    assert endpoint.volume(volume_id).state == "available"


def test_an_instance_without_a_bridge_is_api_only(endpoint: Ec2Endpoint, client: Any) -> None:
    instance_id = endpoint.add_instance(None)
    volume_id = ready(endpoint, client)
    client.attach_volume(VolumeId=volume_id, InstanceId=instance_id, Device="/dev/sdf")
    endpoint.settle(10)
    assert endpoint.volume(volume_id).attachment_state == "attached"
    client.detach_volume(VolumeId=volume_id)
    endpoint.settle(10)
    assert endpoint.volume(volume_id).state == "available"


def test_volumes_of_a_dead_machine_are_let_go_and_doomed_ones_deleted(
    endpoint: Ec2Endpoint, client: Any, instance_id: str, bridge: MemoryBridge
) -> None:
    kept, doomed = ready(endpoint, client), ready(endpoint, client)
    for volume_id, device in ((kept, "/dev/sdf"), (doomed, "/dev/sdg")):
        client.attach_volume(VolumeId=volume_id, InstanceId=instance_id, Device=device)
    endpoint.settle(10)
    mapping = {"DeviceName": "/dev/sdg", "Ebs": {"DeleteOnTermination": True}}
    client.modify_instance_attribute(InstanceId=instance_id, BlockDeviceMappings=[mapping])
    shown = client.describe_volumes(VolumeIds=[doomed])["Volumes"][0]
    bridge.holds_on = True  # a dead machine does not answer
    client.terminate_instances(InstanceIds=[instance_id])
    endpoint.settle(10)
    assert shown["Attachments"][0]["DeleteOnTermination"]
    assert (endpoint.volume(kept).state, endpoint.volume(doomed).state) == ("available", "deleted")
    attach = {"VolumeId": kept, "InstanceId": instance_id, "Device": "/dev/sdf"}
    assert code_of(client.attach_volume, **attach) == "IncorrectState"


def test_a_machine_ended_by_the_laboratory_lets_go_too(
    endpoint: Ec2Endpoint, client: Any, instance_id: str, bridge: MemoryBridge
) -> None:
    row = endpoint.add_volume(instance_id, size_gib=8, plug=True)
    endpoint.terminate_instance(instance_id)
    endpoint.settle(10)
    assert (endpoint.volume(row.id).state, bridge.disks) == ("available", {})


@pytest.mark.parametrize("plug", [True, False])
def test_a_boot_volume_is_attached_at_once_and_detaches_like_any(
    endpoint: Ec2Endpoint, client: Any, instance_id: str, bridge: MemoryBridge, plug: bool
) -> None:
    row = endpoint.add_volume(instance_id, size_gib=8, device="/dev/sdb", tags={"role": "data"}, plug=plug)
    assert (row.attachment_state, row.device, row.tags) == ("attached", "/dev/sdb", {"role": "data"})
    assert row.path.stat().st_size == 8 * 2**20
    assert list(bridge.disks) == ([row.serial] if plug else [])
    if not plug:  # then the machine was started with it
        bridge.plug(row.serial, row.path, bytes_per_second=1, iops=None)
    client.detach_volume(VolumeId=row.id)
    endpoint.settle(10)
    assert (endpoint.volume(row.id).state, bridge.disks) == ("available", {})


def test_a_modified_volume_gets_its_new_speed_while_it_is_plugged(
    endpoint: Ec2Endpoint, client: Any, instance_id: str, bridge: MemoryBridge
) -> None:
    row = endpoint.add_volume(instance_id, size_gib=100, plug=True)
    change = client.modify_volume(VolumeId=row.id, Throughput=500)["VolumeModification"]
    endpoint.settle(10)
    assert (change["OriginalThroughput"], change["TargetThroughput"]) == (125, 500)
    assert bridge.disks[row.serial].bytes_per_second == 500 * 2**10
    done = client.describe_volumes_modifications(VolumeIds=[row.id])["VolumesModifications"]
    assert [each["ModificationState"] for each in done] == ["completed"]
    for throughput in (400, 300, 200):
        client.modify_volume(VolumeId=row.id, Throughput=throughput)
        endpoint.settle(10)
    assert code_of(client.modify_volume, VolumeId=row.id, Throughput=150) == "VolumeModificationRateExceeded"
    assert endpoint.volume(row.id).throughput_mib_s == 200


def test_many_clients_at_once_get_one_volume_each(endpoint: Ec2Endpoint, client: Any) -> None:
    made: list[str] = []
    threads = [
        threading.Thread(target=lambda n=n: made.append(create(client, ClientToken=f"client-{n}"))) for n in range(24)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    endpoint.settle(10)
    assert len(set(made)) == 24
    assert sorted(made) == sorted(row.id for row in endpoint.live_volumes())


def test_endpoints_do_not_see_each_others_volumes(endpoint: Ec2Endpoint, client: Any, tmp_path: Path) -> None:
    volume_id = ready(endpoint, client)
    with Ec2Endpoint(tmp_path / "other", latency_scale=0) as other:
        stranger = open_client(other)
        assert stranger.describe_volumes()["Volumes"] == []
        assert stranger.describe_instances()["Reservations"] == []
        assert code_of(stranger.describe_volumes, VolumeIds=[volume_id]) == "InvalidVolume.NotFound"
    assert [row["VolumeId"] for row in client.describe_volumes()["Volumes"]] == [volume_id]


def test_a_stopped_endpoint_starts_no_step_and_keeps_the_files(tmp_path: Path) -> None:
    endpoint = Ec2Endpoint(tmp_path, scale=_SCALE, latency_scale=0)
    endpoint.start()
    client = open_client(endpoint)
    kept = ready(endpoint, client)
    never(endpoint, "create")
    create(client)
    endpoint.stop()
    endpoint.stop()
    assert [path.name for path in tmp_path.iterdir()] == [f"{kept}.raw"]
    with pytest.raises(RuntimeError, match="new one"):
        endpoint.start()
