"""What was left after cuts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from elastio_testbed.cuts.plan import PHASES, Phase, PlannedCut


@dataclass(frozen=True, slots=True)
class CutResult:
    """One cut. `acknowledged` before it, each after one fsync; `lost` are the numbers of those that were not read back.

    `taken_bytes` had been answered and not flushed, and did not survive; `disks` were there. `state` is bcache's of the
    backing device in the guest that put the copies together. `failure` says why nothing could be read: then all are
    lost.
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
    """Cuts, cuts that lost something, records acknowledged and lost, for each phase there was a cut in."""
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
    """The document of a trial. Sound is one that lost nothing where the control lost something, and skipped no phase.

    A control whose copies could not be read at all shows nothing either.
    """
    is_seeing = any(result.lost and not result.failure for result in control)
    is_whole = {result.planned.phase for result in results} >= set(PHASES) or len(results) < len(PHASES)
    return {
        "cuts": len(results),
        "acknowledged": sum(result.acknowledged for result in results),
        "lost": sum(len(result.lost) for result in results),
        "phases": by_phase(results),
        "control": by_phase(control),
        "control_loses": is_seeing,
        "sound": bool(results) and is_whole and is_seeing and not any(result.lost for result in results),
        "stories": [result.as_dict() for result in (*results, *control)],
    }
