"""JSON whose numbers can be computed with. `elastio.codec` makes values of it. Pure."""

from __future__ import annotations

import json
from typing import Any

# Of whatever is counted in bytes, seconds or MB/s. Products of some such numbers are still finite.
MOST = 1e18


def parse(text: str) -> Any:
    """JSON with numbers from 0 to MOST, whole ones as int. Raises ValueError, also where it is nested too deeply."""
    try:
        return json.loads(text, parse_constant=_number, parse_int=_number, parse_float=_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _number(text: str) -> int | float:
    value = float(text)
    if not 0 <= value <= MOST:
        raise ValueError(f"{text[:20]} is not between 0 and {MOST:g}")
    if value.is_integer():  # as `4e9`, which the schema of a profile takes for whole, too
        return int(text) if text.isdigit() else int(value)
    return value
