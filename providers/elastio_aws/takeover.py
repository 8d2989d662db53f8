"""Volumes of instances that are gone: who owns one, whether that instance can start again, and a new owner.

The role of an instance needs more for this than for anything else: `ec2:DescribeInstanceStatus`, and `ec2:CreateTags`
for the owner tag of volumes of its own backing device (docs/reference/iam-take-over.json).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from elastio.core.foreign import OwnerState
from elastio.core.model import VolumeId, VolumeTag
from elastio.errors import ProviderError
from elastio_aws import codes, volumes
from elastio_aws.identity import InstanceIdentity

if TYPE_CHECKING:
    from elastio_aws.client import Ec2

_INSTANCE_ARN = re.compile(r"arn:[^:]+:ec2:(?P<region>[^:]+):(?P<account>[^:]+):instance/(?P<id>i-[0-9a-f]+)")


def owner_state(ec2: Ec2, owner: str, me: InstanceIdentity) -> OwnerState:
    """What EC2 says about the instance with this ARN. Raises errors of `elastio.errors`.

    An instance of another account or region is UNKNOWN: here it looks as if it did not exist. A terminated instance is
    shown for about an hour; after that EC2 does not know it. One that is shutting down may still write: THERE.
    """
    if owner == me.arn:
        return OwnerState.SELF
    named = _INSTANCE_ARN.fullmatch(owner)
    if named is None or (named["region"], named["account"]) != (me.region, me.account_id):
        return OwnerState.UNKNOWN
    try:
        response = ec2.call("describe_instance_status", InstanceIds=[named["id"]], IncludeAllInstances=True)
    except ProviderError as error:
        if error.code != codes.UNKNOWN_INSTANCE:
            raise
        return OwnerState.GONE
    shown = [i for i in response.get("InstanceStatuses") or () if i.get("InstanceId") == named["id"]]
    states = [str((i.get("InstanceState") or {}).get("Name")) for i in shown]
    if len(states) != 1:
        return OwnerState.UNKNOWN
    return OwnerState.GONE if states[0] == "terminated" else OwnerState.THERE


def take_over(ec2: Ec2, volume_id: VolumeId, me: InstanceIdentity) -> None:
    """CreateTags replaces both values in one request: a volume that changes its owner is never tagged clean."""
    tags = {volumes.OWNER_TAG: me.arn, volumes.STATE_TAG: VolumeTag.DIRTY.value}
    ec2.call("create_tags", Resources=[volume_id], Tags=volumes.tag_list(tags))
