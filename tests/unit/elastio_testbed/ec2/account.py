"""One account of the endpoint with one instance, used through boto3."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from elastio_testbed.ec2 import Ec2Endpoint, MemoryBridge, open_client

DEVICE = "/dev/sdf"


class Account:
    """`client` makes no retries, so that a test sees each answer."""

    def __init__(self, endpoint: Ec2Endpoint) -> None:
        self.endpoint, self.bridge, self.client = endpoint, MemoryBridge(), open_client(endpoint)
        self.instance_id = endpoint.add_instance(self.bridge)

    def create(self, client: Any = None, **other: Any) -> str:
        wanted = {"AvailabilityZone": "us-east-1a", "Size": 10, "VolumeType": "gp3", **other}
        return str((client or self.client).create_volume(**wanted)["VolumeId"])

    def available(self, **other: Any) -> str:
        """A new volume that can be attached."""
        volume_id = self.create(**other)
        self.endpoint.settle(10)
        return volume_id

    def attach(self, volume_id: str, device: str = DEVICE, instance_id: str = "") -> None:
        self.client.attach_volume(VolumeId=volume_id, InstanceId=instance_id or self.instance_id, Device=device)

    def attached(self, **other: Any) -> str:
        """A new volume that is attached, or stuck on its way there."""
        volume_id = self.available(**other)
        self.attach(volume_id)
        self.endpoint.settle(10)
        return volume_id

    def detach(self, volume_id: str) -> None:
        self.client.detach_volume(VolumeId=volume_id)
        self.endpoint.settle(10)

    def delete(self, volume_id: str) -> None:
        self.client.delete_volume(VolumeId=volume_id)
        self.endpoint.settle(10)

    def shown(self, volume_id: str) -> dict[str, Any]:
        """The volume in the answer of DescribeVolumes."""
        found: dict[str, Any] = self.client.describe_volumes(VolumeIds=[volume_id])["Volumes"][0]
        return found

    def state(self, volume_id: str) -> str:
        """The volume's state, with that of its attachment behind a slash."""
        return self.endpoint.volume(volume_id).history[-1][1]


def refusal(call: Any, *arguments: Any, **parameters: Any) -> tuple[str, int]:
    """The error code and the HTTP status of a call that is refused."""
    with pytest.raises(ClientError) as caught:
        call(*arguments, **parameters)
    response = caught.value.response
    return str(response["Error"]["Code"]), int(response["ResponseMetadata"]["HTTPStatusCode"])
