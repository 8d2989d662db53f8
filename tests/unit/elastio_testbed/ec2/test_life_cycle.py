"""Volumes and attachments pass through their states one after the other, as boto3 sees it."""

from __future__ import annotations

import socket
import statistics
from pathlib import Path

import pytest

from elastio_testbed.ec2 import Ec2Endpoint, open_client
from elastio_testbed.ec2.latency import Latency

from .account import Account, refusal

_NEVER_S = 3_600.0


def never(endpoint: Ec2Endpoint, transition: str) -> None:
    endpoint.latency.set(transition, _NEVER_S, _NEVER_S)
    endpoint.latency.scale = 1


def test_a_volume_lives_through_all_its_states_and_leaves_nothing(endpoint: Ec2Endpoint, account: Account) -> None:
    tags = [{"ResourceType": "volume", "Tags": [{"Key": "owner", "Value": "me"}]}]
    volume_id = account.attached(Size=100, Iops=8_000, Throughput=1_000, TagSpecifications=tags)
    disk = account.bridge.disks[volume_id.replace("-", "")]
    attached = account.shown(volume_id)
    account.detach(volume_id)
    account.delete(volume_id)

    assert (disk.size_bytes, disk.bytes_per_second, disk.iops) == (100 * 2**20, 1_000 * 2**10, round(8_000 / 2**10))
    assert (attached["State"], attached["Attachments"][0]["State"]) == ("in-use", "attached")
    assert (attached["Throughput"], attached["Tags"]) == (1_000, [{"Key": "owner", "Value": "me"}])
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
    assert row.tags == {"owner": "me"}
    assert row.deleted_at is not None
    assert row.created_at <= row.deleted_at
    assert refusal(account.shown, volume_id)[0] == "InvalidVolume.NotFound"
    assert (account.bridge.disks, endpoint.live_volumes(), row.path.exists()) == ({}, [], False)


def test_a_volume_is_creating_and_cannot_be_used_until_it_is_available(endpoint: Ec2Endpoint, account: Account) -> None:
    endpoint.latency.set("visible", 0.001, 0.002)
    never(endpoint, "create")
    volume_id = account.create()
    endpoint.settle(10, only="visible")
    assert account.shown(volume_id)["State"] == "creating"
    assert refusal(account.attach, volume_id)[0] == "IncorrectState"
    assert refusal(account.delete, volume_id)[0] == "IncorrectState"


def test_a_new_volume_is_not_found_until_it_is_visible(endpoint: Ec2Endpoint, account: Account) -> None:
    endpoint.latency.set("create", 0.001, 0.002)
    never(endpoint, "visible")
    volume_id = account.create(ClientToken="one")
    endpoint.settle(10, only="create")
    assert endpoint.volume(volume_id).state == "available"
    assert refusal(account.shown, volume_id)[0] == "InvalidVolume.NotFound"
    assert refusal(account.delete, volume_id)[0] == "InvalidVolume.NotFound"
    assert account.client.describe_volumes()["Volumes"] == []
    assert account.create(ClientToken="one") == volume_id


def test_a_deleting_volume_is_still_shown(endpoint: Ec2Endpoint, account: Account) -> None:
    volume_id = account.available()
    never(endpoint, "delete")
    account.client.delete_volume(VolumeId=volume_id)
    assert account.shown(volume_id)["State"] == "deleting"
    assert endpoint.volume(volume_id).deleted_at is None
    assert refusal(account.delete, volume_id)[0] == "IncorrectState"


def test_a_volume_is_in_use_while_it_is_still_attaching(endpoint: Ec2Endpoint, account: Account) -> None:
    volume_id = account.available()
    account.bridge.gate.clear()
    account.attach(volume_id)
    assert account.bridge.entered.wait(10)
    shown = account.shown(volume_id)
    account.bridge.gate.set()
    endpoint.settle(10)
    assert (shown["State"], shown["Attachments"][0]["State"]) == ("in-use", "attaching")
    assert account.state(volume_id) == "in-use/attached"


def test_a_detach_during_a_slow_plug_takes_the_disk_out_after_it(endpoint: Ec2Endpoint, account: Account) -> None:
    volume_id = account.available()
    account.bridge.gate.clear()
    account.attach(volume_id)
    assert account.bridge.entered.wait(10)
    account.client.detach_volume(VolumeId=volume_id)
    account.bridge.gate.set()
    endpoint.settle(10)
    assert (account.state(volume_id), account.bridge.disks) == ("available", {})
    assert [entry.detail["did"] for entry in endpoint.log.entries("bridge")] == ["plug", "unplug"]
    assert endpoint.log.entries("transition_failed") == []


def test_a_guest_that_keeps_its_disk_makes_the_attachment_busy(endpoint: Ec2Endpoint, account: Account) -> None:
    volume_id = account.attached()
    endpoint.unplug_timeout_s = 7.5
    account.bridge.keeps_disks = True
    account.detach(volume_id)
    assert account.state(volume_id) == "in-use/busy"
    assert refusal(account.delete, volume_id)[0] == "VolumeInUse"
    assert account.bridge.unplug_timeouts_s[0] == 7.5
    account.bridge.keeps_disks = False
    account.detach(volume_id)
    assert (account.state(volume_id), account.bridge.disks) == ("available", {})


def test_a_busy_detach_completes_by_itself(endpoint: Ec2Endpoint, account: Account) -> None:
    endpoint.busy_retry_s = 0.02
    volume_id = account.attached()
    account.bridge.keeps_disks = True
    account.client.detach_volume(VolumeId=volume_id)
    endpoint.wait_for(volume_id, "in-use/busy", 10)
    account.bridge.keeps_disks = False
    endpoint.wait_for(volume_id, "available", 10)
    assert account.bridge.disks == {}


def test_a_failed_plug_leaves_the_attachment_attaching_and_detachable(endpoint: Ec2Endpoint, account: Account) -> None:
    account.bridge.broken = True
    volume_id = account.attached()
    assert account.state(volume_id) == "in-use/attaching"
    assert [entry.detail["transition"] for entry in endpoint.log.entries("transition_failed")] == ["attach"]
    account.detach(volume_id)
    assert account.state(volume_id) == "available"


def test_a_boot_volume_is_attached_at_once_and_detaches_like_any(endpoint: Ec2Endpoint, account: Account) -> None:
    row = endpoint.add_volume(account.instance_id, size_gib=8, device="/dev/sdb")
    assert (row.attachment_state, row.device) == ("attached", "/dev/sdb")
    assert row.path.stat().st_size == 8 * 2**20
    account.bridge.plug(row.serial, row.path, bytes_per_second=1, iops=None)  # the machine was started with it
    account.detach(row.id)
    assert (account.state(row.id), account.bridge.disks) == ("available", {})


def test_a_volume_that_was_torn_off_is_available_and_can_be_attached_again(
    endpoint: Ec2Endpoint, account: Account
) -> None:
    volume_id = account.attached()
    endpoint.tear_off(volume_id, lambda serial: account.bridge.unplug(serial, 1.0))
    assert (account.state(volume_id), account.bridge.disks) == ("available", {})
    account.attach(volume_id)
    endpoint.wait_for(volume_id, "in-use/attached", 10)
    assert len(account.bridge.disks) == 1


def test_a_machine_that_keeps_the_dead_device_leaves_the_volume_busy(endpoint: Ec2Endpoint, account: Account) -> None:
    volume_id = account.attached()
    endpoint.busy_retry_s, account.bridge.keeps_disks = 0.01, True
    endpoint.tear_off(volume_id, lambda serial: account.bridge.unplug(serial, 1.0))
    assert account.state(volume_id) in ("in-use/busy", "in-use/detaching")
    account.bridge.keeps_disks = False
    endpoint.wait_for(volume_id, "available", 10)
    assert account.bridge.disks == {}


def test_only_an_attached_volume_can_be_torn_off(endpoint: Ec2Endpoint, account: Account) -> None:
    with pytest.raises(ValueError, match="not attached"):
        endpoint.tear_off(account.available(), lambda serial: None)


def test_endpoints_do_not_see_each_others_volumes(account: Account, tmp_path: Path) -> None:
    volume_id = account.available()
    with Ec2Endpoint(tmp_path / "other", latency_scale=0) as other:
        stranger = open_client(other)
        assert stranger.describe_volumes()["Volumes"] == []
        assert refusal(stranger.describe_volumes, VolumeIds=[volume_id])[0] == "InvalidVolume.NotFound"


def test_a_stopped_endpoint_starts_no_step_and_keeps_the_files(tmp_path: Path) -> None:
    endpoint = Ec2Endpoint(tmp_path, latency_scale=0)
    endpoint.start()
    account = Account(endpoint)
    kept = account.available(Size=1)
    never(endpoint, "create")
    account.create()
    endpoint.stop()
    endpoint.stop()
    assert [path.name for path in tmp_path.iterdir()] == [f"{kept}.raw"]
    with pytest.raises(RuntimeError):
        endpoint.start()


def test_only_the_loopback_interface_is_served(endpoint: Ec2Endpoint) -> None:
    with socket.socket() as other, pytest.raises(ConnectionRefusedError):
        other.connect(("127.0.0.2", endpoint.port))  # another address of this machine


def test_delays_have_the_median_and_the_p99_they_were_given() -> None:
    latency = Latency(seed=7)
    latency.set("attach", 2.0, 4.0)
    drawn = sorted(latency.draw("attach") for _ in range(20_000))
    assert statistics.median(drawn) == pytest.approx(2.0, rel=0.03)
    assert drawn[int(len(drawn) * 0.99)] == pytest.approx(4.0, rel=0.05)


def test_a_terminated_instance_leaves_its_volumes_and_is_shown_as_such(endpoint: Ec2Endpoint, account: Account) -> None:
    volume_id, other = account.attached(), account.available()
    endpoint.terminate(account.instance_id)
    assert (account.bridge.disks, account.state(volume_id), account.state(other)) == ({}, "available", "available")
    asked = {"InstanceIds": [account.instance_id], "IncludeAllInstances": True}
    (shown,) = account.client.describe_instance_status(**asked)["InstanceStatuses"]
    assert (shown["InstanceId"], shown["InstanceState"]["Name"]) == (account.instance_id, "terminated")
    second = endpoint.add_instance(account.bridge)
    account.attach(volume_id, instance_id=second)
    endpoint.settle(10)
    assert account.state(volume_id) == "in-use/attached"
    with pytest.raises(KeyError):
        endpoint.terminate("i-unknown")
