"""The table `[provider.aws]`: its keys, their defaults and their checks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from elastio.errors import ConfigError
from elastio.units import GIB, MIB
from elastio_aws.place import PLACE, require_agreement

METADATA_URL = "http://169.254.169.254"
METADATA_ENV = "AWS_EC2_METADATA_SERVICE_ENDPOINT"  # as in every AWS SDK
TAG_PREFIX = "elastio:"
MAX_EXTRA_TAGS = 40  # EC2 allows 50 per resource; the agent sets six

# By the annotation of a dataclass field: the types that its key may have, and what an operator calls them.
_KINDS: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "str": (str, "a string"),
    "bool": (bool, "true or false"),
    "int": (int, "a whole number"),
    "int | None": (int, "a whole number"),
    "float": ((int, float), "a number"),
}
_TABLE = (Mapping, "a table")


@dataclass(frozen=True, slots=True)
class Scale:
    """What a GiB and a MiB/s of the endpoint really are. Differs from the defaults only for test endpoints."""

    gib_bytes: int = GIB
    mib_s_bytes: int = MIB

    def mb_s(self, mib_s: float) -> float:
        """The endpoint's MiB/s in real MB/s."""
        return mib_s * self.mib_s_bytes / 1e6

    def iops(self, shown: int | None) -> int | None:
        """What of these IOPS a volume of the endpoint really has: as many for each MB/s as one of EC2."""
        return None if shown is None else round(shown * self.mib_s_bytes / MIB)


@dataclass(frozen=True, slots=True)
class Prices:
    """The price of gp3 per month: for each GiB, each MiB/s above 125 and each IOPS above 3,000."""

    gb_month: float
    mib_s_month: float
    iops_month: float
    currency: str = "USD"
    source: str = "[provider.aws.prices]"


@dataclass(frozen=True, slots=True)
class Settings:
    """An empty string means: from the metadata service. An empty `cache_dir` means: no trimmed SDK data.

    `lifetime_s` sets the tag `elastio:expires`: until then only this agent should delete the volume.
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
    """Check the table and fill in the defaults. Raises ConfigError, with the key as its code."""
    values = _checked(PLACE, Settings, table)
    values["metadata_url"] = str(values.get("metadata_url") or environ.get(METADATA_ENV) or METADATA_URL).rstrip("/")
    values["extra_tags"] = _extra_tags(table.get("extra_tags"))
    values["prices"] = _prices(table.get("prices"))
    values["scale"] = _scale(table.get("scale"))
    settings = Settings(**values)
    _check_values(settings)
    return settings


def _checked(place: str, target: type, value: object) -> dict[str, Any]:
    """The entries of a table, each of the type of its field in the dataclass `target`."""
    table = dict(value) if isinstance(value, Mapping) else {}
    known = {field.name: _KINDS.get(str(field.type), _TABLE) for field in fields(target)}
    for key, entry in table.items():
        if key not in known:
            raise _wrong(f"{place}.{key}", f"is not a setting; known settings: {', '.join(sorted(known))}")
        kind, name = known[key]
        numeric_bool = isinstance(entry, bool) and kind is not bool  # True is an int to Python, not to an operator
        if numeric_bool or not isinstance(entry, kind):
            raise _wrong(f"{place}.{key}", f"must be {name}, not {entry!r}")
    return table


def _wrong(key: str, what: str) -> ConfigError:
    """The key is the error's code."""
    return ConfigError(f"{key} {what}.", code=key)


def _check_values(settings: Settings) -> None:
    for entry in fields(Settings):
        text = getattr(settings, entry.name)
        if isinstance(text, str) and text != text.strip():
            raise _wrong(f"{PLACE}.{entry.name}", f"must not begin or end with a blank: {text!r}")
    if settings.volume_type != "gp3":
        raise _wrong(f"{PLACE}.volume_type", f'must be "gp3", not "{settings.volume_type}"')
    for key in ("connect_timeout_s", "read_timeout_s", "lifetime_s", "max_attempts", "iops"):
        value = getattr(settings, key)
        if value is not None and not 0 < value < float("inf"):
            raise _wrong(f"{PLACE}.{key}", "must be above 0")
    if settings.kms_key_id and not settings.encrypted:
        raise _wrong(f"{PLACE}.kms_key_id", f"needs {PLACE}.encrypted = true")
    for key in ("endpoint_url", "metadata_url"):
        url = getattr(settings, key)
        if url and not url.startswith(("http://", "https://")):
            raise _wrong(f"{PLACE}.{key}", f"must start with http:// or https://, not {url!r}")
    require_agreement(settings.region, settings.availability_zone, settings.kms_key_id, settings.endpoint_url)
    if settings.cache_dir and not Path(settings.cache_dir).is_absolute():
        raise _wrong(f"{PLACE}.cache_dir", "must be an absolute path, or empty for no cache")


def _extra_tags(value: object) -> dict[str, str]:
    tags = dict(value) if isinstance(value, Mapping) else {}
    place = f"{PLACE}.extra_tags"
    if len(tags) > MAX_EXTRA_TAGS:
        raise _wrong(place, f"has {len(tags)} tags; at most {MAX_EXTRA_TAGS} are allowed")
    for key, text in tags.items():
        if not isinstance(text, str):
            raise _wrong(f"{place}.{key}", f"must be a string, not {text!r}")
        if key.startswith((TAG_PREFIX, "aws:")) or key == "Name":
            raise _wrong(f"{place}.{key}", "is reserved; choose another key")
        if not 0 < len(key) <= 128 or len(text) > 256:
            raise _wrong(f"{place}.{key}", "is too long: a key has at most 128 characters, a value 256")
    return tags


def _prices(value: object) -> Prices | None:
    place = f"{PLACE}.prices"
    table = _checked(place, Prices, value)
    for key in ("gb_month", "mib_s_month", "iops_month") if table else ():
        if not 0 <= table.get(key, -1) < float("inf"):
            raise _wrong(f"{place}.{key}", f"must be a price per month of 0 or more, not {table.get(key)!r}")
    for key in ("currency", "source"):
        if table.get(key) == "":
            raise _wrong(f"{place}.{key}", "must not be empty")
    return Prices(**table) if table else None


def _scale(value: object) -> Scale:
    table = _checked(f"{PLACE}.scale", Scale, value)
    for key, number in table.items():
        if number <= 0:
            raise _wrong(f"{PLACE}.scale.{key}", f"must be a whole number above 0, not {number!r}")
    return Scale(**table)
