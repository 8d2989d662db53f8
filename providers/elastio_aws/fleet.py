"""Every volume that any agent bought in one account and region, for a janitor that runs on any machine.

Uses no metadata service and needs no instance. Needs `ec2:DescribeVolumes`, and `ec2:DeleteVolume` on volumes with
the tag `elastio:state` = `clean`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from elastio.core.model import VolumeId
from elastio.errors import ConfigError, ProviderError, TransientError
from elastio.janitor import FleetVolume
from elastio_aws import codes, queries, volumes
from elastio_aws.place import require_agreement
from elastio_aws.settings import Settings, parse

if TYPE_CHECKING:
    from elastio_aws.client import Ec2

MAX_PAGES = 1000


class AwsFleet:
    """`elastio.janitor.Fleet` of one account and region."""

    def __init__(self, settings: Settings, region: str) -> None:
        self._settings, self._region = settings, region
        self._ec2: Ec2 | None = None

    def volumes(self) -> Iterator[FleetVolume]:
        """Every volume with an owner tag. Raises errors of `elastio.errors`."""
        filters = {"tag-key": volumes.OWNER_TAG}
        for shown in queries.describe_volumes(self.ec2(), filters, MAX_PAGES):
            yield fleet_volume(shown, self._settings)

    def volume(self, volume_id: VolumeId) -> FleetVolume | None:
        """One volume now; None when it is gone."""
        shown = queries.describe_volume(self.ec2(), volume_id)
        return None if shown is None else fleet_volume(shown, self._settings)

    def delete(self, volume_id: VolumeId) -> None:
        """DeleteVolume: EC2 itself refuses one that is attached. Already gone: no error."""
        try:
            self.ec2().call("delete_volume", VolumeId=volume_id)
        except ProviderError as error:
            if error.code != codes.NOT_FOUND:
                raise

    def ec2(self) -> Ec2:
        """The EC2 client, with the SDK imported on first use."""
        if self._ec2 is None:
            from elastio_aws.client import Ec2  # noqa: PLC0415  # importing the SDK is slow

            self._ec2 = Ec2(self._settings, self._region)
        return self._ec2

    def close(self) -> None:
        """Close the connections to EC2, if there are any."""
        if self._ec2 is not None:
            self._ec2.close()


def fleet_volume(shown: Mapping[str, Any], settings: Settings) -> FleetVolume:
    """One volume of a response. Raises TransientError if it has no id."""
    if not shown.get("VolumeId"):
        text = "DescribeVolumes returned a volume without an id; the call will be repeated."
        raise TransientError(text, code="response.malformed")
    tags = volumes.tags_of(shown)
    attached = [a for a in shown.get("Attachments") or () if a.get("State") != "detached"]
    return FleetVolume(
        id=VolumeId(shown["VolumeId"]),
        state=str(shown.get("State", "")),
        is_free=shown.get("State") == "available" and not attached,
        size_bytes=int(shown.get("Size") or 0) * settings.scale.gib_bytes,
        owner=tags.get(volumes.OWNER_TAG, ""),
        backing_uuid=tags.get(volumes.BACKING_TAG, ""),
        tag=volumes.tag_of(tags),
        expires_wall=expiry_of(tags.get(volumes.EXPIRES_TAG, "")),
    )


def expiry_of(text: str) -> float | None:
    """The time in the tag `elastio:expires`, or None if it cannot be read."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z").timestamp()
    except ValueError:
        return None


def open_fleet(settings: Mapping[str, object]) -> AwsFleet:
    """The fleet of `[provider.aws]`; makes no call yet. Raises ConfigError."""
    if find_spec("boto3") is None:
        raise ConfigError(
            "The provider aws needs the AWS SDK; in a checkout, run pip install '.[aws]'.", code="sdk.missing"
        )
    known = parse({"cache_dir": "", **settings})
    region = known.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""
    if not region:
        text = "No region is set: use --set region=NAME, or the environment variable AWS_REGION."
        raise ConfigError(text, code="provider.aws.region")
    require_agreement(region, known.availability_zone, known.kms_key_id, known.endpoint_url)
    return AwsFleet(known, region)
