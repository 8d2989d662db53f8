"""The table `[provider.openstack]`: what may be set, its defaults, and one sentence for whatever is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from elastio.errors import ConfigError

METADATA_URL = "http://169.254.169.254"
KEY_PREFIX = "elastio:"
MAX_EXTRA_METADATA = 40

_NUMBER = (int, float)
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "cloud": str,
    "clouds_file": str,
    "region": str,
    "instance_id": str,
    "instance_type": str,
    "availability_zone": str,
    "volume_type": str,
    "metadata_url": str,
    "currency": str,
    "price_source": str,
    "minimum_s": _NUMBER,
    "timeout_s": _NUMBER,
    "lifetime_s": _NUMBER,
    "detach_deadline_s": _NUMBER,
    "bandwidth_limit_mb_s": _NUMBER,
    "extra_metadata": Mapping,
    "types": Mapping,
}
_TYPE_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "bandwidth_mb_s": _NUMBER,
    "bandwidth_mb_s_per_gib": _NUMBER,
    "iops": int,
    "max_size_gib": int,
    "price_per_gib_hour": _NUMBER,
}
_KIND_NAMES = {str: "a string", int: "a whole number", Mapping: "a table"}


@dataclass(frozen=True, slots=True)
class Declared:
    """What the configuration says of one volume type. None: read it from the type's QoS, if that is allowed.

    A bandwidth per GiB counts for the whole volume: 10 GiB at 2 MB/s per GiB carry 20 MB/s.
    """

    bandwidth_mb_s: float | None = None
    bandwidth_mb_s_per_gib: float | None = None
    iops: int | None = None
    max_size_gib: int | None = None
    price_per_gib_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """`cloud` and `clouds_file` name the entry of clouds.yaml; both empty: the SDK's usual places and variables.

    Empty strings elsewhere mean: ask the cloud. `timeout_s` bounds one request. `lifetime_s` fills the metadata
    `elastio:expires`: until then nobody but this agent should delete the volume.
    """

    cloud: str = ""
    clouds_file: str = ""
    region: str = ""
    instance_id: str = ""
    instance_type: str = ""
    availability_zone: str = ""  # of the volumes; empty: Cinder's default
    volume_type: str = ""  # the only one to buy; empty: the slowest that carries the bandwidth
    metadata_url: str = METADATA_URL
    currency: str = "EUR"
    price_source: str = "[provider.openstack.types]"
    minimum_s: float = 0.0
    timeout_s: float = 10.0
    lifetime_s: float = 86400.0
    detach_deadline_s: float = 300.0  # longer than Nova itself tries (8 times 20 s, [libvirt] of its configuration)
    bandwidth_limit_mb_s: float | None = None  # of this instance to all its volumes, where the operator knows it
    extra_metadata: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, Declared] = field(default_factory=dict)


def parse(table: Mapping[str, object]) -> Settings:
    """Check the table and complete it. Raises ConfigError naming the key and what is allowed."""
    for key, value in table.items():
        _check_kind("provider.openstack", _KINDS, key, value)
    values = dict(table)
    values["metadata_url"] = str(values.get("metadata_url") or METADATA_URL).rstrip("/")
    values["extra_metadata"] = _extra_metadata(table.get("extra_metadata"))
    values["types"] = _types(table.get("types"))
    settings = Settings(**values)  # type: ignore[arg-type]  # every value's type was checked above
    _check_values(settings)
    return settings


def _check_kind(place: str, kinds: Mapping[str, type | tuple[type, ...]], key: str, value: object) -> None:
    kind = kinds.get(key)
    if kind is None:
        raise ConfigError(f"{place}.{key} is not a setting; known are: {', '.join(sorted(kinds))}.")
    if isinstance(value, bool) or not isinstance(value, kind):  # True is an int to Python, not to an operator
        wanted = "a number" if isinstance(kind, tuple) else _KIND_NAMES[kind]
        raise ConfigError(f"{place}.{key} must be {wanted}, not {value!r}.")


def _check_values(settings: Settings) -> None:
    for key in ("timeout_s", "lifetime_s", "detach_deadline_s", "bandwidth_limit_mb_s"):
        value = getattr(settings, key)
        if value is not None and not 0 < value < float("inf"):
            raise ConfigError(f"provider.openstack.{key} must be above 0.")
    if not 0 <= settings.minimum_s < float("inf"):
        raise ConfigError("provider.openstack.minimum_s must be 0 or more.")
    if not settings.metadata_url.startswith(("http://", "https://")):
        raise ConfigError(
            f"provider.openstack.metadata_url must start with http:// or https://, not {settings.metadata_url!r}."
        )
    if settings.clouds_file and not Path(settings.clouds_file).is_absolute():
        raise ConfigError("provider.openstack.clouds_file must be an absolute path.")
    if settings.clouds_file and not settings.cloud:
        raise ConfigError("provider.openstack.clouds_file needs provider.openstack.cloud, the entry to use.")


def _extra_metadata(value: object) -> dict[str, str]:
    pairs = dict(value) if isinstance(value, Mapping) else {}
    place = "provider.openstack.extra_metadata"
    if len(pairs) > MAX_EXTRA_METADATA:
        raise ConfigError(f"{place} holds {len(pairs)} entries; {MAX_EXTRA_METADATA} are the most.")
    for key, text in pairs.items():
        if not isinstance(text, str):
            raise ConfigError(f"{place}.{key} must be a string, not {text!r}.")
        if key.startswith(KEY_PREFIX):
            raise ConfigError(f"{place}.{key} is reserved; choose another key.")
        if not 0 < len(key) <= 255 or len(text) > 255:
            raise ConfigError(f"{place}.{key} is too long: 255 characters are the most, key and value.")
    return pairs


def _types(value: object) -> dict[str, Declared]:
    found = {}
    for name, table in (dict(value) if isinstance(value, Mapping) else {}).items():
        place = f"provider.openstack.types.{name}"
        if not isinstance(table, Mapping):
            raise ConfigError(f"{place} must be a table, not {table!r}.")
        for key, entry in table.items():
            _check_kind(place, _TYPE_KINDS, key, entry)
            if not 0 < entry < float("inf"):
                raise ConfigError(f"{place}.{key} must be above 0.")
        if "bandwidth_mb_s" in table and "bandwidth_mb_s_per_gib" in table:
            raise ConfigError(f"{place} must have either bandwidth_mb_s or bandwidth_mb_s_per_gib.")
        found[name] = Declared(**table)
    return found
