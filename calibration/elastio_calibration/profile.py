"""The profile: a versioned JSON file that holds measurements, their conditions and prices, for others to use."""

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
from elastio_calibration.errors import CalibrationError
from elastio_calibration.measurement import Conditions, Measurement, Prices
from elastio_calibration.output_file import write_atomic

FORMAT = "elastio-profile"
VERSION = 1
# Of a sentence about what is wrong: the schema's own may quote a whole document.
MOST_SAID = 200


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
    return {"format": FORMAT, "version": VERSION, **encode(profile)}


def from_document(document: Any, name: str) -> Profile:
    """The inverse. Raises CalibrationError, with `name` in it, where the document is no profile of this version."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise CalibrationError(f'{name} is no profile: it lacks "format": "{FORMAT}"')
    if document.get("version") != VERSION:
        version = document.get("version")
        raise CalibrationError(f"{name} is a profile of version {version}, this elastio reads version {VERSION}")
    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema()).iter_errors(document))
    if error is not None:
        raise CalibrationError(f"{name} is no valid profile: at {error.json_path}: {error.message[:MOST_SAID]}")
    try:
        return decode(Profile, document)
    except (TypeError, ValueError, CalibrationError) as error:
        raise CalibrationError(f"{name} is no valid profile: {error}") from error


def load(path: Path) -> Profile:
    """Raises CalibrationError where the file is not there or no profile."""
    try:
        document = parse(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise CalibrationError(f"{path} cannot be read: {error}") from error
    except ValueError as error:
        raise CalibrationError(f"{path} is not JSON: {error}") from error
    return from_document(document, str(path))


def save(profile: Profile, path: Path) -> None:
    """The whole file or nothing. Raises CalibrationError where it cannot be written, or would be refused when read."""
    document = to_document(profile)
    from_document(document, f"what would be written to {path}")
    write_atomic(path, json.dumps(document, indent=2, allow_nan=False) + "\n")


def merge(profiles: Sequence[Profile], backing_bytes: int | None = None) -> Profile:
    """All measurements together. Raises CalibrationError when the conditions of two differ, naming which, and where
    the other things do that `require_one_question` names."""
    first, *others = profiles
    for other in others:
        differences = first.conditions.differences(other.conditions)
        if differences:
            raise CalibrationError(
                f"profiles of different conditions cannot be merged: {', '.join(differences)}; use one at a time",
                code="conditions",
            )
    require_one_question(profiles, backing_bytes)
    # What two profiles share was measured once: it must not count as a repeat. Within one profile it was repeated.
    together: Counter[Measurement] = Counter()
    for profile in profiles:
        together |= Counter(profile.measurements)
    size = first.backing_bytes if backing_bytes is None else backing_bytes
    fitting = [p for p in profiles if is_same(p.backing_bytes, size)] or [first]
    return replace(
        first,
        backing_bytes=fitting[0].backing_bytes,
        measurements=tuple(together.elements()),
        prices=_together(fitting),
        made=max(p.made for p in profiles),
    )


def _together(profiles: Sequence[Profile]) -> Prices | None:
    """The prices of the latest profile, and of the earlier ones what it does not tell."""
    found: Prices | None = None
    for prices in (p.prices for p in sorted(profiles, key=lambda p: p.made)):
        if prices is not None:
            found = prices if found is None else found.updated(prices)
    return found


def require_one_question(profiles: Sequence[Profile], backing_bytes: int | None) -> None:
    """Raises CalibrationError where figures of several profiles could not stand side by side: N is not said and theirs
    differ, or their prices are in several currencies."""
    sizes = [p.backing_bytes for p in profiles]
    other = next((size for size in sizes if not is_same(size, sizes[0])), None)
    if backing_bytes is None and other is not None:
        raise CalibrationError(
            f"the profiles are of backing volumes of {sizes[0] / GB:.4g} and {other / GB:.4g} GB: "
            "give the size that is meant with --backing-gb",
            code="backing_bytes",
        )
    currencies = sorted({p.prices.currency for p in profiles if p.prices is not None})
    if len(currencies) > 1:
        raise CalibrationError(
            f"the profiles hold prices in {' and '.join(currencies)}, which cannot be compared: use one currency",
            code="currency",
        )
