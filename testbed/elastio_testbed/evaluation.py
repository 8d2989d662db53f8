"""All repetitions of an experiment with summary and conditions, as values, JSON and text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from elastio.accounting.tables import table
from elastio.units import MB
from elastio_testbed import dollars, priced
from elastio_testbed.catalogue import EXPERIMENTS
from elastio_testbed.conditions import Conditions
from elastio_testbed.experiment import Setup
from elastio_testbed.result import Result
from elastio_testbed.simulated import Simulated
from elastio_testbed.spread import Spread, nearest_to_median, spread_of
from elastio_testbed.trial import Plan

PER_SETUP = (
    *("completion_s", "total_s", "agbs", "cache_agbs", "app_write_mb_s"),
    *("cache_agbs_bound", "cache_agbs_ratio", "cache_agbs_ratio_later"),
)
# The share of its bandwidth at which a slow volume is written on an undisturbed machine.
KEPT_UP = 0.85
RATIOS = ("overhead_vs_fast_pct", "agbs_vs_fast_pct", "agbs_vs_slow_pct")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The results of an experiment. `repetitions` may be fewer than planned while it runs."""

    plan: Plan
    conditions: Conditions
    repetitions: tuple[Result, ...]
    simulated: Mapping[Setup, Simulated] = field(default_factory=dict)

    @property
    def shown(self) -> int:
        """The index of the repetition whose overhead is nearest to the median."""
        return nearest_to_median(r.comparison()["overhead_vs_fast_pct"] for r in self.repetitions)

    @property
    def disturbed(self) -> tuple[int, ...]:
        """Numbers, from 1, of the repetitions in which the machine and not the volume limited static-slow.

        Their figures say nothing about storage. They count nevertheless, and are reported.
        """
        least = KEPT_UP * self.plan.scaled().backing_bytes_s / MB
        slow = [r.of(Setup.STATIC_SLOW) for r in self.repetitions]
        return tuple(n for n, found in enumerate(slow, 1) if found is not None and found.app_write_mb_s < least)

    def named(self, setup: Setup, name: str) -> Spread | None:
        """The statistics of a figure of one set-up: a field or property of `SetupResult`."""
        return spread_of(getattr(found, name) if (found := r.of(setup)) else None for r in self.repetitions)

    def ratio(self, setup: Setup, name: str) -> Spread | None:
        """The statistics of a ratio, which is computed within each repetition."""
        return spread_of(r.ratios().get(setup, {}).get(name) for r in self.repetitions)

    def summary(self) -> dict[str, Any]:
        """The statistics of every figure and every ratio."""
        setups = self.plan.setups
        return {
            "repetitions": len(self.repetitions),
            "setups": {s.value: {name: _json(self.named(s, name)) for name in PER_SETUP} for s in setups},
            "ratios": {s.value: {k: _json(self.ratio(s, k)) for k in RATIOS} for s in setups},
        }

    def to_json(self) -> dict[str, Any]:
        """The repetition `shown` is the one in the middle; the percentages beside it are medians over all."""
        compared = [r.comparison() for r in self.repetitions]
        medians = {k: s.median if (s := spread_of(c[k] for c in compared)) else None for k in (compared or [{}])[0]}
        plan = self.plan
        return {
            "experiment": plan.experiment,
            "scale": plan.scale,
            "bandwidth": plan.bandwidth,
            "vms": plan.vms,
            "cloud": plan.cloud,
            "side_by_side": plan.side_by_side,
            "repeat": plan.repeat,
            "disturb": plan.disturb,
            "ahead": plan.ahead,
            "adopted": plan.adopted,
            **asdict(self.conditions),
            **medians,
            **self.in_dollars(),
            "shown": self.shown,
            "disturbed": list(self.disturbed),
            "summary": self.summary(),
            "simulated": {setup.value: asdict(model) for setup, model in self.simulated.items()},
            "repetitions": [r.to_json() for r in self.repetitions],
        }

    def in_dollars(self) -> dict[str, Any]:
        """The figures of an experiment with prices, and its tariffs; empty for any other."""
        found = priced.figures_of(EXPERIMENTS[self.plan.experiment], self.repetitions)
        return {} if found is None else {**found.to_json(), "tariffs": dollars.sources(found.priced)}

    @property
    def is_sound(self) -> bool:
        """Every byte was correct and no volume was left."""
        return all(s.checksums_ok and s.volumes_left == 0 for r in self.repetitions for s in r.setups)


def _json(spread: Spread | None) -> dict[str, Any] | None:
    return None if spread is None else spread.to_json()


# --- text ------------------------------------------------------------------------------------------------

_HEADS = ("set-up", "completion s", "write MB/s", "AGBs", "cache AGBs", "x bound", "data", "left")
_COMPARISONS = {
    "overhead_vs_fast_pct": "{:<12} completes {:+.1f} % later than static-fast",
    "agbs_vs_fast_pct": "{:<12} costs {:+.1f} % compared with static-fast",
    "agbs_vs_slow_pct": "{:<12} costs {:+.1f} % compared with static-slow",
}


def to_text(evaluation: Evaluation) -> str:
    """The comparison as a table for a terminal, medians over the repetitions."""
    plan = evaluation.plan
    title = (
        f"{plan.experiment}: scale {plan.scale:g}, bandwidth {plan.bandwidth:g}, {plan.vms} VM(s), {plan.cloud}, "
        f"{evaluation.conditions.hypervisor} ({evaluation.conditions.accelerator}), "
        f"{'side by side' if plan.side_by_side else 'one after the other'}, "
        f"{len(evaluation.repetitions)} repetition(s)" + (f", bursts known ahead: {plan.ahead}" if plan.ahead else "")
    ) + (f", adopted {plan.adopted}" if plan.adopted else "")
    judged = evaluation.in_dollars()
    rows = table(_HEADS, [_row(evaluation, setup) for setup in plan.setups], left_out=0)
    lines = [title, *rows, *_comparisons(evaluation), _own_share(evaluation)]
    lines += [priced.to_text(judged) if judged else "", disturbance(evaluation.disturbed)]
    return "\n".join(filter(None, lines))


def _own_share(evaluation: Evaluation) -> str:
    found = spread_of(boost.own_share_s for r in evaluation.repetitions for s in r.setups for boost in s.boosts)
    if found is None:
        return ""
    between = f"({found.min:.2f} to {found.max:.2f} s)"
    return f"{Setup.ADAPTIVE:<12} own share of {found.n} boost(s) {found.median:.2f} s {between}"


def disturbance(numbers: Sequence[int]) -> str:
    """The warning about disturbed repetitions; empty without any."""
    if not numbers:
        return ""
    listed = ", ".join(map(str, numbers))
    return (
        f"Disturbed: repetition {listed}. The machine was busy with other work: static-slow was written at less than "
        f"{KEPT_UP:.0%} of its volume's bandwidth. These figures say nothing about storage."
    )


def _row(evaluation: Evaluation, setup: Setup) -> tuple[str, ...]:
    every = [found for r in evaluation.repetitions if (found := r.of(setup))]
    names = ("completion_s", "app_write_mb_s", "agbs", "cache_agbs", "cache_agbs_ratio")
    medians = [evaluation.named(setup, name) for name in names]
    digits = (1, 1, 0, 0, 2)
    cells = ["-" if m is None else f"{m.median:.{d}f}" for m, d in zip(medians, digits, strict=True)]
    cells += ["ok" if all(s.checksums_ok for s in every) else "WRONG", str(sum(s.volumes_left for s in every))]
    return (setup.value, *cells)


def _comparisons(evaluation: Evaluation) -> list[str]:
    lines = []
    for setup in evaluation.plan.setups:
        for name, text in _COMPARISONS.items():
            found = evaluation.ratio(setup, name)
            is_own = (setup is Setup.STATIC_FAST) or (setup is Setup.STATIC_SLOW and name != "overhead_vs_fast_pct")
            if found is not None and not is_own:
                lines.append(text.format(setup.value, found.median))
    return lines
