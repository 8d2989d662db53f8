"""The use of both volumes' bandwidth during each boost, as recorded in the guest independently of the agent. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

Points = Sequence[tuple[float, float]]
# The first sample after a change covers both states.
MARGIN_S = 0.5
# The share of the backing volume's bandwidth that counts as load, as for the agent.
LOAD = 0.3


@dataclass(frozen=True, slots=True)
class BandwidthUse:
    """One boost. None: too short to be measured.

    `burst_mb_s`: the application's throughput from writeback mode to the end of its dump. `resting_share`: the share of
    the backing volume's bandwidth in use from then until flushing (or until nothing was dirty), and `flushing_share`
    while flushing. `sampling_s`: from the start of the first recorded sample that shows the load to the decision to
    boost.
    """

    burst_mb_s: float | None
    resting_share: float | None
    flushing_share: float | None
    sampling_s: float | None = None


def intervals_of(decisions: Sequence[Mapping[str, Any]], end: float) -> list[tuple[float, float, str]]:
    """(begin, end, phase) of every phase of the agent, on the wall clock."""
    changes = [d for d in decisions if d["from"] != d["to"]]
    ends = [*(d["wall"] for d in changes[1:]), end]
    return [(change["wall"], until, str(change["to"])) for change, until in zip(changes, ends, strict=False)]


def bandwidth_use(
    application: Points,
    backing: Points,
    intervals: Sequence[tuple[float, float, str]],
    dumps: Sequence[Mapping[str, Any]],
    backing_mb_s: float,
) -> dict[float, BandwidthUse]:
    """One value for each boosting interval, by its start. All times are of one clock."""
    found = {}
    for index, (begin, end, phase) in enumerate(intervals):
        if phase != "boosting":
            continue
        dumped = max((d["ended"] for d in dumps if begin < d["ended"] <= end), default=None)
        burst = None if dumped is None else mean(application, begin, dumped)
        resting = None if dumped is None else _share(backing, dumped, end, backing_mb_s)
        later = intervals[index + 1] if index + 1 < len(intervals) else None
        flushing = later is not None and later[2] == "flushing"
        share = _share(backing, later[0], later[1], backing_mb_s) if flushing and later else None
        decided = intervals[index - 1] if index else None
        waited = sampling_s(application, decided[0], backing_mb_s) if decided and decided[2] == "attaching" else None
        found[begin] = BandwidthUse(burst, resting, share, waited)
    return found


def sampling_s(application: Points, decided: float, backing_mb_s: float) -> float | None:
    """Seconds from the first sample that shows the load to the decision; None if no sample shows any."""
    begins = [at for at, _ in application]
    # Each sample covers the time since the previous one.
    samples = [(begin, rate >= LOAD * backing_mb_s) for begin, (_, rate) in zip(begins, application[1:], strict=False)]
    before = [(begin, is_load) for begin, is_load in samples if begin <= decided]
    loaded = list(takewhile(lambda sample: sample[1], reversed(before)))
    return round(decided - loaded[-1][0], 3) if loaded else None


def mean(points: Points, begin: float, end: float) -> float | None:
    """The mean of the samples in the interval, without a margin at its start; None if there are fewer than two."""
    within = [rate for at, rate in points if begin + MARGIN_S < at <= end]
    return round(sum(within) / len(within), 2) if len(within) > 1 else None


def _share(points: Points, begin: float, end: float, full: float) -> float | None:
    rate = mean(points, begin + MARGIN_S, end - MARGIN_S)
    return None if rate is None else round(rate / full, 3)
