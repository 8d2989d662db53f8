"""What the simulated agent could know of its load: bursts, the rates at which they were written, and gaps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from elastio.core.forecast import Burst
from elastio.core.hindsight import PastLoad
from elastio.core.model import Sample
from elastio.core.state import LoadWatch
from elastio.units import GB, MB

# What bursts might be like before the first one is over.
FIRST_GUESS = tuple(PastLoad(size * GB / MB, math.inf, math.inf) for size in (2, 4, 8))
# Bursts that a plan is chosen for: the last ones.
KEPT = 8
# Below this share of the bandwidth it had, an application wrote at its own rate.
OWN_RATE = 0.8


@dataclass
class OwnRate:
    """Whether an application wrote as fast as the device took it, or at a rate of its own.

    Only samples count in which the device offered the same from their begin to their end, and the burst went on.
    """

    _best: tuple[float, float] = (0.0, 0.0)  # the most that was offered, and the most that was written then
    _last: tuple[float, float, float] = (0.0, 0.0, 0.0)  # of the last sample: when, offered, written
    _is_whole: bool = False

    def note(self, sample: Sample, offered_mb_s: float) -> None:
        """Take one look; the sample before it is counted as soon as another one follows."""
        at, offered, written = self._last
        if sample.at == at:
            self._last = (at, min(offered, offered_mb_s), written)
            return
        if self._is_whole and offered >= self._best[0]:
            most = self._best[1] if offered == self._best[0] else 0.0
            self._best = (offered, max(most, written))
        self._is_whole = offered == offered_mb_s
        self._last = (sample.at, offered_mb_s, sample.adaptive.write_mb_s)

    @property
    def mb_s(self) -> float:
        """The application's own rate; infinite where the device was the limit, or nothing is known."""
        offered, written = self._best
        return written if 0 < written < OWN_RATE * offered else math.inf


@dataclass
class Seen:
    """The bursts of a load, and the gaps between them, as the agent could know them."""

    backing_mb_s: float
    bursts: list[Burst] = field(default_factory=list)
    rates_mb_s: list[float] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)  # from the end of the flush to the next burst
    begun_at: float | None = None
    _written: int = 0  # at the last quiet sample
    _sampled_at: float = -math.inf
    _rate: OwnRate = field(default_factory=OwnRate)

    def note(self, load: LoadWatch, written_bytes: int, sample: Sample, offered_mb_s: float) -> bool:
        """Take one look; True if a burst has just ended. `offered_mb_s`: what the device can take now."""
        if load.above_since is not None:
            self._goes_on(load.above_since)
            self._rate.note(sample, offered_mb_s)
            self._sampled_at = sample.at
            return False
        ended = self.begun_at is not None and load.below_since is not None
        if self.begun_at is not None and load.below_since is not None:
            self.bursts.append(Burst(self.begun_at, load.below_since, written_bytes - self._written))
            self.rates_mb_s.append(self._rate.mb_s)
            self.begun_at, self._rate = None, OwnRate()
        if self.begun_at is None and sample.at != self._sampled_at:
            self._written, self._sampled_at = written_bytes, sample.at
        return ended

    def _goes_on(self, since: float) -> None:
        if self.begun_at is None:
            self.begun_at = since
            if self.bursts:
                last = self.bursts[-1]
                flushed_at = last.ended_at + last.written_bytes / MB / self.backing_mb_s
                self.gaps_s.append(max(0.0, since - flushed_at))

    def past(self) -> tuple[PastLoad, ...]:
        """The last bursts with the pauses after them; the first guess before there is one."""
        if not self.bursts:
            return FIRST_GUESS
        kept, rates = self.bursts[-KEPT:], self.rates_mb_s[-KEPT:]
        pauses = [after.begun_at - before.ended_at for before, after in pairwise(kept)]
        last_s = median(pauses) if pauses else math.inf
        return tuple(
            PastLoad(b.written_bytes / MB, rate, pause_s)
            for b, rate, pause_s in zip(kept, rates, (*pauses, last_s), strict=True)
        )
