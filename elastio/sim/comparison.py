"""Compares policies with static volumes: which one serves a trace best. Pure.

Time is bought, so alternatives are ranked by the price of a saved second, compared with the slow volume. The price is
in the currency of the tariff, or in AGBs if the tariff is zero. An alternative that is faster than the slow volume and
no more expensive beats every one that costs more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from elastio.sim.experiment import BoostResult
from elastio.sim.run import TimelinePoint

# Smaller differences do not count: delays of the cloud vary by as much.
SAME = 0.01
Rank: TypeAlias = tuple[int, float, float, float]


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to serve the trace. `cost` is in the currency of the tariff. `timeline` is for pictures."""

    name: str
    completion_s: float
    agbs: float
    cost: float
    phases: tuple[BoostResult, ...] = ()
    timeline: tuple[TimelinePoint, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The best policy, and the static alternative that is better still; None where the agent is worth it."""

    best: Alternative
    better: Alternative | None
    sentence: str


def judge(static: Sequence[Alternative], policies: Sequence[Alternative], currency: str = "USD") -> Judgement:
    """Whether the best policy is worth it, and if not, what is better. `static`: slow, fast, modified."""
    slow, fast, modified = static
    scale = _Scale(slow, currency if slow.cost > 0 else "")
    best = min(policies, key=scale.rank)
    if scale.saved(best) < SAME:
        said = "The agent is not worth it: the slow volume is as fast, and nothing has to be bought."
        return Judgement(best, slow, said)
    rival = min(fast, modified, key=scale.rank)
    if scale.rank(rival) <= scale.rank(best):
        advice = "take a faster volume all day" if rival is fast else "modify the volume for the peaks"
        return Judgement(best, rival, f"The agent is not worth it: {advice}; {scale.compared(rival, best)}.")
    cheapest = min(fast, modified, key=scale.price)
    less = 1 - scale.price(best) / scale.price(cheapest)
    dearer = f"{abs(less):.0%} {'cheaper' if less >= 0 else 'dearer'} than {cheapest.name}"
    return Judgement(best, None, f"The agent is worth it ({best.name}): {scale.gain(best)}, and {dearer}.")


@dataclass(frozen=True, slots=True)
class _Scale:
    """Compares alternatives with the slow volume. Without a currency the price is in AGBs."""

    slow: Alternative
    currency: str

    def price(self, outcome: Alternative) -> float:
        return outcome.cost if self.currency else outcome.agbs

    def saved(self, outcome: Alternative) -> float:
        """Saved time, as a share of the time of the slow volume."""
        return 1 - outcome.completion_s / self.slow.completion_s

    def dearer(self, outcome: Alternative) -> float:
        """Additional price, as a share of the price of the slow volume."""
        return self.price(outcome) / self.price(self.slow) - 1

    def hour(self, outcome: Alternative) -> float:
        """The price of an hour saved."""
        saved_s = self.slow.completion_s - outcome.completion_s
        return (self.price(outcome) - self.price(self.slow)) / saved_s * 3600

    def rank(self, outcome: Alternative) -> Rank:
        """Less is better: first what costs nothing, by its time; then the rest, by the price of an hour saved."""
        price, time_s = self.price(outcome), outcome.completion_s
        if self.saved(outcome) < SAME:
            return 2, time_s, price, 0.0
        if self.dearer(outcome) <= SAME:
            return 0, -round(self.saved(outcome) / SAME), price, time_s
        return 1, self.hour(outcome), time_s, price

    def gain(self, outcome: Alternative) -> str:
        """`13% faster than the slow volume at +18.0% USD (-6.3% AGBs)`."""
        agbs = f"{outcome.agbs / self.slow.agbs - 1:+.1%} AGBs"
        price = f"{self.dearer(outcome):+.1%} {self.currency} ({agbs})" if self.currency else agbs
        return f"{self.saved(outcome):.0%} faster than the slow volume at {price}"

    def compared(self, rival: Alternative, best: Alternative) -> str:
        """Why the rival is better, as text."""
        if self.rank(rival)[0] == self.rank(best)[0] == 1:
            theirs, ours = self._amount(self.hour(rival)), self._amount(self.hour(best))
            return f"an hour saved costs {theirs} that way and {ours} with the agent ({best.name})"
        return f"that way is {self.gain(rival)}, the agent ({best.name}) is {self.gain(best)}"

    def _amount(self, price: float) -> str:
        return f"{price:.4f} {self.currency}" if self.currency else f"{price:.0f} AGBs"
