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
class Story:
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
        return {"story": str(self.planned), **asdict(self), "sound": self.is_sound}


def summary(seed: int, stories: Sequence[Story]) -> dict[str, Any]:
    """The document of a campaign. Every count is a sum over `stories`; a fault beside another one counts, too."""
    told = [story.as_dict() for story in stories]
    torn_runs, tears = sum(bool(s.torn_records) for s in stories), sum(len(s.tears) for s in stories)
    faults = Counter(name for story in stories for name in _kinds(story.planned))
    return {
        "format": FORMAT,
        "seed": seed,
        "kernels": sorted({story.kernel for story in stories if story.kernel}),
        "runs": len(stories),
        "faults": dict(sorted(faults.items())),
        "steps_met": {kind: len(met) for kind, met in steps_met(told).items()},
        "steps_of": {kind: steps_of(kind) for kind in steps_met(told)},
        "acknowledged_records": sum(story.acknowledged_records for story in stories),
        "lost_records": sum(story.lost_records for story in stories),
        "torn_records": sum(story.torn_records for story in stories),
        "torn_off_under_load": tears,
        "unverified_records": sum(story.unverified_records for story in stories),
        "leaked_volumes": sum(len(story.leaked_volumes) for story in stories),
        "stuck_runs": sum(bool(story.stuck) for story in stories),
        "reset_runs": sum(story.rebooted for story in stories),
        "interrupted_runs": sum(story.interrupted for story in stories),
        "missed_moments": sum(story.missed for story in stories),
        "worst_recovery_s": max((s.recovery_s for s in stories if s.recovery_s is not None), default=None),
        "worst_rest_s": max((s.rest_s for s in stories if s.rest_s is not None), default=None),
        "sound": bool(stories) and is_plausible(torn_runs, tears) and all(story.is_sound for story in stories),
        "stories": told,
    }


def _kinds(planned: PlannedRun) -> set[str]:
    return {planned.kind, *(each.kind for each in planned.cloud)}
