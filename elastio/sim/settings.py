"""The settings of `provider = "sim"`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elastio.errors import ConfigError
from elastio.sim.faults import FaultPlan


@dataclass(frozen=True, slots=True)
class SimSettings:
    """`seed` decides every delay. `faults`: see `FaultPlan.parse`. `backing_mb_s` is the slow volume's bandwidth."""

    seed: int = 0
    faults: str = "nothing"
    backing_mb_s: float = 33.0


def parse_settings(settings: Mapping[str, object]) -> SimSettings:
    """Raises ConfigError and names the key for anything unknown or wrong."""
    unknown = set(settings) - {"seed", "faults", "backing_mb_s"}
    if unknown:
        raise ConfigError(f"provider sim has no setting {sorted(unknown)[0]!r}: remove it")
    seed, faults = settings.get("seed", 0), settings.get("faults", "nothing")
    backing = settings.get("backing_mb_s", 33.0)
    if not isinstance(seed, int):
        raise ConfigError(f"provider sim: seed must be a whole number, not {seed!r}")
    if not isinstance(backing, int | float) or backing <= 0:
        raise ConfigError(f"provider sim: backing_mb_s must be a number above 0, not {backing!r}")
    if not isinstance(faults, str):
        raise ConfigError(f"provider sim: faults must be a line of text, not {faults!r}")
    try:
        FaultPlan.parse(faults)
    except ValueError as error:
        raise ConfigError(f"provider sim: {error}") from error
    return SimSettings(seed, faults, float(backing))
