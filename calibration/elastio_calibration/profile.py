"""The profile: a versioned JSON file of measurements, their conditions and prices, to share with others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema

from elastio.codec import decode, encode
from elastio.units import GB
from elastio_calibration.curves import is_same
from elastio_calibration.deserialize import parse
from elastio_calibration.errors import CalibrationError, unreadable
from elastio_calibration.measurement import Conditions, Measurement, Prices
from elastio_calibration.output_file import write_atomic

FORMAT = "elastio-profile"
VERSION = 1
# Characters of a schema error, which may quote a whole document.
MOST_QUOTED = 200


@dataclass(frozen=True, slots=True)
class Profile:
    """`backing_bytes`: the size of the calibrated backing volume; the default for N, not a condition."""

    conditions: Conditions
    backing_bytes: int
    measurements: tuple[Measurement, ...]
    made: str
    program: str
    prices: Prices | None = None


def schema() -> dict[str, Any]:
    """The JSON schema of a profile."""
    text = resources.files("elastio_calibration").joinpath("profile.schema.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def to_document(profile: Profile) -> dict[str, Any]:
    """The profile as a JSON document."""
    return {"format": FORMAT, "version": VERSION, **encode(profile)}


def from_document(document: Any, name: str) -> Profile:
    """The profile of a document. Raises CalibrationError, which names `name`, for any other document or version."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise CalibrationError(f'{name} is not a profile: "format": "{FORMAT}" is missing')
    if document.get("version") != VERSION:
        text = f"{name} is a profile of version {document.get('version')}; this release reads version {VERSION}"
        raise CalibrationError(text, code="version")
    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema()).iter_errors(document))
    if error is not None:
        raise CalibrationError(f"{name} is not a valid profile: {error.json_path}: {error.message[:MOST_QUOTED]}")
    try:
        return decode(Profile, document)
    except (TypeError, ValueError, CalibrationError) as error:
        raise CalibrationError(f"{name} is not a valid profile: {error}") from error


def load(path: Path) -> Profile:
    """Raises CalibrationError where the file cannot be read or is not a profile."""
    try:
        document = parse(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise CalibrationError(unreadable(path, error)) from error
    except ValueError as error:
        raise CalibrationError(f"{path} is not usable JSON: {error}") from error
    return from_document(document, str(path))


def save(profile: Profile, path: Path) -> None:
    """Write the whole file or nothing. Raises CalibrationError, also for a profile that `load` would refuse."""
    document = to_document(profile)
    from_document(document, f"the profile for {path}")
    write_atomic(path, json.dumps(document, indent=2, allow_nan=False) + "\n")


def merge(profiles: Sequence[Profile], backing_bytes: int | None = None) -> Profile:
    """One profile with the measurements of all. Raises CalibrationError where their conditions differ, and where
    `require_comparable` does."""
    first, *others = profiles
    for other in others:
        differences = first.conditions.differences(other.conditions)
        if differences:
            raise CalibrationError(
                f"profiles of different conditions cannot be merged: {', '.join(differences)}; use one at a time",
                code="conditions",
            )
    require_comparable(profiles, backing_bytes)
    # A measurement that two profiles share was made once and is not a repeat; two equal ones in one profile are.
    union: Counter[Measurement] = Counter()
    for profile in profiles:
        union |= Counter(profile.measurements)
    size = first.backing_bytes if backing_bytes is None else backing_bytes
    fitting = [p for p in profiles if is_same(p.backing_bytes, size)] or [first]
    return replace(
        first,
        backing_bytes=fitting[0].backing_bytes,
        measurements=tuple(union.elements()),
        prices=_latest_prices(fitting),
        made=max(p.made for p in profiles),
    )


def _latest_prices(profiles: Sequence[Profile]) -> Prices | None:
    """The prices of the latest profile, and those of earlier ones for what it does not price."""
    found: Prices | None = None
    for prices in (p.prices for p in sorted(profiles, key=lambda p: p.made)):
        if prices is not None:
            found = prices if found is None else found.updated(prices)
    return found


def require_comparable(profiles: Sequence[Profile], backing_bytes: int | None) -> None:
    """Raises CalibrationError where forecasts from these profiles cannot be compared: they differ in N and
    `backing_bytes` is None, or their prices are in several currencies."""
    sizes = [p.backing_bytes for p in profiles]
    other = next((size for size in sizes if not is_same(size, sizes[0])), None)
    if backing_bytes is None and other is not None:
        raise CalibrationError(
            f"the profiles are for backing volumes of {sizes[0] / GB:.4g} and {other / GB:.4g} GB: "
            "give the size of the application's volume with --backing-gb",
            code="backing_bytes",
        )
    currencies = sorted({p.prices.currency for p in profiles if p.prices is not None})
    if len(currencies) > 1:
        raise CalibrationError(
            f"the profiles have prices in {' and '.join(currencies)}, which cannot be compared: use one currency",
            code="currency",
        )
