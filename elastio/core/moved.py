"""What a cgroup has moved of a device, what of it since an earlier reading, and in which direction. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes that a cgroup, with all below it, has read and written of one device: in all, or in some time.

    `requests`: in so many requests, where that is known.
    """

    read_bytes: int = 0
    written_bytes: int = 0
    requests: int = 0

    @property
    def total_bytes(self) -> int:
        return self.read_bytes + self.written_bytes

    def plus(self, other: Moved) -> Moved:
        read, written = self.read_bytes + other.read_bytes, self.written_bytes + other.written_bytes
        return Moved(read, written, self.requests + other.requests)

    def since(self, before: Moved) -> Moved:
        """What was moved since the reading `before`.

        A counter that has decreased belongs to a new cgroup of the same name, which began at 0.
        """
        read, written = self.read_bytes - before.read_bytes, self.written_bytes - before.written_bytes
        return self if min(read, written) < 0 else Moved(read, written, max(0, self.requests - before.requests))


# The weight of the last reading in a mix: buffered writes come in bursts, and reads between them.
WEIGHT = 0.2
# A mix so near to even counts as even. Requests drawn at random are never quite even within some turns, so the larger
# direction is always found to have more than half: by that much, limits would allow too much. The fewer requests a mix
# is of, the further it strays: so many standard deviations of as many draws are no evidence either, up to a bound, as
# buffered writes are few requests.
EVEN, SURE, MOST_EVEN = 0.05, 2.0, 0.2
# A reading that is so many standard deviations from the mean is the begin of another mix: the load has changed. Limits
# let requests of one kind pass together, so a mix that goes on may stray by three. One of less than FEW requests never
# is: buffered writes are few, with reads between them.
CHANGED, FEW = 4.0, 3
# Of a mix that is even, how much of both limits is used: the weight of one reading, and the least that is believed.
FILLED_WEIGHT, LEAST_FILLED = 0.2, 0.85


@dataclass(frozen=True, slots=True)
class Mix:
    """Bytes read and written between two readings: a mean in which each reading weighs less than the next.

    It begins again where a reading is of another mix.

    `requests`: as many draws would stray as far. `filled`: the share of both limits together that is used by one that
    wants more. It is less than 1 for who draws which kind comes next: now and then all of its requests wait for one of
    the two limits, and the other is not used.
    """

    read_bytes: float = 0.0
    written_bytes: float = 0.0
    requests: float = 0.0
    filled: float = 1.0

    def after(self, moved: Moved) -> Mix:
        """With what was moved since the last reading."""
        weight = 1.0 if self._is_another(moved) else WEIGHT
        return Mix(
            (1 - weight) * self.read_bytes + weight * moved.read_bytes,
            (1 - weight) * self.written_bytes + weight * moved.written_bytes,
            (1 - weight) * self.requests + (2 - weight) * moved.requests,
            self.filled,
        )

    def _is_another(self, moved: Moved) -> bool:
        """Whether requests drawn from this mix would hardly ever be these.

        After reads alone a few writes are enough.
        """
        total = self.read_bytes + self.written_bytes
        if not total or not moved.total_bytes or moved.requests < FEW:
            return not total
        reads = self.read_bytes / total
        likely = (reads * self.requests + 1) / (self.requests + 2)
        differs = abs(moved.read_bytes / moved.total_bytes - reads)
        return differs > CHANGED * math.sqrt(likely * (1 - likely) / moved.requests)

    def used(self, share: float, *, is_full: bool) -> Mix:
        """One that wants more has used this share of what its limits are to allow. On a full device nobody can.

        There a share of more than 1 counts, and less does not: what is used beyond a share is what the queue is of.
        """
        if not self.is_even:
            return replace(self, filled=1.0)
        seen = max(1.0, self.filled * share) if is_full else self.filled * share
        filled = (1 - FILLED_WEIGHT) * self.filled + FILLED_WEIGHT * seen
        return replace(self, filled=min(1.0, max(LEAST_FILLED, filled)))

    @property
    def is_even(self) -> bool:
        """As much is read as written."""
        return self.larger == 0.5

    @property
    def part(self) -> float:
        """What of a share is the limit of each direction."""
        return self.larger / self.filled

    @property
    def larger(self) -> float:
        """The share of the direction that moves more, 0.5 to 1; 1 where nothing was moved."""
        total = self.read_bytes + self.written_bytes
        share = max(self.read_bytes, self.written_bytes) / total if total else 1.0
        strays = SURE * 0.5 / math.sqrt(self.requests) if self.requests else 0.0
        return share if share >= 0.5 + min(MOST_EVEN, max(EVEN, strays)) else 0.5


def with_use(
    mixes: Mapping[str, Mix], used_mb_s: Mapping[str, float], limit_mb_s: Mapping[str, float], capacity_mb_s: float
) -> dict[str, Mix]:
    """With what cgroups that want more have used of their limits: `limit_mb_s` is of these, and `used_mb_s` of all."""
    is_full = sum(used_mb_s.values()) > capacity_mb_s
    new = {group: mixes[group].used(used_mb_s[group] / mb_s, is_full=is_full) for group, mb_s in limit_mb_s.items()}
    return {**mixes, **new}
