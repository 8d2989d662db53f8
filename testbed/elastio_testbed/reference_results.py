"""The results of the published evaluation of the method, for comparison.

Its testbed: QEMU/KVM, virtio, bandwidth limits of the host, 32 VMs. Times are at scale 1; costs are published as
"about" or "more than" so many percent saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SOURCE = "the published evaluation"


@dataclass(frozen=True, slots=True)
class ReferenceResult:
    """By set-up: seconds to completion and percent above static-fast. Costs and throughputs are texts."""

    completion_s: Mapping[str, float] = field(default_factory=dict)
    overhead_vs_fast_pct: Mapping[str, float] = field(default_factory=dict)
    cost_vs_fast: str = ""
    cost_vs_slow: str = ""
    write_mb_s: Mapping[str, str] = field(default_factory=dict)


REFERENCE_RESULTS: Mapping[str, ReferenceResult] = {
    "cm1": ReferenceResult(
        completion_s={"static-slow": 1471.0, "static-fast": 1190.0, "adaptive": 1231.0},
        overhead_vs_fast_pct={"static-slow": 23.0, "adaptive": 3.3},
        cost_vs_fast="about -65 %",
        cost_vs_slow="about -7 %",
    ),
    "lammps": ReferenceResult(
        completion_s={"static-slow": 1680.0, "static-fast": 1454.0, "adaptive": 1476.0},
        overhead_vs_fast_pct={"static-slow": 15.5, "adaptive": 1.01},
        cost_vs_fast="more than -70 %",
        cost_vs_slow="about -1 %",
    ),
    "bonnie": ReferenceResult(
        write_mb_s={"static-slow": "33 of 60", "static-fast": "128 of 128", "adaptive": "about 100 of 128"}
    ),
}


def reference(experiment: str) -> ReferenceResult:
    """The published results of an experiment; empty for any other experiment."""
    return REFERENCE_RESULTS.get(experiment, ReferenceResult())
