"""Checks for `elastio doctor`, before money is spent: each passes or fails, and says what to do.

Nothing is changed. Calls that would change something use DryRun: EC2 then only reports whether they are permitted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TypeAlias

from elastio.core.model import Quote, VolumeSpec, VolumeTag
from elastio.errors import AuthError, ElastioError, ProviderError, QuotaError, RefusedError
from elastio.units import GIB, MIB
from elastio_aws import codes, devices, prices, queries, volumes
from elastio_aws.encryption import AWS_KEY, KEY_PERMISSIONS
from elastio_aws.provider import MAX_PAGES, AwsProvider

Check: TypeAlias = tuple[str, bool, str]
# The name of a check, and the sentence it passed with or the error it failed with.
Result: TypeAlias = tuple[str, str | ElastioError]

METADATA_HOST = "169.254.169.254"
SMALLEST = VolumeSpec(size_bytes=GIB, bandwidth_mb_s=125 * MIB / 1e6)
_DRY_TOKEN = "elastio-doctor"
# What EC2 may respond to a dry run of AttachVolume if the permission is granted.
_BEYOND_PERMISSION = (codes.DRY_RUN_OK, codes.IN_USE, codes.INCORRECT_STATE)


def run(provider: AwsProvider, wanted: VolumeSpec = SMALLEST) -> list[Check]:
    """Name, whether it passed, and one sentence for each check. `wanted` is the largest volume the agent would buy.

    Does not raise errors of `elastio.errors`: they are the failures. If the first checks fail, those that could only
    fail for the same reason are left out.
    """
    found = results(provider, wanted)
    return [(name, not isinstance(result, ElastioError), str(result)) for name, result in found]


def results(provider: AwsProvider, wanted: VolumeSpec = SMALLEST) -> list[Result]:
    """The results of `run` with the errors themselves."""
    first = [_checked("AWS instance", provider, _instance), _checked("AWS credentials", provider, _credentials)]
    if any(isinstance(result, ElastioError) for _, result in first):
        return first
    return [
        *first,
        _checked("AWS place", provider, _place),
        _checked("AWS create", provider, lambda p: _create(p, wanted)),
        _checked("AWS attach", provider, _attach),
        _checked("AWS tag", provider, _tag),
        _checked("AWS encryption", provider, _encryption),
        _checked("AWS bandwidth", provider, lambda p: _bandwidth(p, wanted)),
        _checked("AWS attachments", provider, _attachments),
    ]


def _checked(name: str, provider: AwsProvider, check: Callable[[AwsProvider], str]) -> Result:
    try:
        return name, check(provider)
    except ElastioError as error:
        return name, error


def _instance(provider: AwsProvider) -> str:
    me = provider.who()
    return f"This is {me.instance_id} ({me.instance_type or 'type unknown'}) in {me.zone}."


def _credentials(provider: AwsProvider) -> str:
    owned = provider.list_owned()
    return f"Credentials work, DescribeVolumes is allowed; {len(owned)} volume(s) have this instance's tag."


def _place(provider: AwsProvider) -> str:
    return f"In {provider.who().zone}: {'; '.join(oddities(provider).values()) or 'nothing out of the ordinary'}."


def oddities(provider: AwsProvider) -> dict[str, str]:
    """What no call reports beforehand, but a setting does: a word for each, with its description."""
    me = provider.who()
    found = {}
    if not re.fullmatch(rf"{re.escape(me.region)}[a-z]", me.zone):
        found["zone"] = f"{me.zone} is not an ordinary availability zone, and may not offer gp3"
    if provider.settings.endpoint_url.startswith("http://"):
        found["endpoint"] = "provider.aws.endpoint_url is not https, so requests can be read and changed on the way"
    proxied = [name for name in ("http_proxy", "HTTP_PROXY") if os.environ.get(name)]
    if proxied and METADATA_HOST not in os.environ.get("no_proxy", os.environ.get("NO_PROXY", "")):
        found["proxy"] = f"{proxied[0]} is set and NO_PROXY lacks {METADATA_HOST}, the SDK's source of credentials"
    return found


def _create(provider: AwsProvider, wanted: VolumeSpec) -> str:
    labels = provider.tags_for(_DRY_TOKEN)
    request = provider.create_request(_DRY_TOKEN, wanted, labels)
    _dry_run(provider, "create_volume", (codes.DRY_RUN_OK,), **request)
    return f"CreateVolume is allowed for {request['Size']} GiB with {request['Throughput']} MiB/s."


def _attach(provider: AwsProvider) -> str:
    owned = provider.list_owned()
    if not owned:
        return "AttachVolume cannot be checked before the first volume exists; see `elastio aws policy`."
    request = {"VolumeId": owned[0].id, "InstanceId": provider.who().instance_id, "Device": devices.NAMES[-1]}
    _dry_run(provider, "attach_volume", _BEYOND_PERMISSION, **request)
    return "AttachVolume is allowed for this agent's volumes."


def _tag(provider: AwsProvider) -> str:
    owned = provider.list_owned()
    if not owned:
        return "CreateTags cannot be checked before the first volume exists; there are no boosts without it."
    tags = volumes.tag_list({volumes.STATE_TAG: VolumeTag.CLEAN.value})
    _dry_run(provider, "create_tags", (codes.DRY_RUN_OK,), Resources=[owned[0].id], Tags=tags)
    return f"CreateTags is allowed for {volumes.STATE_TAG} of this agent's volumes."


def _encryption(provider: AwsProvider) -> str:
    """EC2 checks a KMS key only after its response, so a missing permission shows as a volume that fails."""
    key = provider.settings.kms_key_id
    try:
        by_default = provider.ec2().call("get_ebs_encryption_by_default").get("EbsEncryptionByDefault")
        if not (provider.settings.encrypted or by_default):
            return "New volumes are not encrypted."
        key = key or str(provider.ec2().call("get_ebs_default_kms_key_id").get("KmsKeyId"))
    except (AuthError, RefusedError):
        return (
            "Whether this account encrypts by default is unknown (ec2:GetEbsEncryptionByDefault is not allowed); if it "
            f"does with a customer managed key, the role needs {KEY_PERMISSIONS} on that key."
        )
    if key.endswith(AWS_KEY):
        return "New volumes are encrypted with the AWS managed key."
    return f"New volumes are encrypted with {key}; no dry run checks that the role has {KEY_PERMISSIONS} on it."


def _dry_run(provider: AwsProvider, operation: str, fine: tuple[str, ...], **request: object) -> None:
    try:
        provider.ec2().call(operation, DryRun=True, **request)
    except ProviderError as error:
        if error.code not in fine:
            raise


def _bandwidth(provider: AwsProvider, wanted: VolumeSpec) -> str:
    limit = provider.identify().bandwidth_limit_mb_s
    quoted = provider.quote(wanted)
    price = _price(provider, quoted)
    if limit is None:
        return f"The instance's EBS limit is not known: allow ec2:DescribeInstanceTypes to have it checked ({price})."
    most = f"{round(limit, 1):g} MB/s that all volumes of the instance share"
    return f"{wanted.bandwidth_mb_s:.0f} MB/s are within the {most} ({price})."


def _price(provider: AwsProvider, quoted: Quote) -> str:
    """The price per hour, and how old it is."""
    known = prices.tariff(provider.settings, provider.who().region)
    if known is None:
        return quoted.price_source
    dated = f", at the list price of {known.date}" if known.date else ""
    return f"{quoted.price_per_hour:.4f} {quoted.currency} per hour{dated}"


def _attachments(provider: AwsProvider) -> str:
    here = {"attachment.instance-id": provider.who().instance_id}
    used = sum(1 for _ in queries.describe_volumes(provider.ec2(), here, MAX_PAGES))
    info = provider.ebs_info() or {}
    most = info.get("MaximumEbsAttachments")
    if most is None:
        return f"{used} volume(s) are attached; the limit of this instance is not known."
    # shared: what else takes places is not known here, but there is one network interface at least
    is_shared = info.get("AttachmentLimitType") != "dedicated"
    shared = ", which network interfaces, local disks and accelerators share and are not counted" if is_shared else ""
    if used + is_shared >= int(most):
        raise QuotaError(
            f"{used} volumes are attached, of at most {most} places{shared}; detach one of them.",
            code="instance.attachments",
        )
    return f"{used} volumes are attached, of at most {most} places{shared}."
