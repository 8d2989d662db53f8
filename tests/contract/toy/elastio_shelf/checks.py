"""What can be checked before money is spent, for `elastio doctor`."""

from __future__ import annotations

from elastio.core.model import VolumeSpec
from elastio.errors import ElastioError
from elastio_shelf.provider import ShelfProvider


def run(provider: ShelfProvider, wanted: VolumeSpec) -> list[tuple[str, bool, str]]:
    """Name, verdict and one sentence for each check."""
    try:
        price = provider.quote(wanted).price_per_hour
    except ElastioError as error:
        return [("shelf", False, str(error))]
    return [("shelf", True, f"The shelf sells it for {price:.2f} EUR per hour.")]
