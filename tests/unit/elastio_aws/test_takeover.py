"""Whether an instance is gone for good, and the new owner of its volume: the real SDK against moto."""

from __future__ import annotations

from typing import Any

import pytest

from elastio.core.foreign import OwnerState
from elastio.core.model import VolumeId, VolumeSpec, VolumeState, VolumeTag
from elastio.errors import AuthError, NotOursError, TransientError
from elastio.units import GIB
from elastio_aws.volumes import OWNER_TAG
from tests.fixtures.errors import refused
from tests.values import present

from .conftest import respond, returns

SPEC = VolumeSpec(10 * GIB, 200.0)
STATUS = "DescribeInstanceStatus"


def dead(provider: Any, sdk: Any, token: str, owner: str = "i-0000000000000dead") -> VolumeId:
    """A dirty volume that an instance with this id bought."""
    bought: VolumeId = provider.create(token, SPEC, {}).id
    provider.tag(bought, VolumeTag.DIRTY)
    arn = provider.who().arn.rpartition("/")[0] + f"/{owner}"
    sdk.create_tags(Resources=[bought], Tags=[{"Key": OWNER_TAG, "Value": arn}])
    provider._ours.discard(bought)
    provider._bought.discard(bought)
    return bought


def test_volume_of_an_instance_that_ec2_does_not_know_is_taken_over_and_stays_dirty(provider: Any, sdk: Any) -> None:
    volume_id = dead(provider, sdk, "taken-1")
    assert present(provider.describe(volume_id)).state is VolumeState.FOREIGN
    seen = present(provider.foreign(volume_id))
    assert (seen.owner_state, seen.volume.state) == (OwnerState.GONE, VolumeState.AVAILABLE)
    for _ in range(2):
        taken = provider.take_over(volume_id)
        assert (taken.state, taken.tag, taken.token) == (VolumeState.AVAILABLE, VolumeTag.DIRTY, "taken-1")
    assert present(provider.foreign(volume_id)).owner_state is OwnerState.SELF
    assert volume_id in {v.id for v in provider.list_owned()}
    provider.attach(volume_id)


def test_volume_that_another_machine_has_taken_over_since_is_not_attached(provider: Any, sdk: Any) -> None:
    """Both have a copy of one backing device, and both have seen the volume without a living owner."""
    volume_id = dead(provider, sdk, "taken-2")
    provider.take_over(volume_id)
    second = provider.who().arn.rpartition("/")[0] + "/i-00000000000beef2"
    sdk.create_tags(Resources=[volume_id], Tags=[{"Key": OWNER_TAG, "Value": second}])
    with refused(NotOursError, "volume.foreign"):
        provider.attach(volume_id)


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("terminated", OwnerState.GONE),
        ("stopped", OwnerState.THERE),
        ("running", OwnerState.THERE),
        ("shutting-down", OwnerState.THERE),
        ("pending", OwnerState.THERE),
    ],
)
def test_only_a_terminated_instance_is_gone(name: str, state: OwnerState, provider: Any, sdk: Any) -> None:
    volume_id, owner = dead(provider, sdk, f"owner-{name}"), "i-0000000000000dead"
    shown = {"InstanceStatuses": [{"InstanceId": owner, "InstanceState": {"Name": name}}]}
    asked = returns(provider.ec2().client(), STATUS, shown)
    assert present(provider.foreign(volume_id)).owner_state is state
    assert (asked[0]["InstanceId.1"], asked[0]["IncludeAllInstances"]) == (owner, "true")


def test_answer_about_no_instance_or_another_one_proves_nothing(provider: Any, sdk: Any) -> None:
    volume_id = dead(provider, sdk, "odd")
    other = {"InstanceId": "i-0000000000000beef", "InstanceState": {"Name": "terminated"}}
    returns(provider.ec2().client(), STATUS, {"InstanceStatuses": []}, {"InstanceStatuses": [other]})
    for _ in range(2):
        assert present(provider.foreign(volume_id)).owner_state is OwnerState.UNKNOWN


@pytest.mark.parametrize("owner", ["", "somebody", "arn:aws:ec2:eu-west-1:123456789012:instance/i-0000000000000dead"])
def test_owner_of_another_region_and_no_owner_prove_nothing(owner: str, provider: Any, sdk: Any) -> None:
    volume_id = dead(provider, sdk, f"elsewhere-{len(owner)}")
    sdk.create_tags(Resources=[volume_id], Tags=[{"Key": OWNER_TAG, "Value": owner}])
    assert present(provider.foreign(volume_id)).owner_state is OwnerState.UNKNOWN


def test_role_that_may_not_see_instances_is_refused_with_its_reason(provider: Any, sdk: Any) -> None:
    volume_id = dead(provider, sdk, "blind")
    respond(provider, STATUS, 403, "UnauthorizedOperation")
    with refused(AuthError, "UnauthorizedOperation"):
        provider.foreign(volume_id)


def test_new_owner_that_ec2_does_not_show_yet_is_no_refusal(provider: Any, sdk: Any) -> None:
    volume_id = dead(provider, sdk, "late")
    shown = sdk.describe_volumes(VolumeIds=[volume_id])["Volumes"]
    returns(provider.ec2().client(), "DescribeVolumes", {"Volumes": shown})
    with refused(TransientError, "volume.unknown"):
        provider.take_over(volume_id)


def test_volume_of_the_dead_instance_is_listed_by_its_backing_device(provider: Any, sdk: Any) -> None:
    dirty = dead(provider, sdk, "listed-1")
    found = {v.id: v for v in provider.list_for_backing()}
    assert (found[dirty].state, found[dirty].tag) == (VolumeState.AVAILABLE, VolumeTag.DIRTY)
    assert {v.backing_uuid for v in found.values()} == {provider._backing_uuid}
    other = VolumeId(sdk.create_volume(AvailabilityZone=provider.who().zone, Size=1)["VolumeId"])
    assert other not in {v.id for v in provider.list_for_backing()}


def test_unknown_volume_is_none(provider: Any) -> None:
    assert provider.foreign(VolumeId("vol-0123456789abcdef0")) is None
