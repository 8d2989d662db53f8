"""What came in since the last decision, and the requests whose effect has to survive a crash.

The operator relies on the answer to these. So a decision that accepts one is recorded first, and where the journal
cannot be written it is decided again without them. What failed may be on the disk all the same: a sync fails after the
write, and the next start reads what was written. Then the second decision is recorded in any case and takes the first
one back, and only if that succeeds nothing was changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from elastio.core.actions import Outcome
from elastio.core.model import Request, RequestKind, Sample
from elastio.core.state import Answer
from elastio.errors import JournalError, UnsyncedError

LASTING = frozenset(
    {RequestKind.PAUSE, RequestKind.RESUME, RequestKind.QUIESCE, RequestKind.RECOVER, RequestKind.EXPECT}
)

Asked: TypeAlias = tuple[Request, Callable[[Answer], None]]


@dataclass(slots=True)
class Inbox:
    """What came in since the last decision."""

    outcomes: list[Outcome] = field(default_factory=list)
    requests: list[Asked] = field(default_factory=list)
    sample: Sample | None = None
    fresh_view: bool = False

    def is_empty(self) -> bool:
        """Nothing came in."""
        return not (self.outcomes or self.requests or self.sample or self.fresh_view)

    def without_lasting(self) -> list[Asked]:
        """Take out the requests whose effect has to survive a crash."""
        lasting = [asked for asked in self.requests if asked[0].kind in LASTING]
        self.requests = [asked for asked in self.requests if asked[0].kind not in LASTING]
        return lasting


def unrecorded(request: Request, trouble: JournalError, *, is_taken_back: bool) -> Answer:
    """The answer to a lasting request that could not be recorded."""
    if is_taken_back or not isinstance(trouble, UnsyncedError):
        text = f"the journal cannot record it, so nothing was changed: {trouble}"
        return Answer(request, False, text, "journal.unwritable")
    text = "the journal cannot record it: nothing is changed now, but a restart before the disk works again may do it"
    return Answer(request, False, f"{text}: {trouble}", "journal.uncertain")
