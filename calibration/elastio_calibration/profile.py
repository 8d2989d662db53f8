"""The profile: a versioned JSON file that holds measurements, their conditions and prices, for others to use."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema

from elastio_calibration.errors import CalibrationError
from elastio_calibration.measurement import Conditions, Measurement, Price, Prices, measurement_of

FORMAT = "elastio-profile"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Profile:
    """`backing_bytes` is the size of the backing volume it was measured on: the default for N, not a condition."""

    conditions: Conditions
    backing_bytes: int
    measurements: tuple[Measurement, ...]
    made: str
    program: str
    prices: Prices | None = None


def schema() -> dict[str, Any]:
    """The JSON schema of the format."""
    text = resources.files("elastio_calibration").joinpath("profile.schema.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def to_document(profile: Profile) -> dict[str, Any]:
    """The JSON document."""
    prices = profile.prices
    return {
        "format": FORMAT,
        "version": VERSION,
        "made": profile.made,
        "program": profile.program,
        "conditions": asdict(profile.conditions),
        "backing_bytes": profile.backing_bytes,
        "measurements": [asdict(m) for m in profile.measurements],
        "prices": None if prices is None else {**asdict(prices), "caches": [asdict(c) for c in prices.caches]},
    }


def from_document(document: Any, name: str) -> Profile:
    """The inverse. Raises CalibrationError, with `name` in it, where the document is no profile of this version."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise CalibrationError(f'{name} is no profile: it lacks "format": "{FORMAT}"')
    if document.get("version") != VERSION:
        version = document.get("version")
        raise CalibrationError(f"{name} is a profile of version {version}, this elastio reads version {VERSION}")
    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema()).iter_errors(document))
    if error is not None:
        raise CalibrationError(f"{name} is no valid profile: at {error.json_path}: {error.message}")
    return Profile(
        conditions=Conditions(**document["conditions"]),
        backing_bytes=document["backing_bytes"],
        measurements=tuple(measurement_of(m) for m in document["measurements"]),
        made=document["made"],
        program=document["program"],
        prices=_prices(document["prices"]),
    )


def _prices(document: Mapping[str, Any] | None) -> Prices | None:
    if document is None:
        return None
    return Prices(**{**document, "caches": tuple(Price(**c) for c in document["caches"])})


def load(path: Path) -> Profile:
    """Raises CalibrationError where the file is not there or no profile."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CalibrationError(f"{path} cannot be read: {error}") from error
    except ValueError as error:
        raise CalibrationError(f"{path} is not JSON: {error}") from error
    return from_document(document, str(path))


def save(profile: Profile, path: Path) -> None:
    """The whole file or nothing. Raises CalibrationError where it cannot be written."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(to_document(profile), indent=2) + "\n", encoding="utf-8")
        fresh.replace(path)
    except OSError as error:
        raise CalibrationError(f"{path} cannot be written: {error.strerror or error}") from error


def merge(profiles: Sequence[Profile]) -> Profile:
    """All measurements together. Raises CalibrationError when the conditions of two differ, naming which."""
    first, *others = profiles
    for other in others:
        differences = first.conditions.differences(other.conditions)
        if differences:
            raise CalibrationError(
                f"profiles of different conditions cannot be merged: {', '.join(differences)}; use one at a time"
            )
    # What two profiles share was measured once: it must not count as a repeat. Within one profile it was repeated.
    together: Counter[Measurement] = Counter()
    for profile in profiles:
        together |= Counter(profile.measurements)
    prices = next((p.prices for p in profiles if p.prices is not None), None)
    return replace(first, measurements=tuple(together.elements()), prices=prices, made=max(p.made for p in profiles))
