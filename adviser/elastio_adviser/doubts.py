"""What a recording cannot tell, as sentences. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from elastio.units import MB, format_duration
from elastio_adviser.rates import Rate
from elastio_adviser.replay import SATURATED, Demand
from elastio_adviser.whatif import Answer, Question

# Means over longer intervals hide bursts: a boost begins within seconds, and most of its gain lies in the first minute.
COARSE_S = 10.0
DAY_S = 86400.0
# A device that moved this much more than its supposed bandwidth has another one.
FASTER = 1.1
REQUESTS = (
    "Volumes with credits are hard disks: each random request below 1 MiB counts as 1 MiB, and waits for the disk; the "
    "samples do not show this."
)


def interval_s(rates: Sequence[Rate]) -> float:
    """The median length of the samples that show a load; quiet ones may have been merged."""
    least = 0.1 * max(r.total_mb_s for r in rates)
    return statistics.median(r.seconds for r in rates if r.total_mb_s >= least)


def saturation(rates: Sequence[Rate], mb_s: float) -> float | None:
    """The bandwidth limit of the recorded device if it is `mb_s` and was reached; None: it was not the limit."""
    peak = max(r.total_mb_s for r in rates)
    return mb_s if SATURATED * mb_s <= peak <= FASTER * mb_s else None


def as_bursts(rates: Sequence[Rate], mb_s: float) -> tuple[Demand, ...]:
    """Each sample as the shortest burst that it can have been: all its bytes at once, then nothing.

    `mb_s`: the bandwidth of the recorded device. The opposite bound, evenly spread, is `replay.demands`.
    """
    found: list[Demand] = []
    for r in rates:
        written, read = r.write_mb_s * MB * r.seconds, r.read_mb_s * MB * r.seconds
        if written + read > 0:
            found.append(Demand(0.0, written, read))
        rest = r.seconds - r.total_mb_s * r.seconds / mb_s
        if rest > 0:
            found.append(Demand(rest, 0.0, 0.0))
    return tuple(found)


def doubts(rates: Sequence[Rate], question: Question, found: Answer, saturated_mb_s: float | None) -> tuple[str, ...]:
    """Sentences about what is not known and how it would change the answer."""
    said: list[str] = []
    seen_s, step_s = sum(r.seconds for r in rates), interval_s(rates)
    if seen_s < DAY_S:
        said.append(f"Only {format_duration(seen_s)} were seen: a month is taken as its repetition.")
    if step_s > COARSE_S:
        said.append(
            f"The samples are means over {format_duration(step_s)}: shorter bursts, and what applications waited in "
            "them, cannot be seen."
        )
    peak, mb_s = max(r.total_mb_s for r in rates), question.backing_mb_s
    full_s = sum(r.seconds for r in rates if r.total_mb_s >= SATURATED * mb_s)
    if peak > FASTER * mb_s:
        said.append(
            f"The device moved up to {peak:.1f} MB/s, more than the volume of {mb_s:g} MB/s that is compared: give the "
            "device's bandwidth with --backing-mb-s."
        )
    elif full_s > 0 and saturated_mb_s is None:
        said.append(
            f"The load reached {peak:.1f} MB/s, {peak / mb_s:.0%} of {mb_s:g} MB/s, and was above {SATURATED:.0%} for "
            f"{format_duration(full_s)}: if that was the limit of the device, more was wanted; give "
            f"--saturated {mb_s:g}."
        )
    if question.cold:
        said.append(REQUESTS)
    said += [
        f"The credits of {way.name.rpartition('-')[2]} do not last: it is counted at its base rate."
        for way in found.cold
        if way.least_credits is not None and way.least_credits <= 0
    ]
    return tuple(said)
