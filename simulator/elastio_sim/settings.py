"""The settings of `provider = "sim"`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from elastio.errors import ConfigError
from elastio_sim.faults import FaultPlan

# A turn of `elastiod --sim` takes a tenth of a second and advances the simulation by at most five.
FASTEST_PACE = 40.0


@dataclass(frozen=True, slots=True)
class SimSettings:
    """`seed` decides every delay. `faults`: see `FaultPlan.parse`. `backing_mb_s` is the slow volume's bandwidth.

    Of `elastiod --sim` alone: `burst_mb_s` is what its application writes in a burst, in MB/s, and `pace` how many
    simulated seconds pass in each second.
    """

    seed: int = 0
    faults: str = "nothing"
    backing_mb_s: float = 33.0
    burst_mb_s: float = 90.0
    pace: float = 1.0


def default_socket() -> Path:
    """Where `elastiod --sim` listens without a configuration file: a directory that needs no root."""
    return Path(os.environ.get("XDG_RUNTIME_DIR") or "/tmp") / "elastio-sim.sock"


def parse_settings(settings: Mapping[str, object]) -> SimSettings:
    """Raises ConfigError and names the key for anything unknown or wrong."""
    unknown = set(settings) - {field.name for field in fields(SimSettings)}
    if unknown:
        raise ConfigError(f"provider sim has no setting {sorted(unknown)[0]!r}: remove it")
    seed, faults = settings.get("seed", 0), settings.get("faults", "nothing")
    if not isinstance(seed, int):
        raise ConfigError(f"provider sim: seed must be a whole number, not {seed!r}")
    backing_mb_s = _number(settings, "backing_mb_s", 33.0)
    burst_mb_s, pace = _number(settings, "burst_mb_s", 90.0), _number(settings, "pace", 1.0)
    if pace > FASTEST_PACE:
        raise ConfigError(f"provider sim: pace must be at most {FASTEST_PACE:g}, not {pace:g}")
    if not isinstance(faults, str):
        raise ConfigError(f"provider sim: faults must be a line of text, not {faults!r}")
    try:
        FaultPlan.parse(faults)
    except ValueError as error:
        raise ConfigError(f"provider sim: {error}") from error
    return SimSettings(seed, faults, backing_mb_s, burst_mb_s, pace)


def _number(settings: Mapping[str, object], name: str, default: float) -> float:
    value = settings.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ConfigError(f"provider sim: {name} must be a number above 0, not {value!r}")
    return float(value)
