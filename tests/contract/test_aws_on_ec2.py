"""Behaviour that only EC2 has, and how the AWS provider handles it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from elastio.core.model import VolumeState, VolumeTag
from elastio.errors import AuthError, NotOursError, QuotaError, RefusedError, TransientError
from elastio_aws import checks
from elastio_aws.devices import NAMES
from elastio_aws.provider import AwsProvider
from elastio_testbed.ec2 import Fault, FaultKind, Quota
from elastio_testbed.ec2.limits import refuse_device
from tests.fixtures.errors import refused

from .steps import bought, settled


def test_credentials_of_the_instances_role_are_used(ec2_cloud: Any) -> None:
    credentials = ec2_cloud.provider.ec2().client()._request_signer._credentials
    assert credentials.method == "iam-role"
    assert ec2_cloud.provider.list_owned() == ()


def test_token_returns_its_volume_after_a_restart_at_a_later_time(ec2_cloud: Any) -> None:
    first = bought(ec2_cloud)
    later = AwsProvider(ec2_cloud.provider.settings, "other-uuid", wall=lambda: 4e9)
    assert later.create("token-1", ec2_cloud.spec, {}).id == first.id
    later.close()
    assert ec2_cloud.billed_volumes() == {first.id}


def test_volume_already_bought_is_found_at_the_quota(ec2_cloud: Any) -> None:
    first = bought(ec2_cloud)
    ec2_cloud.endpoint.quota = Quota(max_volumes=1)
    assert ec2_cloud.provider.create("token-1", ec2_cloud.spec, {}).id == first.id
    with refused(QuotaError, "VolumeLimitExceeded"):
        ec2_cloud.provider.create("token-2", ec2_cloud.spec, {})


def test_the_bandwidth_of_a_volume_is_read_by_the_serial_of_its_disk(ec2_cloud: Any) -> None:
    volume = bought(ec2_cloud)
    assert ec2_cloud.provider.bandwidth_of(volume.serial) == pytest.approx(volume.bandwidth_mb_s)
    assert ec2_cloud.provider.bandwidth_of("vol0000000000000dead") is None
    assert ec2_cloud.provider.bandwidth_of("QEMU_HARDDISK_1") is None


def test_a_purchase_is_not_repeated_by_the_sdk_so_no_refusal_hides_it(ec2_cloud: Any) -> None:
    patient = ec2_cloud.open(max_attempts=3)
    refusal = Fault(FaultKind.ERROR, "CreateVolume", code="UnauthorizedOperation")
    ec2_cloud.endpoint.faults.replace([Fault(FaultKind.DROP_AFTER, "CreateVolume"), refusal])
    with pytest.raises(TransientError):
        patient.create("token-1", ec2_cloud.spec, {})
    assert len(ec2_cloud.endpoint.faults.pending()) == 1, "the refusal has met nobody"
    ec2_cloud.endpoint.faults.replace([])
    assert ec2_cloud.billed_volumes() == {patient.create("token-1", ec2_cloud.spec, {}).id}


@pytest.mark.parametrize("action", ["AttachVolume", "DetachVolume", "DeleteVolume"])
def test_lost_response_is_retried_by_the_sdk(ec2_cloud: Any, action: str) -> None:
    patient = ec2_cloud.open(max_attempts=3)
    ec2_cloud.endpoint.faults.replace([Fault(FaultKind.DROP_AFTER, action)])
    volume = patient.create("token-1", ec2_cloud.spec, {})
    ec2_cloud.settle()
    for call, state in (
        (patient.attach, VolumeState.ATTACHED),
        (patient.detach, VolumeState.AVAILABLE),
        (patient.delete, None),
    ):
        call(volume.id)
        ec2_cloud.settle()
        seen = patient.describe(volume.id)
        assert (seen and seen.state) == state
    assert ec2_cloud.endpoint.faults.pending() == []
    assert len(ec2_cloud.endpoint.volumes()) == 1


def test_volume_at_another_instance_stays_there(ec2_cloud: Any) -> None:
    volume = bought(ec2_cloud)
    other = ec2_cloud.endpoint.add_instance(None, "m7i.4xlarge")
    by_hand = {"VolumeId": volume.id, "InstanceId": other, "Device": "/dev/sdf"}
    ec2_cloud.provider.ec2().call("attach_volume", **by_hand)
    ec2_cloud.settle()
    assert ec2_cloud.provider.describe(volume.id).state == VolumeState.ELSEWHERE
    with refused(RefusedError, "volume.elsewhere"):
        ec2_cloud.provider.attach(volume.id)
    ec2_cloud.provider.detach(volume.id)
    with refused(RefusedError, "volume.in-use"):
        ec2_cloud.provider.delete(volume.id)
    ec2_cloud.settle()
    assert ec2_cloud.endpoint.volume(volume.id).instance_id == other


def test_machines_of_one_image_never_share_a_volume(ec2_cloud: Any) -> None:
    """Both decide in the same millisecond, and no IAM policy separates them."""
    first, second = ec2_cloud.provider, ec2_cloud.clone()
    volume = bought(ec2_cloud)
    with pytest.raises(RefusedError):
        second.create("token-1", ec2_cloud.spec, {})
    first.attach(volume.id)
    ec2_cloud.settle()
    assert second.describe(volume.id).state is VolumeState.FOREIGN
    assert second.list_owned() == ()
    for call in (second.attach, second.detach, second.delete):
        with pytest.raises(NotOursError):
            call(volume.id)
    ec2_cloud.settle()
    assert first.describe(volume.id).state is VolumeState.ATTACHED
    assert second.create("token-2", ec2_cloud.spec, {}).id != volume.id


def test_attach_is_one_call_once_the_owner_was_seen(ec2_cloud: Any) -> None:
    volume = bought(ec2_cloud)

    def asked() -> list[object]:
        return [entry.detail["action"] for entry in ec2_cloud.endpoint.log.calls()]

    before = len(asked())
    ec2_cloud.provider.attach(volume.id)
    ec2_cloud.provider.tag(volume.id, VolumeTag.DIRTY)
    assert asked()[before:] == ["AttachVolume", "CreateTags"]
    restarted = ec2_cloud.open()
    restarted.attach(volume.id)
    assert "DescribeVolumes" in asked()[before + 2 :]


def test_every_device_name_that_is_proposed_is_listed_by_ec2() -> None:
    assert [name for name in NAMES if refuse_device(name)] == []


def test_xen_instance_buys_nothing(ec2_cloud: Any) -> None:
    """Its kernel shows no serial, so the disk of a volume could never be found."""
    old = ec2_cloud.endpoint.add_instance(None, "t2.large")
    with pytest.raises(RefusedError):
        ec2_cloud.open(metadata_url=ec2_cloud.endpoint.imds_url(old)).quote(ec2_cloud.spec)
    assert ec2_cloud.billed_volumes() == set()


def test_volume_that_disappears_without_access_to_its_key_is_refused(ec2_cloud: Any) -> None:
    """The account encrypts by default with a customer managed key, which is not in the configuration."""
    provider = ec2_cloud.provider
    ec2_cloud.endpoint.encrypt_by_default("alias/ours", usable=False)
    ec2_cloud.endpoint.faults.replace([Fault(FaultKind.SLOW, "CreateVolume", seconds=5.0)])
    volume = provider.create("token-1", ec2_cloud.spec, {})
    ec2_cloud.endpoint.settle(30.0, "visible")
    assert provider.describe(volume.id).state is VolumeState.CREATING
    ec2_cloud.settle()
    with refused(RefusedError, "volume.kms-key"):
        provider.describe(volume.id)
    assert provider.describe(volume.id) is None
    assert "alias/ours" in {name: text for name, _, text in checks.run(provider)}["AWS encryption"]


def test_tag_on_a_volume_that_is_not_visible_yet_is_transient(ec2_cloud: Any) -> None:
    volume = bought(ec2_cloud)
    ec2_cloud.endpoint.faults.replace([Fault(FaultKind.ERROR, "CreateTags", code="InvalidVolume.NotFound")])
    with pytest.raises(TransientError):
        ec2_cloud.provider.tag(volume.id, VolumeTag.DIRTY)
    ec2_cloud.provider.tag(volume.id, VolumeTag.DIRTY)
    assert ec2_cloud.provider.describe(volume.id).tag is VolumeTag.DIRTY


def test_dirty_volume_is_neither_detached_nor_deleted_under_the_policy(ec2_cloud: Any) -> None:
    ec2_cloud.endpoint.guards_dirty = True
    provider, volume = ec2_cloud.provider, bought(ec2_cloud)
    provider.attach(volume.id)
    ec2_cloud.settle()
    provider.tag(volume.id, VolumeTag.DIRTY)
    with pytest.raises(AuthError):
        provider.detach(volume.id)
    with pytest.raises(AuthError):
        provider.delete(volume.id)
    provider.tag(volume.id, VolumeTag.CLEAN)
    provider.detach(volume.id)
    ec2_cloud.settle()
    provider.delete(volume.id)
    ec2_cloud.settle()
    assert ec2_cloud.billed_volumes() == set()


def test_guest_that_keeps_the_disk_shows_as_busy_and_detach_may_be_repeated(ec2_cloud: Any) -> None:
    volume = bought(ec2_cloud)
    settled(ec2_cloud, "attach", volume.id)
    ec2_cloud.endpoint.faults.replace([Fault(FaultKind.STUCK_DETACHING, "DetachVolume")])
    settled(ec2_cloud, "detach", volume.id)
    assert ec2_cloud.provider.describe(volume.id).state == VolumeState.BUSY
    with pytest.raises(TransientError):
        ec2_cloud.provider.attach(volume.id)
    with refused(RefusedError, "volume.in-use"):
        ec2_cloud.provider.delete(volume.id)
    settled(ec2_cloud, "detach", volume.id)
    assert ec2_cloud.provider.describe(volume.id).state == VolumeState.AVAILABLE


def test_stuck_attachment_shows_and_can_be_detached(ec2_cloud: Any) -> None:
    volume = bought(ec2_cloud)
    ec2_cloud.endpoint.faults.replace([Fault(FaultKind.STUCK_ATTACHING, "AttachVolume")])
    settled(ec2_cloud, "attach", volume.id)
    assert ec2_cloud.provider.describe(volume.id).state == VolumeState.ATTACHING
    settled(ec2_cloud, "detach", volume.id)
    assert ec2_cloud.provider.describe(volume.id).state == VolumeState.AVAILABLE


def test_volume_that_failed_shows_as_error_and_can_be_deleted(ec2_cloud: Any) -> None:
    ec2_cloud.endpoint.faults.replace([Fault(FaultKind.CREATE_ERROR, "CreateVolume")])
    volume = bought(ec2_cloud)
    assert ec2_cloud.provider.describe(volume.id).state == VolumeState.ERROR
    settled(ec2_cloud, "delete", volume.id)
    assert ec2_cloud.billed_volumes() == set()


@pytest.mark.parametrize("action", ["terminate", "stop", "hibernate"])
def test_an_interruption_of_a_spot_instance_is_noticed(action: str, ec2_cloud: Any) -> None:
    assert ec2_cloud.provider.notice() is None
    before = time.time()
    ec2_cloud.endpoint.interrupt_spot(ec2_cloud.instance_id, action, in_s=120.0)
    notice = ec2_cloud.provider.notice()
    assert notice.action == action
    assert before + 118 <= notice.at_wall <= time.time() + 120


def test_maintenance_that_is_near_is_noticed(ec2_cloud: Any) -> None:
    ec2_cloud.endpoint.schedule_maintenance(ec2_cloud.instance_id, "instance-stop", in_s=600.0)
    assert ec2_cloud.provider.notice().action == "stop"
