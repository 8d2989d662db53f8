"""DescribeVolumes as the provider and the janitor use it: one volume, or every volume that passes a filter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from elastio.core.model import VolumeId
from elastio.errors import ProviderError, TransientError
from elastio_aws import codes

if TYPE_CHECKING:
    from elastio_aws.client import Ec2

PAGE_SIZE = 500


def describe_volume(ec2: Ec2, volume_id: VolumeId) -> dict[str, Any] | None:
    """The volume as EC2 shows it, or None if EC2 does not know it. Raises TransientError if EC2 returns another one."""
    try:
        response = ec2.call("describe_volumes", VolumeIds=[volume_id])
    except ProviderError as error:
        if error.code == codes.NOT_FOUND:
            return None
        raise
    found: list[dict[str, Any]] = response.get("Volumes") or []
    if any(shown.get("VolumeId") != volume_id for shown in found):
        text = f"DescribeVolumes of {volume_id} returned another volume; the call will be repeated."
        raise TransientError(text, code="response.other-volume")
    return found[0] if found else None


def describe_volumes(ec2: Ec2, filters: Mapping[str, str], max_pages: int) -> Iterator[dict[str, Any]]:
    """Every volume that passes the filters, page by page. Raises TransientError beyond `max_pages`."""
    request: dict[str, Any] = {
        "Filters": [{"Name": name, "Values": [value]} for name, value in filters.items()],
        "MaxResults": PAGE_SIZE,
    }
    for _ in range(max_pages):
        response = ec2.call("describe_volumes", **request)
        yield from response.get("Volumes") or ()
        following = response.get("NextToken")
        if not following:
            return
        request["NextToken"] = following
    text = f"DescribeVolumes did not end within {max_pages} pages; the call will be repeated."
    raise TransientError(text, code="response.too-long")
