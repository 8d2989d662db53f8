"""What came of a run, and of a campaign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from elastio_testbed.faults.coverage import steps_met, steps_of
from elastio_testbed.faults.plan import PlannedRun
from elastio_testbed.faults.tears import Tear, is_plausible

# Of the document: 1 did not tell torn records apart, 2 told them apart without witnesses.
FORMAT = 3


@dataclass(frozen=True, slots=True)
class RunResult:
    """One run.

    `recovery_s`: from the fault until the device took a durable write again and the agent had read its phase back;
    `rest_s`: until nothing of the cycle was left. `unverified_records` were acknowledged and could not be read
    because the guest did not come back. `torn_records` are those of the lost ones that the kernel is witnessed to have
    acknowledged although it could not keep them (`tears.torn`), `tears` what was seen in each life of the writer whose
    cache was torn off. `kernel` is the guest's release, `evidence` the folder of what was kept. `stuck` says why a run
    was given up, `missed` that its moment never came and the fault struck late, or that the cloud was never asked for
    what it was to do wrong, `rebooted` that the device took writes again only after a power cycle, `interrupted` that a
    fault that should not be felt by applications ended the writer.
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
    """The document of a campaign. Every count is a sum over `stories`; a fault beside another one counts, too."""
    told = [result.as_dict() for result in results]
    torn_runs, tears = sum(bool(s.torn_records) for s in results), sum(len(s.tears) for s in results)
    faults = Counter(name for result in results for name in _kinds(result.planned))
    return {
        "format": FORMAT,
        "seed": seed,
        "kernels": sorted({result.kernel for result in results if result.kernel}),
        "runs": len(results),
        "faults": dict(sorted(faults.items())),
        "steps_met": {kind: len(met) for kind, met in steps_met(told).items()},
        "steps_of": {kind: steps_of(kind) for kind in steps_met(told)},
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
        "stories": told,
    }


def _kinds(planned: PlannedRun) -> set[str]:
    return {planned.kind, *(each.kind for each in planned.cloud)}
