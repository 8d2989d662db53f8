"""How much is lent of what others leave, while a cgroup with a latency target waits. Pure.

Theory of operation. A volume serves first what comes first, so a small request waits for all that is in flight at the
volume, and that is mostly of whoever has the most bandwidth. The kernel keeps no latencies of a cgroup; what it keeps
is how long the requests of the device took, reads and writes apart, from where limits have let them pass. That is what
a cgroup waits there for its own. If the mean over time is above the target of a cgroup that keeps within its share,
less is lent to those without a target. At level 1 they get all that others leave, at 0 only their shares: less is never
taken. So a target is kept only as far as that suffices, and who wants more than its share has no claim to a latency.

The mean is over time and not over requests, as the counters are looked at several times in a turn (`Look`). Who asks
again only after an answer, as a database does for each of its clients, has hundreds of requests in a moment without
others, and few in one with them: of its requests nearly none waits, though it waits for half of the time.

The level is the highest one at which waits are not too long, found by bisection, because nobody knows how the wait of a
volume depends on its load. Having found it, a higher one is tried after HOLD turns, and each time after twice as many:
limits come to rest. Once no cgroup with a target uses the device, all is lent; one whose large request may wait for its
own limit, for seconds, has not left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

from elastio.core.moved import Moved

# The mean wait is a decayed one: that of a turn weighs so much a turn later.
DECAY = 0.5
# Below this share of the target nobody waits too long, and more may be lent; below half of it twice as soon.
CALM = 0.8
# Turns in a row until less, and until more is lent.
PATIENCE, PATIENCE_UP = 3, 8
STEP_UP, LEAST_STEP = 0.25, 0.05
HOLD, MOST_HOLD = 40, 2560
# The kernel counts the milliseconds of requests in 32 bits (block/genhd.c).
COUNTED_S = 2**32 / 1000
# A cgroup that has not used the device for so many turns does not wait.
ABSENT = 8


@dataclass(frozen=True, slots=True)
class Requests:
    """Those that a device has finished, and the seconds that all of them took."""

    count: float = 0.0
    seconds: float = 0.0

    @property
    def mean_s(self) -> float | None:
        """Seconds of a request; None: none was finished."""
        return self.seconds / self.count if self.count > 0 else None

    def plus(self, other: Requests) -> Requests:
        return Requests(self.count + other.count, self.seconds + other.seconds)

    def since(self, before: Requests) -> Requests:
        """What was finished since an earlier reading of the counters; nothing if they are another device's."""
        count = self.count - before.count
        return Requests(count, (self.seconds - before.seconds) % COUNTED_S) if count > 0 else Requests()

    def evenly(self, seconds: float) -> Requests:
        """One in each second of so many, which take as long as these; none if there are none."""
        return NONE if self.mean_s is None else Requests(seconds, seconds * self.mean_s)

    def decayed(self) -> Requests:
        return Requests(self.count * DECAY, self.seconds * DECAY)


NONE = Requests()
NO_REQUESTS = NONE, NONE  # reads, writes
Waits = Mapping[str, Requests]


@dataclass(frozen=True, slots=True)
class Look:
    """What a device has finished in so many seconds."""

    seconds: float
    reads: Requests
    writes: Requests


def over_time(moved: Moved, looks: Iterable[Look]) -> Requests:
    """The requests of the kind that a cgroup had, as one in each second in which the device has finished any."""
    found = (like_its_own(moved, look.reads, look.writes).evenly(look.seconds) for look in looks)
    return reduce(Requests.plus, found, NONE)


def like_its_own(moved: Moved, reads: Requests, writes: Requests) -> Requests:
    """The requests of the device of the kind that a cgroup had, which has moved so much."""
    return (reads if moved.read_bytes else NONE).plus(writes if moved.written_bytes else NONE)


@dataclass(frozen=True, slots=True)
class Lending:
    """`level`: the share (0 to 1) that is lent of what others leave.

    `waits`: of cgroups with a target, since the level changed; `absent`: for how many turns each has not used the
    device, of those that may come back. `calm_at`: the highest level at which nobody waited too
    long, 0 if none is known; `long_at`: the lowest one at which somebody did; None: none is known. `run`: for how many
    turns in a row nobody has waited too long, or (negative) somebody has.
    """

    level: float = 1.0
    waits: Waits = field(default_factory=dict)
    calm_at: float = 0.0
    long_at: float | None = None
    run: int = 0
    hold: int = HOLD
    absent: Mapping[str, int] = field(default_factory=dict)

    def turn(
        self, waited: Waits, target_s: Mapping[str, float], *, is_quiet: bool = False, silent: Collection[str] = ()
    ) -> Lending:
        """The next state. `waited`: of each cgroup with a target that keeps within its share and uses the device.

        `is_quiet`: those to whom it is lent have moved next to nothing, as their next requests wait for their limits.
        `silent`: cgroups whose own next requests may wait so, and which are there as long as they were before.
        """
        absent = {group: turns + (group not in silent) for group, turns in self.absent.items()}
        absent = {group: turns for group, turns in absent.items() if turns < ABSENT} | dict.fromkeys(waited, 0)
        if not absent:
            return ALL_LENT
        if is_quiet and (_worst(waited, target_s) or 0.0) <= 1:
            return replace(self, absent=absent)
        waits = {group: self.waits.get(group, NONE).decayed().plus(each) for group, each in waited.items()}
        worst = _worst(waits, target_s)
        now = replace(self, waits={**self.waits, **waits}, absent=absent)
        if worst is None:
            return now
        calm = 2 if worst <= CALM / 2 else 1 if worst <= CALM else 0
        now = replace(now, run=min(self.run, 0) - 1 if worst > 1 else (max(self.run, 0) + calm) * (calm > 0))
        if now.run <= -PATIENCE:
            return now._less(worst)
        return now._more() if now.run >= PATIENCE_UP else now

    def _less(self, worst: float) -> Lending:
        """`worst`: the longest wait, in targets. Who waits for others waits in proportion to what they move."""
        calm_at = self.calm_at if self.calm_at < self.level else 0.0
        level = max(calm_at, self.level / max(2.0, worst))
        return self._at(level if level >= LEAST_STEP else 0.0, calm_at=calm_at, long_at=self.level)

    def _more(self) -> Lending:
        if self.level == 1.0:
            return Lending(waits=self.waits)
        level = self.level + STEP_UP if self.long_at is None else (self.level + self.long_at) / 2
        if self.long_at is None or level - self.level >= LEAST_STEP:
            return self._at(min(1.0, level), calm_at=self.level, long_at=self.long_at)
        if self.run < self.hold:
            return replace(self, calm_at=self.level)
        return replace(self, calm_at=self.level, long_at=None, hold=min(MOST_HOLD, 2 * self.hold))

    def _at(self, level: float, *, calm_at: float, long_at: float | None) -> Lending:
        return replace(self, level=level, calm_at=calm_at, long_at=long_at, waits={}, run=0)


def _worst(waits: Waits, target_s: Mapping[str, float]) -> float | None:
    """The longest mean wait, in targets; None: nobody has one."""
    return max((mean_s / target_s[g] for g, w in waits.items() if (mean_s := w.mean_s) is not None), default=None)


ALL_LENT = Lending()
