"""Where the time of cgroups went in the bursts of a period: one account each, and one of all together. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from elastio.accounting.tables import Table
from elastio.core.moved import Moved
from elastio.strategy.account import PARTS, Account, Totals, account, seconds_of
from elastio.strategy.bandwidth import curves_of
from elastio.strategy.memory import STOP_GAIN

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


ALL = "all"
HEADS = ("cgroup", "bursts", "seconds", *PARTS, "B* MB/s")


@dataclass(frozen=True, slots=True)
class GroupAccount:
    """One cgroup. `bursts`: how many it used the device in."""

    cgroup: str
    bursts: int
    totals: Totals

    @property
    def account(self) -> Account:
        return account(self.totals)


@dataclass(frozen=True, slots=True)
class BurstAccounts:
    """The cgroups, those first that waited longest for bandwidth; `boosts` of the `bursts` had a boost."""

    bursts: int
    boosts: int
    groups: tuple[GroupAccount, ...]
    all: GroupAccount


NO_BURSTS = BurstAccounts(0, 0, (), GroupAccount(ALL, 0, Totals()))


def burst_accounts(rows: Iterable[AccountRow]) -> BurstAccounts:
    """The accounts of the bursts of these rows, each counted as a whole."""
    found: dict[str, GroupAccount] = {}
    begun: dict[tuple[str, float], bool] = {}
    whole = Totals()
    for row in rows:
        known = found.get(row.cgroup, GroupAccount(row.cgroup, 0, Totals()))
        found[row.cgroup] = GroupAccount(row.cgroup, known.bursts + 1, known.totals.plus(row.totals))
        key = row.device_uuid, row.begun_wall
        begun[key] = begun.get(key, False) or row.token is not None
        whole = whole.plus(row.totals)
    ordered = sorted(found.values(), key=lambda each: (-each.account.bandwidth_s, each.cgroup))
    return BurstAccounts(len(begun), sum(begun.values()), tuple(ordered), GroupAccount(ALL, len(begun), whole))


def cells(group: GroupAccount, stop_gain: float = STOP_GAIN) -> tuple[str, ...]:
    """The cgroup as a row of a table below HEADS: its parts in percent, and the inflection of its curve."""
    found = group.account
    shares = (f"{100 * seconds_of(found, part) / found.seconds:.0f} %" if found.seconds > 0 else "-" for part in PARTS)
    best_mb_s = curves_of(group.totals).likely.inflection_mb_s(stop_gain)
    shown = f"{best_mb_s:.0f}" if 0 < best_mb_s < math.inf else "-"
    return (group.cgroup, str(group.bursts), f"{found.seconds:.0f}", *shares, shown)


def wait_table(found: BurstAccounts, most: int) -> Table:
    """Those that waited longest for bandwidth, and all; no rows if no burst has an account."""
    rows = [cells(group) for group in (*found.groups[:most], found.all)] if found.groups else []
    return Table(HEADS, tuple(rows))
