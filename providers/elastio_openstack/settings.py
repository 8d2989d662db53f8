"""The table `[provider.openstack]`: its keys, their defaults and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from elastio.errors import ConfigError

METADATA_URL = "http://169.254.169.254"
KEY_PREFIX = "elastio:"
MAX_EXTRA_METADATA = 40

PLACE = "provider.openstack"
_NUMBER = ((int, float), "a number")
_TABLE = (Mapping, "a table")
# By the annotation of a dataclass field: the types that its key may have, and what an operator calls them.
_KINDS: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "str": (str, "a string"),
    "int | None": (int, "a whole number"),
    "float": _NUMBER,
    "float | None": _NUMBER,
}


@dataclass(frozen=True, slots=True)
class Declared:
    """The configuration of one volume type. None: from the type's QoS specs, if the credential may read them.

    A bandwidth per GiB is multiplied by the size: 10 GiB at 2 MB/s per GiB provide 20 MB/s. A price that is not set is
    0 if another one is; if none is, the price of the type is not known. `minimum_s`, `step_s`: None, as for all types.
    """

    bandwidth_mb_s: float | None = None
    bandwidth_mb_s_per_gib: float | None = None
    iops: int | None = None
    max_size_gib: int | None = None
    price_per_gib_hour: float | None = None
    price_per_mb_s_hour: float | None = None
    price_per_iops_hour: float | None = None
    price_per_million_requests: float | None = None
    minimum_s: float | None = None
    step_s: float | None = None

    @property
    def has_price(self) -> bool:
        """A price per request alone is none that a quote could have."""
        prices = (self.price_per_gib_hour, self.price_per_mb_s_hour, self.price_per_iops_hour)
        return any(price is not None for price in prices)


UNDECLARED = Declared()


@dataclass(frozen=True, slots=True)
class Settings:
    """`cloud` and `clouds_file` name an entry and its clouds.yaml; if both are empty, the SDK searches as usual.

    Other empty strings mean: from the cloud. `timeout_s` limits one request. `lifetime_s` sets the metadata
    `elastio:expires`: until then only this agent should delete the volume. A volume is billed for at least `minimum_s`,
    and in whole steps of `step_s` (0: to the instant).
    """

    cloud: str = ""
    clouds_file: str = ""
    region: str = ""
    instance_id: str = ""
    instance_type: str = ""
    availability_zone: str = ""  # of the volumes; empty: Cinder's default
    volume_type: str = ""  # the only one to buy; empty: the slowest with enough bandwidth
    metadata_url: str = METADATA_URL
    currency: str = "EUR"
    price_source: str = "[provider.openstack.types]"
    minimum_s: float = 0.0
    step_s: float = 0.0
    timeout_s: float = 10.0
    lifetime_s: float = 86400.0
    detach_deadline_s: float = 300.0  # longer than Nova's own attempts (8 x 20 s, [libvirt] in nova.conf)
    bandwidth_limit_mb_s: float | None = None  # of this server to all its volumes, if known
    extra_metadata: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, Declared] = field(default_factory=dict)


def parse(table: Mapping[str, object]) -> Settings:
    """Check the table and fill in the defaults. Raises ConfigError, with the key as its code."""
    values = _checked(PLACE, Settings, table)
    values["metadata_url"] = str(values.get("metadata_url") or METADATA_URL).rstrip("/")
    values["extra_metadata"] = _extra_metadata(table.get("extra_metadata"))
    values["types"] = _types(table.get("types"))
    settings = Settings(**values)
    _check_values(settings)
    return settings


def _checked(place: str, target: type, value: object) -> dict[str, Any]:
    """The entries of a table, each of the type of its field in the dataclass `target`."""
    if not isinstance(value, Mapping):
        raise _wrong(place, f"must be a table, not {value!r}")
    known = {field.name: _KINDS.get(str(field.type), _TABLE) for field in fields(target)}
    for key, entry in value.items():
        if key not in known:
            raise _wrong(f"{place}.{key}", f"is not a setting; known settings: {', '.join(sorted(known))}")
        kind, name = known[key]
        if isinstance(entry, bool) or not isinstance(entry, kind):  # True is an int to Python, not to an operator
            raise _wrong(f"{place}.{key}", f"must be {name}, not {entry!r}")
    return dict(value)


def _wrong(key: str, what: str) -> ConfigError:
    """The key is the error's code."""
    return ConfigError(f"{key} {what}.", code=key)


def _check_values(settings: Settings) -> None:
    for entry in fields(Settings):
        text = getattr(settings, entry.name)
        if isinstance(text, str) and text != text.strip():
            raise _wrong(f"{PLACE}.{entry.name}", f"must not begin or end with a blank: {text!r}")
    for key in ("timeout_s", "lifetime_s", "detach_deadline_s", "bandwidth_limit_mb_s"):
        value = getattr(settings, key)
        if value is not None and not 0 < value < float("inf"):
            raise _wrong(f"{PLACE}.{key}", "must be above 0")
    for key in ("minimum_s", "step_s"):
        if not 0 <= getattr(settings, key) < float("inf"):
            raise _wrong(f"{PLACE}.{key}", "must be 0 or more")
    if not settings.metadata_url.startswith(("http://", "https://")):
        raise _wrong(f"{PLACE}.metadata_url", f"must start with http:// or https://, not {settings.metadata_url!r}")
    if settings.clouds_file and not Path(settings.clouds_file).is_absolute():
        raise _wrong(f"{PLACE}.clouds_file", "must be an absolute path")
    if settings.clouds_file and not settings.cloud:
        raise _wrong(f"{PLACE}.clouds_file", f"needs {PLACE}.cloud, the entry to use")


def _extra_metadata(value: object) -> dict[str, str]:
    pairs = dict(value) if isinstance(value, Mapping) else {}
    place = f"{PLACE}.extra_metadata"
    if len(pairs) > MAX_EXTRA_METADATA:
        raise _wrong(place, f"has {len(pairs)} entries; at most {MAX_EXTRA_METADATA} are allowed")
    for key, text in pairs.items():
        if not isinstance(text, str):
            raise _wrong(f"{place}.{key}", f"must be a string, not {text!r}")
        if key.startswith(KEY_PREFIX):
            raise _wrong(f"{place}.{key}", "is reserved; choose another key")
        if not 0 < len(key) <= 255 or len(text) > 255:
            raise _wrong(f"{place}.{key}", "is too long: key and value have at most 255 characters each")
    return pairs


def _types(value: object) -> dict[str, Declared]:
    found = {}
    for name, row in (dict(value) if isinstance(value, Mapping) else {}).items():
        place = f"{PLACE}.types.{name}"
        table = _checked(place, Declared, row)
        for key, entry in table.items():
            may_be_0 = key in ("minimum_s", "step_s")
            if not (0 < entry < float("inf") or (may_be_0 and entry == 0)):
                raise _wrong(f"{place}.{key}", "must be 0 or more" if may_be_0 else "must be above 0")
        if "bandwidth_mb_s" in table and "bandwidth_mb_s_per_gib" in table:
            raise _wrong(place, "must have either bandwidth_mb_s or bandwidth_mb_s_per_gib, not both")
        found[name] = Declared(**table)
    return found
