"""Ten loads made to defeat a decision that learns: what the past teaches is wrong there, or not worth what it costs.

Seeds are fixed. Days are as short as the point of a load allows, so that a run has more than one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TypeAlias

from elastio.units import GB, MB
from elastio_adviser.replay import Demand

Parts: TypeAlias = Iterator[Demand]


def dump(gigabytes: float) -> Demand:
    """Written as fast as the device takes it."""
    return Demand(0.0, gigabytes * GB, 0.0)


def pause(seconds: float, write_mb_s: float = 0.0, read_mb_s: float = 0.0) -> Demand:
    """Time of the load's own, at these rates."""
    return Demand(seconds, write_mb_s * MB * seconds, read_mb_s * MB * seconds)


def _every_30s(_: random.Random) -> Parts:
    """Checkpoints with less time between them than a purchase needs to pay."""
    for _number in range(40):
        yield from (pause(29.0), dump(0.9))


def _ci(draw: random.Random) -> Parts:
    """Builds of several short steps, at a rate of their own, now and then."""
    for _number in range(10):
        yield pause(draw.expovariate(1 / 300))
        for _step in range(draw.randint(2, 5)):
            yield from (pause(draw.uniform(10, 40), 220.0), pause(draw.uniform(5, 20), 3.0, 20.0))


def _import(_: random.Random) -> Parts:
    """One burst in all, larger than any cache."""
    yield from (pause(600.0), dump(70.0), pause(1800.0))


def _blips(draw: random.Random) -> Parts:
    """Bursts that are over before a cache is there."""
    for _number in range(40):
        yield from (pause(draw.uniform(30, 120)), dump(draw.uniform(0.1, 0.6)))


def _continuous(draw: random.Random) -> Parts:
    """A load that hardly leaves time to flush."""
    for _number in range(50):
        yield from (pause(draw.uniform(40, 60), 150.0), pause(draw.uniform(5, 15), 10.0))


def _weekly(draw: random.Random) -> Parts:
    """Nights of 3 GB, and 90 GB at the end of the week; days of a quarter of an hour."""
    for _week in range(2):
        for _day in range(6):
            yield from (pause(900 * draw.uniform(0.97, 1.03)), dump(3.0))
        yield from (pause(900.0), dump(90.0))


def _growing(_: random.Random) -> Parts:
    """Each burst is a quarter larger than the one before."""
    for number in range(14):
        yield from (pause(600.0), dump(2.0 * 1.25**number))


def _bimodal(draw: random.Random) -> Parts:
    """Small bursts, and every third or so a large one."""
    for _number in range(16):
        yield from (pause(draw.uniform(200, 500)), dump(20.0 if draw.random() < 0.3 else 1.0))


def _pareto(draw: random.Random) -> Parts:
    """Pauses without a usual length."""
    for _number in range(20):
        yield from (pause(min(3600.0, 40.0 * draw.paretovariate(1.1))), dump(draw.uniform(2, 5)))


def _etl(draw: random.Random) -> Parts:
    """Reads, then writes at a rate of its own beside reads, then a dump; twice an hour, not quite on time."""
    for _number in range(5):
        yield from (pause(draw.uniform(1200, 1500)), pause(120.0, 5.0, 50.0), pause(90.0, 220.0, 10.0), dump(5.0))


_LOADS: dict[str, Callable[[random.Random], Parts]] = {
    "every-30s": _every_30s,
    "ci": _ci,
    "one-import": _import,
    "blips": _blips,
    "continuous": _continuous,
    "weekly": _weekly,
    "growing": _growing,
    "bimodal": _bimodal,
    "pareto": _pareto,
    "etl": _etl,
}


def hostile() -> Iterator[tuple[str, tuple[Demand, ...]]]:
    """Name and parts of each."""
    for number, (name, of) in enumerate(_LOADS.items()):
        yield f"hostile-{name}", (*of(random.Random(400 + number)), pause(30.0))
