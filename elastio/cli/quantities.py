"""Values of options with a unit: a duration, a size. Use them as an option's `callback`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import click

from elastio.units import GIB, KIB, MIB

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_DURATIONS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
# Binary units as in LVM; GiB without a unit, as in `elastio boost --size`.
_SIZES = {"": GIB, "k": KIB, "kib": KIB, "m": MIB, "mib": MIB, "g": GIB, "gib": GIB, "t": 1024 * GIB}


def duration(_ctx: click.Context | None, _param: click.Parameter | None, value: str | None) -> float | None:
    """Seconds; a number without a unit is in seconds. Raises BadParameter."""
    return None if value is None else _amount(value, _DURATIONS, "duration")


def size(_ctx: click.Context | None, _param: click.Parameter | None, value: str | None) -> int | None:
    """Bytes. Raises BadParameter."""
    return None if value is None else int(_amount(value, _SIZES, "size"))


def _amount(text: str, units: Mapping[str, int], kind: str) -> float:
    found = _QUANTITY.fullmatch(text.strip())
    if found is None or found[2].lower() not in units:
        known = ", ".join(unit for unit in units if unit)
        raise click.BadParameter(f"{text!r} is not a {kind}: a number and one of {known}")
    amount = float(found[1]) * units[found[2].lower()]
    if not 0 < amount < math.inf:
        raise click.BadParameter(f"{text!r} is not above 0, or too large")
    return amount
