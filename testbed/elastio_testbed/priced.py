"""The figures by which a priced experiment is judged against static-fast. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from elastio_testbed.experiment import Experiment, Priced, Setup
from elastio_testbed.result import Result, SetupResult
from elastio_testbed.spread import spread_of


@dataclass(frozen=True, slots=True)
class Figures:
    """How the adaptive set-up compares with static-fast; percentages are medians over ratios within a repetition.

    `time_vs_fast_pct`: how many percent later it completes. `cost_vs_fast_pct`: its dollars as a percentage of those of
    static-fast; 100 is the same. `least_credit_share`: the lowest balance of all repetitions over a full bucket, which
    counts where the data volume `has_credits`. None: a set-up was not run.
    """

    priced: Priced
    has_credits: bool
    time_vs_fast_pct: float | None
    cost_vs_fast_pct: float | None
    least_credit_share: float | None
    checksums_ok: bool
    volumes_left: int

    @property
    def meets(self) -> dict[str, bool]:
        """Whether each figure is within its bar; one that is not known is not."""
        time, cost, share = self.time_vs_fast_pct, self.cost_vs_fast_pct, self.least_credit_share
        return {
            "time_vs_fast_pct": time is not None and time <= self.priced.most_time_pct,
            "cost_vs_fast_pct": cost is not None and cost <= self.priced.most_cost_pct,
            **({"least_credit_share": share is not None and share > 0} if self.has_credits else {}),
            "checksums_ok": self.checksums_ok,
            "volumes_left": self.volumes_left == 0,
        }

    def to_json(self) -> dict[str, Any]:
        known = {name: value for name, value in asdict(self).items() if name not in ("priced", "has_credits")}
        return {**known, "meets": self.meets}


def figures_of(experiment: Experiment, repetitions: Sequence[Result]) -> Figures | None:
    """The figures over all repetitions; None: the experiment has no prices."""
    if experiment.priced is None:
        return None
    pairs = [(r.of(Setup.ADAPTIVE), r.of(Setup.STATIC_FAST)) for r in repetitions]
    every = [s for r in repetitions for s in r.setups]
    shares = [s.least_credit_share for s in every if s.setup is Setup.ADAPTIVE and s.least_credit_share is not None]
    return Figures(
        priced=experiment.priced,
        has_credits=experiment.cold is not None,
        time_vs_fast_pct=_median(_time(*pair) for pair in pairs),
        cost_vs_fast_pct=_median(_cost(*pair) for pair in pairs),
        least_credit_share=min(shares, default=None),
        checksums_ok=all(s.checksums_ok for s in every),
        volumes_left=sum(s.volumes_left for s in every),
    )


def _time(ours: SetupResult | None, fast: SetupResult | None) -> float | None:
    if ours is None or fast is None or not fast.completion_s:
        return None
    return 100 * (ours.completion_s / fast.completion_s - 1)


def _cost(ours: SetupResult | None, fast: SetupResult | None) -> float | None:
    if ours is None or fast is None or ours.dollars is None or not fast.dollars:
        return None
    return 100 * ours.dollars / fast.dollars


def _median(values: Any) -> float | None:
    found = spread_of(values)
    return None if found is None else round(found.median, 2)


def to_text(figures: Mapping[str, Any]) -> str:
    """One line for a terminal, from the JSON."""
    time, cost, share = (figures[k] for k in ("time_vs_fast_pct", "cost_vs_fast_pct", "least_credit_share"))
    missed = [name for name, is_met in figures["meets"].items() if not is_met]
    said = (
        "-" if time is None else f"{time:+.1f} % time",
        "-" if cost is None else f"{cost:.1f} % of the dollars",
        *(() if share is None else (f"least credits {share:.1%} of a full bucket",)),
    )
    return f"in dollars   {', '.join(said)}; " + (f"missed: {', '.join(missed)}" if missed else "all bars met")
