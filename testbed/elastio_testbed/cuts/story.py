"""What was left after cuts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from elastio_testbed.cuts.plan import PHASES, Phase, PlannedCut


@dataclass(frozen=True, slots=True)
class Story:
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


def by_phase(stories: Sequence[Story]) -> dict[str, dict[str, int]]:
    """Cuts, cuts that lost something, records acknowledged and lost, for each phase there was a cut in."""
    found: dict[str, dict[str, int]] = {}
    for phase in Phase:
        here = [story for story in stories if story.planned.phase is phase]
        if here:
            found[phase.value] = {
                "cuts": len(here),
                "losing_cuts": sum(bool(story.lost) for story in here),
                "acknowledged": sum(story.acknowledged for story in here),
                "lost": sum(len(story.lost) for story in here),
            }
    return found


def summary(stories: Sequence[Story], control: Sequence[Story]) -> dict[str, Any]:
    """The document of a trial. Sound is one that lost nothing where the control lost something, and skipped no phase.

    A control whose copies could not be read at all shows nothing either.
    """
    is_seeing = any(story.lost and not story.failure for story in control)
    is_whole = {story.planned.phase for story in stories} >= set(PHASES) or len(stories) < len(PHASES)
    return {
        "cuts": len(stories),
        "acknowledged": sum(story.acknowledged for story in stories),
        "lost": sum(len(story.lost) for story in stories),
        "phases": by_phase(stories),
        "control": by_phase(control),
        "control_loses": is_seeing,
        "sound": bool(stories) and is_whole and is_seeing and not any(story.lost for story in stories),
        "stories": [story.as_dict() for story in (*stories, *control)],
    }
