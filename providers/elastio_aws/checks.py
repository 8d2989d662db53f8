"""What can be checked before money is spent, for `elastio doctor`: each with a verdict and a way out.

Nothing is changed: calls that would are made with DryRun, to which EC2 only says whether they are permitted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TypeAlias

from elastio.core.model import VolumeSpec, VolumeTag
from elastio.errors import AuthError, ElastioError, ProviderError, QuotaError, RefusedError
from elastio.units import GIB, MIB
from elastio_aws import codes, devices, volumes
from elastio_aws.keys import AWS_KEY, GRANTS
from elastio_aws.provider import AwsProvider

Check: TypeAlias = tuple[str, bool, str]

METADATA_HOST = "169.254.169.254"
SMALLEST = VolumeSpec(size_bytes=GIB, bandwidth_mb_s=125 * MIB / 1e6)
_DRY_TOKEN = "elastio-doctor"
# What EC2 may say to a dry run of AttachVolume once the permission is granted.
_BEYOND_PERMISSION = (codes.DRY_RUN_OK, codes.IN_USE, codes.INCORRECT_STATE)


def run(provider: AwsProvider, wanted: VolumeSpec = SMALLEST) -> list[Check]:
    """Name, verdict and one sentence for each check; `wanted` is the largest volume the agent would buy.

    Never raises errors of `elastio.errors`: they are verdicts. Later checks that could only repeat the reason of
    the first failure are left out.
    """
    results = [_checked("AWS instance", provider, _instance), _checked("AWS credentials", provider, _credentials)]
    if not all(ok for _, ok, _ in results):
        return results
    return [
        *results,
        _checked("AWS place", provider, _place),
        _checked("AWS create", provider, lambda p: _create(p, wanted)),
        _checked("AWS attach", provider, _attach),
        _checked("AWS tag", provider, _tag),
        _checked("AWS encryption", provider, _encryption),
        _checked("AWS bandwidth", provider, lambda p: _bandwidth(p, wanted)),
        _checked("AWS attachments", provider, _attachments),
    ]


def _checked(name: str, provider: AwsProvider, check: Callable[[AwsProvider], str]) -> Check:
    try:
        return name, True, check(provider)
    except ElastioError as error:
        return name, False, str(error)


def _instance(provider: AwsProvider) -> str:
    me = provider.who()
    return f"This is {me.instance_id} ({me.instance_type or 'type unknown'}) in {me.zone}."


def _credentials(provider: AwsProvider) -> str:
    owned = provider.list_owned()
    return f"Credentials work, DescribeVolumes is allowed; {len(owned)} volume(s) carry this instance's tag."


def _place(provider: AwsProvider) -> str:
    """What no call tells beforehand, and a setting or a page does."""
    me = provider.who()
    hints = []
    if not re.fullmatch(rf"{re.escape(me.region)}[a-z]", me.zone):
        hints.append(f"{me.zone} is no ordinary availability zone, and may not sell gp3")
    if provider.settings.endpoint_url.startswith("http://"):
        hints.append("provider.aws.endpoint_url is not https, so what is asked can be read and changed on its way")
    proxied = [name for name in ("http_proxy", "HTTP_PROXY") if os.environ.get(name)]
    if proxied and METADATA_HOST not in os.environ.get("no_proxy", os.environ.get("NO_PROXY", "")):
        hints.append(f"{proxied[0]} is set and NO_PROXY lacks {METADATA_HOST}, which the SDK asks for credentials")
    return f"In {me.zone}: {'; '.join(hints) or 'nothing out of the ordinary'}."


def _create(provider: AwsProvider, wanted: VolumeSpec) -> str:
    labels = provider.tags_for(_DRY_TOKEN)
    request = provider.create_request(_DRY_TOKEN, wanted, labels)
    _dry_run(provider, "create_volume", (codes.DRY_RUN_OK,), **request)
    return f"CreateVolume is allowed for {request['Size']} GiB with {request['Throughput']} MiB/s."


def _attach(provider: AwsProvider) -> str:
    owned = provider.list_owned()
    if not owned:
        return "AttachVolume cannot be tried before the first volume exists; see docs/reference/iam-policy.json."
    request = {"VolumeId": owned[0].id, "InstanceId": provider.who().instance_id, "Device": devices.NAMES[-1]}
    _dry_run(provider, "attach_volume", _BEYOND_PERMISSION, **request)
    return "AttachVolume is allowed for this agent's volumes."


def _tag(provider: AwsProvider) -> str:
    owned = provider.list_owned()
    if not owned:
        return "CreateTags cannot be tried before the first volume exists; without it nothing is boosted."
    tags = volumes.tag_list({volumes.STATE_TAG: VolumeTag.CLEAN.value})
    _dry_run(provider, "create_tags", (codes.DRY_RUN_OK,), Resources=[owned[0].id], Tags=tags)
    return f"CreateTags is allowed for {volumes.STATE_TAG} of this agent's volumes."


def _encryption(provider: AwsProvider) -> str:
    """EC2 looks into a KMS key after it has answered, so a missing right shows as a volume that comes to nothing."""
    key = provider.settings.kms_key_id
    try:
        by_default = provider.ec2().call("get_ebs_encryption_by_default").get("EbsEncryptionByDefault")
        if not (provider.settings.encrypted or by_default):
            return "New volumes are not encrypted."
        key = key or str(provider.ec2().call("get_ebs_default_kms_key_id").get("KmsKeyId"))
    except (AuthError, RefusedError):
        return (
            "Whether this account encrypts by default may not be asked (ec2:GetEbsEncryptionByDefault); if it does "
            f"with a key of its own, the role needs {GRANTS} on it."
        )
    if key.endswith(AWS_KEY):
        return "New volumes are encrypted with AWS's own key."
    return f"New volumes are encrypted with {key}: the role needs {GRANTS} on it, which no dry run shows."


def _dry_run(provider: AwsProvider, operation: str, fine: tuple[str, ...], **request: object) -> None:
    try:
        provider.ec2().call(operation, DryRun=True, **request)
    except ProviderError as error:
        if codes.code_of(error) not in fine:
            raise


def _bandwidth(provider: AwsProvider, wanted: VolumeSpec) -> str:
    limit = provider.identify().bandwidth_limit_mb_s
    quoted = provider.quote(wanted)
    price = f"{quoted.price_per_hour:.4f} {quoted.currency} per hour" if quoted.price_known else quoted.price_source
    if limit is None:
        return f"The instance's EBS limit is not known: allow ec2:DescribeInstanceTypes to check it ({price})."
    return f"{wanted.bandwidth_mb_s:.0f} MB/s fit into the instance's {round(limit, 1):g} MB/s ({price})."


def _attachments(provider: AwsProvider) -> str:
    used = sum(1 for _ in provider.pages({"attachment.instance-id": provider.who().instance_id}))
    most = (provider.instance_type_info() or {}).get("MaximumEbsAttachments")
    if most is None:
        return f"{used} volume(s) are attached; how many this instance takes is not known."
    if used >= int(most):
        raise QuotaError(f"{used} of at most {most} volumes are attached; detach one of them.")
    return f"{used} of at most {most} volumes are attached."
