"""What other devices have spent under shared caps, as the status of an agent shows it."""

from __future__ import annotations

from elastio.control.status import OthersPart
from elastio.core.model import Others, Spent


def others_of(seen: OthersPart) -> Others:
    """The same for the functions of the core."""
    month = seen.month
    return Others(Spent(seen.boosts, seen.agbs, seen.cost), Spent(month.boosts, month.agbs, month.cost), seen.trouble)
