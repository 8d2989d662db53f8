"""How the cgroups of a machine share the capacity of the adaptive device, by weight; and whose load counts. Pure.

`elastio shares` shows it (`divide`); where shares are switched on, `division` says which limits put it in force.

Theory of operation. The queue of a cloud volume is at the provider, who serves first what comes first. The kernel
never sees the volume as full, so the weights of its cgroups have no effect. This module says what they would give.

- The *weight* of a cgroup is the kernel's (`io.weight`; systemd: `IOWeight=`). It divides the share of the parent among
  its active children, as everywhere in cgroup v2. A cgroup that uses nothing takes no part.
- Who wants less than its share gets all that it wants. What is left goes to those who want more, by weight
  (water-filling), so nothing is left over while somebody wants it.
- What a cgroup wants is not visible on a full device. It wants more if it uses nearly all of its share, or if its tasks
  wait most of the time. On a device that is not full, everybody has what it wants.
- A reservation in MB/s becomes a part of the capacity in force, so it weighs more in a phase with less capacity. What
  the reservations leave is divided by weight. One that is not used is lent like any share.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import accumulate

# From this share of the capacity on, the device counts as full.
FULL = 0.90
# A cgroup that uses this share of what it is entitled to wants more.
WANTS_MORE = 0.93
# On a full device one also wants more whose tasks wait this share of the time.
WAITS = 0.5
# A cgroup that uses this share of the capacity is active: a few small requests a second.
ACTIVE = 0.001
# A limit is rewritten only for a larger change. Measured on Linux 6.1 with limits on bcacheN: to rewrite every one,
# four times a second, costs 45 % of the throughput.
HYSTERESIS = 0.08
# No part is smaller: a limit of next to nothing would make a request wait for minutes.
LEAST_PART = 0.01
# Share of the capacity that can be reserved; the rest is for everybody.
MOST_RESERVED = 0.90


@dataclass(frozen=True, slots=True)
class Reserved:
    """A reservation. `group`: the path of a cgroup, or the last part of it, such as `postgresql.service`."""

    group: str
    mb_s: float

    def is_for(self, group: str) -> bool:
        """Whether this cgroup has the reservation."""
        return is_named(group, self.group)


@dataclass(frozen=True, slots=True)
class LatencyTarget:
    """`group`: the path of a cgroup, or the last part of it, such as `postgresql.service`."""

    group: str
    ms: float


@dataclass(frozen=True, slots=True)
class SharePlan:
    """What is shared: the capacity in force, of which parts are reserved; and whose requests are not to wait long."""

    capacity_mb_s: float
    reserve: tuple[Reserved, ...] = ()
    latency: tuple[LatencyTarget, ...] = ()

    def part(self, part: float) -> SharePlan:
        """This part (0 to 1) of it, in which reservations are the same part as in the whole."""
        reserve = tuple(replace(each, mb_s=part * each.mb_s) for each in self.reserve)
        return replace(self, capacity_mb_s=part * self.capacity_mb_s, reserve=reserve)

    @property
    def least_target_s(self) -> float | None:
        """The least latency target; None: there is none."""
        return min((each.ms / 1000 for each in self.latency), default=None)

    def target_s(self, group: str) -> float | None:
        """The latency target of a cgroup; None: it has none."""
        return min((each.ms / 1000 for each in self.latency if is_named(group, each.group)), default=None)


NOT_SHARED = SharePlan(0.0)


@dataclass(frozen=True, slots=True)
class Use:
    """What a cgroup used of the device lately.

    `group` is its path below the root, such as `system.slice/cron.service`, `used_mb_s` what it read and wrote.
    `waiting`: the share (0 to 1) of the time in which one of its tasks waited in the kernel. `limit_mb_s`: to what it
    was limited; None: it was not.
    """

    group: str
    used_mb_s: float
    waiting: float = 0.0
    limit_mb_s: float | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """What an active cgroup has by its weight, in MB/s.

    `entitled_mb_s` is its part of the capacity, which it has when all want more. `allotted_mb_s` is what it has of
    that, and of what others leave, as things are now.
    """

    group: str
    entitled_mb_s: float
    allotted_mb_s: float
    wants_more: bool


def divide(uses: Sequence[Use], weights: Mapping[str, float], plan: SharePlan) -> tuple[Share, ...]:
    """The shares of those that are active, in their order. `weights`: of these cgroups and of all above them, by path.

    What is allotted is together at most the capacity, and all of it while somebody wants more.
    """
    capacity = plan.capacity_mb_s
    active = [use for use in uses if use.used_mb_s >= ACTIVE * capacity]
    part = entitled(weights, [use.group for use in active], plan)
    is_full = sum(use.used_mb_s for use in active) >= FULL * capacity
    hungry = [_is_held(use) or (is_full and _wants_more(use, part[use.group] * capacity)) for use in active]
    wanted = [math.inf if more else use.used_mb_s for use, more in zip(active, hungry, strict=True)]
    allotted = fill(capacity, wanted, [part[use.group] for use in active])
    return tuple(
        Share(use.group, part[use.group] * capacity, mb_s, more)
        for use, mb_s, more in zip(active, allotted, hungry, strict=True)
    )


def _wants_more(use: Use, entitled_mb_s: float) -> bool:
    return use.used_mb_s >= WANTS_MORE * entitled_mb_s or use.waiting >= WAITS


def _is_held(use: Use) -> bool:
    """By its limit, although the device may not be full: others are given time, or its queue drains."""
    return use.limit_mb_s is not None and use.used_mb_s >= WANTS_MORE * use.limit_mb_s


def fill(capacity_mb_s: float, wanted_mb_s: Sequence[float], parts: Sequence[float]) -> list[float]:
    """How many MB/s each gets of what it wants (infinite: all there is), by its part, which must be positive.

    Together at most the capacity, and all of it unless less is wanted. Nobody gets more than it wants, nor less than
    the smaller of that and its part of the capacity. Those that do not get all get in proportion to their parts.
    """
    # Whoever wants the least for its part is satisfied first; what it leaves raises the level of the others.
    order = sorted(range(len(parts)), key=lambda i: wanted_mb_s[i] / parts[i])
    of_the_rest = reversed(list(accumulate(parts[i] for i in reversed(order))))
    got, left = [0.0] * len(parts), capacity_mb_s
    for i, rest in zip(order, of_the_rest, strict=True):
        got[i] = min(wanted_mb_s[i], left * (parts[i] / rest))
        left -= got[i]
    return got


def fractions(weights: Mapping[str, float], active: Iterable[str]) -> dict[str, float]:
    """The part of the whole (0 to 1) of each active cgroup, by the weights along its path; together 1.

    No active cgroup is a parent of another one.
    """
    groups = tuple(active)
    siblings: dict[str, set[str]] = {}
    for node in {node for group in groups for node in path(group)}:
        siblings.setdefault(_parent(node), set()).add(node)
    among = {parent: sum(weights[node] for node in sorted(nodes)) for parent, nodes in siblings.items()}
    return {group: math.prod(weights[node] / among[_parent(node)] for node in path(group)) for group in groups}


def parts(weights: Mapping[str, float], active: Sequence[str], plan: SharePlan) -> dict[str, float]:
    """As `entitled`, and none is much smaller than LEAST_PART."""
    found = {group: max(LEAST_PART, part) for group, part in entitled(weights, active, plan).items()}
    whole = sum(found.values())
    return {group: part / whole for group, part in found.items()}


def entitled(weights: Mapping[str, float], active: Sequence[str], plan: SharePlan) -> dict[str, float]:
    """The part of the whole (0 to 1) of each active cgroup, by reservations and weights; together 1."""
    asked = {group: sum(each.mb_s for each in plan.reserve if each.is_for(group)) for group in active}
    reserved = {group: mb_s / plan.capacity_mb_s for group, mb_s in asked.items() if mb_s > 0}
    scale = min(1.0, MOST_RESERVED / sum(reserved.values())) if reserved else 1.0
    others = fractions(weights, [group for group in active if group not in reserved])
    rest = 1.0 - scale * sum(reserved.values())
    found = {g: scale * reserved[g] if g in reserved else rest * others[g] for g in active}
    whole = sum(found.values())
    return {group: part / whole for group, part in found.items()}


def is_named(group: str, name: str) -> bool:
    """Whether a setting names this cgroup: by its path, or by the last part of it."""
    return group == name or group.endswith(f"/{name}")


def path(group: str) -> tuple[str, ...]:
    """The cgroup and all above it but the root, the outermost first: `a`, `a/b`, `a/b/c`."""
    return tuple(accumulate(group.split("/"), lambda above, name: f"{above}/{name}"))


def _parent(group: str) -> str:
    return group.rpartition("/")[0]


def is_overloaded(shares: Iterable[Share]) -> bool:
    """Whether somebody wants more than there is."""
    return any(share.wants_more for share in shares)


EVERYBODY = ("*",)


@dataclass(frozen=True, slots=True)
class Counted:
    """Cgroups whose bytes are added, and those whose bytes are subtracted, each with all that is below it.

    None of the first is above another of them, and so for the second. `everybody`: the first are the whole device,
    with what the kernel attributes to no cgroup.
    """

    everybody: bool
    added: tuple[str, ...]
    subtracted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BoostRights:
    """Whose load counts towards a boost: the cgroups that may cause one.

    A pattern is that of a shell. It names a cgroup if it matches its path below the root
    (`system.slice/backup.service`) or the last part of that (`backup.service`), and everything below the cgroup with
    it. What `no` names has no right, whatever `may` says.
    """

    may: tuple[str, ...] = EVERYBODY
    no: tuple[str, ...] = ()

    @property
    def is_everybody(self) -> bool:
        """Nobody is left out, so no cgroup has to be read."""
        return self.may == EVERYBODY and not self.no

    def includes(self, group: str) -> bool:
        """Whether what this cgroup moves counts."""
        nodes = path(group)
        return any(_matches(n, self.may) for n in nodes) and not any(_matches(n, self.no) for n in nodes)

    def counted(self, groups: Sequence[str]) -> Counted:
        """Whose bytes count, of cgroups that are given by their paths, parents first."""
        everybody = EVERYBODY[0] in self.may
        added = () if everybody else _topmost([group for group in groups if _matches(group, self.may)])
        refused = dict.fromkeys(_topmost([group for group in groups if _matches(group, self.no)]))
        # One that is refused as a whole is not added in part.
        kept = dict.fromkeys(group for group in added if not _is_in(group, refused))
        return Counted(everybody, tuple(kept), tuple(group for group in refused if everybody or _is_in(group, kept)))


ALL_MAY = BoostRights()


def _matches(group: str, patterns: Sequence[str]) -> bool:
    name = group.rpartition("/")[2]
    return any(fnmatchcase(group, pattern) or fnmatchcase(name, pattern) for pattern in patterns)


def _topmost(groups: Sequence[str]) -> tuple[str, ...]:
    """Those that are in no other of them; parents come first."""
    found: dict[str, None] = {}
    for group in groups:
        if not _is_in(group, found):
            found[group] = None
    return tuple(found)


def _is_in(group: str, above: Container[str]) -> bool:
    """Whether the cgroup is one of these, or below one."""
    return any(node in above for node in path(group))
