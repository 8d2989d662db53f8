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


NOTHING = Moved()

# The weight of the last reading in a mix: buffered writes come in bursts, and reads between them.
WEIGHT = 0.2
# A mix so near to even counts as even. Requests drawn at random are never quite even within some turns, so the larger
# direction is always found to have more than half: by that much, limits would allow too much. The fewer requests a mix
# is of, the further it strays: so many standard deviations of as many draws are no evidence either, up to a bound, as
# buffered writes are few requests.
EVEN, SURE, MOST_EVEN = 0.05, 2.0, 0.2
# Where a reading, or some in a row to one side together, stray by so many standard deviations, another mix has begun:
# the load has changed. Limits let requests of one kind pass together, so a reading of a mix that goes on may stray by
# three. One of less than FEW requests says nothing of this: buffered writes are few, with reads between them.
CHANGED, FEW = 4.0, 3
# Of a mix that is even, how much of both limits is used: the weight of one reading, and the least that is believed.
FILLED_WEIGHT, LEAST_FILLED = 0.2, 0.85


@dataclass(frozen=True, slots=True)
class Likely:
    """An estimate, from so many requests, of the share of reads that is to be expected: 0 to 1, both exclusive."""

    reads: float
    requests: float

    def strays(self, moved: Moved) -> float:
        """By how many standard deviations of draws there are more reads than that; negative: fewer."""
        if not moved.total_bytes:
            return 0.0
        more = moved.read_bytes / moved.total_bytes - self.reads
        return more / math.sqrt(self.reads * (1 - self.reads) * (1 / moved.requests + 1 / self.requests))


ANY = Likely(0.5, 2.0)


@dataclass(frozen=True, slots=True)
class Mix:
    """Bytes read and written between two readings: a mean in which each reading weighs less than the next.

    It begins again where readings are of another mix.

    `requests`: as many draws would stray as far. `filled`: the share of both limits together that is used by one that
    wants more. It is less than 1 for who draws which kind comes next: now and then all of its requests wait for one of
    the two limits, and the other is not used. `run`: the last readings of FEW requests or more, which stray to one
    side of what was likely before them.
    """

    read_bytes: float = 0.0
    written_bytes: float = 0.0
    requests: float = 0.0
    filled: float = 1.0
    run: Moved = NOTHING
    before: Likely = ANY

    def after(self, moved: Moved) -> Mix:
        """With what was moved since the last reading."""
        if not self.read_bytes + self.written_bytes:
            return self._begun(moved)
        run, before = self.run, self.before
        if moved.total_bytes and moved.requests >= FEW:
            likely = self._likely()
            run, before = self._run(moved, likely)
            if max(abs(before.strays(run)), abs(likely.strays(moved))) > CHANGED:
                return self._begun(moved)
        return Mix(
            (1 - WEIGHT) * self.read_bytes + WEIGHT * moved.read_bytes,
            (1 - WEIGHT) * self.written_bytes + WEIGHT * moved.written_bytes,
            (1 - WEIGHT) * self.requests + (2 - WEIGHT) * moved.requests,
            self.filled,
            run,
            before,
        )

    def _begun(self, moved: Moved) -> Mix:
        return Mix(moved.read_bytes, moved.written_bytes, moved.requests, self.filled)

    def _likely(self) -> Likely:
        """After reads alone a few writes are enough to stray."""
        reads = self.read_bytes / (self.read_bytes + self.written_bytes)
        return Likely((reads * self.requests + 1) / (self.requests + 2), self.requests + 2)

    def _run(self, moved: Moved, likely: Likely) -> tuple[Moved, Likely]:
        """The run with this reading, or the one that begins with it, and what was likely before."""
        if self.before.strays(moved) * self.before.strays(self.run) > 0:
            return self.run.plus(moved), self.before
        return moved, likely

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
