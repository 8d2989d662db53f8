"""Who this machine is to EC2, and whether it is an EC2 instance at all."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elastio.errors import ConfigError, RefusedError
from elastio_aws import metadata
from elastio_aws.settings import Settings

# What firmware shows of a Nitro instance is its own id; of other machines it is something else, or nothing.
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
class Who:
    """One instance. `instance_type` is empty where it is not known."""

    instance_id: str
    account_id: str
    region: str
    zone: str
    instance_type: str

    @property
    def arn(self) -> str:
        """The instance's ARN: the value of the owner tag, as IAM knows it by `ec2:SourceInstanceARN`."""
        partition = next((name for prefix, name in _PARTITIONS if self.region.startswith(prefix)), "aws")
        return f"arn:{partition}:ec2:{self.region}:{self.account_id}:instance/{self.instance_id}"


def who(settings: Settings) -> Who:
    """From the settings, completed by the identity document, which is only asked for what is missing.

    Raises TransientError or RefusedError as `metadata.identity_document` does, and ConfigError where the settings
    name another instance than the document or the firmware: a copied disk takes them to another instance, which would
    then release the first one's volumes.
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
    return Who(
        instance_id=found["instanceId"],
        account_id=found["accountId"],
        region=found["region"],
        zone=found["availabilityZone"],
        instance_type=settings.instance_type or str(document.get("instanceType") or ""),
    )


def _require_own(instance_id: str, document: Mapping[str, Any]) -> None:
    for told, by in ((str(document.get("instanceId") or ""), "identity document"), (_firmware_id(), "firmware")):
        if told and instance_id and told != instance_id:
            raise ConfigError(
                f"provider.aws.instance_id names {instance_id}, but the {by} of this machine says {told}; remove the "
                "setting, and the instance is found out.",
                code="provider.aws.instance_id",
            )


def _firmware_id() -> str:
    try:
        told = ASSET_TAG.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
    return told if _INSTANCE_ID.fullmatch(told) else ""


def detect(path: Path = CLOUD_INIT_DATA) -> bool:
    """Whether cloud-init saw AWS at boot. False where cloud-init left nothing that can be read."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    facts = data.get("v1") if isinstance(data, dict) else None
    return isinstance(facts, dict) and facts.get("cloud_name") == "aws"
