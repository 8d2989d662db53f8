"""Read JSON and bound its numbers; `elastio.codec` makes values of the result. Pure."""

from __future__ import annotations

import json
from typing import Any

# The limit for bytes, seconds and MB/s. Products of several such numbers stay finite.
MOST = 1e18
# Keys of records and profiles of release 0.1.0.
RENAMED = {"evicted_bytes": "written_through_bytes"}


def parse(text: str) -> Any:
    """The document, with whole numbers as int.

    Raises ValueError for anything that is not JSON, for a number outside 0 to MOST, and where it is nested too deeply.
    """
    try:
        return json.loads(
            text, parse_constant=_number, parse_int=_number, parse_float=_number, object_pairs_hook=_object
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {RENAMED.get(key, key): value for key, value in pairs}


def _number(text: str) -> int | float:
    value = float(text)
    if not 0 <= value <= MOST:
        raise ValueError(f"{text[:20]} is not between 0 and {MOST:g}")
    if value.is_integer():  # also `4e9`, which is an integer by the schema of a profile
        return int(text) if text.isdigit() else int(value)
    return value
