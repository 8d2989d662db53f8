"""Whether the settings that name a place agree: region, zone, KMS key and endpoint. Pure."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from elastio.errors import ConfigError

PLACE = "provider.aws"
_REGION = re.compile(r"[a-z]+(-[a-z]+)+-[0-9]+")
_KEY_ARN = re.compile(r"arn:[^:]+:kms:(?P<region>[^:]*):")
_AWS_HOSTS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws", ".api.amazonwebservices.com.cn")


def require_agreement(region: str, zone: str, kms_key_id: str, endpoint_url: str) -> None:
    """Check what is known; an empty string is unknown. Raises ConfigError, with the key as its code.

    At an endpoint that is not AWS's a region may have any name.
    """
    host = urlsplit(endpoint_url).hostname or ""
    is_aws = not host or host.endswith(_AWS_HOSTS)
    if region and is_aws and not _REGION.fullmatch(region):
        raise _wrong("region", f'must be the name of a region such as "eu-west-1", not {region!r}')
    if zone and region and not re.fullmatch(rf"{re.escape(region)}(-.+|[a-z])", zone):
        raise _wrong("availability_zone", f'must be a zone of the region {region}, such as "{region}a", not {zone!r}')
    named = _KEY_ARN.match(kms_key_id)
    if region and named and named["region"] != region:
        raise _wrong("kms_key_id", f"must be a key of the region {region}, not of {named['region']!r}")
    others = [label for label in host.split(".") if _REGION.fullmatch(label) and label != region]
    if region and host and is_aws and others:
        raise _wrong("endpoint_url", f"must be an endpoint of the region {region}, not of {others[0]!r}")


def _wrong(key: str, what: str) -> ConfigError:
    return ConfigError(f"{PLACE}.{key} {what}.", code=f"{PLACE}.{key}")
