"""What came of a run, and of a campaign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from elastio_testbed.faults.plan import PlannedRun


@dataclass(frozen=True, slots=True)
class Story:
    """One run.

    `recovery_s`: from the fault until the device took a durable write again and the agent had read its phase back;
    `rest_s`: until nothing of the cycle was left. `unverified_records` were acknowledged and could not be read
    because the guest did not come back. `torn_records` are those of the lost ones that the kernel acknowledged although
    the cache was off already (`torn`). `stuck` says why a run was given up, `missed` that its moment never came
    and the fault struck late, or that the cloud was never asked for what it was to do wrong, `rebooted` that the
    device took writes again only after a power cycle, `interrupted` that a fault that should not be felt by
    applications ended the writer.
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

    @property
    def is_sound(self) -> bool:
        lost = self.lost_records - self.torn_records
        return not (lost or self.unverified_records or self.leaked_volumes or self.stuck or self.interrupted)

    def as_dict(self) -> dict[str, Any]:
        return {"story": str(self.planned), **asdict(self), "sound": self.is_sound}


def torn(found: Mapping[str, Any], acknowledged_before: int) -> int:
    """How many of the lost records the kernel acknowledged when the cache was being torn off, or was off: 1 or 0.

    bcache answers an fsync with success though it could not write the journal that the fsync waited for. With one
    writer that can be one record only: the last one acknowledged, after the tear had begun, in the place that is
    fsynced last. The next gets an error. `found` is what `records.verify` returns; `acknowledged_before` the count that
    the host knew before the tear.
    """
    last = found["checked"]
    return int(found["examples"] == [{"number": last, "where": "table"}] and last > acknowledged_before)


def summary(seed: int, stories: Sequence[Story]) -> dict[str, Any]:
    """The document of a campaign. Every count is a sum over `stories`; a fault beside another one counts, too."""
    faults = Counter(name for story in stories for name in _kinds(story.planned))
    return {
        "seed": seed,
        "runs": len(stories),
        "faults": dict(sorted(faults.items())),
        "acknowledged_records": sum(story.acknowledged_records for story in stories),
        "lost_records": sum(story.lost_records for story in stories),
        "torn_records": sum(story.torn_records for story in stories),
        "unverified_records": sum(story.unverified_records for story in stories),
        "leaked_volumes": sum(len(story.leaked_volumes) for story in stories),
        "stuck_runs": sum(bool(story.stuck) for story in stories),
        "interrupted_runs": sum(story.interrupted for story in stories),
        "missed_moments": sum(story.missed for story in stories),
        "worst_recovery_s": max((s.recovery_s for s in stories if s.recovery_s is not None), default=None),
        "worst_rest_s": max((s.rest_s for s in stories if s.rest_s is not None), default=None),
        "sound": bool(stories) and all(story.is_sound for story in stories),
        "stories": [story.as_dict() for story in stories],
    }


def _kinds(planned: PlannedRun) -> set[str]:
    return {planned.kind, *(each.kind for each in planned.cloud)}
