"""The application to predict: a bulk-synchronous one that writes checkpoints at regular intervals."""

from __future__ import annotations

import math
import reprlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from elastio.units import GB
from elastio_calibration.errors import CalibrationError, unreadable


class ApplicationError(CalibrationError):
    """The description of the application is incomplete or invalid."""


# The limit for GB, seconds and counts: results computed from them stay finite.
MOST = 1e9
MOST_CHECKPOINTS = 100_000


@dataclass(frozen=True, slots=True)
class Application:
    """Per VM: an initial dump of `initial_gb` (Si; 0: none), then `iterations` (I) of `iteration_s` (It) seconds of
    computing and `checkpoints` (K) dumps of `checkpoint_gb` (Sc). Sizes in GB (10^9)."""

    checkpoint_gb: float
    checkpoints: int
    iteration_s: float
    iterations: int = 1
    initial_gb: float = 0.0
    vms: int = 1

    def __post_init__(self) -> None:
        for spec in fields(self):
            value = getattr(self, spec.name)
            least = 0 if spec.name in ("initial_gb", "iteration_s") else 1e-9
            if not math.isfinite(value) or value < least:
                bound = "above 0" if least else "at least 0"
                raise ApplicationError(f"{spec.name} is {value:g}; it must be {bound}", code=spec.name)
            most = MOST_CHECKPOINTS if spec.name == "checkpoints" else MOST
            if value > most:
                raise ApplicationError(f"{spec.name} is {value:g}; it must be at most {most:g}", code=spec.name)

    @property
    def compute_s(self) -> float:
        """I*It."""
        return self.iterations * self.iteration_s

    @property
    def checkpoint_bytes(self) -> int:
        return round(self.checkpoint_gb * GB)

    @property
    def initial_bytes(self) -> int:
        return round(self.initial_gb * GB)

    @property
    def interval_s(self) -> float:
        """Seconds of computing between two dumps."""
        return self.compute_s / self.checkpoints


WHOLE = ("checkpoints", "iterations", "vms")
# The names that `--sweep` and the publication use.
SYMBOLS: Mapping[str, str] = {
    "Sc": "checkpoint_gb",
    "Si": "initial_gb",
    "K": "checkpoints",
    "I": "iterations",
    "It": "iteration_s",
    "n": "vms",
}


def from_values(values: Mapping[str, Any]) -> Application:
    """An application from its named values. Raises ApplicationError for a missing, unknown or invalid value."""
    known = {spec.name for spec in fields(Application)}
    for name in values:
        if name not in known:
            raise ApplicationError(f"{name} is not a key of an application; use {', '.join(sorted(known))}", code=name)
    missing = [name for name in ("checkpoint_gb", "checkpoints", "iteration_s") if name not in values]
    if missing:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
        text = f"the description of the application is incomplete: give {options}, or a file with --application"
        raise ApplicationError(text, code="missing")
    numbers: dict[str, Any] = {name: _number(name, name, value) for name, value in values.items()}
    return Application(**numbers)


def _number(name: str, shown_as: str, value: Any) -> int | float:
    """The value of the field `name`; `shown_as` is its name in errors. Raises ApplicationError."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        shown = reprlib.repr(value) if isinstance(value, str | bool) else f"a {type(value).__name__}"
        raise ApplicationError(f"{shown_as} must be a number, not {shown}", code=name)
    if not abs(value) <= MOST:
        raise ApplicationError(f"{shown_as} must be a number, and at most {MOST:g}", code=name)
    if name in WHOLE and value != int(value):
        raise ApplicationError(f"{shown_as} must be a whole number, not {value:g}", code=name)
    return int(value) if name in WHOLE else float(value)


def read_file(path: Path) -> dict[str, Any]:
    """The table [application] of a TOML file. Raises ApplicationError."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ApplicationError(unreadable(path, error)) from error
    except (ValueError, RecursionError) as error:  # too many digits, or nested too deeply
        raise ApplicationError(f"{path} is not valid TOML: {error}") from error
    table = document.get("application")
    if not isinstance(table, dict):
        raise ApplicationError(f"{path} has no table [application]")
    return table


def varied(application: Application, symbol: str, value: float) -> Application:
    """The application with one value changed, given by its symbol (`Sc`) or its name (`checkpoint_gb`)."""
    name = SYMBOLS.get(symbol, symbol)
    if name not in {spec.name for spec in fields(Application)}:
        raise ApplicationError(f"{symbol} cannot be varied; use one of {', '.join(SYMBOLS)}, M", code=symbol)
    changes: dict[str, Any] = {name: _number(name, symbol, value)}
    return replace(application, **changes)
