"""What came out of an experiment, as values and as JSON. Sizes in GB (10^9), cost in AGBs (MB/s x GB x s)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from elastio_testbed.experiment import Setup


@dataclass(frozen=True, slots=True)
class Phase:
    """One boost, as the agent's ledger has it."""

    size_gb: float
    attach_s: float | None
    attached_s: float | None
    dirty_peak_gb: float
    evicted_gb: float
    flush_s: float | None
    steps_s: dict[str, float | None] = field(
        default_factory=dict
    )  # create, appear, format, attach: adding up to attach_s


@dataclass(frozen=True, slots=True)
class SetupResult:
    """One set-up of one run.

    `completion_s` runs from the end of the initial dump to the end of the last dump, as the published completion times
    do; `total_s` includes the initial dump. AGBs cover `total_s` for the data volume and for a cache volume that is
    there all the time (lvmcache), and the life of every cache volume that the cloud saw (adaptive). `volumes_left`
    counts at the cloud's API and at the hypervisor.
    """

    setup: Setup
    completion_s: float
    total_s: float
    agbs: float
    cache_agbs: float
    app_write_mb_s: float
    dumps_s: tuple[float, ...]
    checksums_ok: bool
    volumes_left: int
    phases: tuple[Phase, ...] = ()
    checksums: dict[str, str] = field(default_factory=dict)
    ledger_cache_agbs: float | None = None
    # What the workload itself measured, for each dump of the first VM; the keys are the workload's.
    figures: tuple[dict[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """All set-ups of one run, beside the conditions they ran under."""

    experiment: str
    scale: float
    bandwidth: float
    vms: int
    accelerator: str
    setups: tuple[SetupResult, ...]

    def of(self, setup: Setup) -> SetupResult | None:
        return next((s for s in self.setups if s.setup is setup), None)

    def comparison(self) -> dict[str, float | None]:
        """Percent: overhead of completion against static-fast, saving of AGBs against either static set-up."""
        done = {s.setup: (s.completion_s, s.agbs) for s in self.setups}
        unknown = (None, None)
        slow, fast = done.get(Setup.STATIC_SLOW, unknown), done.get(Setup.STATIC_FAST, unknown)
        ours = done.get(Setup.ADAPTIVE, unknown)
        return {
            "overhead_vs_fast_pct": _more(ours[0], fast[0]),
            "overhead_slow_vs_fast_pct": _more(slow[0], fast[0]),
            "agbs_vs_fast_pct": _more(ours[1], fast[1]),
            "agbs_vs_slow_pct": _more(ours[1], slow[1]),
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "experiment": self.experiment,
            "scale": self.scale,
            "bandwidth": self.bandwidth,
            "vms": self.vms,
            "accelerator": self.accelerator,
            "setups": {s.setup.value: asdict(s) for s in self.setups},
            **self.comparison(),
        }


def _more(value: float | None, base: float | None) -> float | None:
    """How many percent `value` is above `base`; negative: below."""
    return None if value is None or not base else round((value / base - 1) * 100, 2)


def to_text(result: Result) -> str:
    """The comparison as a table for a terminal."""
    heads = ("completion s", "write MB/s", "AGBs", "cache AGBs", "data", "left")
    head = "set-up       " + " ".join(f"{h:>{w}}" for h, w in zip(heads, (12, 10, 10, 10, 6, 5), strict=True))
    rows = [
        f"{s.setup:<12} {s.completion_s:>12.1f} {s.app_write_mb_s:>10.1f} {s.agbs:>10.0f} {s.cache_agbs:>10.0f} "
        f"{'ok' if s.checksums_ok else 'WRONG':>6} {s.volumes_left:>5}"
        for s in result.setups
    ]
    title = (
        f"{result.experiment}: scale {result.scale:g}, bandwidth {result.bandwidth:g}, "
        f"{result.vms} VM(s), {result.accelerator}"
    )
    return "\n".join([title, head, *rows, *_sentences(result)])


def _sentences(result: Result) -> list[str]:
    numbers = result.comparison()
    said = {
        "overhead_slow_vs_fast_pct": "static-slow completes {:+.1f} % later than static-fast",
        "overhead_vs_fast_pct": "adaptive    completes {:+.1f} % later than static-fast",
        "agbs_vs_fast_pct": "adaptive    costs {:+.1f} % against static-fast",
        "agbs_vs_slow_pct": "adaptive    costs {:+.1f} % against static-slow",
    }
    return [text.format(numbers[key]) for key, text in said.items() if numbers[key] is not None]
