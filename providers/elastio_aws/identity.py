"""Which EC2 instance this machine is, if it is one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elastio.errors import ConfigError, RefusedError
from elastio_aws import metadata
from elastio_aws.place import require_agreement
from elastio_aws.settings import Settings

# On a Nitro instance the asset tag is the instance id; on other machines it is something else, or missing.
ASSET_TAG = Path("/sys/class/dmi/id/board_asset_tag")
_INSTANCE_ID = re.compile(r"i-[0-9a-f]{8,17}")
CLOUD_INIT_DATA = Path("/run/cloud-init/instance-data.json")
_PARTITIONS = (
    ("cn-", "aws-cn"),
    ("us-gov-", "aws-us-gov"),
    ("us-isob-", "aws-iso-b"),
    ("us-isof-", "aws-iso-f"),
    ("us-iso-", "aws-iso"),
    ("eu-isoe-", "aws-iso-e"),
    ("eusc-", "aws-eusc"),
)


@dataclass(frozen=True, slots=True)
class InstanceIdentity:
    """One instance. `instance_type` is empty if unknown."""

    instance_id: str
    account_id: str
    region: str
    zone: str
    instance_type: str

    @property
    def arn(self) -> str:
        """The instance's ARN: the value of the owner tag, and what IAM calls `ec2:SourceInstanceARN`."""
        partition = next((name for prefix, name in _PARTITIONS if self.region.startswith(prefix)), "aws")
        return f"arn:{partition}:ec2:{self.region}:{self.account_id}:instance/{self.instance_id}"


def who(settings: Settings) -> InstanceIdentity:
    """The identity from the settings, completed from the identity document if something is missing.

    Raises TransientError and RefusedError as `metadata.identity_document` does, and ConfigError if the settings name
    another instance than the document or the firmware: a copied disk takes the settings to another instance, which
    would then release the volumes of the first. So it does if zone, key or endpoint belong to another region.
    """
    known = {
        "instanceId": settings.instance_id,
        "accountId": settings.account_id,
        "region": settings.region,
        "availabilityZone": settings.availability_zone,
    }
    document = {} if all(known.values()) else metadata.identity_document(settings.metadata_url)
    found = {key: value or str(document.get(key) or "") for key, value in known.items()}
    _require_own(found["instanceId"], document)
    missing = [key for key, value in found.items() if not value]
    if missing:
        raise RefusedError(
            f"The identity document at {settings.metadata_url} lacks {', '.join(missing)}; set them in [provider.aws].",
            code="metadata.incomplete",
        )
    require_agreement(found["region"], found["availabilityZone"], settings.kms_key_id, settings.endpoint_url)
    return InstanceIdentity(
        instance_id=found["instanceId"],
        account_id=found["accountId"],
        region=found["region"],
        zone=found["availabilityZone"],
        instance_type=settings.instance_type or str(document.get("instanceType") or ""),
    )


def _require_own(instance_id: str, document: Mapping[str, Any]) -> None:
    for actual, source in ((str(document.get("instanceId") or ""), "identity document"), (_firmware_id(), "firmware")):
        if actual and instance_id and actual != instance_id:
            raise ConfigError(
                f"provider.aws.instance_id names {instance_id}, but this machine's {source} says {actual}; remove "
                "the setting, and the id is detected.",
                code="provider.aws.instance_id",
            )


def _firmware_id() -> str:
    try:
        asset_tag = ASSET_TAG.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
    return asset_tag if _INSTANCE_ID.fullmatch(asset_tag) else ""


def detect(path: Path = CLOUD_INIT_DATA) -> bool:
    """Whether cloud-init detected AWS at boot. False if its data cannot be read."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    facts = data.get("v1") if isinstance(data, dict) else None
    return isinstance(facts, dict) and facts.get("cloud_name") == "aws"
