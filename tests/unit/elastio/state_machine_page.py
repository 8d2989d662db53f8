"""docs/reference/state-machine.md, made from the table. Run this file to write the page anew."""

from __future__ import annotations

from pathlib import Path

from elastio.core.detection import Event
from elastio.core.machine import FAILED_COOL_DOWN_MOST_S, FAILED_COOL_DOWN_S, TRANSITIONS
from elastio.core.state import Phase

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "state-machine.md"

PHASES = {
    Phase.IDLE: "No cache, nothing bought. The load is watched; volumes of this agent are listed now and then.",
    Phase.ATTACHING: "A volume is bought, attached, formatted and put in front of the backing device.",
    Phase.BOOSTING: "Phase 1: application I/O first. Dirty data flows back only while the load leaves room.",
    Phase.FLUSHING: "Phase 2: flush first. Can be reversed until, at its end, new writes bypass the cache.",
    Phase.DETACHING: "The cache set leaves the backing device, the superblock the disk, the disk the machine, the "
    "volume the cloud; each step waits for the proof of the one before.",
    Phase.FAULTED: "Something that only an operator may decide. Nothing is released.",
}

HEAD = """\
# State machine

The agent is in one of six phases. It moves only by the pairs of this table; a pair that is not in it is a bug and
raises. `elastio why` shows every move with the sentence that says what was seen.
"""

TAIL = """\
## After a start

After a start, a crash, a reboot or a repair the phase is read off the kernel, not remembered. An attached cache in
writeback mode is `boosting`, one that is flushed at full speed, or in any other mode, `flushing`, and one whose detach
has begun `detaching`. With no cache attached an open cycle of the journal goes on `attaching` if it never boosted, else
`detaching`; without one the agent is `idle`. A cycle whose cache took writes or was dirty when it was last seen is
`faulted` if it was last seen in another boot, or was torn off since, and if the backing device asks for no cache: that
device may be an older copy. A flush that an operator forced goes on even if the kernel was not told yet.

## After a boost that failed

After a refused or abandoned boost the load is left alone for {first_s:.0f} s, and twice as long after each further
failure in a row, up to {most_min:.0f} minutes. A boost that succeeds, or a restart, forgets this. An operator's
`elastio boost` does not wait.
"""


def table(title: str, *rows: tuple[str, ...]) -> str:
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([f"## {title}", "", head, "|" + "---|" * len(rows[0]), *body, ""])


def page() -> str:
    moves = (
        (f"`{before}`", str(event), f"`{after}`" if after else "read off the kernel")
        for (before, event), after in TRANSITIONS.items()
    )
    parts = (
        HEAD,
        table("Phases", ("phase", "what happens in it"), *((f"`{phase}`", PHASES[phase]) for phase in Phase)),
        table("Transitions", ("phase", "event", "next phase"), *moves),
        table("Events", ("event", "what shows it"), *((str(event), event.meaning) for event in Event)),
        TAIL.format(first_s=FAILED_COOL_DOWN_S, most_min=FAILED_COOL_DOWN_MOST_S / 60),
    )
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
