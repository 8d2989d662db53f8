"""Checks for `elastio doctor`, before money is spent."""

from __future__ import annotations

from elastio.core.model import VolumeSpec
from elastio.errors import ElastioError
from elastio_shelf.provider import ShelfProvider


def run(provider: ShelfProvider, wanted: VolumeSpec) -> list[tuple[str, bool, str]]:
    """Name, whether it passed, and one sentence for each check."""
    try:
        price = provider.quote(wanted).price_per_hour
    except ElastioError as error:
        return [("shelf", False, str(error))]
    return [("shelf", True, f"The shelf has it for {price:.2f} EUR per hour.")]
