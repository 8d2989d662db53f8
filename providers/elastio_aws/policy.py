"""The IAM policies of the agent, of a take-over and of the janitor. Pure, and the only place that has them.

Theory of operation. Everything that changes a volume is allowed only under a condition on tags. `elastio:owner` is the
ARN of the instance that calls (`ec2:SourceInstanceARN`): it is set while buying, by the only CreateTags that may set
it, and compared by every later call. `elastio:state` is the one tag that may be changed afterwards, and a Deny forbids
to take away what it calls dirty. Source of keys and operators: the Service Authorization Reference of Amazon EC2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elastio.core.model import VolumeTag
from elastio_aws.operations import JANITOR, OPERATIONS, READING, TAKE_OVER
from elastio_aws.volumes import BACKING_TAG, OWNER_TAG, STATE_TAG

# The name of EC2 in a trust policy, by partition.
PARTITIONS = {"aws": "ec2.amazonaws.com", "aws-cn": "ec2.amazonaws.com.cn", "aws-us-gov": "ec2.amazonaws.com"}
VERSION = "2012-10-17"  # of the policy language
_ME = "${ec2:SourceInstanceARN}"
_OWNER = f"aws:ResourceTag/{OWNER_TAG}"
_INSTANCE = re.compile(r"arn:([a-z-]+):ec2:([a-z0-9-]+):([0-9]{12}):instance/(i-[0-9a-f]{8,17})")
_STATE = f"aws:ResourceTag/{STATE_TAG}"


@dataclass(frozen=True, slots=True)
class VolumeLimits:
    """The largest volume that may be bought: GiB, IOPS and MiB/s, as EC2 counts them."""

    size_gib: int = 1024
    iops: int = 8000
    throughput_mib_s: int = 2000


@dataclass(frozen=True, slots=True)
class InstanceArn:
    """The ARN of an EC2 instance, as the tag `elastio:owner` has it."""

    partition: str
    region: str
    account: str
    instance_id: str

    @classmethod
    def parse(cls, text: str) -> InstanceArn:
        """Raises ValueError for what is not the ARN of one instance."""
        match = _INSTANCE.fullmatch(text.strip())
        if match is None or match[1] not in PARTITIONS:
            example = "arn:aws:ec2:eu-central-1:123456789012:instance/i-0123456789abcdef0"
            raise ValueError(f"{text!r} is not the ARN of an instance, such as {example}")
        return cls(*match.groups())

    @property
    def volumes(self) -> str:
        """All volumes of its account and region: it can have bought no others."""
        return f"arn:{self.partition}:ec2:{self.region}:{self.account}:volume/*"

    def __str__(self) -> str:
        return f"arn:{self.partition}:ec2:{self.region}:{self.account}:instance/{self.instance_id}"


def instance_policy(limits: VolumeLimits, partition: str = "aws") -> dict[str, Any]:
    """The policy for the role of an instance on which the agent runs."""
    volumes, instances = f"arn:{partition}:ec2:*:*:volume/*", f"arn:{partition}:ec2:*:*:instance/"
    own = {"StringEquals": {_OWNER: _ME}}
    return _policy(
        _allow("Look", READING, "*"),
        _allow("BuyOwnVolumesUpToACap", ["CreateVolume"], volumes, _bought(limits)),
        _allow("TagOnlyWhileBuying", ["CreateTags"], volumes, {"StringEquals": {"ec2:CreateAction": "CreateVolume"}}),
        _allow("MarkOwnVolumes", ["CreateTags"], volumes, _marking()),
        _allow("HandleOwnVolumes", ["AttachVolume", "DetachVolume", "DeleteVolume"], volumes, own),
        {
            **_allow(
                "NeverTakeAwayWhatMayHoldData",
                ["DetachVolume", "DeleteVolume"],
                volumes,
                {"StringEquals": {_STATE: VolumeTag.DIRTY.value}},
            ),
            "Effect": "Deny",
        },
        _allow(
            "OnlyAtThisInstance",
            ["AttachVolume", "DetachVolume"],
            f"{instances}*",
            {"ArnEquals": {"ec2:SourceInstanceARN": f"{instances}${{ec2:InstanceID}}"}},
        ),
    )


def take_over_policy(backing_uuid: str, dead: InstanceArn) -> dict[str, Any]:
    """What the role needs in addition while the agent takes over a cache that this dead instance bought for the device.

    Machines of one image have the same backing UUID: without the instance the role could take the cache of a live one.
    The caller itself is allowed, because the call is repeated until EC2 shows the new owner.
    """
    taking = {
        "StringEquals": {
            f"aws:ResourceTag/{BACKING_TAG}": backing_uuid,
            _OWNER: [str(dead), _ME],
            f"aws:RequestTag/{OWNER_TAG}": _ME,
            f"aws:RequestTag/{STATE_TAG}": VolumeTag.DIRTY.value,
        },
        "ForAllValues:StringEquals": {"aws:TagKeys": [OWNER_TAG, STATE_TAG]},
    }
    tag, look = TAKE_OVER
    return _policy(
        _allow("SeeWhetherTheOwnerIsGone", [look], "*"),
        _allow("TakeOverCachesOfThisInstance", [tag], dead.volumes, taking),
    )


def janitor_policy(partition: str = "aws") -> dict[str, Any]:
    """The policy for whoever runs `elastio janitor`."""
    reading = [name for name in JANITOR if name in READING]
    changing = [name for name in JANITOR if name not in READING]
    clean = {"StringEquals": {_STATE: VolumeTag.CLEAN.value}, "Null": {_OWNER: "false"}}
    return _policy(
        _allow("Look", reading, "*"),
        _allow("DeleteOnlyWhatIsProvenEmpty", changing, f"arn:{partition}:ec2:*:*:volume/*", clean),
    )


def trust_policy(partition: str = "aws") -> dict[str, Any]:
    """The policy that lets instances take the role."""
    principal = {"Service": PARTITIONS[partition]}
    return _policy({"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"})


def to_json(policy: Mapping[str, Any]) -> str:
    """The document as `elastio aws policy` prints it, and as the reference has it."""
    return json.dumps(policy, indent=2) + "\n"


def _policy(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": VERSION, "Statement": list(statements)}


def _allow(
    sid: str, operations: tuple[str, ...] | list[str], resource: str, condition: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    unknown = sorted(set(operations) - set(OPERATIONS))
    if unknown:
        raise ValueError(f"the provider does not call {', '.join(unknown)}")
    statement = {
        "Sid": sid,
        "Effect": "Allow",
        "Action": [f"ec2:{name}" for name in operations],
        "Resource": resource,
    }
    return statement if condition is None else {**statement, "Condition": dict(condition)}


def _bought(limits: VolumeLimits) -> dict[str, Any]:
    return {
        "StringEquals": {f"aws:RequestTag/{OWNER_TAG}": _ME, "ec2:VolumeType": "gp3"},
        "NumericLessThanEquals": {
            "ec2:VolumeSize": str(limits.size_gib),
            "ec2:VolumeIops": str(limits.iops),
            "ec2:VolumeThroughput": str(limits.throughput_mib_s),
        },
    }


def _marking() -> dict[str, Any]:
    words = [VolumeTag.DIRTY.value, VolumeTag.CLEAN.value]
    return {
        "StringEquals": {_OWNER: _ME, f"aws:RequestTag/{STATE_TAG}": words},
        "ForAllValues:StringEquals": {"aws:TagKeys": [STATE_TAG]},
    }
