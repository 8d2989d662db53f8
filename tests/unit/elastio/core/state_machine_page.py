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

EVENTS = {
    Event.BOOST_WANTED: "Utilization was at or above the threshold for the trigger delay, the lead time of an "
    "expected burst has come, or an operator asked; no cap forbids the boost.",
    Event.BOOST_CAPPED: "The same, but a cap forbids the boost, or another device has used up a shared one.",
    Event.BOOST_DECLINED: "The same, but as far as past bursts show, the bill would be above the value of the "
    'time that is saved (only with `policy.model = "money"`, and not for an operator).',
    Event.ORPHAN_FOUND: "The cloud lists a volume of this agent that belongs to no cycle.",
    Event.CACHE_ATTACHED: "The kernel shows the cycle's cache set attached in writeback mode.",
    Event.BOOST_REFUSED: "The cloud refused the purchase: nothing was bought.",
    Event.BOOST_ABANDONED: "The attach timeout passed, the volume failed, or its disk is not what was bought. "
    "Something was, or may have been, bought.",
    Event.BOOST_WITHDRAWN: "The load, or the time of the expected burst, was over before the cache was attached, an "
    "operator asked to flush or pause, an inhibition began, or a cap would be passed.",
    Event.WENT_QUIET: "Utilization stayed below the release threshold for the inactivity delay, or, with "
    '`policy.model = "money"`, for as long as the cache is paid for or worth holding, and no burst is '
    "expected any more; a cap ended the hold, an operator asked, an inhibition began, or somebody else made writes "
    "bypass the cache.",
    Event.CAP_REACHED: "A cap on AGBs or cost would be passed by what the cache costs until it is released, or a cap "
    "limits the cost and the price of the cache is not known.",
    Event.FILLED_UP: "The load goes on, its cache is full, and keeping it has cost as much as giving it up, or "
    'a larger one is worth that (only with `policy.model = "money"`, and not for an operator).',
    Event.LOAD_RETURNED: "Utilization is at or above the threshold again, or the lead time of an expected burst has "
    "come; nobody asked for the flush, and writes do not bypass the cache yet; or an operator asked for a boost.",
    Event.CACHE_LEFT: "The kernel no longer shows a cache set: somebody detached it, or it failed while it was clean.",
    Event.DRAINED: "The cache is clean, and the cache mode is `none`.",
    Event.DIRTIED: "The cache set is attached and is no longer drained.",
    Event.RELEASED: "The cloud shows that the volume is deleted, or that none was bought; or that one which belongs "
    "to no cycle is not tagged clean any more: it is left.",
    Event.ENDANGERED: "The device waits for a cache that is missing, the device is inconsistent, a cache set is "
    "attached that is not this agent's, two devices carry one backing UUID, the volume is attached to another "
    "instance or has lost its owner label, the kernel shows no cache although the journal records one that took "
    "writes or was dirty, or the cloud lists a volume of this device that may hold data, that no cycle knows and that "
    "was not given up, or somebody has set another cache mode again and again during a release.",
    Event.REPAIRED: "The missing cache is back, no volume that may hold data is left without a cycle, an operator "
    "accepted the loss of what this cache holds and the device "
    "runs without it, or an operator resumed and the danger is over.",
}


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
        table("Events", ("event", "what shows it"), *((str(event), EVENTS[event]) for event in Event)),
        TAIL.format(first_s=FAILED_COOL_DOWN_S, most_min=FAILED_COOL_DOWN_MOST_S / 60),
    )
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
