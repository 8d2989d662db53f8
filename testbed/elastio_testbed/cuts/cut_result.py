"""The results of power cuts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from elastio_testbed.cuts.plan import PHASES, Phase, PlannedCut


@dataclass(frozen=True, slots=True)
class CutResult:
    """One cut. `acknowledged`: records, each after one fsync; `lost`: the numbers of those that could not be read back.

    `taken_bytes` were acknowledged but not flushed, and were lost. `disks`: their number. `state`: bcache's state of
    the backing device in the guest that assembled the copies. `failure`: why nothing could be read; then all records
    are lost.
    """

    planned: PlannedCut
    acknowledged: int
    lost: tuple[int, ...]
    taken_bytes: int = 0
    disks: int = 0
    state: str = ""
    failure: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {"story": str(self.planned), **asdict(self)}


def by_phase(results: Sequence[CutResult]) -> dict[str, dict[str, int]]:
    """For each phase with a cut: cuts, cuts with a loss, records acknowledged and lost."""
    found: dict[str, dict[str, int]] = {}
    for phase in Phase:
        here = [result for result in results if result.planned.phase is phase]
        if here:
            found[phase.value] = {
                "cuts": len(here),
                "losing_cuts": sum(bool(result.lost) for result in here),
                "acknowledged": sum(result.acknowledged for result in here),
                "lost": sum(len(result.lost) for result in here),
            }
    return found


def summary(results: Sequence[CutResult], control: Sequence[CutResult]) -> dict[str, Any]:
    """The document of a test. It is sound if no record was lost, no phase was skipped, and the control lost a record.

    A control whose copies could not be read at all proves nothing.
    """
    control_loses = any(result.lost and not result.failure for result in control)
    is_whole = {result.planned.phase for result in results} >= set(PHASES) or len(results) < len(PHASES)
    return {
        "cuts": len(results),
        "acknowledged": sum(result.acknowledged for result in results),
        "lost": sum(len(result.lost) for result in results),
        "phases": by_phase(results),
        "control": by_phase(control),
        "control_loses": control_loses,
        "sound": bool(results) and is_whole and control_loses and not any(result.lost for result in results),
        "stories": [result.as_dict() for result in (*results, *control)],
    }
