"""The rows of the ledger about waits: one for each burst and cgroup. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elastio.core.account import PARTS, Totals, account, seconds_of
from elastio.core.moved import Moved

Parts = Mapping[str, float]
# Cgroups that are added up one by one, and the name of all others together: services come and go for years.
MOST_SUMS, OTHERS = 50, "others"


@dataclass(frozen=True, slots=True)
class AccountRow:
    """One cgroup in one burst. Times are seconds since the epoch; `token`: the boost of this burst, None: none.

    `is_over` False: the burst goes on, and the row will be replaced.
    """

    device_uuid: str
    begun_wall: float
    cgroup: str
    ended_wall: float
    token: str | None
    is_over: bool
    totals: Totals


# What cgroups have moved in boosts, by the token and the cgroup.
Moves = Mapping[tuple[str, str], Moved]


def parts_of(totals: Totals) -> Parts:
    """The six parts of the account, in seconds."""
    found = account(totals)
    return {part: seconds_of(found, part) for part in PARTS}
