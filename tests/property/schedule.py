"""What happens to one simulated machine, as a value: drawn from a seed or by Hypothesis, told and read as one line."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from elastio_sim.faults import MODES, SHARED_CAPS, STATES, FaultMode, FaultPlan, ScheduledFault
from elastio_sim.workload import Segment
from tests.spending import CAP_KINDS, Cap

HORIZON_S = 150
# The share of schedules with scheduled faults in which the ledger cannot be written for a while, and in which each of
# these is done by an operator.
LOCKED, BY_HAND = 0.3, 0.25
# The share of schedules in which cgroups share the device.
SHARED = 0.25
# The share of schedules with a cap that may be near, and of those with another device of the machine beside this one.
CAPPED, BESIDE = 0.25, 0.2
# The share of schedules that begin with the cache of a machine that is gone.
MOVED = 0.15
# The share of those whose sizes and speeds are not chosen by money in which the bandwidth of the next cache is learned.
LEARNS = 0.3
# Of the smallest cache: from what one boost takes at the least.
CAP_LEAST_S, CAP_MOST_S = 60, 240
# The share of schedules with an adopted volume.
ADOPTED = 0.2
KINDS = ("wild", "rewrites", "money", "shares", "beside", "moved", "learns", "adopted")
HAPPENINGS = (
    *("kill", "down", "power_cut", "stop", "boost", "flush", "pause", "resume"),
    *("quiesce", "unquiesce", "shutdown", "recover", "gc", "expect"),
)


@dataclass(frozen=True)
class Happening:
    """Somebody does something to the agent."""

    at_s: float
    kind: str

    def __str__(self) -> str:
        return f"{self.kind}@{self.at_s:g}"


@dataclass(frozen=True)
class Schedule:
    """`load` ends with quiet by itself; `faults`: see `FaultPlan.parse`. `wild`: forecasts are wrong.

    `rewrites`: the load writes the same few blocks again and again. `money`: `policy.model` is money. `shares`: cgroups
    share the device. `beside`: another device of the machine boosts, too; it shares the `cap`, if there is one.
    `moved`: another machine has died before with a dirty cache, which this one takes over. `learns`: the bandwidth of
    the next cache is learned, which money decides by itself. `adopted`: the volume had its filesystem before.

    What is newer is drawn later, so a seed has the load, faults and happenings that it had before.
    """

    seed: int
    load: tuple[Segment, ...]
    faults: str = "nothing"
    happenings: tuple[Happening, ...] = ()
    wild: bool = False
    rewrites: bool = False
    money: bool = False
    shares: bool = False
    beside: bool = False
    moved: bool = False
    cap: Cap | None = None
    learns: bool = False
    adopted: bool = False

    @property
    def horizon_s(self) -> float:
        """When the storm is over."""
        return sum(s.seconds for s in self.load)

    def __str__(self) -> str:
        load = " ".join(f"{s.seconds:g}s:{s.write_mb_s:g}:{s.read_mb_s:g}" for s in self.load)
        happenings = " ".join(str(h) for h in self.happenings) or "nobody"
        kinds = [kind for kind in KINDS if getattr(self, kind)] + ([str(self.cap)] if self.cap else [])
        return f"{' '.join((str(self.seed), *kinds))} | {load} | {self.faults} | {happenings}"

    @classmethod
    def parse(cls, line: str) -> Schedule:
        """The inverse of `str`. Raises ValueError for a line that is no schedule."""
        try:
            head, load, faults, happenings = (part.strip() for part in line.split("|"))
            number, *kinds = head.split()
            segments = tuple(Segment(*(float(n.rstrip("s")) for n in word.split(":"))) for word in load.split())
            words = () if happenings == "nobody" else tuple(word.split("@") for word in happenings.split())
            done = tuple(Happening(float(at), kind) for kind, at in words)
            spec = FaultPlan.parse(faults).spec()
            drawn = {kind: kind in kinds for kind in KINDS}
            caps = [Cap.parse(kind) for kind in kinds if kind.startswith("cap=")]
            return cls(int(number), segments, spec, done, **drawn, cap=caps[0] if caps else None)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{line!r} is no schedule: {error}") from error

    @classmethod
    def random(cls, seed: int, faults: int, scheduled: int, happenings: int, *, wild: bool = False) -> Schedule:
        """So many of each, over HORIZON_S; the same for the same seed."""
        draw = Random(seed)
        plan = FaultPlan.random(seed, faults, scheduled, HORIZON_S)
        load = draw_load(draw)
        happens = sorted(
            (Happening(draw.uniform(0, HORIZON_S), draw.choice(HAPPENINGS)) for _ in range(happenings)),
            key=lambda h: h.at_s,
        )
        rewrites, money = draw.random() < 0.6, draw.random() < 0.5
        if scheduled and draw.random() < LOCKED:
            lock = ScheduledFault(str(draw.randint(1, HORIZON_S)), FaultMode.LOCKED, float(draw.randint(1, 600)))
            plan = FaultPlan(plan.faults, (*plan.scheduled, lock))
        for kinds in (MODES, (FaultMode.RELOAD,)):
            if scheduled and draw.random() < BY_HAND:
                when = draw.choice((*STATES, str(draw.randint(1, HORIZON_S))))
                plan = FaultPlan(plan.faults, (*plan.scheduled, ScheduledFault(when, draw.choice(kinds))))
        shares = draw.random() < SHARED
        beside, is_capped = draw.random() < BESIDE, draw.random() < CAPPED
        cap = Cap(draw.choice(CAP_KINDS), float(draw.randint(CAP_LEAST_S, CAP_MOST_S))) if is_capped else None
        if scheduled and cap is not None and beside:
            spoilt = ScheduledFault(
                str(draw.randint(1, HORIZON_S)), draw.choice(SHARED_CAPS), float(draw.randint(1, 120))
            )
            plan = FaultPlan(plan.faults, (*plan.scheduled, spoilt))
        moved, learns = draw.random() < MOVED, draw.random() < LEARNS and not money
        drawn = {"wild": wild, "rewrites": rewrites, "money": money, "shares": shares, "learns": learns}
        drawn["adopted"] = draw.random() < ADOPTED and not moved
        return cls(seed, load, plan.spec(), tuple(happens), **drawn, beside=beside, moved=moved, cap=cap)


def draw_load(draw: Random) -> tuple[Segment, ...]:
    """Bursts and pauses."""
    segments = []
    left = float(HORIZON_S)
    while left > 0:
        seconds = min(left, draw.uniform(2, 25))
        busy = draw.random() < 0.5
        segments.append(Segment(seconds, draw.uniform(5, 90) if busy else 0.0, draw.choice((0.0, 0.0, 10.0))))
        left -= seconds
    return tuple(segments)
