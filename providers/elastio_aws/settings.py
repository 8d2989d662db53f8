"""The table `[provider.aws]`: what may be set, its defaults, and one sentence for whatever is wrong."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from elastio.errors import ConfigError
from elastio.units import GIB, MIB

METADATA_URL = "http://169.254.169.254"
METADATA_ENV = "AWS_EC2_METADATA_SERVICE_ENDPOINT"  # the variable every AWS SDK honours
TAG_PREFIX = "elastio:"
MAX_EXTRA_TAGS = 40  # EC2 allows 50 on a resource; the agent puts six there

_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "volume_type": str,
    "region": str,
    "availability_zone": str,
    "instance_id": str,
    "instance_type": str,
    "account_id": str,
    "endpoint_url": str,
    "metadata_url": str,
    "encrypted": bool,
    "kms_key_id": str,
    "iops": int,
    "connect_timeout_s": (int, float),
    "read_timeout_s": (int, float),
    "max_attempts": int,
    "lifetime_s": (int, float),
    "cache_dir": str,
    "extra_tags": Mapping,
    "prices": Mapping,
    "scale": Mapping,
}
_KIND_NAMES = {str: "a string", bool: "true or false", int: "a whole number", Mapping: "a table"}


@dataclass(frozen=True, slots=True)
class Scale:
    """What a GiB and a MiB/s of the endpoint are worth. Other than the defaults only for test endpoints."""

    gib_bytes: int = GIB
    mib_s_bytes: int = MIB

    def mb_s(self, mib_s: float) -> float:
        """MiB/s as the endpoint counts them, in real MB/s."""
        return mib_s * self.mib_s_bytes / 1e6


@dataclass(frozen=True, slots=True)
class Prices:
    """What gp3 costs here a month, for each GiB, each MiB/s over 125 and each IOPS over 3,000."""

    gb_month: float
    mib_s_month: float
    iops_month: float
    currency: str = "USD"
    source: str = "[provider.aws.prices]"


@dataclass(frozen=True, slots=True)
class Settings:
    """Empty strings mean: ask the metadata service. `cache_dir` empty: keep no trimmed SDK data.

    `lifetime_s` fills the tag `elastio:expires`: until then nobody but this agent should delete the volume.
    """

    volume_type: str = "gp3"
    region: str = ""
    availability_zone: str = ""
    instance_id: str = ""
    instance_type: str = ""
    account_id: str = ""
    endpoint_url: str = ""
    metadata_url: str = METADATA_URL
    encrypted: bool = False
    kms_key_id: str = ""
    iops: int | None = None
    connect_timeout_s: float = 3.0
    read_timeout_s: float = 10.0
    max_attempts: int = 3
    lifetime_s: float = 86400.0
    cache_dir: str = "/var/cache/elastio/botocore"
    extra_tags: Mapping[str, str] = field(default_factory=dict)
    prices: Prices | None = None
    scale: Scale = field(default_factory=Scale)


def parse(table: Mapping[str, object], environ: Mapping[str, str] = os.environ) -> Settings:
    """Check the table and complete it. Raises ConfigError naming the key and what is allowed."""
    for key, value in table.items():
        _check_kind(key, value)
    values = dict(table)
    values["metadata_url"] = str(values.get("metadata_url") or environ.get(METADATA_ENV) or METADATA_URL).rstrip("/")
    values["extra_tags"] = _extra_tags(table.get("extra_tags"))
    values["prices"] = _prices(table.get("prices"))
    values["scale"] = _scale(table.get("scale"))
    settings = Settings(**values)  # type: ignore[arg-type]  # every value's type was checked above
    _check_values(settings)
    return settings


def _check_kind(key: str, value: object) -> None:
    kind = _KINDS.get(key)
    if kind is None:
        raise ConfigError(f"provider.aws.{key} is not a setting; known are: {', '.join(sorted(_KINDS))}.")
    numeric_bool = isinstance(value, bool) and kind is not bool  # True is an int to Python, not to an operator
    if numeric_bool or not isinstance(value, kind):
        wanted = "a number" if isinstance(kind, tuple) else _KIND_NAMES[kind]
        raise ConfigError(f"provider.aws.{key} must be {wanted}, not {value!r}.")


def _check_values(settings: Settings) -> None:
    if settings.volume_type != "gp3":
        raise ConfigError(f'provider.aws.volume_type must be "gp3", not "{settings.volume_type}".')
    for key in ("connect_timeout_s", "read_timeout_s", "lifetime_s", "max_attempts"):
        if not 0 < getattr(settings, key) < float("inf"):
            raise ConfigError(f"provider.aws.{key} must be above 0.")
    if settings.iops is not None and settings.iops <= 0:
        raise ConfigError("provider.aws.iops must be above 0.")
    if settings.kms_key_id and not settings.encrypted:
        raise ConfigError("provider.aws.kms_key_id needs provider.aws.encrypted = true.")
    for key in ("endpoint_url", "metadata_url"):
        url = getattr(settings, key)
        if url and not url.startswith(("http://", "https://")):
            raise ConfigError(f"provider.aws.{key} must start with http:// or https://, not {url!r}.")
    if settings.cache_dir and not Path(settings.cache_dir).is_absolute():
        raise ConfigError("provider.aws.cache_dir must be an absolute path, or empty to keep no cache.")


def _extra_tags(value: object) -> dict[str, str]:
    tags = dict(value) if isinstance(value, Mapping) else {}
    if len(tags) > MAX_EXTRA_TAGS:
        raise ConfigError(f"provider.aws.extra_tags holds {len(tags)} tags; {MAX_EXTRA_TAGS} are the most.")
    for key, text in tags.items():
        if not isinstance(text, str):
            raise ConfigError(f"provider.aws.extra_tags.{key} must be a string, not {text!r}.")
        if key.startswith((TAG_PREFIX, "aws:")) or key == "Name":
            raise ConfigError(f"provider.aws.extra_tags.{key} is reserved; choose another key.")
        if not 0 < len(key) <= 128 or len(text) > 256:
            raise ConfigError(f"provider.aws.extra_tags.{key} is too long: 128 characters a key, 256 a value.")
    return tags


def _prices(value: object) -> Prices | None:
    table = dict(value) if isinstance(value, Mapping) else {}
    rates, texts = ("gb_month", "mib_s_month", "iops_month"), ("currency", "source")
    for key, given in table.items():
        if key not in rates + texts:
            known = ", ".join(rates + texts)
            raise ConfigError(f"provider.aws.prices.{key} is not a setting; known are: {known}.")
        if key in texts and not (isinstance(given, str) and given):
            raise ConfigError(f"provider.aws.prices.{key} must be a string, not {given!r}.")
    for key in rates if table else ():
        price = table.get(key)
        is_number = isinstance(price, int | float) and not isinstance(price, bool)
        if not is_number or not 0 <= float(str(price)) < float("inf"):
            raise ConfigError(f"provider.aws.prices.{key} must be a price a month of 0 or more, not {price!r}.")
    return Prices(**table) if table else None


def _scale(value: object) -> Scale:
    table = dict(value) if isinstance(value, Mapping) else {}
    for key, number in table.items():
        if key not in ("gib_bytes", "mib_s_bytes"):
            raise ConfigError(f"provider.aws.scale.{key} is not a setting; known are: gib_bytes, mib_s_bytes.")
        if isinstance(number, bool) or not isinstance(number, int) or number <= 0:
            raise ConfigError(f"provider.aws.scale.{key} must be a whole number above 0, not {number!r}.")
    return Scale(**table)
