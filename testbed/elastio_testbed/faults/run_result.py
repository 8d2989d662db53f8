"""The result of a run, and of a campaign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from elastio_testbed.faults.coverage import steps_met, steps_of
from elastio_testbed.faults.plan import PlannedRun
from elastio_testbed.faults.tears import Tear, is_plausible

# The format of the document. 1 did not count torn records, 2 counted them without proof.
FORMAT = 3


@dataclass(frozen=True, slots=True)
class RunResult:
    """One run.

    `recovery_s`: from the fault until the device took a durable write again and the agent had recovered its phase;
    `rest_s`: from the fault until nothing of the cycle was left. `unverified_records` were acknowledged but could not
    be read, because the guest did not boot again. `torn_records`: the lost records that the kernel provably
    acknowledged although it could not keep them (`tears.torn`). `tears`: what was recorded for each writer whose cache
    was removed. `kernel`: the guest's kernel release. `evidence`: the folder of the evidence. `stuck`: why the run was
    given up. `missed`: the trigger never came and the fault struck late, or the affected call was never made.
    `rebooted`: the device took writes only after a power cycle. `interrupted`: the writer stopped although the fault
    should not have affected applications.
    """

    planned: PlannedRun
    acknowledged_records: int = 0
    lost_records: int = 0
    torn_records: int = 0
    unverified_records: int = 0
    leaked_volumes: tuple[str, ...] = ()
    recovery_s: float | None = None
    rest_s: float | None = None
    missed: bool = False
    rebooted: bool = False
    interrupted: bool = False
    stuck: str = ""
    examples: tuple[dict[str, Any], ...] = ()
    tears: tuple[Tear, ...] = ()
    kernel: str = ""
    evidence: str = ""

    @property
    def is_sound(self) -> bool:
        lost = self.lost_records - self.torn_records
        return not (lost or self.unverified_records or self.leaked_volumes or self.stuck or self.interrupted)

    def as_dict(self) -> dict[str, Any]:
        """With the names of the first result files."""
        fields = asdict(self)
        fields["planned"]["moment"] = fields["planned"].pop("trigger")
        return {"story": str(self.planned), **fields, "sound": self.is_sound}


def summary(seed: int, results: Sequence[RunResult]) -> dict[str, Any]:
    """The document of a campaign. Every count is a sum over the results; additional faults are counted, too."""
    documents = [result.as_dict() for result in results]
    torn_runs, tears = sum(bool(s.torn_records) for s in results), sum(len(s.tears) for s in results)
    faults = Counter(name for result in results for name in _kinds(result.planned))
    return {
        "format": FORMAT,
        "seed": seed,
        "kernels": sorted({result.kernel for result in results if result.kernel}),
        "runs": len(results),
        "faults": dict(sorted(faults.items())),
        "steps_met": {kind: len(met) for kind, met in steps_met(documents).items()},
        "steps_of": {kind: steps_of(kind) for kind in steps_met(documents)},
        "acknowledged_records": sum(result.acknowledged_records for result in results),
        "lost_records": sum(result.lost_records for result in results),
        "torn_records": sum(result.torn_records for result in results),
        "torn_off_under_load": tears,
        "unverified_records": sum(result.unverified_records for result in results),
        "leaked_volumes": sum(len(result.leaked_volumes) for result in results),
        "stuck_runs": sum(bool(result.stuck) for result in results),
        "reset_runs": sum(result.rebooted for result in results),
        "interrupted_runs": sum(result.interrupted for result in results),
        "missed_moments": sum(result.missed for result in results),
        "worst_recovery_s": max((s.recovery_s for s in results if s.recovery_s is not None), default=None),
        "worst_rest_s": max((s.rest_s for s in results if s.rest_s is not None), default=None),
        "sound": bool(results) and is_plausible(torn_runs, tears) and all(result.is_sound for result in results),
        "stories": documents,
    }


def _kinds(planned: PlannedRun) -> set[str]:
    return {planned.kind, *(each.kind for each in planned.cloud)}
