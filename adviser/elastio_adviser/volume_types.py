"""Volume types to compare: a tariff with what else decides about a volume's speed. Read from TOML files.

A file has the fields of `elastio.strategy.tariff.Tariff`, prices per hour. Beside them it may have `least_gib`, the
smallest size that is sold; `mb_s_per_iops`, where bandwidth needs IOPS; and a table `[credits]` with the fields of
`elastio.strategy.credits.CreditRule`.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from elastio.codec import text_of
from elastio.core.model import VolumeSpec
from elastio.errors import ConfigError
from elastio.strategy.credits import CreditBucket, CreditRule, constant
from elastio.strategy.tariff import AGBS, Tariff, agbs_tariff
from elastio.units import GIB

MOST_BYTES = 64 * 1024
SHIPPED = Path(__file__).parent / "tariffs"
_TEXTS = {f.name for f in fields(Tariff) if isinstance(f.default, str) or f.name == "currency"}
_TARIFF = {f.name for f in fields(Tariff)}
_CREDITS = {f.name for f in fields(CreditRule)}
_BESIDE = {"least_gib", "mb_s_per_iops", "credits"}


@dataclass(frozen=True, slots=True)
class VolumeType:
    """A volume type as it is sold. `least_bytes`: the smallest size. `mb_s_per_iops` 0: bandwidth needs no IOPS."""

    name: str
    tariff: Tariff
    credits: CreditRule | None = None
    least_bytes: int = 0
    mb_s_per_iops: float = 0.0

    def spec(self, size_bytes: float, mb_s: float) -> VolumeSpec:
        """The volume to buy for this size and bandwidth."""
        iops = math.ceil(mb_s / self.mb_s_per_iops - 1e-9) if self.mb_s_per_iops else None
        return VolumeSpec(max(int(size_bytes), self.least_bytes), mb_s, iops)

    def bucket(self, size_bytes: float, mb_s: float) -> CreditBucket:
        """What the volume moves: by its credits if the type has them, else `mb_s`."""
        if self.credits is None:
            return constant(mb_s)
        return self.credits.bucket(max(size_bytes, self.least_bytes))

    def per_hour(self, size_bytes: float, mb_s: float) -> float:
        return self.tariff.per_hour(self.spec(size_bytes, mb_s))

    def cost(self, size_bytes: float, mb_s: float, seconds: float) -> float:
        """The bill of one volume that existed for `seconds`."""
        return self.tariff.cost(self.spec(size_bytes, mb_s), seconds)

    def standing(self, size_bytes: float, mb_s: float, seconds: float) -> float:
        """The price of `seconds` of a volume that stays: no shortest time applies."""
        return self.per_hour(size_bytes, mb_s) * seconds / 3600


def shipped() -> tuple[str, ...]:
    """The names of the volume types that come with the program, and `agbs`."""
    return (*sorted(path.stem for path in SHIPPED.glob("*.toml")), "agbs")


def volume_type(name_or_file: str) -> VolumeType:
    """A shipped volume type by its name, `agbs`, or one of a TOML file. Raises ConfigError."""
    if name_or_file == "agbs":
        return VolumeType("agbs", agbs_tariff())
    named = SHIPPED / f"{name_or_file}.toml"
    path = named if name_or_file in shipped() else Path(name_or_file)
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(
            f"{name_or_file} is neither a tariff ({', '.join(shipped())}) nor a file", code="tariff.unknown"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}", code="tariff.unreadable") from error
    if len(raw) > MOST_BYTES:
        raise ConfigError(f"{path} is larger than {MOST_BYTES // 1024} KiB and cannot be a tariff", code="tariff.size")
    return parse(raw, path.stem, str(path))


def parse(raw: bytes, name: str, where: str) -> VolumeType:
    """The volume type of a TOML document. Raises ConfigError and names the key."""
    try:
        document = tomllib.loads(text_of(raw))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not valid TOML: {error}", code="tariff.syntax") from error
    _require_known(document, _TARIFF | _BESIDE, where)
    if not document.get("currency"):
        raise ConfigError(f'{where} has no currency: add currency = "USD"', code="tariff.currency")
    tariff = Tariff(**{key: _value(document, key, where) for key in document.keys() & _TARIFF})
    if tariff.currency != AGBS and not any(document.get(key) for key in _TARIFF if key.startswith("per_")):
        raise ConfigError(f"{where} has no price: add per_gib_hour or another price", code="tariff.price")
    return VolumeType(
        name,
        tariff,
        _credits(document.get("credits"), where),
        int(_number(document.get("least_gib", 0), "least_gib", where) * GIB),
        _number(document.get("mb_s_per_iops", 0), "mb_s_per_iops", where),
    )


def _credits(table: Any, where: str) -> CreditRule | None:
    if table is None:
        return None
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: credits is a table: write [credits]", code="tariff.credits")
    _require_known(table, _CREDITS, where)
    rates = {key: _number(value, f"credits.{key}", where) for key, value in table.items()}
    missing = {"base_mb_s_per_tib", "burst_mb_s_per_tib"} - set(rates)
    if missing:
        raise ConfigError(f"{where}: [credits] needs {sorted(missing)[0]}", code="tariff.credits")
    return CreditRule(**rates)


def _require_known(table: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        raise ConfigError(
            f"{where}: {unknown[0]} is not a field of a tariff; the fields are {', '.join(sorted(known))}",
            code="tariff.field",
        )


def _value(document: Mapping[str, Any], key: str, where: str) -> Any:
    value = document[key]
    if key in _TEXTS:
        return str(value)
    number = _number(value, key, where)
    return int(number) if key == "included_iops" else number


def _number(value: Any, key: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise ConfigError(f"{where}: {key} must be a number from 0 to 1e9, not {value!r}", code="tariff.number")
    return float(value)
