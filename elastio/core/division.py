"""The limits by which cgroups share the adaptive device, from turn to turn. Pure.

Theory of operation. What a cgroup wants is not visible, only what it uses under its limit. One rule says who is
*hungry*, that is, wants more: it uses nearly all of its limit. A cgroup without a limit is hungry if it uses nearly all
of its share of a full device. All others are satisfied: what they use is what they want, and they get a little more
(ROOM), because clients that wait for each answer use less as soon as they are held up, and would seem to want less. The
hungry share by weight what the satisfied leave (`shares.fill`), and each has just that as its limit. The limit of the
satisfied is above what they use, and at least their share. With limits in force the device is not full, so nobody is
slowed down by the others' queues, and the rule is right. Six things can be wrong with it, and each is set right:

- *Crowded*: more is used than there is to share. Then somebody is slowed down by the others, and what it uses is not
  what it wants. A satisfied cgroup gets room for twice of what it uses (ROOM_IF_SLOWED), as far as its weight goes,
  until that is no more than it takes. Who uses as much of its limit as anybody does is hungry, and who was hungry
  remains so: a queue serves one after the other, and limits that followed that would never let it drain.
- *Short*: less is used than there is, and somebody is hungry. One of the hungry wants just a little less than its
  limit. All of their limits go up by a step (STEP), below which who wants no more cannot hide.
- *Odd*: a limit differs from what it should be, but by too little to rewrite it. All such go down by a step for one
  turn, from where the next turn writes the right ones.
- *A piece*: buffered writeback reaches the device in requests of many MB. A limit makes each of them wait for as long
  as it needs to allow all of it, and then lets it pass as a whole. A cgroup that waits for seconds for that would count
  as one that wants nothing, and lose its limit. So who moves something in such requests counts as using just its limit
  for as long as that needs to allow one of twice the size (`at_limits`): the next one may wait so long. Measured on
  Linux 6.1: once a limit was lifted while such a request waited, the one that was set after it had no effect for
  five seconds.
- *Mixed*: reads and writes have a limit each. Who draws at random which comes next, with some requests at a time, has
  now and then all of them waiting for one of the two, and nothing for the other. So it uses less of both limits
  together than of one, and wants more from a smaller part of them on (NEAR_MIXED). Where requests of both kinds wait,
  both limits allow more than the share, a queue forms at the device, and its order decides who gets most. So a smaller
  queue is drained (`device_queue`).
- Noise: a turn has two or three of the slices of 0.1 s by which the kernel lets requests pass, so what a limit allows
  varies by a fifth from turn to turn, for all cgroups at once. So what is used is a mean over pairs of turns, which
  begins again when limits change, and what is amiss counts only after PATIENCE turns in a row, of too much or of too
  little. So does that nobody is hungry and the device far from full, where limits end.

Limits are lower while a queue at the device is drained (`device_queue`). What somebody uses of a device with a queue
does not say what it wants. So while limits are lower everybody has its share, and nothing is lent but what those leave
that use next to nothing (LITTLE): beside eight of them one that wants all would be down to a ninth of the device. After
that, as long as a queue stands, who wanted more goes on to do so: a device that gives 3 % less than it is taken to is
shared 1.9:1 then where it should be 2:1, and 1:1 without this rule. A device that is not full, though a queue stands,
gives even less: then only those go on to want more that use most of their limit (SLOWED), as others may have stopped.

While a cgroup with a latency target waits too long, less is lent to the others (`lending`): what is withheld is used by
nobody, the device is neither short of it nor empty, and limits do not end.

Who is alone for a while (ALONE) needs no limit, and gets more without one: up to 6 % of small writes. Its limit is then
above the capacity, which says as little of what it wants as none. It is not lifted, because a piece may wait for it.
Limits begin again when another cgroup is active, and the queue that stands then is drained. Where a cgroup may have a
latency target, there are limits also for who is alone: that one's first requests are not to meet a queue.

A limit is rewritten only for a change of more than HYSTERESIS. Where wishes do not change, limits come to rest.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from elastio.core.device_queue import DRAIN, NO_QUEUE, TURN_S, DeviceQueue
from elastio.core.lending import ALL_LENT, Lending, Waits
from elastio.core.shares import ACTIVE, FULL, HYSTERESIS, WANTS_MORE, SharePlan, fill, parts

# The weight of a turn in the mean, as soon as that is as long.
SMOOTHING = 0.3
# A cgroup that uses this share of its limit is hungry.
NEAR_LIMIT = 0.93
# One that reads and writes alike is hungry from this share of both on: of 16 requests drawn at random, all wait for one
# of the two in up to 1/17 of the time, and what is used varies as well.
NEAR_MIXED = 0.75
# Who was hungry still is from this share of its limit on, where a queue stands and the device is not full.
SLOWED = 0.75
# A satisfied cgroup that uses more than its share is limited to so much more than it uses, so that it is not near it.
LOOSE = 1.25
# And it keeps a limit that is higher by up to this factor.
LOOSER = 1.5
# A satisfied cgroup may want so much more than it uses; and so much while others slow it down.
ROOM, ROOM_IF_SLOWED = 1.03, 2.0
# One that uses less than this part of its share of a device with a queue is not taken to be held up by that.
LITTLE = 0.125
# Limits end where less than this share of the capacity is used.
EMPTY = 0.80
CROWDED, SHORT, ODD = 1.012, 0.972, 0.02
PATIENCE = 3
# So long nobody else may be active, or use more than this part of what makes it active.
ALONE, UNSEEN = 8, 0.25
STEP = 1.0625 * HYSTERESIS
# A request is a piece if it is more than a limit allows in so many turns, or without a limit more than the whole device
# moves in so much of one. The next one may be larger by a factor; the largest one, in MB/s of one turn.
PIECE, FREE_PIECE, LARGER, LARGEST = 2.0, 0.25, 2.0, 128.0
# Who moves less than this share of what counts waits for the next one.
QUIET = 0.5
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Division:
    """What one turn has to know of those before it.

    `used_mb_s`: what each active cgroup uses, a mean over `turns` turns since limits changed; `counted_mb_s`: what
    counts as used in the last turn. `amiss`: for how many turns in a row too much has been used, or (negative) too
    little, that is not yet set right. `lending`: how much of what others leave is lent. `spare`: for how many turns in
    a row limits have had no use. `hungry`: who was so in the last turn. `alone`: for how many turns nobody else has
    been active. `pending_mb_s`: of the piece that may wait what no limit has allowed yet, as MB/s of one turn.
    """

    used_mb_s: Mapping[str, float] = field(default_factory=dict)
    turns: int = 0
    amiss: int = 0
    lending: Lending = ALL_LENT
    spare: int = 0
    queue: DeviceQueue = NO_QUEUE
    hungry: frozenset[str] = frozenset()
    alone: int = 0
    pending_mb_s: Mapping[str, float] = field(default_factory=dict)
    counted_mb_s: Mapping[str, float] = field(default_factory=dict)

    def turn(
        self,
        moved_mb_s: Mapping[str, float],
        weights: Mapping[str, float],
        plan: SharePlan,
        in_force_mb_s: Mapping[str, float],
        untouched: Collection[str] = (),
        waited: Waits | None = None,
        request_s: float = 0.0,
        requests: Mapping[str, int] | None = None,
        mixed: Collection[str] = (),
    ) -> tuple[Division, dict[str, float]]:
        """The next state, and the limits from now on, in MB/s; those that stay are equal to the ones in force.

        `moved_mb_s`: what each cgroup used since the last turn. `untouched`: cgroups that somebody else limits; what
        they use counts. `waited`: the requests of the device of the kind that cgroups with a latency target had.
        `request_s`: what a request of the device took in this turn, a mean. `requests`: in how many requests each
        cgroup used what it did, where that is known. `mixed`: cgroups that read as much as they write.
        """
        moved, limited = sum(moved_mb_s.values()), sum(in_force_mb_s.values())
        queue = self.queue.turn(
            request_s,
            _needed_s(moved, sum((requests or {}).values()), plan),
            _needed_s(max(self.pending_mb_s.values(), default=0.0), 1, plan),
            is_limited=bool(in_force_mb_s) and self.alone < ALONE,
            is_loose=limited > LOOSE * plan.capacity_mb_s,
            is_full=moved >= FULL * plan.capacity_mb_s,
            is_mixed=not self.hungry.isdisjoint(mixed),
        )
        free_mb_s = LOOSE * plan.capacity_mb_s
        plan = plan.part(1 - DRAIN) if queue.is_draining else plan
        mean = {group: moved_mb_s[group] / count for group, count in (requests or {}).items() if count}
        counted, pending = at_limits(moved_mb_s, mean, in_force_mb_s, self.pending_mb_s, plan)
        is_quiet = _is_quiet(moved_mb_s, counted, plan)
        this = _Turn(counted, weights, plan, free_mb_s, in_force_mb_s, untouched, waited or {}, mixed, is_quiet, queue)
        seen = _Seen.of(self._recent(counted), this, self.lending.absent)
        alone = self.alone + 1 if seen.is_alone() and not plan.latency else 0
        needs_none = alone > ALONE or (alone > 0 and not seen.limit)
        division, limits = self._of_one(seen) if needs_none else self._divided(seen)
        return replace(division, queue=queue, alone=alone, pending_mb_s=pending, counted_mb_s=counted), limits

    def _recent(self, counted_mb_s: Mapping[str, float]) -> dict[str, float]:
        """The mean of what each cgroup uses; one turn alone, the first after limits changed, counts half."""
        before = {group: self.counted_mb_s.get(group, 0.0) for group in self.used_mb_s} if self.turns else {}
        pair = {group: (now + before.get(group, now)) / 2 for group, now in counted_mb_s.items()}
        weight = max(SMOOTHING, 1 / max(2, self.turns + 1))
        return {g: weight * mb_s + (1 - weight) * self.used_mb_s.get(g, mb_s) for g, mb_s in pair.items()}

    def _of_one(self, seen: _Seen) -> tuple[Division, dict[str, float]]:
        """One without a limit gets none, and one that has a limit gets it above the capacity, until that has no use."""
        spare = self.spare + 1 if seen.is_empty() else 0
        free = {group: _kept(mb_s, seen.this.free_mb_s) for group, mb_s in seen.limit.items()}
        return Division(seen.used, self.turns + 1, spare=spare), {} if spare >= PATIENCE else free

    def _divided(self, seen: _Seen) -> tuple[Division, dict[str, float]]:
        hungry = seen.hungry(self.hungry)
        silent = seen.limit.keys() & self.pending_mb_s.keys()
        lending = self._lending(seen.this, hungry, silent)
        hungry |= seen.borrowers(lending.level)
        if not hungry:
            return self._without_need(seen, lending)
        allotted = seen.allotted(hungry, all_are_slowed=seen.is_crowded() and self.amiss > 0)
        right = seen.lent(allotted, lending.level)
        limits = {**seen.loose(), **{group: _kept(seen.limit.get(group), mb_s) for group, mb_s in right.items()}}
        odd = {group for group, mb_s in right.items() if abs(limits[group] / mb_s - 1) > ODD}
        is_high, is_low = bool(odd) or seen.is_crowded(), seen.is_short(right)
        amiss = max(self.amiss, 0) + 1 if is_high else min(self.amiss, 0) - 1 if is_low else 0
        amiss = 0 if seen.has_changed(limits, right) else amiss
        if abs(amiss) >= PATIENCE:
            too_many = right if seen.is_crowded() else odd
            down = {group: (1 - STEP) * min(limits[group], right[group]) for group in too_many}
            up = {group: (1 + STEP) * limits[group] for group in right}
            limits, amiss = {**limits, **(down or up)}, 0
        now = Division(seen.used, self.turns + 1, amiss, lending, hungry=frozenset(hungry))
        if seen.has_changed(limits, right):
            now = replace(now, used_mb_s={group: limits[group] for group in right}, turns=0)
        return now, limits

    def _without_need(self, seen: _Seen, lending: Lending) -> tuple[Division, dict[str, float]]:
        """Limits stay for a while, and as long as not all is lent: more was used without them."""
        spare = self.spare + 1 if seen.is_empty() and lending.level == 1.0 else 0
        limits = {} if spare >= PATIENCE else dict(seen.limit)
        return Division(seen.used, self.turns + 1, 0, lending, spare), limits

    def _lending(self, this: _Turn, hungry: Collection[str], silent: Collection[str]) -> Lending:
        """Who wants more than it has waits for that, and not for others."""
        target_s = {group: this.plan.target_s(group) or math.inf for group in this.waits}
        waits = {group: each for group, each in this.waits.items() if group not in hungry}
        return self.lending.turn(waits, target_s, is_quiet=this.is_quiet, silent=silent)


def at_limits(
    moved_mb_s: Mapping[str, float],
    request_mb_s: Mapping[str, float],
    limit_mb_s: Mapping[str, float],
    pending_mb_s: Mapping[str, float],
    plan: SharePlan,
) -> tuple[dict[str, float], dict[str, float]]:
    """What counts as used in this turn, and what is pending after it.

    `request_mb_s`: a mean request of those that have moved something, as MB/s of one turn. It tells a piece from what a
    limit lets pass too early because it was rewritten.
    """
    least = {group: PIECE * limit_mb_s[group] for group in request_mb_s.keys() & limit_mb_s.keys()}
    pieces = {g: mb_s for g, mb_s in request_mb_s.items() if mb_s > least.get(g, FREE_PIECE * plan.capacity_mb_s)}
    next_mb_s = {g: min(LARGEST, LARGER * mb_s) for g, mb_s in pieces.items()}
    pending = {g: max(next_mb_s.get(g, 0.0), pending_mb_s.get(g, 0.0)) for g in moved_mb_s}
    most = {group: min(mb_s, plan.capacity_mb_s) for group, mb_s in limit_mb_s.items()}
    counted = {g: most.get(g, mb_s) if pending[g] > 0 else mb_s for g, mb_s in moved_mb_s.items()}
    left = {group: mb_s - limit_mb_s.get(group, 0.0) for group, mb_s in pending.items()}
    return counted, {group: mb_s for group, mb_s in left.items() if mb_s > 0}


def _needed_s(moved_mb_s: float, requests: int, plan: SharePlan) -> float:
    """How long the device needs for a request of the mean size; 0: that is not known."""
    return TURN_S * moved_mb_s / requests / plan.capacity_mb_s if requests else 0.0


def _is_quiet(moved_mb_s: Mapping[str, float], counted_mb_s: Mapping[str, float], plan: SharePlan) -> bool:
    """Whether most of what counts of those without a latency target has passed in earlier turns."""
    others = [group for group in counted_mb_s if plan.target_s(group) is None]
    return sum(moved_mb_s.get(group, 0.0) for group in others) < QUIET * sum(counted_mb_s[group] for group in others)


@dataclass(frozen=True, slots=True)
class _Turn:
    """What is known in a turn, see `Division.turn`; `moved_mb_s` is what counts. `free_mb_s`: for who is alone."""

    moved_mb_s: Mapping[str, float]
    weights: Mapping[str, float]
    plan: SharePlan
    free_mb_s: float
    in_force_mb_s: Mapping[str, float]
    untouched: Collection[str]
    waits: Waits
    mixed: Collection[str]
    is_quiet: bool
    queue: DeviceQueue


@dataclass(frozen=True, slots=True)
class _Seen:
    """A turn. `used`, `part`, `limit`: of the active cgroups. `prompt`: those with a latency target that are there."""

    this: _Turn
    used: Mapping[str, float]
    part: Mapping[str, float]
    limit: Mapping[str, float]
    prompt: Collection[str]

    @classmethod
    def of(cls, used: Mapping[str, float], this: _Turn, absent: Collection[str]) -> _Seen:
        """`absent`: cgroups with a latency target that wait for nothing now; they are active even so."""
        prompt, plan = {*absent, *this.waits}, this.plan
        least = ACTIVE * plan.capacity_mb_s
        active = {group: mb_s for group, mb_s in used.items() if mb_s >= least or group in prompt}
        limit = {g: this.in_force_mb_s[g] for g in active if g in this.in_force_mb_s and g not in this.untouched}
        return cls(this, active, parts(this.weights, list(active), plan), limit, prompt)

    @property
    def capacity(self) -> float:
        """What there is to share, in MB/s."""
        return self.this.plan.capacity_mb_s

    def _share(self, group: str) -> float:
        return self.part[group] * self.capacity

    def _uses(self, share: float, *, for_sure: bool = False) -> bool:
        """Whether this much of the capacity is used, recently or on the whole; `for_sure`: both."""
        both = (sum(self.this.moved_mb_s.values()), sum(self.used.values()))
        return (min(both) if for_sure else max(both)) >= share * self.capacity

    def is_alone(self) -> bool:
        """Whether one is active, and what the others do is next to nothing even if its queue has slowed them down."""
        others = sum(mb_s for group, mb_s in self.this.moved_mb_s.items() if group not in self.used)
        return len(self.used) == 1 and others < UNSEEN * ACTIVE * self.capacity

    def is_empty(self) -> bool:
        return not self._uses(EMPTY)

    def is_short(self, right: Mapping[str, float]) -> bool:
        """Whether less is used than the satisfied use and the others may."""
        expected = sum(right.values()) + sum(mb_s for group, mb_s in self.used.items() if group not in right)
        return not self._uses(SHORT * min(1.0, expected / self.capacity))

    def is_crowded(self) -> bool:
        return self._uses(CROWDED, for_sure=True)

    def hungry(self, before: Collection[str]) -> set[str]:
        """Who wants more. On a full device nobody may reach its limit: then those `before`, and who comes nearest.

        Where somebody is just at its limit and no queue is there, limits hold, and what the others use they want.
        While a queue is drained what somebody uses says little: all have their share then, and no more is lent, but
        for what those leave that use next to nothing.
        """
        nearest = max((self.used[group] / mb_s for group, mb_s in self.limit.items()), default=1.0)
        near = min(1.0, nearest) if self.is_crowded() else 1.0
        found = {group for group, mb_s in self.limit.items() if self.used[group] >= near * self._near(group) * mb_s}
        if self.this.queue.is_draining:
            much = {group for group in self.limit if self.used[group] >= LITTLE * self._share(group)}
            found |= much - set(self.prompt)
        if self.this.queue.is_there:
            least = 0.0 if self._uses(FULL) else SLOWED
            found |= {g for g in self.limit.keys() & before if self.used[g] >= least * self.limit[g]}
        elif self._uses(1.0) and not NEAR_LIMIT <= nearest <= CROWDED:
            found |= self.limit.keys() & before
        return found | {group for group in self._unknown() if self.used[group] >= WANTS_MORE * self._share(group)}

    def borrowers(self, level: float) -> set[str]:
        """Who uses more than this level leaves to cgroups without a latency target."""
        found = {group for group, mb_s in self.used.items() if mb_s > self._lent(group, self.capacity, level)}
        return {group for group in found if not self._is_prompt(group)} - set(self.this.untouched)

    def lent(self, allotted: Mapping[str, float], level: float) -> dict[str, float]:
        """What is left of what was allotted, while so much of what others leave is lent."""
        return {g: mb_s if self._is_prompt(g) else self._lent(g, mb_s, level) for g, mb_s in allotted.items()}

    def _is_prompt(self, group: str) -> bool:
        return self.this.plan.target_s(group) is not None

    def _lent(self, group: str, mb_s: float, level: float) -> float:
        share = min(mb_s, self._share(group))
        return mb_s if level == 1.0 else share + level * (mb_s - share)

    def _near(self, group: str) -> float:
        return NEAR_MIXED if group in self.this.mixed else NEAR_LIMIT

    def _unknown(self) -> set[str]:
        """Those without a limit on a full device, or with that of one alone."""
        limited = {group for group, mb_s in self.limit.items() if mb_s < self.this.free_mb_s / (1 + HYSTERESIS)}
        return self.used.keys() - limited - set(self.this.untouched) if self._uses(FULL) else set()

    def allotted(self, hungry: Collection[str], *, all_are_slowed: bool) -> dict[str, float]:
        """What each of the hungry gets, and of the others those that cannot keep what they use."""
        slowed = self.used.keys() if all_are_slowed else self._unknown()

        def wanted(group: str) -> float:
            return math.inf if group in hungry else (ROOM_IF_SLOWED if group in slowed else ROOM) * self.used[group]

        got = fill(self.capacity, [wanted(group) for group in self.used], [self.part[group] for group in self.used])
        return {
            group: mb_s
            for (group, used), mb_s in zip(self.used.items(), got, strict=True)
            if group not in self.this.untouched and (group in hungry or mb_s < used * (1 - ROUNDING))
        }

    def loose(self) -> dict[str, float]:
        """The limit of each cgroup if it is satisfied."""
        return {group: self._loose(group) for group in self.used if group not in self.this.untouched}

    def _loose(self, group: str) -> float:
        used, share, limit = self.used[group], self._share(group), self.limit.get(group)
        wanted = max(share, LOOSE * used)
        if limit is None:
            return wanted
        is_fit = share <= (1 + ODD) * limit and limit <= LOOSER * wanted and used < NEAR_LIMIT * limit
        return limit if is_fit else _kept(limit, wanted)

    def has_changed(self, limits: Mapping[str, float], hungry: Collection[str]) -> bool:
        """Whether the limit of a hungry one is another than before."""
        return any(limits[group] != self.limit.get(group) for group in hungry)


def _kept(limit: float | None, wanted: float) -> float:
    """The limit that is in force, unless it differs by more than HYSTERESIS from what is wanted."""
    return limit if limit is not None and abs(wanted - limit) <= HYSTERESIS * limit else wanted
