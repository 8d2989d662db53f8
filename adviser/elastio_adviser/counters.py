"""From counters to means, where they were asked at other times than they were scraped. Pure.

Prometheus answers a range query with the last scrape before each step. Where the step is shorter than the scrape
interval, values repeat, and the increase of a whole interval seems to be that of one step. All counters of a target are
scraped together: when one of them changes, all are new.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from elastio.units import MB, format_duration
from elastio_adviser.rates import TraceError
from elastio_adviser.series import Point, Series, overlap

Values = dict[int, float]  # by the time in milliseconds
Key = tuple[str, str]  # volume and direction
# Samples that show whether the bytes of a steady load come to alternate samples, and how close they are to each other.
WINDOW, STEADY = 7, 0.005
# Less may have such a ratio by chance, since it is some blocks.
LEAST_MB = 1.0
# Changes at as many steps: the peaks are too high by 1/9 at most.
IN_A_ROW = 10
# A counter that decreases by less did not begin again: two were taken for one.
NO_RESTART = 0.9


@dataclass(frozen=True, slots=True)
class Counter:
    """The values of one counter at times in seconds, in any order. `target`: what is scraped together."""

    volume: str
    direction: str
    values: tuple[tuple[float, float], ...]
    source: str
    target: str


def means(found: Sequence[Counter]) -> Iterator[Series | str]:
    """The increases of each counter, and sentences about their times.

    Values of several files are put together first: what was moved between two windows belongs to neither. A counter
    that decreased began again from 0. Raises TraceError where two values contradict each other, or no interval fits.
    """
    targets: dict[str, dict[Key, list[Counter]]] = defaultdict(lambda: defaultdict(list))
    for counter in found:
        targets[counter.target][counter.volume, counter.direction].append(counter)
    for parts in targets.values():
        counters = {key: _united(same) for key, same in parts.items()}
        source = " and ".join(dict.fromkeys(c.source for same in parts.values() for c in same))
        step, scrape = _intervals(counters, source)
        if scrape > step:
            counters = _at_scrapes(counters, scrape)
            yield (
                f"{source}: the counters change every {format_duration(scrape / 1000)}, not at each step of "
                f"{format_duration(step / 1000)}: each change is a sample."
            )
        elif step:
            yield (
                f"{source}: if the step of {format_duration(step / 1000)} is no multiple of the scrape interval, bytes "
                "count in the sample before or after."
            )
        for (volume, direction), values in counters.items():
            yield Series(volume, direction, _increases(values, source), source)


def _united(same: Sequence[Counter]) -> Values:
    """The values of one counter. Where two parts overlap they have equal values at equal times, else two were taken for
    one. Raises TraceError."""
    found: Values = {}
    for part in ({round(at * 1000): value for at, value in counter.values} for counter in same):
        begin, end = max(min(part), min(found, default=0)), min(max(part), max(found, default=0))
        if any(part.get(at) != found.get(at) for at in (*part, *found) if begin <= at <= end and found):
            sources = " and ".join(dict.fromkeys(c.source for c in same))
            raise overlap(sources, same[0].direction, same[0].volume, begin / 1000, end / 1000)
        found = dict(sorted({**found, **part}.items()))
    return found


def _intervals(counters: Mapping[Key, Values], source: str) -> tuple[int, int]:
    """The step of the times and the interval of the changes, in ms; equal where each step may be a scrape.

    A step of 0: the times are those of the scrapes, not of a query.
    """
    times = sorted(set().union(*counters.values()))
    distances = [after - before for before, after in pairwise(times)]
    step = math.gcd(*distances) if distances else 0
    if not distances or step < min(distances):
        return 0, 0
    changes = _changes(counters)
    apart = [(after - before) // step for before, after in pairwise(changes)]
    repeats = len(changes) < len(distances) and bool(changes)
    common = math.gcd(*apart)
    if repeats and common > 1:
        return step, step * common
    if repeats and not _is_each_scraped(apart):
        raise _unknown(source, step)
    if any(_alternates(_increases(values, source)) for values in counters.values()):
        raise _unknown(source, step)
    return step, step


def _changes(counters: Mapping[Key, Values]) -> list[int]:
    """The times at which one of them has another value than before."""
    pairs = (pair for values in counters.values() for pair in pairwise(values.items()))
    return sorted({at for (_, old), (at, new) in pairs if new != old})


def _unknown(source: str, step: int) -> TraceError:
    return TraceError(
        f"{source}: the counters were asked each {format_duration(step / 1000)} and scraped at other times, so that "
        "their peaks are not known: ask with the scrape interval as the step, and for all devices of the host",
        code="step",
    )


def _is_each_scraped(apart: Sequence[int]) -> bool:
    """Whether the steps between changes show that the scrape interval is no longer than a step, or hardly.

    N changes in a row bound it to N / (N - 1) steps. Single repeats at equal distances are those of a longer one; all
    others are pauses of the load.
    """
    runs, longest, run, is_whole = [], 0, 0, False
    for steps in apart:
        if steps == 1:
            run += 1
            longest = max(longest, run)
            continue
        if steps == 2 and is_whole:
            runs.append(run)
        run, is_whole = 0, steps == 2
    is_beat = bool(runs) and max(runs) - min(runs) <= 1 and longest <= max(runs) + 1
    return longest + 1 >= IN_A_ROW and not is_beat


def _alternates(points: Sequence[Point]) -> bool:
    """Whether a steady load has k or k + 1 scrapes in a sample: the means are two values with this ratio, by turns."""
    rates = [mb_s for _, _, mb_s in points]
    for first in range(len(rates) - WINDOW + 1):
        window = rates[first : first + WINDOW]
        low, high = min(window), max(window)
        if low * points[first][1] < LEAST_MB or not 1 + 4 * STEADY < high / low < 2 + 4 * STEADY:
            continue
        count = round(low / (high - low))
        are_high = [math.isclose(rate, high, rel_tol=STEADY) for rate in window]
        are_low = [math.isclose(rate, low, rel_tol=STEADY) for rate in window]
        turns = [after for before, after in pairwise(are_high) if before != after]
        doubles = {after for before, after in pairwise(are_high) if before == after}
        is_by_turns = sum(are_high) + sum(are_low) == WINDOW and len(turns) > 1 and len(doubles) < 2
        if is_by_turns and math.isclose(high / low, 1 + 1 / count, rel_tol=STEADY):
            return True
    return False


def _at_scrapes(counters: Mapping[Key, Values], scrape: int) -> dict[Key, Values]:
    """The values when they changed, and as far apart while they did not. The first is that of the scrape before."""
    phase = _changes(counters)[0] % scrape
    found = {}
    for key, values in counters.items():
        at, value = next(iter(values.items()))
        kept = {at: value for at, value in values.items() if at % scrape == phase}
        found[key] = kept if at in kept else {at - (at - phase) % scrape: value, **kept}
    return found


def _increases(values: Values, source: str) -> tuple[Point, ...]:
    found = []
    for (before, old), (at, value) in pairwise(values.items()):
        if NO_RESTART * old < value < old:
            raise TraceError(
                f"{source}: a counter decreases from {old:.0f} to {value:.0f}, which is no restart from 0: choose one "
                "of the servers or jobs that watch the device",
                code="counter",
            )
        moved = value - old if value >= old else value
        found.append((before / 1000, (at - before) / 1000, moved / (at - before) / MB * 1000))
    return tuple(found)
