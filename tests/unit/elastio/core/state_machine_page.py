"""docs/reference/state-machine.md, made from the table. Run this file to write the page again."""

from __future__ import annotations

from pathlib import Path

from elastio.core.detection import Event
from elastio.core.machine import FAILED_COOL_DOWN_MOST_S, FAILED_COOL_DOWN_S, TRANSITIONS
from elastio.core.state import Phase

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "state-machine.md"

PHASES = {
    Phase.IDLE: "No cache is attached, no volume is bought. The load is watched; this agent's volumes are listed at "
    "intervals.",
    Phase.ATTACHING: "A volume is bought and attached; its disk is made a cache set, which is attached to the backing "
    "device.",
    Phase.BOOSTING: "Phase 1: application I/O comes first. Dirty data is flushed only with spare bandwidth.",
    Phase.FLUSHING: "Phase 2: the flush comes first. Can be reversed until, at its end, new writes bypass the cache.",
    Phase.DETACHING: "The cache set is detached, its superblock wiped, the volume detached and deleted. Each step "
    "waits until the one before is seen to be done.",
    Phase.FAULTED: "Only an operator may decide how to go on. Nothing is released.",
}

HEAD = """\
# State machine

The agent is in one of six phases. It changes phase only by the transitions of this table; any other is a bug and raises
an error. `elastio why` shows every transition with a sentence that says what was seen.
"""

TAIL = """\
## After a start

After a start, a crash, a reboot or a repair the phase is read from the kernel, not from memory:

- A cache that is attached in writeback mode is `boosting`; one that is flushed at full speed, or is in any other mode,
  is `flushing`; one whose detach has begun is `detaching`.
- Without an attached cache, an open cycle of the journal continues as `attaching` if it never boosted, else as
  `detaching`. Without an open cycle the agent is `idle`.
- A cycle whose cache took writes or was dirty when it was last seen is `faulted` if it was last seen in another boot or
  was removed by surprise since, and if the backing device asks for no cache: that device may be an older copy.
- After a decision that would have broken a safety rule the agent stays `faulted` and reads no phase until an operator
  resumes.

A flush that an operator or a cap forced continues even if the kernel had not begun it yet.

## After a boost that a cap ended

No other boost begins until the day or month of that cap is over, the cap is changed, or an operator runs
`elastio resume`. This outlasts a restart and a reboot.

## After a boost that failed

After a refused or abandoned boost the load is ignored for {first_s:.0f} s, and twice as long after each further
failure in a row, up to {most_min:.0f} minutes. A successful boost or a restart resets this. An operator's
`elastio boost` does not wait.
"""


def table(title: str, *rows: tuple[str, ...]) -> str:
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([f"## {title}", "", head, "|" + "---|" * len(rows[0]), *body, ""])


def page() -> str:
    moves = (
        (f"`{before}`", str(event), f"`{after}`" if after else "read from the kernel")
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
