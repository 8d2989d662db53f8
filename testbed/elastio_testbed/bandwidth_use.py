"""What the governor and phase 2 made of both volumes' bandwidth during each boost. Pure.

Rates are MB/s over time as recorded in the guest, independently of the agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import Any

Points = Sequence[tuple[float, float]]
# After a change the first sample is part old, part new.
MARGIN_S = 0.5
# Of the backing volume's bandwidth: what the agent takes for a load, too.
LOAD = 0.3


@dataclass(frozen=True, slots=True)
class BandwidthUse:
    """One boost. None: too short to be measured.

    `burst_mb_s`: the application's throughput from writeback mode to the end of its dump. `resting_share`: of the
    backing volume's bandwidth that was used from then until phase 2 (or until nothing was dirty any more), and
    `flushing_share` during phase 2. `sampling_s`: from the begin of the first recorded sample that shows the load to
    the decision to boost.
    """

    burst_mb_s: float | None
    resting_share: float | None
    flushing_share: float | None
    sampling_s: float | None = None

    def to_json(self) -> dict[str, float | None]:
        return asdict(self)


def intervals_of(decisions: Sequence[Mapping[str, Any]], end: float) -> list[tuple[float, float, str]]:
    """`(begin, end, phase)` of every phase that the agent's decisions led to, on the wall clock."""
    changes = [d for d in decisions if d["from"] != d["to"]]
    ends = [*(d["wall"] for d in changes[1:]), end]
    return [(change["wall"], until, str(change["to"])) for change, until in zip(changes, ends, strict=True)]


def bandwidth_use(
    application: Points,
    backing: Points,
    intervals: Sequence[tuple[float, float, str]],
    dumps: Sequence[Mapping[str, Any]],
    backing_mb_s: float,
) -> dict[float, BandwidthUse]:
    """One value for each boosting interval, by its begin. All times on one clock."""
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
    """How long the load that a decision was for had been seen before it; None where no sample shows any."""
    begins = [at for at, _ in application]
    # Each sample covers the time since the one before.
    samples = [(begin, rate >= LOAD * backing_mb_s) for begin, (_, rate) in zip(begins, application[1:], strict=False)]
    before = [(begin, is_load) for begin, is_load in samples if begin <= decided]
    loaded = list(takewhile(lambda sample: sample[1], reversed(before)))
    return round(decided - loaded[-1][0], 3) if loaded else None


def mean(points: Points, begin: float, end: float) -> float | None:
    """Of the samples that lie within the interval, less a margin at its begin; None if there are fewer than two."""
    within = [rate for at, rate in points if begin + MARGIN_S < at <= end]
    return round(sum(within) / len(within), 2) if len(within) > 1 else None


def _share(points: Points, begin: float, end: float, full: float) -> float | None:
    rate = mean(points, begin + MARGIN_S, end - MARGIN_S)
    return None if rate is None else round(rate / full, 3)
